//! 3.11: reports the first call of every function of the project.
//!
//! In: code objects of modules right before they run, from an audit hook. Out: the functions in them get copies that
//! call `eager` once.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;

use super::prologue;
use crate::promote::eager;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Installs the hook, which cannot be taken away again; it does nothing while `eager` is off.
pub(super) fn watch(_py: Python<'_>, on: bool) -> PyResult<()> {
    static ONCE: Once = Once::new();
    if on {
        // SAFETY: the hook is a static function that checks what it gets.
        ONCE.call_once(|| unsafe {
            PySys_AddAuditHook(on_audit, null_mut());
        });
    }
    Ok(())
}

type AuditHook = unsafe extern "C" fn(*const c_char, *mut ffi::PyObject, *mut c_void) -> c_int;

unsafe extern "C" {
    fn PySys_AddAuditHook(hook: AuditHook, data: *mut c_void) -> c_int;
}

/// `exec` is raised with a code object right before it runs: a module, a class body is not among them.
unsafe extern "C" fn on_audit(event: *const c_char, arguments: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    if !eager::is_active() {
        return 0;
    }
    // SAFETY: CPython passes a C string and a tuple (or null), with the GIL held.
    unsafe {
        if arguments.is_null() || CStr::from_ptr(event) != c"exec" {
            return 0;
        }
    }
    Python::attach(|py| {
        // SAFETY: see above.
        let arguments = unsafe { Bound::from_borrowed_ptr(py, arguments) };
        let Ok(code) = arguments.get_item(0) else { return };
        let ours = code.getattr("co_filename").is_ok_and(|file| {
            file.cast::<PyString>().is_ok_and(|file| file.to_str().is_ok_and(eager::wants_file))
        });
        if ours {
            // A code object that cannot be copied runs as it is.
            let _ = prologue::watch_constants(&code);
        }
    });
    0
}
