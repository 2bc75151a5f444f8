//! Globals, builtins, module attributes and cells.
//!
//! `LoadGlobal` is LOAD_GLOBAL with its messages. The two tests of identity (`GlobalIs`, `ModuleAttrIs`) look into exact
//! dictionaries only and never run Python code: what they cannot decide that way is "no".
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ffi::c_int;
use std::ptr;

use pyo3::ffi::{self, Py_hash_t, Py_ssize_t, PyObject};

use super::python::{
    _PyDict_GetItem_KnownHash, _PyType_Lookup, Name, Owned, or_null, raised_is, set_raised, take_raised,
};
use super::remembered;

pub(super) unsafe extern "C" fn load_global(
    globals: *mut PyObject,
    builtins: *mut PyObject,
    name: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract; dictionary values are referenced before anything else runs.
    unsafe {
        if ffi::PyDict_CheckExact(globals) != 0 && ffi::PyDict_CheckExact(builtins) != 0 {
            for namespace in [globals, builtins] {
                let value = ffi::PyDict_GetItemWithError(namespace, name);
                if !value.is_null() {
                    return Owned::share(value).into_ptr();
                }
                if !ffi::PyErr_Occurred().is_null() {
                    return ptr::null_mut();
                }
            }
        } else {
            for namespace in [globals, builtins] {
                let value = ffi::PyObject_GetItem(namespace, name);
                if !value.is_null() {
                    return value;
                }
                if !raised_is(ffi::PyExc_KeyError) {
                    return ptr::null_mut();
                }
                ffi::PyErr_Clear();
            }
        }
        raise_name_error(name);
        ptr::null_mut()
    }
}

static NAME: Name = Name::new(c"name");

/// `name '…' is not defined`, with the attribute `name` that suggestions are made from.
///
/// # Safety
/// GIL held, `name` is a str.
unsafe fn raise_name_error(name: *mut PyObject) {
    // SAFETY: the caller's contract; the text lives as long as the name.
    unsafe {
        let text = ffi::PyUnicode_AsUTF8(name);
        if text.is_null() {
            return;
        }
        ffi::PyErr_Format(ffi::PyExc_NameError, c"name '%.200s' is not defined".as_ptr(), text);
        let Some(exception) = take_raised() else { return };
        let attribute = NAME.get();
        if ffi::PyErr_GivenExceptionMatches(exception.as_ptr(), ffi::PyExc_NameError) != 0
            && !attribute.is_null()
            && ffi::PyObject_SetAttr(exception.as_ptr(), attribute, name) < 0
        {
            ffi::PyErr_Clear();
        }
        set_raised(exception);
    }
}

pub(super) unsafe extern "C" fn store_global(
    globals: *mut PyObject,
    name: *mut PyObject,
    value: *mut PyObject,
) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PyDict_SetItem(globals, name, value) })
}

pub(super) unsafe extern "C" fn del_global(globals: *mut PyObject, name: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    unsafe {
        let status = ffi::PyDict_DelItem(globals, name);
        if status != 0 && raised_is(ffi::PyExc_KeyError) {
            ffi::PyErr_Clear();
            raise_name_error(name);
        }
        i64::from(status)
    }
}

/// What a name means, when both scopes are plain dictionaries.
///
/// # Safety
/// The table's contract.
unsafe fn peek_global(
    globals: *mut PyObject,
    builtins: *mut PyObject,
    name: *mut PyObject,
) -> Option<*mut PyObject> {
    // SAFETY: the caller's contract.
    match unsafe { peek(globals, name) } {
        Peek::Value(value) => Some(value),
        Peek::Unknown => None,
        // SAFETY: as above.
        Peek::Absent => match unsafe { peek(builtins, name) } {
            Peek::Value(value) => Some(value),
            Peek::Absent | Peek::Unknown => None,
        },
    }
}

