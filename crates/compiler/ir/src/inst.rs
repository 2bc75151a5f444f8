//! Instructions and terminators of the IR.
//!
//! In: nothing. Out: the closed set of operations; each states its preconditions, since the IR has no undefined
//! behaviour of its own: what the front end did not guard, it may not emit. Objects are opaque: only the operations
//! here and the entries of the object table (`overdrive_base::table`) touch them.

use overdrive_base::flavour::{DType, Flavour, Holder, KnownType, Ty};
use overdrive_base::table::Entry;

use crate::entities::{Block, ConstId, ExitId, Value};

/// Two's complement operations on `I64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntOp {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    /// Left shift; precondition: 0 ≤ b < 64.
    Shl,
    /// Arithmetic right shift; precondition: 0 ≤ b < 64.
    Shr,
    /// Floored quotient; preconditions: b ≠ 0, not (a = min and b = −1).
    FloorDiv,
    /// Floored remainder (sign of b); preconditions: b ≠ 0, not (a = min and b = −1).
    FloorMod,
}

/// Operations that exit when the exact result leaves 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckedOp {
    Add,
    Sub,
    Mul,
}

/// IEEE operations, one rounding each (contracted or reassociated only in a function with `fastmath`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    CopySign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatUnary {
    Neg,
    Abs,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
}

/// Comparison; on floats all but `Ne` are false when an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cmp {
    Lt,
    Le,
    Eq,
    Ne,
    Gt,
    Ge,
}

impl Cmp {
    /// The comparison with operands exchanged.
    pub const fn swapped(self) -> Cmp {
        match self {
            Cmp::Lt => Cmp::Gt,
            Cmp::Le => Cmp::Ge,
            Cmp::Gt => Cmp::Lt,
            Cmp::Ge => Cmp::Le,
            same => same,
        }
    }

    /// Number used by CPython (`Py_LT` …) and by the object table.
    pub const fn number(self) -> i64 {
        match self {
            Cmp::Lt => 0,
            Cmp::Le => 1,
            Cmp::Eq => 2,
            Cmp::Ne => 3,
            Cmp::Gt => 4,
            Cmp::Ge => 5,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoolOp {
    And,
    Or,
    Xor,
}

/// A field of an object whose exact type has been guarded. Result `I64` unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    ListLen,
    TupleLen,
    BytesLen,
    /// Number of characters of a str.
    StrLen,
    ByteArrayLen,
    /// How many attribute names the instances of the object's class number; precondition: as `KeepsValues`.
    InstanceNames,
    /// First byte of a `bytes`, as `Ptr`.
    BytesData,
    /// First byte of a `bytearray`, as `Ptr`; any resize moves it.
    ByteArrayData,
    /// Length of one axis; precondition: `ArrayIs` with a rank above it.
    ArrayDim(u8),
    /// Stride of one axis in bytes; precondition as `ArrayDim`.
    ArrayStride(u8),
    /// Address of element (0, …), as `Ptr`.
    ArrayData,
}

/// A sequence whose items are object references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seq {
    List,
    Tuple,
}

/// Where an object of a known class keeps an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attr {
    /// Among the values that its class numbers (`InstanceLayout`); precondition: `KeepsValues`.
    Value(u32),
    /// At an offset of the object, in bytes: a name in `__slots__`.
    Offset(i32),
}

