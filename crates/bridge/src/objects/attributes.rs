//! Attributes, subscripts, `with`'s two methods and `super()`'s attribute.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, call CPython")]

use std::ptr;

use pyo3::ffi::{self, PyObject};

use super::python::{_PyObject_LookupSpecial, Name, Owned, or_null, type_name};

pub(super) unsafe extern "C" fn get_attr(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { ffi::PyObject_GetAttr(object, name) }
}

pub(super) unsafe extern "C" fn set_attr(
    object: *mut PyObject,
    name: *mut PyObject,
    value: *mut PyObject,
) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PyObject_SetAttr(object, name, value) })
}

pub(super) unsafe extern "C" fn del_attr(object: *mut PyObject, name: *mut PyObject) -> i64 {
    // SAFETY: the table's contract; a null value deletes.
    i64::from(unsafe { ffi::PyObject_SetAttr(object, name, ptr::null_mut()) })
}

pub(super) unsafe extern "C" fn get_item(container: *mut PyObject, key: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract.
    unsafe { ffi::PyObject_GetItem(container, key) }
}

pub(super) unsafe extern "C" fn set_item(
    container: *mut PyObject,
    key: *mut PyObject,
    value: *mut PyObject,
) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PyObject_SetItem(container, key, value) })
}

pub(super) unsafe extern "C" fn del_item(container: *mut PyObject, key: *mut PyObject) -> i64 {
    // SAFETY: the table's contract.
    i64::from(unsafe { ffi::PyObject_DelItem(container, key) })
}

static ENTER: Name = Name::new(c"__enter__");
static EXIT: Name = Name::new(c"__exit__");

/// BEFORE_WITH: both methods are looked up before the first is called.
pub(super) unsafe extern "C" fn before_with(manager: *mut PyObject) -> *mut PyObject {
    // SAFETY: the table's contract; the names live for ever.
    unsafe {
        let (enter_name, exit_name) = (ENTER.get(), EXIT.get());
        if enter_name.is_null() || exit_name.is_null() {
            return ptr::null_mut();
        }
        let Some(enter) = Owned::new(_PyObject_LookupSpecial(manager, enter_name)) else {
            if ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Format(
                    ffi::PyExc_TypeError,
                    c"'%.200s' object does not support the context manager protocol".as_ptr(),
                    type_name(manager),
                );
            }
            return ptr::null_mut();
        };
        let Some(exit) = Owned::new(_PyObject_LookupSpecial(manager, exit_name)) else {
            if ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Format(
                    ffi::PyExc_TypeError,
                    c"'%.200s' object does not support the context manager protocol (missed __exit__ method)"
                        .as_ptr(),
                    type_name(manager),
                );
            }
            return ptr::null_mut();
        };
        // Room for the result first: nothing may fail after `__enter__` has run.
        let Some(pair) = Owned::new(ffi::PyTuple_New(2)) else { return ptr::null_mut() };
        let Some(entered) = Owned::new(ffi::PyObject_CallNoArgs(enter.as_ptr())) else {
            return ptr::null_mut();
        };
        ffi::PyTuple_SET_ITEM(pair.as_ptr(), 0, exit.into_ptr());
        ffi::PyTuple_SET_ITEM(pair.as_ptr(), 1, entered.into_ptr());
        pair.into_ptr()
    }
}

/// LOAD_SUPER_ATTR for a `super` that is the built-in type: `super()` there means `super(class, self)`.
pub(super) unsafe extern "C" fn super_attr(
    global_super: *mut PyObject,
    class: *mut PyObject,
    this: *mut PyObject,
    name: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the table's contract; the array lives through the call.
    unsafe {
        let args = [class, this];
        let proxy = Owned::new(ffi::PyObject_Vectorcall(global_super, args.as_ptr(), 2, ptr::null_mut()));
        or_null(proxy.and_then(|proxy| Owned::new(ffi::PyObject_GetAttr(proxy.as_ptr(), name))))
    }
}
