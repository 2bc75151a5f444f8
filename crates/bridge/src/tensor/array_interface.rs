//! `__array_interface__` (version 3), both ways.
//!
//! In: a dictionary that describes memory. Out: a tensor that keeps the object the dictionary came from; or such a
//! dictionary. The address is the producer's word: nothing can check it, so only its arithmetic is.

use overdrive_tensor::dtype::DType;
use overdrive_tensor::error::{Error, MAX_NDIM};
use overdrive_tensor::layout;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::door::to_python;
use super::make::Options;
use super::numpy::dense_strides;
use super::object::TensorObject;
use super::{buffer, raw};

/// A tensor on the memory that an object describes.
///
/// # Errors
/// `TypeError` and `ValueError` for a dictionary that is not as documented or has other element types, `BufferError`
/// for a mask.
pub(super) fn view<'py>(x: &Bound<'py, PyAny>, options: Options) -> PyResult<Bound<'py, PyAny>> {
    let interface = x.getattr("__array_interface__")?;
    let interface = interface
        .cast_into::<PyDict>()
        .map_err(|_| PyTypeError::new_err("__array_interface__ is no dict"))?;
    let required = |name: &str| {
        interface
            .get_item(name)?
            .ok_or_else(|| PyValueError::new_err(format!("__array_interface__ has no {name:?}")))
    };
    if interface.get_item("mask")?.is_some_and(|mask| !mask.is_none()) {
        return Err(PyBufferError::new_err("the array has a mask, and the bytes under it mean nothing"));
    }
    let text: String = required("typestr")?.extract()?;
    let dtype = DType::from_typestr(&text).map_err(to_python)?;
    let shape: Vec<isize> = required("shape")?.extract()?;
    if shape.len() > MAX_NDIM {
        return Err(to_python(Error::TooManyAxes { ndim: shape.len() }));
    }
    let strides = match interface.get_item("strides")? {
        Some(strides) if !strides.is_none() => strides.extract()?,
        _ => dense_strides(&shape, dtype),
    };
    if strides.len() != shape.len() {
        return Err(PyValueError::new_err("__array_interface__ has strides for another number of axes"));
    }
    let n_items = layout::count(&shape, dtype.size()).map_err(to_python)?;
    let extent = layout::extent(&shape, &strides, dtype.size()).map_err(to_python)?;
    let given = interface.get_item("data")?.filter(|data| !data.is_none());
    if let Some(data) = &given
        && let Ok(pair) = data.cast::<PyTuple>()
    {
        let (address, read_only): (usize, Bound<'_, PyAny>) = pair.extract()?;
        if address == 0 && n_items > 0 {
            return Err(PyBufferError::new_err("__array_interface__ has elements at address 0"));
        }
        let read_only = options.read_only(read_only.is_truthy()?)?;
        return raw::foreign(x, address, dtype, &shape, &strides, n_items, read_only);
    }
    // Otherwise the memory is a buffer: the one given, or the object's own.
    let lender = given.as_ref().unwrap_or(x);
    let offset: isize = match interface.get_item("offset")? {
        Some(offset) if !offset.is_none() => offset.extract()?,
        _ => 0,
    };
    if !buffer::has(lender) {
        return Err(PyTypeError::new_err(
            "__array_interface__ has no address, and its object exports no buffer",
        ));
    }
    let bytes = buffer::view(lender, Options::default())?;
    let (size, read_only) = raw::span(&bytes)?;
    let inside = extent.low.checked_add(offset).is_some_and(|low| low >= 0)
        && extent.high.checked_add(offset).is_some_and(|high| high as usize <= size);
    if !inside && n_items > 0 {
        return Err(PyValueError::new_err("__array_interface__ reaches outside the buffer"));
    }
    let offset = if inside { offset } else { 0 };
    raw::inside(&bytes, offset, dtype, &shape, &strides, n_items, options.read_only(read_only)?)
}

/// The dictionary of a tensor.
///
/// # Errors
/// `AttributeError` for element types that it cannot say, so that consumers look for another protocol.
pub(super) fn describe<'py>(py: Python<'py>, tensor: &TensorObject) -> PyResult<Bound<'py, PyDict>> {
    let text = tensor.dtype.to_typestr().map_err(|error| PyAttributeError::new_err(error.to_string()))?;
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("typestr", &text)?;
    interface.set_item("descr", [("", &text)])?;
    interface.set_item("shape", PyTuple::new(py, tensor.shape())?)?;
    interface.set_item("strides", PyTuple::new(py, tensor.strides())?)?;
    interface.set_item("data", (tensor.data_or_dummy().addr(), tensor.read_only()))?;
    Ok(interface)
}
