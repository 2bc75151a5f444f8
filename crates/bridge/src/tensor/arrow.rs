//! The Arrow C data interface, both ways.
//!
//! In: an object with `__arrow_c_array__`, or a consumer's call of ours. Out: a read-only tensor that releases the
//! producer's array when it dies; or two capsules that hold the tensor. One axis is a primitive array; each further one
//! is a fixed-size list.
#![expect(unsafe_code, reason = "capsules, and structs that a consumer releases")]

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use overdrive_tensor::arrow::{self, Array, Schema};
use overdrive_tensor::block::{ALIGN, Block};
use overdrive_tensor::error::Error;
use overdrive_tensor::layout;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::door::{self, to_python};
use super::make::{Options, is_dense};
use super::memory::{ArrowArray, Memory};
use super::numpy::dense_strides;
use super::object::{self, Parts, TensorObject};

/// What Arrow writes for a field that may hold nulls, as fields do unless one says otherwise.
const NULLABLE: i64 = 2;
const SCHEMA: &std::ffi::CStr = c"arrow_schema";
const ARRAY: &std::ffi::CStr = c"arrow_array";

/// A tensor on an Arrow array. Arrow's memory is immutable, so it is read-only.
///
/// # Errors
/// `BufferError` for nulls and dictionaries, `TypeError` for types that are no numbers of whole bytes.
pub(super) fn view<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let answer = x.call_method0(intern!(py, "__arrow_c_array__"))?;
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = answer
        .extract()
        .map_err(|_| PyTypeError::new_err("__arrow_c_array__ returned no pair of capsules"))?;
    // SAFETY: capsules of these names hold these structs. The array is moved out: its release mark is cleared, so that
    // the capsule does not release it, and the schema stays with its capsule, which is held until the end.
    let (schema_capsule, schema, moved) = unsafe {
        let schema_pointer = ffi::PyCapsule_GetPointer(schema.as_ptr(), SCHEMA.as_ptr()).cast::<Schema>();
        if schema_pointer.is_null() {
            return Err(PyErr::fetch(py));
        }
        let array_pointer = ffi::PyCapsule_GetPointer(array.as_ptr(), ARRAY.as_ptr()).cast::<Array>();
        if array_pointer.is_null() {
            return Err(PyErr::fetch(py));
        }
        if (*array_pointer).release.is_none() || (*schema_pointer).release.is_none() {
            return Err(PyBufferError::new_err("these Arrow capsules have been used already"));
        }
        let moved = Box::new(ArrowArray(array_pointer.read()));
        (*array_pointer).release = None;
        (schema, &*schema_pointer, moved)
    };
    // SAFETY: neither struct has been released.
    let seen = unsafe { arrow::view(schema, &moved.0, options.copy) }.map_err(to_python)?;
    let strides = dense_strides(&seen.shape, seen.dtype);
    let n_items = layout::count(&seen.shape, seen.dtype.size()).map_err(to_python)?;
    let (data, memory) = match seen.bits {
        None => (seen.data.cast_mut(), Memory::Arrow(moved)),
        Some(first) => {
            let block = Block::new(n_items, ALIGN, false).map_err(to_python)?;
            // SAFETY: the producer has these bits, and the block a byte for each.
            unsafe { arrow::unpack_bits(seen.data, first, n_items, block.data()) };
            (block.data(), Memory::Block(block))
        }
    };
    drop(schema_capsule);
    let parts = Parts {
        data,
        dtype: seen.dtype,
        shape: &seen.shape,
        strides: &strides,
        n_items,
        read_only: options.read_only(true)?,
        owner: x.as_ptr(),
        memory,
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
}

/// `Tensor.__arrow_c_array__(requested_schema=None)`. A requested schema is a wish, which the interface lets us decline.
pub(super) fn export<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    // SAFETY: callers pass a tensor whose memory is there.
    let tensor = unsafe { &*object.as_ptr().cast::<TensorObject>() };
    let refuse =
        |what: &str, hint| to_python(Error::Unsayable { target: "Arrow", what: what.to_owned(), hint });
    let format = tensor.dtype.to_arrow().map_err(to_python)?;
    if tensor.shape().is_empty() {
        return Err(refuse("a tensor of no axes", "an array has at least one"));
    }
    if !is_dense(tensor) {
        return Err(refuse("strides", "copy it: tensor(t, copy=True)"));
    }
    let schema = schema_of(tensor.shape(), format);
    // SAFETY: each struct is handed to its capsule, whose destructor releases what no consumer moved out.
    unsafe {
        let schema = capsule(py, schema, SCHEMA, drop_schema)?;
        let array = capsule(py, array_of(tensor, 0), ARRAY, drop_array)?;
        PyTuple::new(py, [schema, array])
    }
}

