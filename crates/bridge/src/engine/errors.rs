//! Errors of the face, raised from here.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::{PyAnyMethods, PyErr, Python};

/// `overdrive.NotCompiledError` with the reasons.
pub(crate) fn not_compiled(py: Python<'_>, why: &str) -> PyErr {
    of_face(py, "NotCompiledError", why)
}

/// `overdrive.Error`.
pub(crate) fn error(py: Python<'_>, what: &str) -> PyErr {
    of_face(py, "Error", what)
}

fn of_face(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = || py.import("overdrive")?.getattr(class)?.call1((text,));
    match made() {
        Ok(error) => PyErr::from_value(error),
        // The extension was imported by itself.
        Err(_) => PyRuntimeError::new_err(text.to_owned()),
    }
}
