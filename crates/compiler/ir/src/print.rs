//! The text form of a function: what is printed is what `parse` reads.
//!
//! In: a `Function`, well-formed or not (the verifier prints broken ones). Out: stable text, one line per constant,
//! exit, block head and instruction.
//!
//! ```text
//! function "f" args 1 frame profile 2 {
//! const0 = code_const 1
//! exit0 = resume 12 [borrow v0, number int v3] [] "int leaves 64 bits"
//! b0(v0: obj) at 4:
//!     v1 = type_is v0, int
//!     guard v1, exit0
//!     v2 = table getattr(v0, v0) at 12 else exit1
//!     jump b1(v2)
//! }
//! ```

use std::fmt::{self, Display, Formatter};

use overdrive_base::flavour::Holder;

use crate::entities::{Block, Value};
use crate::exit::{Exit, Slot};
use crate::function::{BlockData, ConstRef, Function, Iterations};
use crate::inst::{Attr, Field, Inst, Terminator};
use crate::names::Word;

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "function {} args {}", Quoted(&self.name), self.n_args)?;
        if let Some(ty) = self.returns {
            write!(f, " returns {}", ty.word())?;
        }
        if self.needs_frame {
            write!(f, " frame")?;
        }
        if self.has_neighbours {
            write!(f, " neighbours")?;
        }
        if self.fastmath {
            write!(f, " fastmath")?;
        }
        if self.n_profile != 0 {
            write!(f, " profile {}", self.n_profile)?;
        }
        writeln!(f, " {{")?;
        for (i, c) in self.consts.iter().enumerate() {
            writeln!(f, "const{i} = {c}")?;
        }
        for (i, exit) in self.exits.iter().enumerate() {
            writeln!(f, "exit{i} = {exit}")?;
        }
        for (i, block) in self.blocks.iter().enumerate() {
            self.print_block(f, Block(i as u32), block)?;
        }
        self.routines.iter().try_for_each(|routine| write!(f, "{routine}"))?;
        writeln!(f, "}}")
    }
}

impl Function {
    fn print_block(&self, f: &mut Formatter<'_>, id: Block, block: &BlockData) -> fmt::Result {
        write!(f, "{id}")?;
        if !block.params.is_empty() {
            write!(f, "(")?;
            for (i, v) in block.params.iter().enumerate() {
                let ty = self.types.get(v.index()).map_or("?", |t| t.word());
                write!(f, "{}{v}: {ty}", if i == 0 { "" } else { ", " })?;
            }
            write!(f, ")")?;
        }
        if let Some(offset) = block.offset {
            write!(f, " at {offset}")?;
        }
        let iterations = match block.iterations {
            Iterations::InOrder => "",
            Iterations::Free => " free",
            Iterations::Parallel => " parallel",
        };
        writeln!(f, "{}{iterations}:", if block.cold { " cold" } else { "" })?;
        for (inst, result) in &block.insts {
            match result {
                Some(v) => writeln!(f, "    {v} = {inst}")?,
                None => writeln!(f, "    {inst}")?,
            }
        }
        match &block.terminator {
            Some(t) => writeln!(f, "    {t}"),
            None => writeln!(f, "    ; no terminator"),
        }
    }
}

impl Display for ConstRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ConstRef::None => write!(f, "none"),
            ConstRef::True => write!(f, "true"),
            ConstRef::False => write!(f, "false"),
            ConstRef::NpTrue => write!(f, "np_true"),
            ConstRef::NpFalse => write!(f, "np_false"),
            ConstRef::CodeConst(n) => write!(f, "code_const {n}"),
            ConstRef::Name(n) => write!(f, "name {n}"),
            ConstRef::Globals => write!(f, "globals"),
            ConstRef::Builtins => write!(f, "builtins"),
            ConstRef::Fact(n) => write!(f, "fact {n}"),
        }
    }
}

impl Display for Exit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.offset)?;
        if self.origin != self.offset {
            write!(f, " from {}", self.origin)?;
        }
        write!(f, " [{}] [{}] {}", List(&self.locals), List(&self.stack), Quoted(&self.reason))
    }
}

