//! Copying and pickling of a jitted callable.
//!
//! `copy` and `deepcopy` give the object itself, `pickle` stores the qualified name, as for functions. A pickler that
//! stores functions by value (cloudpickle, and its copies inside other packages) gets `jit` and the original function
//! instead, when the name does not lead back to this object in another process.

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;

use pyo3::ffi;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult, Python};
use pyo3::types::{PyDict, PyDictMethods};

use crate::engine::unit::Wants;

/// The methods of the type.
pub(super) fn methods() -> *mut ffi::PyMethodDef {
    let method = |name: &'static CStr, f: ffi::PyCFunction, flags: c_int| ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: f },
        ml_flags: flags,
        ml_doc: std::ptr::null(),
    };
    let table = [
        method(c"__copy__", itself, ffi::METH_NOARGS),
        method(c"__deepcopy__", itself, ffi::METH_O),
        method(c"__reduce__", reduce, ffi::METH_NOARGS),
        // SAFETY: all zero is the table's end mark.
        unsafe { std::mem::zeroed() },
    ];
    // The type lives as long as the process and keeps a pointer into the table.
    Box::leak(Box::new(table)).as_mut_ptr()
}

unsafe extern "C" fn itself(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a new reference to the receiver.
    unsafe { ffi::Py_NewRef(object) }
}

unsafe extern "C" fn reduce(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called with the GIL held on a live object.
    let result = unsafe {
        let py = Python::assume_attached();
        let object = Bound::from_borrowed_ptr(py, object);
        reduced(&object).map_err(|error| error.restore(py))
    };
    result.map_or(null_mut(), Bound::into_ptr)
}

fn reduced<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let name = object.getattr("__qualname__")?;
    if !by_value_pickler(py) || is_importable(object, &name) {
        return Ok(name);
    }
    let jit = py.import("overdrive")?.getattr("jit")?;
    let Some(original) = super::original(object) else { return Ok(name) };
    let wants = super::wants(object);
    if wants == Wants::default() {
        return (jit, (original,)).into_bound_object(py);
    }
    let Wants { fastmath, parallel, nogil, is_uncached } = wants;
    let options = PyDict::new(py);
    let asked = [("fastmath", fastmath), ("parallel", parallel), ("nogil", nogil), ("cache", !is_uncached)];
    for (name, value) in asked {
        options.set_item(name, value)?;
    }
    let jit = py.import("functools")?.getattr("partial")?.call((jit,), Some(&options))?;
    (jit, (original,)).into_bound_object(py)
}

/// Whether the Python code that drives the pickling stores functions by value.
fn by_value_pickler(py: Python<'_>) -> bool {
    // SAFETY: borrowed references, GIL held.
    let globals = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetGlobals()) };
    let name = globals.and_then(|g| g.cast_into::<PyDict>().ok()?.get_item("__name__").ok()?);
    name.and_then(|n| n.extract::<String>().ok()).is_some_and(|n| n.contains("cloudpickle"))
}

/// Whether another process finds this very object by module and name. Nothing in `__main__` is found there.
fn is_importable(object: &Bound<'_, PyAny>, name: &Bound<'_, PyAny>) -> bool {
    let find = || -> PyResult<bool> {
        let module: String = object.getattr("__module__")?.extract()?;
        if module == "__main__" {
            return Ok(false);
        }
        let mut place = object.py().import("sys")?.getattr("modules")?.get_item(module)?;
        for part in name.extract::<String>()?.split('.') {
            place = place.getattr(part)?;
        }
        Ok(place.is(object))
    };
    find().unwrap_or(false)
}

trait IntoBoundObject<'py> {
    fn into_bound_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

impl<'py, T> IntoBoundObject<'py> for T
where
    T: pyo3::IntoPyObject<'py>,
    pyo3::PyErr: From<T::Error>,
{
    fn into_bound_object(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        use pyo3::BoundObject;
        Ok(self.into_pyobject(py)?.into_any().into_bound())
    }
}
