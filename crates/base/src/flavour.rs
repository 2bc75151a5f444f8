//! What a value is, in Python's eyes: the flavours that are held unboxed, the element types of arrays, and the exact
//! types that machine code tests for.
//!
//! In: nothing. Out: small `Copy` enums that the front end, the IR, the code generator and the bridge share.
//! Must not know: how any of these is laid out (see `layout`) or computed with.

/// The flavour of an unboxed number. Two flavours may share a machine type and still differ in division, overflow,
/// warnings and in the type of a result, so a value never changes flavour silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flavour {
    /// Exact `int` that fits 64 bits.
    Int,
    /// Exact `float`.
    Float,
    /// `True` or `False`.
    Bool,
    /// `numpy.float64` scalar.
    NpF64,
    /// `numpy.float32` scalar.
    NpF32,
    /// `numpy.int64` scalar.
    NpI64,
    /// `numpy.int32` scalar, held sign-extended.
    NpI32,
    /// `numpy.uint8` scalar, held zero-extended.
    NpU8,
    /// `numpy.bool_` scalar.
    NpBool,
}

/// Machine type of an IR value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// One bit.
    I1,
    /// 64-bit integer, two's complement.
    I64,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// A Python object reference; may be null only where an instruction says so.
    Obj,
    /// An interior pointer into memory that some object owns.
    Ptr,
}

impl Flavour {
    /// Every flavour, in declaration order.
    pub const ALL: [Flavour; 9] = [
        Flavour::Int,
        Flavour::Float,
        Flavour::Bool,
        Flavour::NpF64,
        Flavour::NpF32,
        Flavour::NpI64,
        Flavour::NpI32,
        Flavour::NpU8,
        Flavour::NpBool,
    ];

    /// Machine type that holds a value of this flavour.
    pub const fn ty(self) -> Ty {
        match self {
            Flavour::Int | Flavour::NpI64 | Flavour::NpI32 | Flavour::NpU8 => Ty::I64,
            Flavour::Float | Flavour::NpF64 => Ty::F64,
            Flavour::NpF32 => Ty::F32,
            Flavour::Bool | Flavour::NpBool => Ty::I1,
        }
    }

    /// True for NumPy's scalar types.
    pub const fn is_numpy(self) -> bool {
        !matches!(self, Flavour::Int | Flavour::Float | Flavour::Bool)
    }

    /// The exact Python type of a boxed value of this flavour.
    pub const fn known_type(self) -> KnownType {
        match self {
            Flavour::Int => KnownType::Int,
            Flavour::Float => KnownType::Float,
            Flavour::Bool => KnownType::Bool,
            Flavour::NpF64 => KnownType::NpF64,
            Flavour::NpF32 => KnownType::NpF32,
            Flavour::NpI64 => KnownType::NpI64,
            Flavour::NpI32 => KnownType::NpI32,
            Flavour::NpU8 => KnownType::NpU8,
            Flavour::NpBool => KnownType::NpBool,
        }
    }

    /// The name a user would write.
    pub const fn name(self) -> &'static str {
        self.known_type().name()
    }
}

/// Element type of an array that is read and written natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    F64,
    F32,
    I64,
    I32,
    U8,
    Bool,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 6] = [DType::F64, DType::F32, DType::I64, DType::I32, DType::U8, DType::Bool];

    /// What the object table calls it.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// Size of one element in bytes.
    pub const fn size(self) -> i64 {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// Flavour of the scalar that indexing yields.
    pub const fn scalar(self) -> Flavour {
        match self {
            DType::F64 => Flavour::NpF64,
            DType::F32 => Flavour::NpF32,
            DType::I64 => Flavour::NpI64,
            DType::I32 => Flavour::NpI32,
            DType::U8 => Flavour::NpU8,
            DType::Bool => Flavour::NpBool,
        }
    }

    /// Flavour of the number that indexing `holder` yields: NumPy's arrays give NumPy's scalars, tensors Python's numbers.
    pub const fn element(self, holder: Holder) -> Flavour {
        match (holder, self) {
            (Holder::NdArray, _) => self.scalar(),
            (Holder::Tensor, DType::F64 | DType::F32) => Flavour::Float,
            (Holder::Tensor, DType::I64 | DType::I32 | DType::U8) => Flavour::Int,
            (Holder::Tensor, DType::Bool) => Flavour::Bool,
        }
    }

    /// NumPy's name.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "float64",
            DType::F32 => "float32",
            DType::I64 => "int64",
            DType::I32 => "int32",
            DType::U8 => "uint8",
            DType::Bool => "bool",
        }
    }
}