/// An instruction; its result (if any) is in `Function::result`.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Inst {
    IConst(i64),
    /// Bits of a binary64.
    FConst(u64),
    /// Bits of a binary32.
    F32Const(u32),
    BConst(bool),
    /// An object that lives as long as the function (borrowed).
    OConst(ConstId),
    /// The null reference.
    Null,
    /// Whether the call that runs this has a frame of the interpreter.
    HasFrame,

    Int(IntOp, Value, Value),
    Checked(CheckedOp, Value, Value, ExitId),
    ICmp(Cmp, Value, Value),
    /// Unsigned a < b: the bounds check.
    ULt(Value, Value),

    /// On `F64` or `F32`, both the same.
    Float(FloatOp, Value, Value),
    FloatUnary(FloatUnary, Value),
    FCmp(Cmp, Value, Value),
    /// I64 → F64, round to nearest even.
    IntToFloat(Value),
    /// F64 → I64 toward zero; precondition: −2⁶³ ≤ trunc(x) < 2⁶³.
    FloatToInt(Value),
    F32ToF64(Value),
    /// Round to nearest even.
    F64ToF32(Value),

    Bool(BoolOp, Value, Value),
    Not(Value),
    /// I1 → I64.
    BoolToInt(Value),
    /// condition, then, else (both of one type).
    Select(Value, Value, Value),

    /// Leaves through the exit unless the condition holds.
    Guard(Value, ExitId),

    /// Exact type test; the object is not null.
    TypeIs(Value, KnownType),
    /// Identity of two references.
    Same(Value, Value),
    IsNull(Value),
    /// Exact `ndarray` or `Tensor` of this native-order dtype and rank, aligned, and writable when asked. Tests the type
    /// first.
    ArrayIs {
        array: Value,
        holder: Holder,
        dtype: DType,
        ndim: u8,
        writable: bool,
    },

    /// The object's class has this version: it is the class that had it before, and unchanged. The object is not null.
    VersionIs(Value, u32),
    /// The object still keeps its attributes as its class numbers them, and `writable`: nothing else shows them. Precondition:
    /// `VersionIs` of a class whose instances can.
    KeepsValues {
        obj: Value,
        writable: bool,
    },
    /// Borrowed attribute, null when it is not set. Precondition: `VersionIs` of a class that has it there.
    AttrGet(Attr, Value),
    /// Puts an owned reference into the place of an attribute that is set and gives the owned old one; preconditions as
    /// `AttrGet`, and `KeepsValues` writable.
    AttrSwap {
        at: Attr,
        obj: Value,
        item: Value,
    },
    /// Makes a number the value of an attribute whose value `old` is an exact float or int, as the number is: by overwriting
    /// `old` where nothing else refers to it, and ints have one digit (30 bits) and are none of those that CPython has one
    /// object for; else by a new object. Preconditions as `AttrSwap`.
    AttrSet {
        at: Attr,
        obj: Value,
        old: Value,
        value: Value,
        fail: ExitId,
    },

    /// Value of a boxed scalar whose exact type has been guarded. For `Int` use the table's `UnboxInt` (it may decline).
    Unbox(Flavour, Value),
    /// Reads a field.
    Field(Field, Value),
    /// Borrowed item; precondition: 0 ≤ index < length.
    ItemGet(Seq, Value, Value),
    /// Puts an owned reference into a list slot and gives the owned old one; precondition: 0 ≤ index < length.
    ListSwap {
        list: Value,
        index: Value,
        item: Value,
    },
    /// Reads one element as the machine type of its scalar flavour (`I64` sign- or zero-extended).
    Load(DType, Value),
    /// Writes one element (`I64` truncated to the element's size).
    Store(DType, Value, Value),
    /// Ptr + I64 bytes.
    PtrAdd(Value, Value),

    /// One more reference (null allowed: nothing happens).
    IncRef(Value),
    /// One reference less (null allowed). `pos`: the object may be finalised by this, and Python code may then run.
    DecRef {
        obj: Value,
        pos: Option<u32>,
    },
    /// Takes the argument's reference out of the frame that holds it: owned from here on.
    OwnArg(u32),

    /// An entry of the object table. `pos`: bytecode offset to store in the frame first (every `Opaque` entry that
    /// runs with a frame has one). `fail`: where to go when it fails; `Raise` for entries that set an exception,
    /// `Reexecute` for those that decline.
    Table {
        entry: Entry,
        args: Vec<Value>,
        pos: Option<u32>,
        fail: Option<ExitId>,
    },
    /// Calls a routine of the function (`Function::routines`) and gives its result; leaves when that gives up, which has
    /// had no effect then.
    CallRoutine {
        routine: u32,
        ty: Ty,
        args: Vec<Value>,
        fail: ExitId,
    },
    /// Lets CPython handle signals, other threads, asynchronous exceptions if it asks for it. Needs a frame, or stands
    /// behind a guard that this call has one.
    Poll {
        pos: u32,
        fail: ExitId,
    },
}

