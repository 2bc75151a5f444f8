//! Cheap, safe passes that run before LLVM: what LLVM can't know (objects, exits, references) or shouldn't have to read.
//!
//! In: a valid function. Out: a valid function that ends every run in the same way, with the same effects in the same
//! order; exits that can no longer be taken are gone. One pass, one file; none knows where it stands in the list.

mod rewrite;
mod copies;
pub mod unreachable;
pub mod params;
pub mod fold;
pub mod straight;
pub mod alike;
pub mod guards;
pub mod nests;
mod counted;
mod quiet;
mod tested;
pub mod batches;
pub mod jam;
pub mod lockstep;
pub mod limits;
pub mod dead;
pub mod references;
pub mod compact;

use crate::function::Function;
#[cfg(debug_assertions)]
use crate::verify::assert_valid;

/// A pass and its name.
pub type Pass = (&'static str, fn(&mut Function));

/// All passes, in order.
pub const PASSES: &[Pass] = &[
    ("params", params::run),
    ("fold", fold::run),
    ("guards", guards::run),
    ("params again", params::run),
    ("nests", nests::run),
    ("params of copies", params::run),
    ("fold in copies", fold::run),
    ("alike in copies", alike::run),
    ("params of one way", params::run),
    ("dead in copies", dead::run),
    ("batches", batches::run),
    ("jam", jam::run),
    ("lockstep", lockstep::run),
    ("limits", limits::run),
    ("dead", dead::run),
    ("references", references::run),
    ("compact", compact::run),
];

/// The passes for routines: their loops are left as they are.
const FOR_ROUTINES: &[Pass] = &[
    ("params of routines", params::run),
    ("fold in routines", fold::run),
    ("guards of routines", guards::run),
    ("params of routines again", params::run),
    ("limits of routines", limits::run),
    ("dead in routines", dead::run),
    ("compact routines", compact::run),
];

/// Runs all passes. In debug builds the function is verified after each.
///
/// # Panics
/// In debug builds, when a pass broke the function: that is our bug, never the input's.
pub fn optimise(f: &mut Function) {
    for routine in &mut f.routines {
        FOR_ROUTINES.iter().for_each(|(_, pass)| pass(routine));
    }
    for (name, pass) in PASSES {
        pass(f);
        #[cfg(debug_assertions)]
        assert_valid(f, name);
        #[cfg(not(debug_assertions))]
        let _ = name;
    }
}

#[cfg(test)]
mod testing {
    use super::Function;
    use crate::parse::parse;
    use crate::verify::assert_valid;

    /// A function with one argument around blocks; both texts name values as they stand after the pass.
    fn function(blocks: &str) -> Function {
        let head = "const0 = none const1 = fact 0 exit0 = resume 2 [borrow v0] [] \"\" exit1 = raise 4 [borrow v0] [] \"\"";
        let text = format!("function \"f\" args 1 frame {{ {head} b0(v0: obj): {blocks} }}");
        parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    /// Runs a pass and compares with the function that shall come out (of values, only those that are left matter).
    #[track_caller]
    pub(super) fn check(pass: fn(&mut Function), before: &str, after: &str) {
        let mut f = function(before);
        assert_valid(&f, "the test's own text");
        pass(&mut f);
        assert_valid(&f, "the pass");
        assert_eq!(f.to_string(), function(after).to_string());
    }
}
