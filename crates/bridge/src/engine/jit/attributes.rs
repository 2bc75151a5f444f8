//! What a jitted callable answers besides calls: the attributes of a function, binding, `repr`.
//!
//! Attributes are the original function's. Those that steer a call (defaults, names in error messages) are also set on
//! the twin, so that both ways to call agree.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3::ffi;

use super::JitFunction;

/// Attributes that are read from and written to the original only.
const PLAIN: &[&CStr] =
    &[c"__doc__", c"__module__", c"__annotations__", c"__globals__", c"__closure__", c"__builtins__"];
/// Attributes that the twin must share.
const SHARED: &[&CStr] = &[c"__name__", c"__qualname__", c"__defaults__", c"__kwdefaults__"];

/// The table of attributes, for the type.
pub(super) fn table() -> *mut ffi::PyGetSetDef {
    let entry = |name: &'static CStr, get: ffi::getter, set: Option<ffi::setter>| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set,
        doc: std::ptr::null(),
        closure: name.as_ptr() as *mut c_void,
    };
    let mut out: Vec<ffi::PyGetSetDef> = Vec::new();
    out.extend(PLAIN.iter().map(|name| entry(name, get, Some(set_plain))));
    out.extend(SHARED.iter().map(|name| entry(name, get, Some(set_shared))));
    if cfg!(Py_3_12) {
        out.push(entry(c"__type_params__", get, Some(set_plain)));
    }
    out.push(entry(c"__code__", get_code, Some(set_code)));
    out.push(entry(c"__wrapped__", get_wrapped, None));
    out.push(entry(c"__dict__", get_dict, Some(set_dict)));
    // SAFETY: all zero is the table's end mark.
    out.push(unsafe { std::mem::zeroed() });
    // The type lives as long as the process and keeps a pointer into the table.
    Box::leak(out.into_boxed_slice()).as_mut_ptr()
}

unsafe extern "C" fn get(object: *mut ffi::PyObject, name: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: called by our type's descriptors; the closure is the attribute's name.
    unsafe {
        match original(object) {
            Some(function) => ffi::PyObject_GetAttrString(function, name.cast()),
            None => null_mut(),
        }
    }
}

unsafe extern "C" fn set_plain(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    name: *mut c_void,
) -> c_int {
    // SAFETY: as `get`; a null value deletes, for `PyObject_SetAttrString` too.
    unsafe {
        match original(object) {
            Some(function) => ffi::PyObject_SetAttrString(function, name.cast(), value),
            None => -1,
        }
    }
}

unsafe extern "C" fn set_shared(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    name: *mut c_void,
) -> c_int {
    // SAFETY: as `set_plain`; the twin is a function too.
    unsafe {
        if set_plain(object, value, name) < 0 {
            return -1;
        }
        let this = object.cast::<JitFunction>();
        if (*this).target == (*this).original {
            return 0;
        }
        ffi::PyObject_SetAttrString((*this).target, name.cast(), value)
    }
}

unsafe extern "C" fn get_code(object: *mut ffi::PyObject, name: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as `get`. The original may have been promoted by itself; its own code is what people ask for.
    unsafe { get(object, name) }
}

/// New code cannot be what was compiled: from here on the original is called.
unsafe extern "C" fn set_code(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    name: *mut c_void,
) -> c_int {
    // SAFETY: as `set_plain`; the old target is released last, it may run a finaliser.
    unsafe {
        if set_plain(object, value, name) < 0 {
            return -1;
        }
        super::interpret(object);
        0
    }
}

unsafe extern "C" fn get_wrapped(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a new reference to a live field.
    unsafe { original(object).map_or(null_mut(), |f| ffi::Py_NewRef(f)) }
}

unsafe extern "C" fn get_dict(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the type has a dictionary slot.
    unsafe { ffi::PyObject_GenericGetDict(object, null_mut()) }
}

/// Keeps one dictionary for both: the original refuses what is none.
unsafe extern "C" fn set_dict(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the original is alive; its setter checks the type of the value.
    unsafe {
        let Some(function) = original(object) else { return -1 };
        if ffi::PyObject_SetAttrString(function, c"__dict__".as_ptr(), value) < 0 {
            return -1;
        }
        let this = object.cast::<JitFunction>();
        let old = std::mem::replace(&mut (*this).dict, ffi::Py_NewRef(value));
        ffi::Py_XDECREF(old);
        0
    }
}

pub(super) unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the name is a new reference that lives over the formatting.
    unsafe {
        let name = get(object, c"__qualname__".as_ptr() as *mut c_void);
        if name.is_null() {
            return null_mut();
        }
        let text = ffi::PyUnicode_FromFormat(c"<overdrive.jit %U at %p>".as_ptr(), name, object);
        ffi::Py_DECREF(name);
        text
    }
}

unsafe extern "C" {
    fn PyMethod_New(function: *mut ffi::PyObject, receiver: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// `__get__`: a bound method, as functions give one.
pub(super) unsafe extern "C" fn bind(
    object: *mut ffi::PyObject,
    receiver: *mut ffi::PyObject,
    _owner: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: `PyMethod_New` takes its own references.
    unsafe {
        if receiver.is_null() || receiver == ffi::Py_None() {
            return ffi::Py_NewRef(object);
        }
        PyMethod_New(object, receiver)
    }
}

/// The original function, borrowed; sets `ReferenceError` when the collector already took it.
pub(super) unsafe fn original(object: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
    // SAFETY: `object` is of our type.
    let function = unsafe { (*object.cast::<JitFunction>()).original };
    if function.is_null() {
        // SAFETY: plain error setting.
        unsafe {
            ffi::PyErr_SetString(
                ffi::PyExc_ReferenceError,
                c"the jitted function was already destroyed".as_ptr(),
            );
        }
        return None;
    }
    Some(function)
}
