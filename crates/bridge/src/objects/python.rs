//! What the object table needs of CPython beyond PyO3's bindings: functions that CPython exports but does not
//! document, a reference that releases itself, interned names, and the pending exception as one object.
//!
//! The declared functions exist in CPython 3.11, 3.12 and 3.13 with these signatures (checked against each version's
//! exported symbols); one that is missing makes the extension fail to load, never misbehave.
#![expect(unsafe_code, reason = "declares and wraps functions of CPython")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi::{self, Py_hash_t, Py_ssize_t, PyObject, PyTypeObject};

unsafe extern "C" {
    /// Borrowed value, or null (with an exception only when a key's comparison raised).
    pub(super) fn _PyDict_GetItem_KnownHash(
        dict: *mut PyObject,
        key: *mut PyObject,
        hash: Py_hash_t,
    ) -> *mut PyObject;
    /// BUILD_STRING's own function.
    pub(super) fn _PyUnicode_JoinArray(
        separator: *mut PyObject,
        items: *const *mut PyObject,
        n: Py_ssize_t,
    ) -> *mut PyObject;
    /// `list.extend`; a new reference to None.
    pub(super) fn _PyList_Extend(list: *mut PyObject, iterable: *mut PyObject) -> *mut PyObject;
    pub(super) fn _PySet_Update(set: *mut PyObject, iterable: *mut PyObject) -> c_int;
    /// `override_` 2: a key that is there already raises KeyError with that key.
    pub(super) fn _PyDict_MergeEx(a: *mut PyObject, b: *mut PyObject, override_: c_int) -> c_int;
    /// A dict from values and a tuple of their keys, sized as BUILD_MAP sizes it.
    pub(super) fn _PyStack_AsDict(values: *const *mut PyObject, keys: *mut PyObject) -> *mut PyObject;
    /// How a callable is called in messages ("f()", "m.C.f()").
    pub(super) fn _PyObject_FunctionStr(callable: *mut PyObject) -> *mut PyObject;
    /// A special method, bound; null without exception when the type has none.
    pub(super) fn _PyObject_LookupSpecial(object: *mut PyObject, name: *mut PyObject) -> *mut PyObject;
    /// Borrowed attribute of a type along its MRO; runs no Python code for an interned name.
    pub(super) fn _PyType_Lookup(ty: *mut PyTypeObject, name: *mut PyObject) -> *mut PyObject;
    pub(super) fn _Py_Dealloc(object: *mut PyObject);
    #[cfg(Py_3_13)]
    pub(super) fn _PyFunction_SetVersion(function: *mut ffi::PyFunctionObject, version: u32);
    /// 1 and a new reference, 0 without exception when missing, −1 with exception.
    #[cfg_attr(Py_3_13, link_name = "PyObject_GetOptionalAttr")]
    pub(super) fn _PyObject_LookupAttr(
        object: *mut PyObject,
        name: *mut PyObject,
        result: *mut *mut PyObject,
    ) -> c_int;
}

/// An owned reference, never null; released when dropped. Lives only while the GIL is held.
pub(super) struct Owned(*mut PyObject);

impl Owned {
    /// Takes a new reference; `None` for null (an exception is then set, or the value is absent).
    ///
    /// # Safety
    /// `object` is null or a reference that the caller owns.
    pub(super) unsafe fn new(object: *mut PyObject) -> Option<Owned> {
        (!object.is_null()).then(|| Owned(object))
    }

    /// One more reference to a live object.
    ///
    /// # Safety
    /// `object` is alive.
    pub(super) unsafe fn share(object: *mut PyObject) -> Owned {
        // SAFETY: the caller's contract.
        unsafe { ffi::Py_INCREF(object) };
        Owned(object)
    }

    pub(super) fn as_ptr(&self) -> *mut PyObject {
        self.0
    }

    /// Gives the reference away.
    pub(super) fn into_ptr(self) -> *mut PyObject {
        let object = self.0;
        std::mem::forget(self);
        object
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: an owned reference, and the GIL is held (see the type).
        unsafe { ffi::Py_DECREF(self.0) };
    }
}

/// The pointer, or null for nothing.
pub(super) fn or_null(object: Option<Owned>) -> *mut PyObject {
    object.map_or(ptr::null_mut(), Owned::into_ptr)
}

/// A name that is interned at first use and then kept.
pub(super) struct Name {
    text: &'static CStr,
    object: AtomicPtr<PyObject>,
}

impl Name {
    pub(super) const fn new(text: &'static CStr) -> Name {
        Name { text, object: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Borrowed; null with MemoryError set.
    pub(super) fn get(&self) -> *mut PyObject {
        let known = self.object.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a nul-terminated string; the GIL is held by every caller in this module's family.
        let made = unsafe { ffi::PyUnicode_InternFromString(self.text.as_ptr()) };
        self.object.store(made, Ordering::Relaxed);
        made
    }
}

/// `tp_name` of an object's type, for messages.
///
/// # Safety
/// `object` is alive.
pub(super) unsafe fn type_name(object: *mut PyObject) -> *const c_char {
    // SAFETY: the caller's contract; every type has a name.
    unsafe { (*ffi::Py_TYPE(object)).tp_name }
}

/// True when the pending exception is of this class.
///
/// # Safety
/// GIL held; `class` is an exception class.
pub(super) unsafe fn raised_is(class: *mut PyObject) -> bool {
    // SAFETY: the caller's contract; without an exception the answer is no.
    unsafe { !ffi::PyErr_Occurred().is_null() && ffi::PyErr_ExceptionMatches(class) != 0 }
}

/// Takes the pending exception as an instance.
///
/// # Safety
/// GIL held.
pub(super) unsafe fn take_raised() -> Option<Owned> {
    // SAFETY: plain calls; the fetched references are owned here.
    unsafe {
        #[cfg(Py_3_12)]
        {
            Owned::new(ffi::PyErr_GetRaisedException())
        }
        #[cfg(not(Py_3_12))]
        {
            let (mut ty, mut value, mut traceback) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            ffi::PyErr_Fetch(&mut ty, &mut value, &mut traceback);
            if ty.is_null() {
                return None;
            }
            ffi::PyErr_NormalizeException(&mut ty, &mut value, &mut traceback);
            let _ty = Owned::new(ty);
            let traceback = Owned::new(traceback);
            if let (false, Some(traceback)) = (value.is_null(), traceback) {
                ffi::PyException_SetTraceback(value, traceback.as_ptr());
            }
            Owned::new(value)
        }
    }
}

/// Makes an instance the pending exception.
///
/// # Safety
/// GIL held; the object is an exception instance.
pub(super) unsafe fn set_raised(exception: Owned) {
    // SAFETY: both functions take the reference over.
    unsafe {
        #[cfg(Py_3_12)]
        {
            ffi::PyErr_SetRaisedException(exception.into_ptr());
        }
        #[cfg(not(Py_3_12))]
        {
            let ty = Owned::share(ffi::Py_TYPE(exception.as_ptr()).cast());
            let traceback = ffi::PyException_GetTraceback(exception.as_ptr());
            ffi::PyErr_Restore(ty.into_ptr(), exception.into_ptr(), traceback);
        }
    }
}

/// Refuses an argument that no translator emits; CPython's own answer to a broken caller.
pub(super) fn internal_error(what: &CStr) -> *mut PyObject {
    // SAFETY: a nul-terminated message; GIL held by every caller in this module's family.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_SystemError, what.as_ptr()) };
    ptr::null_mut()
}
