//! Looked-up names that still hold, because no dictionary involved has changed since.
//!
//! In: the dictionaries, a name, the object that it stood for. Out: whether it still does, without looking it up. Every
//! change of a dictionary gives it a new version tag, which no other dictionary ever has, so two equal tags are one
//! state of one dictionary (PEP 509). Used by the tests of identity in front of native
//! code, which ask for the same few names at each call.
#![expect(unsafe_code, reason = "reads the version tag of dictionaries")]

use std::ptr::null_mut;

use pyo3::ffi::{self, PyObject};

use crate::mechanics::frame::field;
use crate::mechanics::gil_cell::GilCell;
use crate::mechanics::layout;

/// 3.12 and 3.13 keep watchers of the dictionary in the tag's low bits.
const VERSION_SHIFT: u32 = if cfg!(Py_3_13) {
    12
} else if cfg!(Py_3_12) {
    8
} else {
    0
};
const N_ENTRIES: usize = 512;

/// Which dictionaries in which state, which name, which object.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    dicts: [*mut PyObject; 2],
    tags: [u64; 2],
    name: *mut PyObject,
    value: *mut PyObject,
}

const EMPTY: Entry = Entry { dicts: [null_mut(); 2], tags: [0; 2], name: null_mut(), value: null_mut() };

/// Owns the names, so that none of them becomes another name at the same address. What it says about the objects holds
/// as long as the tags do, and so long the dictionaries own them.
static ENTRIES: GilCell<[Entry; N_ENTRIES]> = GilCell::new([EMPTY; N_ENTRIES]);

fn index(dict: *mut PyObject, name: *mut PyObject) -> usize {
    // Objects are at multiples of 16; names of one module are often neighbours, and so are dictionaries.
    ((name as usize >> 4) ^ (dict as usize >> 7)) % N_ENTRIES
}

/// # Safety
/// Null or an exact dictionary.
#[inline]
unsafe fn tag(dict: *mut PyObject) -> u64 {
    // SAFETY: the field is inside every dictionary.
    unsafe {
        if dict.is_null() { 0 } else { field::<u64>(dict.cast(), layout::dict::VERSION_TAG) >> VERSION_SHIFT }
    }
}

/// True if `name` was found to stand for `value` in these dictionaries, and they are as they were then.
///
/// # Safety
/// The GIL is held; `dicts` are alive.
#[inline]
pub(super) unsafe fn holds(dicts: [*mut PyObject; 2], name: *mut PyObject, value: *mut PyObject) -> bool {
    // SAFETY: by contract. A remembered dictionary may be gone and its address another object's, which `is_dict` finds.
    unsafe {
        ENTRIES.with(|entries| {
            let entry = &entries[index(dicts[0], name)];
            entry.name == name
                && entry.value == value
                && entry.dicts == dicts
                && dicts.iter().all(|dict| is_dict(*dict))
                && entry.tags == [tag(dicts[0]), tag(dicts[1])]
        })
    }
}

/// # Safety
/// Null or a live object.
#[inline]
unsafe fn is_dict(dict: *mut PyObject) -> bool {
    // SAFETY: by contract.
    dict.is_null() || unsafe { ffi::PyDict_CheckExact(dict) } != 0
}

/// Remembers that `name` stands for `value`.
///
/// # Safety
/// The GIL is held; all are alive (the second dictionary may be null); nothing ran since the look-up.
pub(super) unsafe fn remember(dicts: [*mut PyObject; 2], name: *mut PyObject, value: *mut PyObject) {
    // SAFETY: by contract. A name is a str: dropping the reference to another one runs no Python, and it happens
    // outside the closure.
    unsafe {
        if !dicts.iter().all(|dict| is_dict(*dict)) {
            return;
        }
        let entry = Entry { dicts, tags: [tag(dicts[0]), tag(dicts[1])], name, value };
        ffi::Py_INCREF(name);
        let old = ENTRIES.with(|entries| std::mem::replace(&mut entries[index(dicts[0], name)], entry));
        ffi::Py_XDECREF(old.name);
    }
}
