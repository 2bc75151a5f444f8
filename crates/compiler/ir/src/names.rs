//! The words of the text form: one table for each enumeration, read by the printer and by the parser.
//!
//! In: nothing. Out: `word` and `from_word` of every enumeration that appears in text. What is not in a table here
//! cannot be printed, so the two directions can't drift apart.

use overdrive_base::flavour::{DType, Flavour, KnownType, Ty};
use overdrive_base::table::Entry;

use crate::exit::{ExitKind, Own};
use crate::inst::{BoolOp, CheckedOp, Cmp, FloatOp, FloatUnary, IntOp, Seq};

/// An enumeration whose members have a word each.
pub trait Word: Copy + 'static {
    /// The member's word.
    fn word(self) -> &'static str;
    /// The member with that word.
    fn from_word(word: &str) -> Option<Self>;
}

macro_rules! words {
    ($( $ty:ident { $($member:ident = $word:literal),* $(,)? } )*) => { $(
        impl Word for $ty {
            fn word(self) -> &'static str {
                match self { $($ty::$member => $word,)* }
            }
            fn from_word(word: &str) -> Option<$ty> {
                match word { $($word => Some($ty::$member),)* _ => None }
            }
        }
    )* };
}

words! {
    Ty { I1 = "i1", I64 = "i64", F32 = "f32", F64 = "f64", Obj = "obj", Ptr = "ptr" }
    IntOp {
        Add = "iadd", Sub = "isub", Mul = "imul", And = "iand", Or = "ior", Xor = "ixor", Shl = "ishl", Shr = "ishr",
        FloorDiv = "ifloor_div", FloorMod = "ifloor_mod",
    }
    CheckedOp { Add = "checked_add", Sub = "checked_sub", Mul = "checked_mul" }
    FloatOp { Add = "fadd", Sub = "fsub", Mul = "fmul", Div = "fdiv", CopySign = "fcopysign" }
    FloatUnary {
        Neg = "fneg", Abs = "fabs", Sqrt = "fsqrt", Floor = "ffloor", Ceil = "fceil", Trunc = "ftrunc",
    }
    BoolOp { And = "band", Or = "bor", Xor = "bxor" }
    Cmp { Lt = "lt", Le = "le", Eq = "eq", Ne = "ne", Gt = "gt", Ge = "ge" }
    Seq { List = "list_get", Tuple = "tuple_get" }
    ExitKind { Resume = "resume", Raise = "raise", Entry = "entry", Yield = "yield" }
    Own { Owned = "own", Borrowed = "borrow" }
}

macro_rules! words_by_name {
    ($($ty:ident),*) => { $(
        impl Word for $ty {
            fn word(self) -> &'static str {
                self.name()
            }
            fn from_word(word: &str) -> Option<$ty> {
                $ty::ALL.iter().copied().find(|x| x.name() == word)
            }
        }
    )* };
}

words_by_name!(Flavour, DType, KnownType, Entry);
