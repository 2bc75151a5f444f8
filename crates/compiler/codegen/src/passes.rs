//! LLVM's optimisation passes, chosen by measuring compile time and run time of real functions.

use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;

use crate::compile::Level;
use crate::error::CodegenError;
use crate::machine::Machine;

/// Scalar clean-up: values in registers, common subexpressions, dead code.
const QUICK: &str =
    "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg)";

/// Leaner than LLVM's own `default<O3>`: under half of its time on the same functions, since what it leaves out (inlining,
/// module passes, second rounds) finds nothing in one function of our making. In order: registers; loops in canonical
/// form with what does not change moved out; redundant loads; dead stores (positions); then vectors.
const FULL: &str = concat!(
    "function(",
    "sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,",
    "loop-mssa(loop-rotate<header-duplication>,licm<allowspeculation>,simple-loop-unswitch),",
    "simplifycfg,instcombine<no-verify-fixpoint>,",
    "loop(indvars,loop-deletion,loop-unroll-full),",
    "gvn,sccp,instcombine<no-verify-fixpoint>,dse,loop-mssa(licm<allowspeculation>),simplifycfg,",
    "correlated-propagation,instcombine<no-verify-fixpoint>,",
    "loop-vectorize,instcombine<no-verify-fixpoint>,simplifycfg",
    ")",
);

/// Makes vectors of equal operations side by side. Only where such were made on purpose: elsewhere it found pairs whose
/// gathering cost more than it saved (lcg_pi 254 µs without, 577 with).
const NEIGHBOURS: &str = ",function(slp-vectorizer)";

const LAST: &str = ",function(loop-unroll<O2>,early-cse)";

/// Optimises in place.
pub(crate) fn run(
    module: &Module<'_>,
    machine: &Machine,
    level: Level,
    has_neighbours: bool,
) -> Result<(), CodegenError> {
    let passes = match level {
        Level::Quick => QUICK.to_owned(),
        Level::Full => format!("{FULL}{}{LAST}", if has_neighbours { NEIGHBOURS } else { "" }),
    };
    run_text(module, machine, &passes)
}

/// Functions that only pass on to an address are gone behind this. Only the vectoriser had to see them.
pub(crate) fn inline_forwards(module: &Module<'_>, machine: &Machine) -> Result<(), CodegenError> {
    run_text(module, machine, "always-inline,globaldce")
}

fn run_text(module: &Module<'_>, machine: &Machine, passes: &str) -> Result<(), CodegenError> {
    let options = PassBuilderOptions::create();
    module
        .run_passes(passes, &machine.llvm, options)
        .map_err(|e| CodegenError::Llvm { stage: "optimise", message: e.to_string() })
}
