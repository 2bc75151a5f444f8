//! Exact dictionaries: what their methods and subscripts do, without the way through a method call.
//!
//! The hash of a str is kept in it; any other key is asked for its own, which may run Python code, as may the comparison
//! with keys that are already there.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ptr::null_mut;

use pyo3::ffi::{self, PyObject};

unsafe extern "C" {
    /// Borrowed; null with or without an exception.
    fn _PyDict_GetItem_KnownHash(
        dict: *mut PyObject,
        key: *mut PyObject,
        hash: ffi::Py_hash_t,
    ) -> *mut PyObject;
}

pub(super) unsafe extern "C" fn dict_get(
    dict: *mut PyObject,
    key: *mut PyObject,
    default: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract: an exact dict.
    unsafe {
        let mut hash = -1;
        if ffi::PyUnicode_CheckExact(key) != 0 {
            hash = (*key.cast::<ffi::PyASCIIObject>()).hash;
        }
        if hash == -1 {
            hash = ffi::PyObject_Hash(key);
            if hash == -1 {
                return null_mut();
            }
        }
        let found = _PyDict_GetItem_KnownHash(dict, key, hash);
        if !found.is_null() {
            return ffi::Py_NewRef(found);
        }
        if ffi::PyErr_Occurred().is_null() { ffi::Py_NewRef(default) } else { null_mut() }
    }
}

pub(super) unsafe extern "C" fn dict_setitem(
    dict: *mut PyObject,
    key: *mut PyObject,
    value: *mut PyObject,
) -> i64 {
    // SAFETY: as above.
    i64::from(unsafe { ffi::PyDict_SetItem(dict, key, value) })
}
