//! A code object as plain data: what `types.CodeType` holds, without CPython.
//!
//! In: the fields of a code object, copied by the bridge or read from a test
//! dump. `code` is `co_code`, so it is never specialised nor instrumented.
//! Out: the same facts, typed. Knows no object layout and owns no reference.
//! Constants that have no plain form are `Const::Opaque`; machine code reaches
//! them through the code object itself, by constant index.

use std::sync::Arc;

/// The CPython versions whose bytecode this front end reads.
///
/// Deliberately exhaustive: a new version must visit every `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PyVersion {
    V311,
    V312,
    V313,
}

impl PyVersion {
    pub const ALL: [PyVersion; 3] = [PyVersion::V311, PyVersion::V312, PyVersion::V313];

    /// From `sys.version_info[:2]`; `None` for a version that is not supported.
    pub fn from_major_minor(major: u32, minor: u32) -> Option<PyVersion> {
        match (major, minor) {
            (3, 11) => Some(PyVersion::V311),
            (3, 12) => Some(PyVersion::V312),
            (3, 13) => Some(PyVersion::V313),
            _ => None,
        }
    }

    /// `"3.11"` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            PyVersion::V311 => "3.11",
            PyVersion::V312 => "3.12",
            PyVersion::V313 => "3.13",
        }
    }
}

/// A code object. Field names follow `co_*` where they mean the same.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeObject {
    pub version: PyVersion,
    pub name: String,
    pub qualname: String,
    pub filename: String,
    pub first_line: u32,
    /// Positional parameters, positional-only ones included (`co_argcount`).
    pub arg_count: u32,
    /// Positional-only parameters (`co_posonlyargcount`).
    pub pos_only: u32,
    /// Keyword-only parameters (`co_kwonlyargcount`).
    pub kw_only: u32,
    /// `co_flags`, see [`flags`].
    pub flags: u32,
    /// `co_nlocals`: parameters and plain locals; cells that are no parameter
    /// and free variables come after them in `localsplus`.
    pub n_locals: u32,
    /// `co_stacksize`: the deepest evaluation stack, in entries.
    pub stack_size: u32,
    /// `co_code`, two bytes a unit, inline caches included.
    pub code: Vec<u8>,
    pub consts: Vec<Const>,
    pub names: Vec<String>,
    /// The frame's variable slots in frame order.
    pub localsplus: Vec<LocalsPlusName>,
    /// `co_exceptiontable`, see [`crate::tables`].
    pub exception_table: Vec<u8>,
    /// `co_linetable`, see [`crate::tables`].
    pub line_table: Vec<u8>,
}

/// Bits of `co_flags` that matter here.
pub mod flags {
    pub const OPTIMIZED: u32 = 0x01;
    pub const NEWLOCALS: u32 = 0x02;
    pub const VARARGS: u32 = 0x04;
    pub const VARKEYWORDS: u32 = 0x08;
    pub const NESTED: u32 = 0x10;
    pub const GENERATOR: u32 = 0x20;
    pub const COROUTINE: u32 = 0x80;
    pub const ITERABLE_COROUTINE: u32 = 0x100;
    pub const ASYNC_GENERATOR: u32 = 0x200;
}

/// One variable slot of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalsPlusName {
    pub name: String,
    pub kind: LocalKind,
}

/// What a variable slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalKind {
    /// The value itself, or NULL while the variable is unset.
    Local,
    /// A cell once `MAKE_CELL` ran; never a parameter.
    Cell,
    /// A parameter until `MAKE_CELL` ran, then a cell with that parameter.
    /// Also a local of an inlined comprehension that an inner function captures.
    CellArg,
    /// A cell taken from the function's closure by `COPY_FREE_VARS`.
    Free,
}

impl LocalKind {
    pub fn is_cell_or_free(self) -> bool {
        match self {
            LocalKind::Local => false,
            LocalKind::Cell | LocalKind::CellArg | LocalKind::Free => true,
        }
    }
}

/// A constant of a code object.
#[derive(Clone, Debug, PartialEq)]
pub enum Const {
    None,
    Bool(bool),
    Int(i64),
    /// An `int` outside `i64`, in decimal.
    BigInt(String),
    /// IEEE bits, so that NaN payloads and −0.0 survive.
    Float(u64),
    /// IEEE bits of the real and the imaginary part.
    Complex(u64, u64),
    Str(String),
    Bytes(Vec<u8>),
    Tuple(Vec<Const>),
    FrozenSet(Vec<Const>),
    Code(Arc<CodeObject>),
    Ellipsis,
    /// Anything else: a string with lone surrogates, an object put there by a
    /// tool. Only its index in `consts` identifies it.
    Opaque,
}

impl Const {
    pub fn float(value: f64) -> Const {
        Const::Float(value.to_bits())
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Const::Float(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }
}

impl CodeObject {
    /// Slots of `localsplus` that hold arguments when the frame starts:
    /// positional, keyword-only, then `*args`, then `**kwargs`.
    pub fn n_args(&self) -> u32 {
        self.arg_count + self.kw_only + u32::from(self.has_var_args()) + u32::from(self.has_var_keywords())
    }

    pub fn has_var_args(&self) -> bool {
        self.flags & flags::VARARGS != 0
    }

    pub fn has_var_keywords(&self) -> bool {
        self.flags & flags::VARKEYWORDS != 0
    }

    /// A generator, coroutine or asynchronous generator: its frame outlives
    /// the call, so the engine leaves it to the interpreter.
    pub fn is_generator(&self) -> bool {
        let kinds = flags::GENERATOR | flags::COROUTINE | flags::ASYNC_GENERATOR | flags::ITERABLE_COROUTINE;
        self.flags & kinds != 0
    }

    /// A function body: variables live in slots, not in a dictionary as those
    /// of modules and class bodies do.
    pub fn is_function(&self) -> bool {
        let both = flags::OPTIMIZED | flags::NEWLOCALS;
        self.flags & both == both
    }

    pub fn n_free(&self) -> u32 {
        let n = self.localsplus.iter().filter(|slot| slot.kind == LocalKind::Free).count();
        n as u32
    }
}
