//! `overdrive.jit`'s callable: a heap type of its own, with vectorcall.
//!
//! In: a Python function. Out: an object that calls like it, binds like it and pickles like it. It owns the original
//! function and an internal twin whose code object is the stub; a leaf version is called straight from here. The type is
//! raw C API because PyO3 has no vectorcall slot.

mod attributes;
mod call;
mod pickle;
mod starred;

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::{Bound, Py, PyAny, PyErr, PyResult, Python};

use super::unit::{Unit, Wants};
use crate::mechanics::giving;
pub(super) use call::through_twin;

/// The object. Reference fields are owned; `unit` is owned by the native object in the twin's code.
#[repr(C)]
pub(crate) struct JitFunction {
    ob_base: ffi::PyObject,
    vectorcall: ffi::vectorcallfunc,
    /// Native side of the twin; null when the function stays interpreted.
    unit: *const Unit,
    /// Called when no leaf version takes the arguments: the twin, or the original when nothing can be compiled.
    target: *mut ffi::PyObject,
    original: *mut ffi::PyObject,
    /// The native object that owns `unit`, or null.
    native: *mut ffi::PyObject,
    /// The original's `__dict__`, shared with it.
    dict: *mut ffi::PyObject,
    weakrefs: *mut ffi::PyObject,
}

/// What the twin is made of.
pub(crate) struct Twin {
    pub(crate) function: Py<PyAny>,
    pub(crate) native: Py<PyAny>,
    pub(crate) unit: *const Unit,
}

/// Makes the callable. Without a twin it calls the original.
///
/// # Errors
/// `MemoryError`, or what making the type for the first time raises.
pub(crate) fn new(original: &Bound<'_, PyAny>, twin: Option<Twin>) -> PyResult<Py<PyAny>> {
    let py = original.py();
    let ty = type_object(py)?;
    // SAFETY: a fresh object of our own type; every field is written before anybody else sees it, since allocation
    // zeroes them and tracking by the collector only traverses.
    unsafe {
        let dict = ffi::PyObject_GenericGetDict(original.as_ptr(), null_mut());
        if dict.is_null() {
            return Err(PyErr::fetch(py));
        }
        let object = ffi::PyType_GenericAlloc(ty, 0).cast::<JitFunction>();
        if object.is_null() {
            ffi::Py_DECREF(dict);
            return Err(PyErr::fetch(py));
        }
        (*object).vectorcall = call::vectorcall;
        (*object).original = original.clone().into_ptr();
        (*object).dict = dict;
        match twin {
            Some(twin) => {
                (*twin.unit).jitted.set(object.cast());
                (*object).unit = twin.unit;
                (*object).target = twin.function.into_ptr();
                (*object).native = twin.native.into_ptr();
            }
            None => (*object).target = original.clone().into_ptr(),
        }
        Ok(Bound::from_owned_ptr(py, object.cast()).unbind())
    }
}

/// True for objects made by `new`.
pub(crate) fn is_jit_function(object: *mut ffi::PyObject) -> bool {
    // SAFETY: callers pass a live object; only its type is read.
    TYPE.get().is_some_and(|ty| unsafe { ffi::Py_TYPE(object) } == ty.0)
}

/// The original function of a jitted callable.
pub(crate) fn original<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if !is_jit_function(object.as_ptr()) {
        return None;
    }
    // SAFETY: the type was checked; the field is null only after the collector cleared the object.
    unsafe { Bound::from_borrowed_ptr_or_opt(object.py(), (*object.as_ptr().cast::<JitFunction>()).original) }
}

/// The unit of a jitted callable, unless it only calls its original.
pub(crate) fn unit_of<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a Unit> {
    if !is_jit_function(object.as_ptr()) {
        return None;
    }
    // SAFETY: the type was checked; the field is null, or the unit lives as long as the object, which is borrowed.
    unsafe { (*object.as_ptr().cast::<JitFunction>()).unit.as_ref() }
}

/// What a jitted callable was made with.
pub(crate) fn wants(object: &Bound<'_, PyAny>) -> Wants {
    unit_of(object).map_or_else(Wants::default, |unit| unit.wants)
}