/// # Safety
/// `destructor` frees a struct of this type.
unsafe fn capsule<'py, T>(
    py: Python<'py>,
    value: Box<T>,
    name: &'static std::ffi::CStr,
    destructor: ffi::PyCapsule_Destructor,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the box is given to the capsule, or back to us when there is none. (Its contents leak then: out of
    // memory.)
    unsafe {
        let pointer = Box::into_raw(value);
        let made = ffi::PyCapsule_New(pointer.cast(), name.as_ptr(), Some(destructor));
        if made.is_null() {
            drop(Box::from_raw(pointer));
            return Err(PyErr::fetch(py));
        }
        Ok(Bound::from_owned_ptr(py, made))
    }
}

unsafe extern "C" fn drop_schema(capsule: *mut ffi::PyObject) {
    // SAFETY: our capsule, whose struct a consumer has released or moved out (then `release` is null) or not.
    unsafe {
        let schema = ffi::PyCapsule_GetPointer(capsule, SCHEMA.as_ptr()).cast::<Schema>();
        if let Some(release) = (*schema).release {
            release(schema);
        }
        drop(Box::from_raw(schema));
    }
}

unsafe extern "C" fn drop_array(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        let array = ffi::PyCapsule_GetPointer(capsule, ARRAY.as_ptr()).cast::<Array>();
        if let Some(release) = (*array).release {
            release(array);
        }
        drop(Box::from_raw(array));
    }
}

/// What a schema of ours owns.
struct SchemaParts {
    format: CString,
    child: Option<Box<Schema>>,
    children: [*mut Schema; 1],
}

fn schema_of(shape: &[isize], format: &'static std::ffi::CStr) -> Box<Schema> {
    let mut parts = Box::new(SchemaParts { format: format.to_owned(), child: None, children: [null_mut()] });
    let mut n_children = 0;
    if let [_, width, ..] = shape {
        // Digits contain no null byte.
        parts.format = CString::new(format!("+w:{width}")).unwrap_or_default();
        let mut child = schema_of(&shape[1..], format);
        child.name = c"item".as_ptr();
        parts.children[0] = &raw mut *child;
        parts.child = Some(child);
        n_children = 1;
    }
    let parts = Box::into_raw(parts);
    // SAFETY: the parts live until `release_schema`.
    let (format, children) = unsafe { ((*parts).format.as_ptr(), (&raw mut (*parts).children).cast()) };
    Box::new(Schema {
        format,
        name: c"".as_ptr(),
        metadata: std::ptr::null(),
        flags: NULLABLE,
        n_children,
        children: if n_children == 0 { null_mut() } else { children },
        dictionary: null_mut(),
        release: Some(release_schema),
        private_data: parts.cast::<c_void>(),
    })
}

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: called once on a struct of ours, wherever the consumer moved it. A child that was moved out is marked.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        (*schema).release = None;
        if let Some(mut child) = parts.child
            && let Some(release) = child.release
        {
            release(&mut *child);
        }
    }
}

/// What an array of ours owns. Every level holds the tensor, because a consumer may keep a child alone.
struct ArrayParts {
    tensor: *mut ffi::PyObject,
    buffers: [*const c_void; 2],
    child: Option<Box<Array>>,
    children: [*mut Array; 1],
}

/// The array from this axis on.
fn array_of(tensor: &TensorObject, axis: usize) -> Box<Array> {
    let shape = tensor.shape();
    // Checked when the tensor was made: the product of all lengths fits.
    let length: isize = shape[..=axis].iter().product();
    let last = axis + 1 == shape.len();
    let object = tensor.as_object();
    // SAFETY: a live tensor.
    unsafe { ffi::Py_INCREF(object) };
    let data = if last { tensor.data_or_dummy().cast_const().cast() } else { std::ptr::null() };
    let mut parts = Box::new(ArrayParts {
        tensor: object,
        buffers: [std::ptr::null(), data],
        child: None,
        children: [null_mut()],
    });
    if !last {
        let mut child = array_of(tensor, axis + 1);
        parts.children[0] = &raw mut *child;
        parts.child = Some(child);
    }
    let parts = Box::into_raw(parts);
    // SAFETY: the parts live until `release_array`.
    let (buffers, children) =
        unsafe { ((&raw mut (*parts).buffers).cast(), (&raw mut (*parts).children).cast()) };
    Box::new(Array {
        length: length as i64,
        null_count: 0,
        offset: 0,
        n_buffers: if last { 2 } else { 1 },
        n_children: i64::from(!last),
        buffers,
        children: if last { null_mut() } else { children },
        dictionary: null_mut(),
        release: Some(release_array),
        private_data: parts.cast::<c_void>(),
    })
}

unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: called once on a struct of ours, on any thread.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        (*array).release = None;
        if let Some(mut child) = parts.child
            && let Some(release) = child.release
        {
            release(&mut *child);
        }
        door::give_back(parts.tensor);
    }
}