impl Display for Slot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Empty => write!(f, "empty"),
            Slot::None => write!(f, "none"),
            Slot::Obj(v, own) => write!(f, "{} {v}", own.word()),
            Slot::Number { flavour, value, boxed: None } => write!(f, "number {} {value}", flavour.word()),
            Slot::Number { flavour, value, boxed: Some((b, own)) } => {
                write!(f, "number {} {value} boxed {} {b}", flavour.word(), own.word())
            }
            Slot::Const(c) => write!(f, "{c}"),
            Slot::Either { cond, then, els } => write!(f, "either({cond}, {then}, {els})"),
            Slot::Tuple(parts) => write!(f, "tuple({})", List(parts)),
            Slot::RangeIter { next, stop, step } => write!(f, "range({next}, {stop}, {step})"),
            Slot::SeqIter { seq, position } => write!(f, "seq_iter({seq}, {position})"),
            Slot::Enumerate { count, iter } => write!(f, "enumerate({count}, {iter})"),
            Slot::Zip(parts) => write!(f, "zip({})", List(parts)),
        }
    }
}

impl Display for Inst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mnemonic())?;
        match self {
            Inst::IConst(n) => write!(f, " {n}"),
            Inst::FConst(bits) => match f64::from_bits(*bits) {
                x if x.is_nan() => write!(f, " nan_{bits:#x}"),
                x => write!(f, " {x:?}"),
            },
            Inst::F32Const(bits) => match f32::from_bits(*bits) {
                x if x.is_nan() => write!(f, " nan_{bits:#x}"),
                x => write!(f, " {x:?}"),
            },
            Inst::BConst(b) => write!(f, " {b}"),
            Inst::OConst(c) => write!(f, " {c}"),
            Inst::ICmp(cmp, a, b) | Inst::FCmp(cmp, a, b) => write!(f, " {}, {a}, {b}", cmp.word()),
            Inst::Checked(_, a, b, exit) => write!(f, " {a}, {b}, {exit}"),
            Inst::Guard(cond, exit) => write!(f, " {cond}, {exit}"),
            Inst::TypeIs(v, known) => write!(f, " {v}, {}", known.word()),
            Inst::VersionIs(v, version) => write!(f, " {v}, {version}"),
            Inst::KeepsValues { obj, writable } => {
                write!(f, " {obj}{}", if *writable { ", writable" } else { "" })
            }
            Inst::AttrGet(at, v) => write!(f, " {v}, {at}"),
            Inst::AttrSet { at, obj, old, value, fail } => {
                write!(f, " {obj}, {at}, {old}, {value}, {fail}")
            }
            Inst::AttrSwap { at, obj, item } => write!(f, " {obj}, {at}, {item}"),
            Inst::ArrayIs { array, holder: _, dtype, ndim, writable } => {
                write!(f, " {array}, {}, {ndim}{}", dtype.word(), if *writable { ", writable" } else { "" })
            }
            Inst::Unbox(flavour, v) => write!(f, " {}, {v}", flavour.word()),
            Inst::Field(Field::ArrayDim(axis) | Field::ArrayStride(axis), v) => write!(f, " {v}, {axis}"),
            Inst::Load(dtype, p) => write!(f, " {}, {p}", dtype.word()),
            Inst::Store(dtype, p, v) => write!(f, " {}, {p}, {v}", dtype.word()),
            Inst::DecRef { obj, pos } => {
                write!(f, " {obj}")?;
                pos.map_or(Ok(()), |pos| write!(f, " at {pos}"))
            }
            Inst::OwnArg(n) => write!(f, " {n}"),
            Inst::Table { entry, args, pos, fail } => {
                write!(f, " {}({})", entry.word(), List(args))?;
                pos.map_or(Ok(()), |pos| write!(f, " at {pos}"))?;
                fail.map_or(Ok(()), |exit| write!(f, " else {exit}"))
            }
            Inst::CallRoutine { routine, ty, args, fail } => {
                write!(f, " {routine}({}) {} else {fail}", List(args), ty.word())
            }
            Inst::Poll { pos, fail } => write!(f, " at {pos} else {fail}"),
            Inst::Null
            | Inst::HasFrame
            | Inst::Int(..)
            | Inst::ULt(..)
            | Inst::Float(..)
            | Inst::FloatUnary(..)
            | Inst::IntToFloat(_)
            | Inst::FloatToInt(_)
            | Inst::F32ToF64(_)
            | Inst::F64ToF32(_)
            | Inst::Bool(..)
            | Inst::Not(_)
            | Inst::BoolToInt(_)
            | Inst::Select(..)
            | Inst::Same(..)
            | Inst::IsNull(_)
            | Inst::Field(..)
            | Inst::ItemGet(..)
            | Inst::ListSwap { .. }
            | Inst::PtrAdd(..)
            | Inst::IncRef(_) => match self.operands() {
                operands if operands.is_empty() => Ok(()),
                operands => write!(f, " {}", List(&operands)),
            },
        }
    }
}

