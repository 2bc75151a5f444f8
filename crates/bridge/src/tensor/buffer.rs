//! The buffer protocol (PEP 3118), both ways.
//!
//! In: an exporter, or a consumer's request. Out: a tensor that holds the exporter's buffer until it dies; or a filled-in
//! `Py_buffer` that holds the tensor. Suboffsets (memory behind pointers) cannot be a tensor and are refused.
#![expect(unsafe_code, reason = "fills in and reads Py_buffer")]

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;

use overdrive_tensor::block::{ALIGN, Block};
use overdrive_tensor::dtype::DType;
use overdrive_tensor::error::{Error, MAX_NDIM};
use overdrive_tensor::layout;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use super::door::{self, to_python};
use super::make::Options;
use super::memory::Memory;
use super::numpy::dense_strides;
use super::object::{self, Parts, TensorObject};

/// True when the object exports buffers.
pub(super) fn has(x: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object.
    unsafe { ffi::PyObject_CheckBuffer(x.as_ptr()) != 0 }
}

/// A tensor on an exporter's buffer.
///
/// # Errors
/// What the exporter raises, `TypeError` for other element types, `BufferError` for suboffsets.
pub(super) fn view<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    // SAFETY: the struct is filled in by the call; `Memory` releases it from then on, errors included.
    let memory = unsafe {
        let mut view = Box::new(ffi::Py_buffer::new());
        if ffi::PyObject_GetBuffer(x.as_ptr(), &mut *view, ffi::PyBUF_FULL_RO) < 0 {
            return Err(PyErr::fetch(py));
        }
        Memory::Buffer(view)
    };
    let Memory::Buffer(view) = &memory else { unreachable!("just made") };
    let format = if view.format.is_null() {
        "B".to_owned()
    } else {
        // SAFETY: a format is a C string that lives as long as the buffer.
        unsafe { CStr::from_ptr(view.format) }.to_string_lossy().into_owned()
    };
    let dtype = DType::from_pep3118(&format).map_err(to_python)?;
    if view.itemsize != dtype.size() as isize {
        return Err(PyTypeError::new_err(format!(
            "the exporter says {} bytes an element, its format {format:?} says {}",
            view.itemsize,
            dtype.size()
        )));
    }
    let ndim = usize::try_from(view.ndim).map_err(|_| malformed("a negative number of axes"))?;
    if ndim > MAX_NDIM {
        return Err(to_python(Error::TooManyAxes { ndim }));
    }
    if ndim > 0 && view.shape.is_null() {
        return Err(malformed("no shape"));
    }
    // SAFETY: `shape`, `strides` and `suboffsets` have `ndim` entries where they are not null.
    let list = |pointer: *const isize| unsafe {
        if ndim == 0 { &[][..] } else { std::slice::from_raw_parts(pointer, ndim) }
    };
    let shape = list(view.shape);
    let n_items = layout::count(shape, dtype.size()).map_err(to_python)?;
    let strides = match view.strides.is_null() {
        true => dense_strides(shape, dtype),
        false => list(view.strides).to_vec(),
    };
    layout::extent(shape, &strides, dtype.size()).map_err(to_python)?;
    if n_items > 0 && view.buf.is_null() {
        return Err(malformed("elements at address 0"));
    }
    if !view.suboffsets.is_null() && list(view.suboffsets).iter().any(|&offset| offset >= 0) {
        if options.copy {
            return gather_indirect(py, view, dtype, shape, n_items);
        }
        return Err(PyBufferError::new_err(
            "the buffer has suboffsets: its rows lie behind pointers, not at a fixed distance; copy=True gathers them",
        ));
    }
    let parts = Parts {
        data: view.buf.cast(),
        dtype,
        shape,
        strides: &strides,
        n_items,
        read_only: options.read_only(view.readonly != 0)?,
        owner: x.as_ptr(),
        memory: Memory::Owner,
    };
    // SAFETY: a new reference to a tensor, whose memory is then the buffer. (Moving the box leaves the buffer, into
    // which `parts.shape` may point, where it is.)
    unsafe {
        let made = Bound::from_owned_ptr(py, object::new(py, parts)?);
        *(*made.as_ptr().cast::<TensorObject>()).memory = memory;
        Ok(made)
    }
}