/// From now on the original is called. What was compiled is kept: it may be running.
///
/// # Safety
/// The GIL is held; `object` is null or a live jitted callable.
pub(crate) unsafe fn interpret(object: *mut ffi::PyObject) {
    let this = object.cast::<JitFunction>();
    // SAFETY: by contract. The twin's code is kept alive by `native`; the twin itself is released last.
    unsafe {
        if this.is_null() || (*this).original.is_null() || (*this).target == (*this).original {
            return;
        }
        (*this).unit = std::ptr::null();
        let old = std::mem::replace(&mut (*this).target, ffi::Py_NewRef((*this).original));
        ffi::Py_DECREF(old);
    }
}

/// What a jitted callable calls at present.
unsafe fn target(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called with objects of our own type, the GIL held.
    unsafe { (*object.cast::<JitFunction>()).target }
}

struct TypePtr(*mut ffi::PyTypeObject);
// SAFETY: a type object that is never freed; used under the GIL only.
unsafe impl Send for TypePtr {}
// SAFETY: as above.
unsafe impl Sync for TypePtr {}

static TYPE: OnceLock<TypePtr> = OnceLock::new();

fn type_object(py: Python<'_>) -> PyResult<*mut ffi::PyTypeObject> {
    if let Some(ty) = TYPE.get() {
        return Ok(ty.0);
    }
    let ty = make_type(py)?;
    let ty = TYPE.get_or_init(|| TypePtr(ty)).0;
    giving::register(ty, call::call_giving, target);
    Ok(ty)
}

const fn member(name: &'static std::ffi::CStr, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as ffi::Py_ssize_t,
        flags: ffi::Py_READONLY,
        doc: std::ptr::null(),
    }
}

fn make_type(py: Python<'_>) -> PyResult<*mut ffi::PyTypeObject> {
    // The type keeps pointers into these tables, and lives as long as the process.
    let members = Box::leak(Box::new([
        member(c"__vectorcalloffset__", offset_of!(JitFunction, vectorcall)),
        member(c"__dictoffset__", offset_of!(JitFunction, dict)),
        member(c"__weaklistoffset__", offset_of!(JitFunction, weakrefs)),
        // SAFETY: all zero is the table's end mark.
        unsafe { std::mem::zeroed() },
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_call, ffi::PyVectorcall_Call as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_repr, attributes::repr as *mut c_void),
        slot(ffi::Py_tp_descr_get, attributes::bind as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, attributes::table().cast()),
        slot(ffi::Py_tp_methods, pickle::methods().cast()),
        slot(0, null_mut()),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT
        | ffi::Py_TPFLAGS_HAVE_GC
        | ffi::Py_TPFLAGS_HAVE_VECTORCALL
        | ffi::Py_TPFLAGS_METHOD_DESCRIPTOR
        | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: c"overdrive._core.JitFunction".as_ptr(),
        basicsize: size_of::<JitFunction>() as c_int,
        itemsize: 0,
        flags: flags as u32,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete and its tables outlive the type.
    let ty = unsafe { ffi::PyType_FromSpec(&mut spec) };
    if ty.is_null() { Err(PyErr::fetch(py)) } else { Ok(ty.cast()) }
}

unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: called by the collector on our own object; fields are null or owned.
    unsafe {
        let this = object.cast::<JitFunction>();
        let fields =
            [(*this).target, (*this).original, (*this).native, (*this).dict, ffi::Py_TYPE(object).cast()];
        for field in fields {
            if !field.is_null() {
                let stop = visit(field, arg);
                if stop != 0 {
                    return stop;
                }
            }
        }
    }
    0
}

unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: each field is emptied before its reference is dropped, so a finaliser that comes back sees null.
    unsafe {
        let this = object.cast::<JitFunction>();
        if let Some(unit) = (*this).unit.as_ref() {
            unit.jitted.set(null_mut());
        }
        (*this).unit = std::ptr::null();
        for field in [
            &raw mut (*this).target,
            &raw mut (*this).original,
            &raw mut (*this).native,
            &raw mut (*this).dict,
        ] {
            let old = field.replace(null_mut());
            ffi::Py_XDECREF(old);
        }
    }
    0
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone. Order as for any heap type: untrack, weak references, fields, memory, type.
    unsafe {
        let ty = ffi::Py_TYPE(object);
        ffi::PyObject_GC_UnTrack(object.cast());
        if !(*object.cast::<JitFunction>()).weakrefs.is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        clear(object);
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(ty.cast());
    }
}
