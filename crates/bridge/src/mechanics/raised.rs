//! An exception taken out of the thread state and put back unchanged.
//!
//! In: the pending exception. Out: the same, later: context and traceback are not touched, which a Rust-side error
//! type would not promise. 3.12 and later keep one object where 3.11 has type, value and traceback.
#![expect(unsafe_code, reason = "moves references between the thread state and native code")]

use pyo3::ffi;

#[cfg(Py_3_12)]
const N_PARTS: usize = 1;
#[cfg(not(Py_3_12))]
const N_PARTS: usize = 3;

/// The exception, owned; or none.
#[derive(Debug)]
pub struct Raised([*mut ffi::PyObject; N_PARTS]);

impl Raised {
    pub const fn none() -> Raised {
        Raised([std::ptr::null_mut(); N_PARTS])
    }

    /// Takes the pending exception, if any, out of the thread state.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn take() -> Raised {
        #[cfg(Py_3_12)]
        // SAFETY: a new reference or null.
        return Raised([unsafe { ffi::PyErr_GetRaisedException() }]);
        #[cfg(not(Py_3_12))]
        {
            let mut parts = [std::ptr::null_mut(); N_PARTS];
            let [kind, value, traceback] = &mut parts;
            // SAFETY: three places for new references.
            unsafe { ffi::PyErr_Fetch(kind, value, traceback) };
            Raised(parts)
        }
    }

    /// The same exception without the first entry of its traceback: the frame that it came out of last.
    ///
    /// # Safety
    /// The GIL is held.
    #[must_use]
    pub unsafe fn without_outermost_entry(mut self) -> Raised {
        #[cfg(not(Py_3_12))]
        // SAFETY: all parts are owned or null.
        unsafe {
            let [_, _, traceback] = &mut self.0;
            let next = next_entry(*traceback);
            ffi::Py_XDECREF(std::mem::replace(traceback, next));
        }
        #[cfg(Py_3_12)]
        // SAFETY: an owned exception or null; setting a traceback or None does not fail.
        unsafe {
            let [value] = &mut self.0;
            if !value.is_null() {
                let traceback = ffi::PyException_GetTraceback(*value);
                let next = next_entry(traceback);
                ffi::PyException_SetTraceback(*value, if next.is_null() { ffi::Py_None() } else { next });
                ffi::Py_XDECREF(next);
                ffi::Py_XDECREF(traceback);
            }
        }
        self
    }

    /// Makes it the pending exception; none clears the pending one.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn restore(mut self) {
        let parts = std::mem::replace(&mut self.0, [std::ptr::null_mut(); N_PARTS]);
        #[cfg(Py_3_12)]
        // SAFETY: an owned exception or null.
        unsafe {
            ffi::PyErr_SetRaisedException(parts[0]);
        }
        #[cfg(not(Py_3_12))]
        // SAFETY: owned references or null, as fetched.
        unsafe {
            ffi::PyErr_Restore(parts[0], parts[1], parts[2]);
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        for part in self.0 {
            // SAFETY: owned or null; the GIL is held wherever an exception is kept.
            unsafe { ffi::Py_XDECREF(part) };
        }
    }
}

/// `tb_next` as a new reference; null at the end.
unsafe fn next_entry(traceback: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a traceback object or null, and no exception is pending.
    unsafe {
        if traceback.is_null() {
            return traceback;
        }
        let next = ffi::PyObject_GetAttrString(traceback, c"tb_next".as_ptr());
        if next.is_null() {
            ffi::PyErr_Clear();
        } else if next == ffi::Py_None() {
            ffi::Py_DECREF(next);
            return std::ptr::null_mut();
        }
        next
    }
}
