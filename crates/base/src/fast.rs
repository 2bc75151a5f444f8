//! Functions of `math` that `fastmath` may compute by a vector library.
//!
//! In: nothing. Out: for each entry that CPython's rules belong to, the entry without them and the C library's name. The
//! vector forms are found at run time under that name; which of them exist, the code generator is told.

use crate::table::Entry;

/// A function in both forms.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// As CPython has it: declines where an exception is due.
    pub exact: Entry,
    /// As the C library has it, or its vector form.
    pub fast: Entry,
    pub name: &'static str,
}

macro_rules! functions {
    ($($exact:ident $fast:ident $name:literal,)*) => {
        /// All of them, those with two arguments last.
        pub const FUNCTIONS: &[Function] =
            &[$(Function { exact: Entry::$exact, fast: Entry::$fast, name: $name }),*];
    };
}

functions! {
    MathExp FastExp "exp",
    MathExpm1 FastExpm1 "expm1",
    MathLog FastLog "log",
    MathLog2 FastLog2 "log2",
    MathLog10 FastLog10 "log10",
    MathLog1p FastLog1p "log1p",
    MathSin FastSin "sin",
    MathCos FastCos "cos",
    MathTan FastTan "tan",
    MathAsin FastAsin "asin",
    MathAcos FastAcos "acos",
    MathAtan FastAtan "atan",
    MathSinh FastSinh "sinh",
    MathCosh FastCosh "cosh",
    MathTanh FastTanh "tanh",
    MathErf FastErf "erf",
    MathErfc FastErfc "erfc",
    MathAtan2 FastAtan2 "atan2",
    MathHypot FastHypot "hypot",
    MathPow FastPow "pow",
    FloatPow FastPow "pow",
}

impl Entry {
    /// The form without CPython's rules.
    pub fn fast(self) -> Option<Entry> {
        FUNCTIONS.iter().find(|f| f.exact == self).map(|f| f.fast)
    }

    /// The C library's name of a form without CPython's rules.
    pub fn fast_name(self) -> Option<&'static str> {
        FUNCTIONS.iter().find(|f| f.fast == self).map(|f| f.name)
    }
}
