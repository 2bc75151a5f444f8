//! Exact strings: characters, comparison, iterators at a position.
//!
//! Strings never change, so these run no code of anybody's. Characters up to U+00FF are CPython's own objects, one each.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::cmp::Ordering;

use pyo3::ffi::{self, PyObject};

use super::python::Owned;

pub(super) unsafe extern "C" fn str_item(text: *mut PyObject, position: i64) -> *mut PyObject {
    // SAFETY: the table's contract: an exact str that has this position.
    unsafe {
        let c = ffi::PyUnicode_ReadChar(text, position as ffi::Py_ssize_t);
        ffi::PyUnicode_FromOrdinal(c as _)
    }
}

pub(super) unsafe extern "C" fn str_compare(op: i64, a: *mut PyObject, b: *mut PyObject) -> u8 {
    let ordering = if a == b {
        Ordering::Equal
    } else {
        // SAFETY: the table's contract: exact strs, for which this does not fail.
        unsafe { ffi::PyUnicode_Compare(a, b) }.cmp(&0)
    };
    u8::from(match op {
        0 => ordering.is_lt(),
        1 => ordering.is_le(),
        2 => ordering.is_eq(),
        3 => ordering.is_ne(),
        4 => ordering.is_gt(),
        _ => ordering.is_ge(),
    })
}

/// The iterator of a string, new, with its next item at `position`; beyond the end, or negative, it is exhausted.
///
/// # Safety
/// GIL held.
pub(super) unsafe fn str_iter_at(iterator: Owned, position: i64) -> Option<Owned> {
    let is_exhausted = position < 0;
    let position = if is_exhausted { i64::MAX } else { position };
    // SAFETY: a live iterator; it clamps the position to the length.
    unsafe {
        let set = ffi::PyObject_CallMethod(
            iterator.as_ptr(),
            c"__setstate__".as_ptr(),
            c"L".as_ptr(),
            std::ffi::c_longlong::from(position),
        );
        drop(Owned::new(set)?);
        if is_exhausted {
            drop(Owned::new(ffi::PyIter_Next(iterator.as_ptr())));
        }
    }
    Some(iterator)
}