pub(super) unsafe extern "C" fn global_int(
    globals: *mut PyObject,
    builtins: *mut PyObject,
    name: *mut PyObject,
    result: *mut i64,
) -> u8 {
    // SAFETY: the table's contract; `unbox_int` tests the type.
    unsafe { peek_global(globals, builtins, name).map_or(0, |value| super::boxing::unbox_int(value, result)) }
}

pub(super) unsafe extern "C" fn global_float(
    globals: *mut PyObject,
    builtins: *mut PyObject,
    name: *mut PyObject,
    result: *mut f64,
) -> u8 {
    // SAFETY: the table's contract; the value is read only from an exact float.
    unsafe {
        match peek_global(globals, builtins, name) {
            Some(value) if ffi::PyFloat_CheckExact(value) != 0 => {
                *result = ffi::PyFloat_AS_DOUBLE(value);
                1
            }
            _ => 0,
        }
    }
}

/// Whether CPython asks for its turn on this thread, which holds the GIL as in all of this module.
pub fn is_turn_asked() -> bool {
    // SAFETY: the module's contract.
    unsafe { poll_pending() != 0 }
}

/// As the inline poll of machine code tests it.
pub(super) unsafe extern "C" fn poll_pending() -> u8 {
    // SAFETY: machine code runs with the GIL held, so there is a current thread; other threads write the word
    // atomically.
    unsafe {
        let word = crate::mechanics::frame::Thread::current().eval_breaker();
        #[cfg(Py_3_13)]
        let pending = (*word.cast::<std::sync::atomic::AtomicUsize>())
            .load(std::sync::atomic::Ordering::Relaxed)
            & 0xff
            != 0;
        #[cfg(not(Py_3_13))]
        let pending =
            (*word.cast::<std::sync::atomic::AtomicI32>()).load(std::sync::atomic::Ordering::Relaxed) != 0;
        u8::from(pending)
    }
}

pub(super) unsafe extern "C" fn global_is(
    globals: *mut PyObject,
    builtins: *mut PyObject,
    name: *mut PyObject,
    expected: *mut PyObject,
) -> u8 {
    // SAFETY: the table's contract; peeking runs no Python.
    unsafe {
        if remembered::holds([globals, builtins], name, expected) {
            return 1;
        }
        let is_it = peek_global(globals, builtins, name) == Some(expected);
        if is_it {
            remembered::remember([globals, builtins], name, expected);
        }
        u8::from(is_it)
    }
}

pub(super) unsafe extern "C" fn module_attr_is(
    module: *mut PyObject,
    name: *mut PyObject,
    expected: *mut PyObject,
) -> u8 {
    // SAFETY: the table's contract; the type is alive as long as its instance.
    unsafe {
        let ty = ffi::Py_TYPE(module);
        // A lazy module replaces its class; then its class decides what an attribute is.
        if ffi::PyModule_Check(module) == 0
            || (*ty).tp_getattro.map(|f| f as usize) != ffi::PyModule_Type.tp_getattro.map(|f| f as usize)
            || ffi::PyUnicode_CheckExact(name) == 0
        {
            return 0;
        }
        // The type of plain modules is immutable: what it was asked when a name was remembered, it answers again.
        if ty == &raw mut ffi::PyModule_Type
            && remembered::holds([ffi::PyModule_GetDict(module), ptr::null_mut()], name, expected)
        {
            return 1;
        }
        let of_type = _PyType_Lookup(ty, name);
        if !of_type.is_null() && (*ffi::Py_TYPE(of_type)).tp_descr_set.is_some() {
            return 0;
        }
        let dict = ffi::PyModule_GetDict(module);
        let is_it = matches!(peek(dict, name), Peek::Value(value) if value == expected);
        if is_it {
            remembered::remember([dict, ptr::null_mut()], name, expected);
        }
        u8::from(is_it)
    }
}

/// What a dictionary holds under a name, as far as it can be told without running Python code.
pub(super) enum Peek {
    /// Borrowed.
    Value(*mut PyObject),
    Absent,
    Unknown,
}

