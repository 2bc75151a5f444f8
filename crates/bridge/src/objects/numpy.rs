//! What compiled code asks NumPy about its own state.
//!
//! In: nothing. Out: an answer without side effects. NumPy itself is asked, so that every way to set the state counts.
#![expect(unsafe_code, reason = "called by machine code, which holds the GIL")]

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `np.geterr()["under"] == "ignore"`. False when NumPy cannot say: then it decides itself.
pub(super) unsafe extern "C" fn under_ignored() -> u8 {
    // Machine code runs with the GIL held.
    // SAFETY: as said.
    let py = unsafe { Python::assume_attached() };
    let asked = || -> PyResult<bool> {
        let state = geterr(py)?.call0()?;
        Ok(state.get_item("under")?.extract::<String>()? == "ignore")
    };
    u8::from(asked().unwrap_or(false))
}

/// From NumPy 2 on the function that `geterr` itself asks, which is no Python code.
fn geterr(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let ask = ASK.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        let inner =
            py.import("numpy._core._multiarray_umath").and_then(|umath| umath.getattr("_get_extobj_dict"));
        let found = match inner {
            Ok(inner) => inner,
            Err(_) => py.import("numpy")?.getattr("geterr")?,
        };
        Ok(found.unbind())
    })?;
    Ok(ask.bind(py))
}