impl Inst {
    /// First word of the instruction's text.
    pub fn mnemonic(&self) -> &'static str {
        match self {
            Inst::IConst(_) => "iconst",
            Inst::FConst(_) => "fconst",
            Inst::F32Const(_) => "f32const",
            Inst::BConst(_) => "bconst",
            Inst::OConst(_) => "oconst",
            Inst::Null => "null",
            Inst::Int(op, ..) => op.word(),
            Inst::Checked(op, ..) => op.word(),
            Inst::ICmp(..) => "icmp",
            Inst::ULt(..) => "ult",
            Inst::Float(op, ..) => op.word(),
            Inst::FloatUnary(op, _) => op.word(),
            Inst::FCmp(..) => "fcmp",
            Inst::IntToFloat(_) => "int_to_float",
            Inst::FloatToInt(_) => "float_to_int",
            Inst::F32ToF64(_) => "f32_to_f64",
            Inst::F64ToF32(_) => "f64_to_f32",
            Inst::Bool(op, ..) => op.word(),
            Inst::Not(_) => "not",
            Inst::BoolToInt(_) => "bool_to_int",
            Inst::Select(..) => "select",
            Inst::Guard(..) => "guard",
            Inst::TypeIs(..) => "type_is",
            Inst::Same(..) => "same",
            Inst::IsNull(_) => "is_null",
            Inst::ArrayIs { holder: Holder::NdArray, .. } => "array_is",
            Inst::ArrayIs { holder: Holder::Tensor, .. } => "tensor_is",
            Inst::Unbox(..) => "unbox",
            Inst::Field(field, _) => field.mnemonic(),
            Inst::ItemGet(seq, ..) => seq.word(),
            Inst::ListSwap { .. } => "list_swap",
            Inst::VersionIs(..) => "version_is",
            Inst::KeepsValues { .. } => "keeps_values",
            Inst::AttrGet(..) => "attr_get",
            Inst::AttrSwap { .. } => "attr_swap",
            Inst::AttrSet { .. } => "attr_set",
            Inst::Load(..) => "load",
            Inst::Store(..) => "store",
            Inst::PtrAdd(..) => "ptr_add",
            Inst::IncRef(_) => "incref",
            Inst::DecRef { .. } => "decref",
            Inst::OwnArg(_) => "own_arg",
            Inst::Table { .. } => "table",
            Inst::CallRoutine { .. } => "call_routine",
            Inst::Poll { .. } => "poll",
            Inst::HasFrame => "has_frame",
        }
    }
}

impl Display for Attr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Value(n) => write!(f, "value {n}"),
            Attr::Offset(n) => write!(f, "offset {n}"),
        }
    }
}

impl Field {
    fn mnemonic(self) -> &'static str {
        match self {
            Field::ListLen => "list_len",
            Field::TupleLen => "tuple_len",
            Field::BytesLen => "bytes_len",
            Field::StrLen => "str_len",
            Field::ByteArrayLen => "bytearray_len",
            Field::InstanceNames => "instance_names",
            Field::BytesData => "bytes_data",
            Field::ByteArrayData => "bytearray_data",
            Field::ArrayDim(_) => "array_dim",
            Field::ArrayStride(_) => "array_stride",
            Field::ArrayData => "array_data",
        }
    }
}

impl Display for Terminator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Terminator::Jump(block, args) => write!(f, "jump {}", Target(*block, args)),
            Terminator::Branch { cond, then, els } => {
                write!(f, "branch {cond}, {}, {}", Target(then.0, &then.1), Target(els.0, &els.1))
            }
            Terminator::Return(v) => write!(f, "return {v}"),
            Terminator::Exit(exit) => write!(f, "leave {exit}"),
        }
    }
}

/// `b1(v2, v3)`, or `b1` without arguments.
struct Target<'a>(Block, &'a [Value]);

impl Display for Target<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            [] => write!(f, "{}", self.0),
            args => write!(f, "{}({})", self.0, List(args)),
        }
    }
}

pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A string in quotes, on one line.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"")?;
        for c in self.0.chars() {
            match c {
                '"' => write!(f, "\\\"")?,
                '\\' => write!(f, "\\\\")?,
                '\n' => write!(f, "\\n")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
                c => write!(f, "{c}")?,
            }
        }
        write!(f, "\"")
    }
}
