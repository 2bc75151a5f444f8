//! The door between C callbacks and Rust: panics and errors become exceptions, refusals become their Python types.
//!
//! In: closures that return `PyResult`. Out: what C expects: null or -1 with an exception set. One table maps the crate's
//! errors. A foreign thread may enter too, to give memory back.
#![expect(unsafe_code, reason = "claims the GIL that the interpreter holds while it calls us")]

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use overdrive_tensor::error::Error;
use pyo3::exceptions::{
    PyBufferError, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyTypeError, PyValueError,
};
use pyo3::ffi;
use pyo3::prelude::*;

/// Python's exception for a refusal.
pub(crate) fn to_python(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::UnknownType { .. } => PyTypeError::new_err(text),
        Error::Unsayable { .. } | Error::InUse { .. } => PyBufferError::new_err(text),
        Error::TooManyAxes { .. }
        | Error::NegativeLength { .. }
        | Error::TooLarge
        | Error::BadAlignment { .. }
        | Error::Closed { .. } => PyValueError::new_err(text),
        Error::TooLong { .. } => PyValueError::new_err(text),
        Error::OutOfMemory { .. } | Error::NoSharedSpace { .. } | Error::PoolFull { .. } => {
            PyMemoryError::new_err(text)
        }
        Error::Handle { .. } => handle_error(text),
        Error::Crowded { .. } => PyRuntimeError::new_err(text),
        Error::TimedOut { .. } => PyTimeoutError::new_err(text),
        Error::System { call, code } => {
            let reason = std::io::Error::from_raw_os_error(code).to_string();
            PyOSError::new_err((code, format!("{call}: {reason}")))
        }
    }
}

/// The face's own error for handles that lead nowhere.
fn handle_error(text: String) -> PyErr {
    Python::attach(|py| {
        let make = || py.import("overdrive.errors")?.getattr("HandleError")?.call1((text,));
        match make() {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}

/// Runs the body of a C function that returns an object.
///
/// # Safety
/// The GIL is held.
pub(super) unsafe fn object(
    body: impl FnOnce(Python<'_>) -> PyResult<*mut ffi::PyObject>,
) -> *mut ffi::PyObject {
    // SAFETY: by contract.
    unsafe { run(body, null_mut()) }
}

/// Runs the body of a C function that returns a status.
///
/// # Safety
/// The GIL is held.
pub(super) unsafe fn status(body: impl FnOnce(Python<'_>) -> PyResult<()>) -> c_int {
    // SAFETY: by contract.
    unsafe { run(|py| body(py).map(|()| 0), -1) }
}

/// # Safety
/// The GIL is held.
pub(super) unsafe fn run<R: Copy>(body: impl FnOnce(Python<'_>) -> PyResult<R>, failed: R) -> R {
    // SAFETY: by contract.
    let py = unsafe { Python::assume_attached() };
    match catch_unwind(AssertUnwindSafe(|| body(py))) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            error.restore(py);
            failed
        }
        Err(_) => {
            PyRuntimeError::new_err(
                "Overdrive panicked while it handled a tensor; please report this with the input",
            )
            .restore(py);
            failed
        }
    }
}

/// Drops a reference from whatever thread a consumer releases memory on. When the interpreter has gone there is
/// nothing left to do.
///
/// # Safety
/// The caller owns the reference.
pub(super) unsafe fn give_back(object: *mut ffi::PyObject) {
    // SAFETY: with the GIL held the reference is dropped in place; a thread without it takes it first.
    unsafe {
        if ffi::Py_IsInitialized() == 0 {
            return;
        }
        if ffi::PyGILState_Check() == 1 {
            ffi::Py_DECREF(object);
            return;
        }
        let state = ffi::PyGILState_Ensure();
        ffi::Py_DECREF(object);
        ffi::PyGILState_Release(state);
    }
}
