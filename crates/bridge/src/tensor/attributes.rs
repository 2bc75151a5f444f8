//! What a tensor says about itself.
//!
//! In: a tensor. Out: Python values. A weak tensor whose owner is gone raises ReferenceError for every one of them
//! except `weak`.
#![expect(unsafe_code, reason = "getters are C functions")]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use overdrive_tensor::layout;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use super::memory::Memory;
use super::object::{self, TensorObject, WEAK};
use super::{array_interface, door};

type Getter = unsafe extern "C" fn(*mut ffi::PyObject, *mut c_void) -> *mut ffi::PyObject;

/// The table for the type, which lives for ever.
pub(super) fn table() -> *mut ffi::PyGetSetDef {
    let entry = |name: &'static CStr, get: Getter, doc: &'static CStr| ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set: None,
        doc: doc.as_ptr(),
        closure: null_mut(),
    };
    Box::leak(Box::new([
        entry(
            c"dtype",
            dtype,
            c"Element type as a string that numpy.dtype reads: 'float32', '>f4', 'bfloat16'.",
        ),
        entry(c"shape", shape, c"Length of each axis."),
        entry(c"strides", strides, c"Bytes from one element to the next, for each axis."),
        entry(c"ndim", ndim, c"Number of axes."),
        entry(c"size", size, c"Number of elements."),
        entry(c"itemsize", itemsize, c"Bytes of an element."),
        entry(c"nbytes", nbytes, c"Bytes of all elements."),
        entry(c"readonly", readonly, c"True when the memory must not be written through this view."),
        entry(c"align", align, c"Largest power of two that divides the address, at most 4096."),
        entry(c"device", device, c"Where the memory is: 'cpu'."),
        entry(c"owner", owner, c"The object whose memory this is; None when the tensor owns it."),
        entry(c"weak", weak, c"True when the view does not keep its owner alive."),
        entry(c"handle", handle, c"The handle by which other processes attach to this shared tensor; ValueError for private memory."),
        entry(c"__array_interface__", interface, c"NumPy's array interface, version 3."),
        // SAFETY: all zero is the table's end mark.
        unsafe { std::mem::zeroed() },
    ]))
    .as_mut_ptr()
}

/// Runs a getter on a tensor whose memory is there.
///
/// # Safety
/// Called by the interpreter on a tensor.
unsafe fn answer<'a>(
    object: *mut ffi::PyObject,
    get: impl for<'py> FnOnce(Python<'py>, &'a TensorObject) -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    // SAFETY: by contract. The owner of a weak tensor is held for the time of the question.
    unsafe {
        let this = &*object.cast::<TensorObject>();
        door::object(|py| {
            let _owner = if this.flags & WEAK != 0 { Some(object::referent(py, this)?) } else { None };
            Ok(get(py, this)?.into_ptr())
        })
    }
}

macro_rules! getter {
    ($name:ident, |$py:ident, $this:ident| $body:expr) => {
        unsafe extern "C" fn $name(object: *mut ffi::PyObject, _closure: *mut c_void) -> *mut ffi::PyObject {
            // SAFETY: the interpreter calls getters on objects of their type.
            unsafe { answer(object, |$py, $this| $body) }
        }
    };
}

getter!(dtype, |py, this| Ok(PyString::intern(py, this.dtype.name()).into_any()));
getter!(shape, |py, this| Ok(PyTuple::new(py, this.shape())?.into_any()));
getter!(strides, |py, this| Ok(PyTuple::new(py, this.strides())?.into_any()));
getter!(ndim, |py, this| Ok(this.shape().len().into_pyobject(py)?.into_any()));
getter!(size, |py, this| Ok(this.n_items.into_pyobject(py)?.into_any()));
getter!(itemsize, |py, this| Ok(this.dtype.size().into_pyobject(py)?.into_any()));
getter!(nbytes, |py, this| Ok(this.n_bytes().into_pyobject(py)?.into_any()));
getter!(readonly, |py, this| Ok(this.read_only().into_pyobject(py)?.to_owned().into_any()));
getter!(align, |py, this| Ok(layout::alignment(this.data.addr()).into_pyobject(py)?.into_any()));
getter!(device, |py, _this| Ok(PyString::intern(py, "cpu").into_any()));
getter!(interface, |py, this| Ok(array_interface::describe(py, this)?.into_any()));
getter!(owner, |py, this| {
    if this.flags & WEAK != 0 {
        return object::referent(py, this);
    }
    match &*this.memory {
        Memory::Owner | Memory::Buffer(_) | Memory::Managed(_) | Memory::Arrow(_)
            if !this.owner.is_null() =>
        {
            // The tensor's own reference, in a getter's unsafe block.
            Ok(Bound::from_borrowed_ptr(py, this.owner))
        }
        _ => Ok(py.None().into_bound(py)),
    }
});

unsafe extern "C" fn handle(object: *mut ffi::PyObject, _closure: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as above; a weak tensor's memory is not its own, so it has no handle.
    unsafe { door::object(|py| Ok(super::shared::handle(&Bound::from_borrowed_ptr(py, object))?.into_ptr())) }
}

unsafe extern "C" fn weak(object: *mut ffi::PyObject, _closure: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: as above; this needs no memory.
    unsafe {
        let this = &*object.cast::<TensorObject>();
        door::object(|py| Ok((this.flags & WEAK != 0).into_pyobject(py)?.to_owned().into_ptr()))
    }
}

/// `tp_repr`: what it is, never its elements, which may be many or gone.
pub(super) unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter on a tensor.
    unsafe {
        let this = &*object.cast::<TensorObject>();
        door::object(|py| {
            let shape = PyTuple::new(py, this.shape())?.repr()?;
            let mut text = format!("<overdrive.Tensor {} {shape}", this.dtype.name());
            if !super::make::is_dense(this) {
                text += &format!(" strides {}", PyTuple::new(py, this.strides())?.repr()?);
            }
            if this.read_only() {
                text += " read-only";
            }
            if this.flags & WEAK != 0 {
                text += if object::referent(py, this).is_ok() { " weak" } else { " weak, owner gone" };
            }
            text.push('>');
            Ok(PyString::new(py, &text).into_ptr())
        })
    }
}
