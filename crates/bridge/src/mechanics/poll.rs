//! Delivers what waits for the interpreter: signals, asynchronous exceptions, thread switches, pending calls.
//!
//! In: the eval breaker is set and the frame's position is stored. Out: 0, or -1 with the exception that a handler
//! raised. An empty Python function is called, because its RESUME does all of it on every version; its own entry is
//! taken out of the traceback.
#![expect(unsafe_code, reason = "calls Python and edits the pending exception from native code")]

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use super::activation::Activation;
use super::frame::Thread;
use super::raised::Raised;

static EMPTY: OnceLock<Py<PyAny>> = OnceLock::new();

/// Makes the empty function, once.
///
/// # Errors
/// What evaluating a lambda raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    if EMPTY.get().is_none() {
        let _ = EMPTY.set(super::evaluate(py, c"lambda: None")?.unbind());
    }
    Ok(())
}

/// Stores `offset` (bytes, in the original code) and polls.
///
/// # Safety
/// As [`run`]; the frame of `activation` is live.
pub unsafe fn poll(activation: &Activation<'_>, offset: u32) -> i32 {
    // SAFETY: the caller's contract.
    unsafe {
        activation.set_position(offset);
        run()
    }
}

/// Polls. Anything may have changed afterwards: Python code may have run, on this thread and on others.
///
/// # Safety
/// The GIL is held, no exception is set, and the current frame shows the position of the poll.
pub unsafe fn run() -> i32 {
    let Some(empty) = EMPTY.get() else { return 0 };
    // SAFETY: the caller's contract. The call is given back to the recursion counters, so that a poll at the deepest
    // level does not fail.
    unsafe {
        let thread = Thread::current();
        thread.enter_python_call();
        thread.add_py_recursion(1);
        let result = ffi::PyObject_CallNoArgs(empty.as_ptr());
        thread.add_py_recursion(-1);
        thread.leave_python_call();
        if !result.is_null() {
            ffi::Py_DECREF(result);
            return 0;
        }
        drop_outermost_traceback();
        -1
    }
}

/// Removes the entry of the empty function, through which the exception came.
unsafe fn drop_outermost_traceback() {
    // SAFETY: the GIL is held.
    unsafe { Raised::take().without_outermost_entry().restore() }
}
