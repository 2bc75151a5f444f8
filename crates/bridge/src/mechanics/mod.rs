//! How compiled code lives inside CPython: stubs, exits, in-place entry of loops, polls, recursion.
//!
//! In: code objects and a [`Body`] (compiled code, or nothing at all for null promotion). Out: functions that behave
//! exactly as before and run the body. Must not know: IR, code generation, when a function is worth promoting.
//!
//! The parts, in the order of a call:
//! * `stub::{refusal, frame_reader, build, swap, unswap, original_of, native_of, replace_constant}`: the stub code
//!   object in front of the original bytecode, and putting it in place.
//! * [`Body::call`] with an [`Activation`]: the frame (`frame`, `locals`, `code_units`, `position`, `eval_breaker`).
//!   Arguments lie in the frame's first slots. `set_position(offset)` before anything that can run Python.
//! * Results of `call`: an owned object; null with an exception set (raised at the stored position, outside any
//!   handler); null with nothing done ("run the original from the start"); or the frame was *left*:
//! * [`Activation::leave`]`(offset, locals, stack, Exit::{Reexecute, Raise})`: CPython goes on in the same frame at that
//!   offset with that state. No new frame, no C stack, no counter: `sys._getframe`, tracebacks, tracers and recursion
//!   depth see one ordinary frame. Entries are owned references, null, or [`KEEP`] ("the slot has it already").
//! * [`Body::enter_loop`]: the same for a frame that already runs, at a loop head; armed by `osr::arm`/`disarm`.
//! * [`Resumer`]: the same without any frame (a native function called directly): makes one and leaves into it.
//! * [`poll`], [`stack_low`](stack::stack_low): signals, thread switches; C stack.
//! * [`giving`]: calls out of native code that move their arguments into the callee's frame.
//! * `selftest`: what must hold before any of it is used.
//!
//! Offsets are in bytes of the original code, as in `dis`; positions in frames are in units of two bytes.

use pyo3::prelude::*;
use pyo3::types::PyDict;

pub mod activation;
pub mod bytecode;
pub mod frame;
pub mod gil_cell;
pub mod giving;
pub mod layout;
pub mod native;
pub mod null;
pub mod osr;
pub mod poll;
mod probe;
pub mod raised;
mod raiser;
pub mod resume;
pub mod selftest;
pub mod stack;
pub mod stub;
pub mod trampoline;

pub use activation::{Activation, EnteredBy, Exit, KEEP};
pub use native::{Body, LoopOutcome};
pub use resume::{Resumer, State};

/// Adds what Python sees of the mechanics to `_core`.
///
/// # Errors
/// What creating types raises.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    native::prepare(module.py())?;
    trampoline::prepare(module.py())?;
    giving::prepare(module.py())?;
    raiser::prepare(module.py())?;
    poll::prepare(module.py())?;
    probe::register(module)?;
    module.add_function(wrap_pyfunction!(selftest::selftest, module)?)?;
    module.add_function(wrap_pyfunction!(null::null_promote, module)?)?;
    module.add_function(wrap_pyfunction!(null::null_demote, module)?)?;
    module.add_function(wrap_pyfunction!(null::null_promote_code, module)?)?;
    Ok(())
}

/// Evaluates an expression of ours. Not among the names of the program's `__main__`, where `Python::eval` does it by
/// itself: a function that was made there would keep them alive at the end of the program.
///
/// # Errors
/// What the expression raises.
pub fn evaluate<'py>(py: Python<'py>, expression: &std::ffi::CStr) -> PyResult<Bound<'py, PyAny>> {
    py.eval(expression, Some(&PyDict::new(py)), None)
}
