//! What compiled code asks NumPy about its own state.
//!
//! In: nothing. Out: an answer without side effects. NumPy itself is asked, so that every way to set the state counts.
#![expect(unsafe_code, reason = "called by machine code, which holds the GIL")]

use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::mechanics::gil_cell::GilCell;

/// The error state that was asked about last, and the answer. A state does not change; another one takes its place.
static LAST: GilCell<Option<(Py<PyAny>, bool)>> = GilCell::new(None);

/// `np.geterr()["under"] == "ignore"`. False when NumPy cannot say: then it decides itself.
pub(super) unsafe extern "C" fn under_ignored() -> u8 {
    // Machine code runs with the GIL held.
    // SAFETY: as said.
    let py = unsafe { Python::assume_attached() };
    u8::from(ask(py).unwrap_or(false))
}

fn ask(py: Python<'_>) -> PyResult<bool> {
    let state = present_state(py);
    if let Some(state) = &state {
        // SAFETY: the GIL is held; comparing addresses runs nothing.
        let known = unsafe {
            LAST.with(|last| last.as_ref().filter(|(known, _)| known.is(state)).map(|(_, answer)| *answer))
        };
        if let Some(answer) = known {
            return Ok(answer);
        }
    }
    let answer = geterr(py)?.call0()?.get_item("under")?.extract::<String>()? == "ignore";
    if let Some(state) = state {
        // SAFETY: the GIL is held; the old state is a capsule, whose end runs nothing.
        unsafe { LAST.with(|last| *last = Some((state.unbind(), answer))) };
    }
    Ok(answer)
}

/// The object that holds the error state of this context, from NumPy 2 on.
fn present_state(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let variable = VARIABLE.get_or_init(py, || umath(py, "_extobj_contextvar").ok());
    let mut state = null_mut();
    // SAFETY: a context variable; the result is a new reference, or null when there is no value.
    unsafe {
        if ffi::PyContextVar_Get(variable.as_ref()?.as_ptr(), null_mut(), &raw mut state) < 0 {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(py, state)
    }
}

/// From NumPy 2 on the function that `geterr` itself asks, which is no Python code.
fn geterr(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static ASK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let ask = ASK.get_or_try_init(py, || match umath(py, "_get_extobj_dict") {
        Ok(inner) => Ok(inner),
        Err(_) => py.import("numpy")?.getattr("geterr").map(Bound::unbind),
    })?;
    Ok(ask.bind(py))
}

fn umath(py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
    Ok(py.import("numpy._core._multiarray_umath")?.getattr(name)?.unbind())
}
