//! The run time's pool of threads in a process of CPython's: its threads end before `os.fork`, as all threads of ours do.
//!
//! In: nothing but the moment. Out: whether the pool may start threads.
#![expect(unsafe_code, reason = "asks for hooks from machine code, which holds the GIL")]

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::Python;

use crate::background::{self, Rests};

/// As [`prepare`]. False while a fork is under way.
///
/// # Safety
/// The GIL is held and no exception is set.
pub(crate) unsafe fn may_be_used() -> bool {
    // SAFETY: by contract; registering a hook runs no code of the program.
    prepare(unsafe { Python::assume_attached() });
    !background::forking()
}

/// Once: has the threads end before a fork. To be called before the pool is used.
pub(crate) fn prepare(py: Python<'_>) {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::AcqRel) {
        let end: fn(Python<'_>) = |py| py.detach(overdrive_pool::rest);
        if let Err(error) = background::around_forks(py, Rests { end, go_on: |_| () }) {
            // `os.fork` may warn then; nothing else is different.
            error.write_unraisable(py, None);
        }
    }
}
