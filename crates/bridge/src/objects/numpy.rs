//! What compiled code asks NumPy about its own state.
//!
//! In: nothing. Out: an answer without side effects. NumPy itself is asked, so that every way to set the state counts.
#![expect(unsafe_code, reason = "called by machine code, which holds the GIL")]

use pyo3::prelude::*;

/// `np.geterr()["under"] == "ignore"`. False when NumPy cannot say: then it decides itself.
pub(super) unsafe extern "C" fn under_ignored() -> u8 {
    // Machine code runs with the GIL held.
    // SAFETY: as said.
    let py = unsafe { Python::assume_attached() };
    let asked = || -> PyResult<bool> {
        let state = py.import("numpy")?.call_method0("geterr")?;
        Ok(state.get_item("under")?.extract::<String>()? == "ignore")
    };
    u8::from(asked().unwrap_or(false))
}