/// Which kind of object holds an array's header: both keep it at the same offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// `numpy.ndarray`, which may be given another layout while it lives.
    NdArray,
    /// `overdrive.Tensor`, which never changes.
    Tensor,
}

impl Holder {
    /// The exact type.
    pub const fn known_type(self) -> KnownType {
        match self {
            Holder::NdArray => KnownType::NdArray,
            Holder::Tensor => KnownType::Tensor,
        }
    }
}

/// Exact types that machine code can test for by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum KnownType {
    Int,
    Float,
    Bool,
    NoneType,
    Str,
    Bytes,
    ByteArray,
    List,
    Tuple,
    Dict,
    Set,
    NdArray,
    Tensor,
    NpF64,
    NpF32,
    NpI64,
    NpI32,
    NpU8,
    NpBool,
    RangeIter,
    ListIter,
    TupleIter,
    Range,
    Slice,
    Function,
}

impl KnownType {
    /// Every type, in the order of its number.
    pub const ALL: [KnownType; 25] = [
        KnownType::Int,
        KnownType::Float,
        KnownType::Bool,
        KnownType::NoneType,
        KnownType::Str,
        KnownType::Bytes,
        KnownType::ByteArray,
        KnownType::List,
        KnownType::Tuple,
        KnownType::Dict,
        KnownType::Set,
        KnownType::NdArray,
        KnownType::Tensor,
        KnownType::NpF64,
        KnownType::NpF32,
        KnownType::NpI64,
        KnownType::NpI32,
        KnownType::NpU8,
        KnownType::NpBool,
        KnownType::RangeIter,
        KnownType::ListIter,
        KnownType::TupleIter,
        KnownType::Range,
        KnownType::Slice,
        KnownType::Function,
    ];

    /// The unboxed flavour of this type, if it has one.
    pub fn flavour(self) -> Option<Flavour> {
        Flavour::ALL.into_iter().find(|f| f.known_type() == self)
    }

    /// True when releasing the last reference runs no Python code and frees nothing but the object itself.
    pub const fn is_plain(self) -> bool {
        matches!(
            self,
            KnownType::Int
                | KnownType::Float
                | KnownType::Bool
                | KnownType::NoneType
                | KnownType::Str
                | KnownType::Bytes
                | KnownType::NpF64
                | KnownType::NpF32
                | KnownType::NpI64
                | KnownType::NpI32
                | KnownType::NpU8
                | KnownType::NpBool
                | KnownType::Range
                | KnownType::RangeIter
        )
    }

    /// The name a user would write.
    pub const fn name(self) -> &'static str {
        match self {
            KnownType::Int => "int",
            KnownType::Float => "float",
            KnownType::Bool => "bool",
            KnownType::NoneType => "None",
            KnownType::Str => "str",
            KnownType::Bytes => "bytes",
            KnownType::ByteArray => "bytearray",
            KnownType::List => "list",
            KnownType::Tuple => "tuple",
            KnownType::Dict => "dict",
            KnownType::Set => "set",
            KnownType::NdArray => "ndarray",
            KnownType::Tensor => "Tensor",
            KnownType::NpF64 => "np.float64",
            KnownType::NpF32 => "np.float32",
            KnownType::NpI64 => "np.int64",
            KnownType::NpI32 => "np.int32",
            KnownType::NpU8 => "np.uint8",
            KnownType::NpBool => "np.bool",
            KnownType::RangeIter => "range_iterator",
            KnownType::ListIter => "list_iterator",
            KnownType::TupleIter => "tuple_iterator",
            KnownType::Range => "range",
            KnownType::Slice => "slice",
            KnownType::Function => "function",
        }
    }
}
