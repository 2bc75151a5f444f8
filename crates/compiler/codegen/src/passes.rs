//! LLVM's optimisation passes, chosen by measuring compile time and run time of real functions.

use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;

use crate::compile::Level;
use crate::error::CodegenError;
use crate::machine::Machine;

/// Scalar clean-up: values in registers, common subexpressions, dead code.
const QUICK: &str =
    "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,simplifycfg)";

const FULL: &str = "default<O3>";

/// Optimises in place.
pub(crate) fn run(module: &Module<'_>, machine: &Machine, level: Level) -> Result<(), CodegenError> {
    let passes = match level {
        Level::Quick => QUICK,
        Level::Full => FULL,
    };
    let options = PassBuilderOptions::create();
    module
        .run_passes(passes, &machine.llvm, options)
        .map_err(|e| CodegenError::Llvm { stage: "optimise", message: e.to_string() })
}