/// Looks a str up without running Python code.
///
/// # Safety
/// GIL held, both objects are alive (a null name is not found).
pub(super) unsafe fn peek(dict: *mut PyObject, name: *mut PyObject) -> Peek {
    // SAFETY: the caller's contract; an exact dictionary and an exact str are established first.
    unsafe {
        if name.is_null() || ffi::PyDict_CheckExact(dict) == 0 || ffi::PyUnicode_CheckExact(name) == 0 {
            return Peek::Unknown;
        }
        if !has_only_str_keys(dict) {
            return scan(dict, name);
        }
        // An exact str hashes without Python code and cannot fail.
        let hash: Py_hash_t = ffi::PyObject_Hash(name);
        let value = _PyDict_GetItem_KnownHash(dict, name, hash);
        if value.is_null() { Peek::Absent } else { Peek::Value(value) }
    }
}

/// `dk_kind` of the keys, which CPython sets to 0 as soon as any key is not an exact str.
///
/// # Safety
/// An exact dictionary, GIL held.
unsafe fn has_only_str_keys(dict: *mut PyObject) -> bool {
    const DK_KIND: usize = 10;
    // SAFETY: `_dictkeysobject` begins with the reference count (8 bytes), two logarithms and the kind, in 3.11 to 3.13.
    unsafe {
        let keys = (*dict.cast::<ffi::PyDictObject>()).ma_keys.cast::<u8>();
        *keys.add(DK_KIND) != 0
    }
}

/// Goes through all items: a dictionary with other keys might compare them by Python code when asked.
///
/// # Safety
/// As [`peek`], which has made its tests.
unsafe fn scan(dict: *mut PyObject, name: *mut PyObject) -> Peek {
    let (mut position, mut key, mut value): (Py_ssize_t, _, _) = (0, ptr::null_mut(), ptr::null_mut());
    let mut foreign = false;
    // SAFETY: nothing below changes the dictionary or runs Python code.
    unsafe {
        while ffi::PyDict_Next(dict, &mut position, &mut key, &mut value) != 0 {
            if ffi::PyUnicode_CheckExact(key) != 0 {
                if key == name || ffi::PyUnicode_Compare(key, name) == 0 {
                    return Peek::Value(value);
                }
            } else {
                foreign |= !never_equals_str(key);
            }
        }
    }
    if foreign { Peek::Unknown } else { Peek::Absent }
}

/// True for the usual keys that a str never equals.
///
/// # Safety
/// `key` is alive.
unsafe fn never_equals_str(key: *mut PyObject) -> bool {
    // SAFETY: the caller's contract.
    let checks: [c_int; 5] = unsafe {
        [
            ffi::PyLong_CheckExact(key),
            ffi::PyFloat_CheckExact(key),
            ffi::PyBytes_CheckExact(key),
            ffi::PyTuple_CheckExact(key),
            ffi::PyBool_Check(key),
        ]
    };
    checks.into_iter().any(|c| c != 0)
}

pub(super) unsafe extern "C" fn make_cell(value: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract; null makes an empty cell.
    unsafe { ffi::PyCell_New(value) }
}

pub(super) unsafe extern "C" fn load_cell(cell: *mut PyObject, result: *mut *mut PyObject) -> u8 {
    // SAFETY: the table's contract.
    unsafe {
        if ffi::PyCell_Check(cell) == 0 {
            return 0;
        }
        let value = or_null(Owned::new(ffi::PyCell_Get(cell)));
        if value.is_null() {
            return 0;
        }
        *result = value;
        1
    }
}

pub(super) unsafe extern "C" fn store_cell(cell: *mut PyObject, value: *mut PyObject) -> i64 {
    // SAFETY: the table's contract: the object is a cell, for which this cannot fail. Null empties it.
    i64::from(unsafe { ffi::PyCell_Set(cell, value) })
}
