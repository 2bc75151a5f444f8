//! Typed indices. What they index lives in `Function`; what is printed is what is parsed (`v3`, `b1`, `exit2`, `const0`).

use std::fmt;

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in its table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

entity!(
    /// An SSA value.
    Value, "v"
);
entity!(
    /// A basic block; block 0 is the entry and has no predecessor.
    Block, "b"
);
entity!(
    /// A way out into CPython.
    ExitId, "exit"
);
entity!(
    /// An object that the function refers to.
    ConstId, "const"
);
