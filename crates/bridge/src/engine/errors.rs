//! Errors of the face, raised from here.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::{PyAnyMethods, PyErr, Python};

/// `overdrive.NotCompiledError` for a function, with the reasons, one a line.
pub(crate) fn not_compiled(py: Python<'_>, name: &str, why: &str) -> PyErr {
    let reasons: Vec<&str> = why.lines().collect();
    let made = || py.import("overdrive")?.getattr("NotCompiledError")?.call1((name, reasons));
    made().map_or_else(|_| PyRuntimeError::new_err(format!("{name}: {why}")), PyErr::from_value)
}