fn malformed(what: &str) -> PyErr {
    PyBufferError::new_err(format!("the exporter's buffer is malformed: {what}"))
}

/// Copies a buffer with suboffsets.
fn gather_indirect<'py>(
    py: Python<'py>,
    view: &ffi::Py_buffer,
    dtype: DType,
    shape: &[isize],
    n_items: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = n_items * dtype.size();
    let block = Block::new(bytes, ALIGN, false).map_err(to_python)?;
    // SAFETY: the block has room for the whole buffer, whose length the exporter states and which is compared here.
    unsafe {
        if view.len != bytes as isize {
            return Err(malformed("its length is not that of its elements"));
        }
        let from = (&raw const *view).cast_mut();
        if ffi::PyBuffer_ToContiguous(block.data().cast(), from, view.len, b'C' as std::ffi::c_char) < 0 {
            return Err(PyErr::fetch(py));
        }
        let parts = Parts {
            data: block.data(),
            dtype,
            shape,
            strides: &dense_strides(shape, dtype),
            n_items,
            read_only: false,
            owner: null_mut(),
            memory: Memory::Block(block),
        };
        Ok(Bound::from_owned_ptr(py, object::new(py, parts)?))
    }
}

/// `bf_getbuffer`.
pub(super) unsafe extern "C" fn get(
    object: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: called by the interpreter on a tensor, with a struct to fill in; null is answered as Python's own
    // exporters do.
    unsafe {
        if view.is_null() {
            return door::status(|_| Err(PyBufferError::new_err("NULL view in getbuffer")));
        }
        (*view).obj = null_mut();
        door::status(|py| {
            let live = object::live(py, object)?;
            fill(live.object().as_ptr(), &mut *view, flags)
        })
    }
}

/// # Safety
/// `object` is a tensor whose memory is there.
unsafe fn fill(object: *mut ffi::PyObject, view: &mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let refuse = |text: &'static str| Err(PyBufferError::new_err(text));
    // SAFETY: by contract.
    let tensor = unsafe { &*object.cast::<TensorObject>() };
    let format = tensor.dtype.to_pep3118().map_err(to_python)?;
    if flags & ffi::PyBUF_WRITABLE != 0 && tensor.read_only() {
        return refuse("the tensor is read-only");
    }
    let (shape, strides, size) = (tensor.shape(), tensor.strides(), tensor.dtype.size());
    let rows = layout::is_row_major(shape, strides, size);
    let asks = |flag: c_int| flags & flag == flag;
    if asks(ffi::PyBUF_C_CONTIGUOUS) && !rows {
        return refuse("the tensor is not contiguous in row-major order");
    }
    if asks(ffi::PyBUF_F_CONTIGUOUS) && !layout::is_column_major(shape, strides, size) {
        return refuse("the tensor is not contiguous in column-major order");
    }
    if asks(ffi::PyBUF_ANY_CONTIGUOUS) && !rows && !layout::is_column_major(shape, strides, size) {
        return refuse("the tensor is not contiguous");
    }
    if !asks(ffi::PyBUF_STRIDES) && !rows {
        return refuse("the tensor is not contiguous, and the consumer takes no strides");
    }
    view.buf = tensor.data_or_dummy().cast();
    view.len = tensor.n_bytes() as isize;
    view.readonly = c_int::from(tensor.read_only());
    view.itemsize = size as isize;
    view.format = if asks(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { null_mut() };
    view.ndim = shape.len() as c_int;
    view.shape = if asks(ffi::PyBUF_ND) { shape.as_ptr().cast_mut() } else { null_mut() };
    view.strides = if asks(ffi::PyBUF_STRIDES) { strides.as_ptr().cast_mut() } else { null_mut() };
    view.suboffsets = null_mut();
    view.internal = null_mut();
    // SAFETY: the consumer owns this reference and drops it with the buffer. That is all: a tensor's memory never goes
    // while the tensor lives, so nothing need be counted.
    unsafe { ffi::Py_INCREF(object) };
    view.obj = object;
    Ok(())
}