/// What ends a block.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Terminator {
    Jump(Block, Vec<Value>),
    Branch {
        cond: Value,
        then: (Block, Vec<Value>),
        els: (Block, Vec<Value>),
    },
    /// Returns an owned reference.
    Return(Value),
    /// Leaves unconditionally.
    Exit(ExitId),
}

impl Inst {
    /// All values read, in operand order.
    pub fn operands(&self) -> Vec<Value> {
        match self {
            Inst::IConst(_)
            | Inst::FConst(_)
            | Inst::F32Const(_)
            | Inst::BConst(_)
            | Inst::OConst(_)
            | Inst::Null
            | Inst::HasFrame
            | Inst::OwnArg(_)
            | Inst::Poll { .. } => vec![],
            Inst::Int(_, a, b)
            | Inst::Checked(_, a, b, _)
            | Inst::ICmp(_, a, b)
            | Inst::ULt(a, b)
            | Inst::Float(_, a, b)
            | Inst::FCmp(_, a, b)
            | Inst::Bool(_, a, b)
            | Inst::Same(a, b)
            | Inst::ItemGet(_, a, b)
            | Inst::Store(_, a, b)
            | Inst::AttrSwap { obj: a, item: b, .. }
            | Inst::PtrAdd(a, b) => vec![*a, *b],
            Inst::FloatUnary(_, a)
            | Inst::IntToFloat(a)
            | Inst::FloatToInt(a)
            | Inst::F32ToF64(a)
            | Inst::F64ToF32(a)
            | Inst::Not(a)
            | Inst::BoolToInt(a)
            | Inst::Guard(a, _)
            | Inst::TypeIs(a, _)
            | Inst::VersionIs(a, _)
            | Inst::KeepsValues { obj: a, .. }
            | Inst::AttrGet(_, a)
            | Inst::IsNull(a)
            | Inst::Unbox(_, a)
            | Inst::Field(_, a)
            | Inst::Load(_, a)
            | Inst::IncRef(a) => vec![*a],
            Inst::ArrayIs { array, .. } => vec![*array],
            Inst::DecRef { obj, .. } => vec![*obj],
            Inst::Select(a, b, c)
            | Inst::ListSwap { list: a, index: b, item: c }
            | Inst::AttrSet { obj: a, old: b, value: c, .. } => vec![*a, *b, *c],
            Inst::Table { args, .. } | Inst::CallRoutine { args, .. } => args.clone(),
        }
    }

    /// The exit this instruction may leave through.
    pub fn exit(&self) -> Option<ExitId> {
        match self {
            Inst::Checked(_, _, _, e)
            | Inst::Guard(_, e)
            | Inst::CallRoutine { fail: e, .. }
            | Inst::AttrSet { fail: e, .. }
            | Inst::Poll { fail: e, .. } => Some(*e),
            Inst::Table { fail, .. } => *fail,
            _ => None,
        }
    }

    /// The same, to be renumbered.
    pub(crate) fn exit_mut(&mut self) -> Option<&mut ExitId> {
        match self {
            Inst::Checked(_, _, _, e)
            | Inst::Guard(_, e)
            | Inst::CallRoutine { fail: e, .. }
            | Inst::AttrSet { fail: e, .. }
            | Inst::Poll { fail: e, .. } => Some(e),
            Inst::Table { fail, .. } => fail.as_mut(),
            _ => None,
        }
    }
}

impl Field {
    /// Type of the field's value.
    pub const fn ty(self) -> Ty {
        match self {
            Field::BytesData | Field::ByteArrayData | Field::ArrayData => Ty::Ptr,
            _ => Ty::I64,
        }
    }
}
