//! Gives the GIL away around machine code that needs nothing of CPython, and takes it back.
//!
//! In: a thread that holds it. Out: the same thread, holding it again; between the two it has no thread state.
#![expect(unsafe_code, reason = "CPython's thread states")]

use std::cell::Cell;
use std::ptr::null_mut;

use pyo3::ffi;

thread_local! {
    static SAVED: Cell<*mut ffi::PyThreadState> = const { Cell::new(null_mut()) };
}

pub(crate) unsafe extern "C" fn give() {
    // SAFETY: the table's contract: the GIL is held. Code that gave it away does not give it again before it took it.
    SAVED.set(unsafe { ffi::PyEval_SaveThread() });
}

pub(crate) unsafe extern "C" fn take() {
    let saved = SAVED.replace(null_mut());
    if !saved.is_null() {
        // SAFETY: this thread's own state, from `give`.
        unsafe { ffi::PyEval_RestoreThread(saved) };
    }
}
