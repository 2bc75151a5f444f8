//! Basic indexing, elements as Python numbers, nested lists.
//!
//! In: integers, slices, `...` and `None`. Out: a view, or a Python number when every axis is given one. Anything that
//! would gather elements is NumPy's business. Assignment is done by NumPy too, with its rules of conversion.
#![expect(unsafe_code, reason = "reads elements at addresses that were checked")]

use std::ffi::c_int;

use overdrive_tensor::dtype::{DType, Kind};
use overdrive_tensor::error::MAX_NDIM;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyEllipsis, PyFloat, PyInt, PyList, PySlice, PyTuple};

use super::door;
use super::memory::Memory;
use super::numpy;
use super::object::{self, Parts, TensorObject};

/// `mp_length`.
pub(super) unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: called by the interpreter on a tensor.
    unsafe {
        door::run(
            |py| {
                let live = object::live(py, object)?;
                live.tensor()
                    .shape()
                    .first()
                    .copied()
                    .ok_or_else(|| PyTypeError::new_err("a tensor of no axes has no length"))
            },
            -1,
        )
    }
}

/// `mp_subscript`.
pub(super) unsafe extern "C" fn get(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter on a tensor, with a borrowed key.
    unsafe {
        door::object(|py| {
            let live = object::live(py, object)?;
            let key = Bound::from_borrowed_ptr(py, key);
            Ok(select(live.object(), &key, true)?.into_ptr())
        })
    }
}

/// `sq_item`, which iteration uses. The interpreter has added the length to a negative index.
pub(super) unsafe extern "C" fn item(
    object: *mut ffi::PyObject,
    index: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        door::object(|py| {
            let live = object::live(py, object)?;
            if live.tensor().shape().is_empty() {
                return Err(PyTypeError::new_err("a tensor of no axes cannot be iterated"));
            }
            if index < 0 {
                return Err(PyIndexError::new_err("index out of range"));
            }
            let key = index.into_pyobject(py)?;
            Ok(select(live.object(), key.as_any(), true)?.into_ptr())
        })
    }
}

/// `mp_ass_subscript`.
pub(super) unsafe extern "C" fn set(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: as above; a null value stands for deletion.
    unsafe {
        door::status(|py| {
            if value.is_null() {
                return Err(PyTypeError::new_err("elements of a tensor cannot be deleted"));
            }
            let live = object::live(py, object)?;
            let target = select(live.object(), &Bound::from_borrowed_ptr(py, key), false)?;
            let target = object::of(&target).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
            let array = numpy::to_array(py, target)?;
            array.set_item(PyEllipsis::get(py), Bound::from_borrowed_ptr(py, value))
        })
    }
}

/// What a key selects: a view, or with `elements` a number where no axis is left.
fn select<'py>(
    object: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    elements: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let tensor = object::of(object).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
    let keys: Vec<Bound<'py, PyAny>> = match key.cast_exact::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![key.clone()],
    };
    let n_used = keys.iter().filter(|key| !key.is_none() && !key.is(PyEllipsis::get(py))).count();
    let (old_shape, old_strides) = (tensor.shape(), tensor.strides());
    let ndim = old_shape.len();
    if n_used > ndim {
        return Err(PyIndexError::new_err(format!("{n_used} indices for a tensor of {ndim} axes")));
    }
    let (mut shape, mut strides) = (Vec::with_capacity(ndim), Vec::with_capacity(ndim));
    let (mut axis, mut offset, mut widened, mut view) = (0, 0isize, false, keys.is_empty() && ndim > 0);
    for key in &keys {
        if key.is(PyEllipsis::get(py)) {
            if widened {
                return Err(PyIndexError::new_err("an index can have only one ellipsis"));
            }
            (widened, view) = (true, true);
            for _ in 0..ndim - n_used {
                shape.push(old_shape[axis]);
                strides.push(old_strides[axis]);
                axis += 1;
            }
        } else if key.is_none() {
            view = true;
            shape.push(1);
            strides.push(0);
        } else if let Ok(slice) = key.cast::<PySlice>() {
            view = true;
            let range = slice.indices(old_shape[axis])?;
            if range.slicelength > 0 {
                offset += range.start * old_strides[axis];
            }
            shape.push(range.slicelength as isize);
            // Of one element the stride is unused; a huge step must not wrap.
            strides.push(old_strides[axis].checked_mul(range.step).unwrap_or(old_strides[axis]));
            axis += 1;
        } else {
            offset += index_in(key, old_shape[axis], axis)? * old_strides[axis];
            axis += 1;
        }
    }
    view |= axis < ndim;
    shape.extend(&old_shape[axis..]);
    strides.extend(&old_strides[axis..]);
    if shape.len() > MAX_NDIM {
        return Err(PyIndexError::new_err(format!("a tensor has at most {MAX_NDIM} axes")));
    }
    let n_items = shape.iter().product::<isize>() as usize;
    let data = if n_items == 0 { tensor.data } else { tensor.data.wrapping_offset(offset) };
    if !view && elements {
        // SAFETY: every axis was given an index inside it, so this is an element.
        return unsafe { element(py, data, tensor.dtype) };
    }
    let parts = Parts {
        data,
        dtype: tensor.dtype,
        shape: &shape,
        strides: &strides,
        n_items,
        read_only: tensor.read_only(),
        owner: object.as_ptr(),
        memory: Memory::Owner,
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
}

fn index_in(key: &Bound<'_, PyAny>, length: isize, axis: usize) -> PyResult<isize> {
    let py = key.py();
    let no_index = || -> PyResult<isize> {
        Err(PyTypeError::new_err(format!(
            "a tensor is indexed by integers, slices, ... and None, not by {}; NumPy does the rest: t.numpy()[…]",
            key.get_type().name()?
        )))
    };
    // SAFETY: a live object.
    if key.is_instance_of::<PyBool>() || unsafe { ffi::PyIndex_Check(key.as_ptr()) } == 0 {
        return no_index();
    }
    let out_of_range =
        || PyIndexError::new_err(format!("index {key} is out of range for axis {axis} of length {length}"));
    // SAFETY: a live object; an index that fits no ssize_t raises IndexError.
    let index = unsafe { ffi::PyNumber_AsSsize_t(key.as_ptr(), ffi::PyExc_IndexError) };
    if index == -1
        && let Some(error) = PyErr::take(py)
    {
        // Arrays have an index only when they hold one integer.
        return match () {
            () if error.is_instance_of::<PyIndexError>(py) => Err(out_of_range()),
            () if error.is_instance_of::<PyTypeError>(py) => no_index(),
            () => Err(error),
        };
    }
    let wrapped = if index < 0 { index + length } else { index };
    if (0..length).contains(&wrapped) { Ok(wrapped) } else { Err(out_of_range()) }
}

/// Nested lists of Python numbers; a number for no axes.
pub(super) fn to_list<'py>(py: Python<'py>, tensor: &TensorObject) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the elements that shape and strides reach are the tensor's.
    unsafe { list_from(py, tensor.data, tensor.dtype, tensor.shape(), tensor.strides()) }
}

/// # Safety
/// The elements can be read.
unsafe fn list_from<'py>(
    py: Python<'py>,
    data: *const u8,
    dtype: DType,
    shape: &[isize],
    strides: &[isize],
) -> PyResult<Bound<'py, PyAny>> {
    let (Some((&length, shape)), Some((&stride, strides))) = (shape.split_first(), strides.split_first())
    else {
        // SAFETY: by contract.
        return unsafe { element(py, data, dtype) };
    };
    let list = PyList::empty(py);
    for i in 0..length {
        // SAFETY: by contract; an address is computed without being used where there is no element below.
        list.append(unsafe {
            list_from(py, data.wrapping_offset(i.wrapping_mul(stride)), dtype, shape, strides)?
        })?;
    }
    Ok(list.into_any())
}

/// # Safety
/// An element of that type can be read at `data`, at any alignment.
unsafe fn element<'py>(py: Python<'py>, data: *const u8, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let mut bytes = [0u8; 16];
    let size = dtype.size();
    // SAFETY: by contract.
    unsafe { std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), size) };
    if dtype.swapped {
        bytes[..size].chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
    let word2 = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let word4 = [bytes[0], bytes[1], bytes[2], bytes[3]];
    let word8 = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        word
    };
    let float = |value: f64| Ok(PyFloat::new(py, value).into_any());
    match dtype.kind {
        Kind::Bool => Ok(PyBool::new(py, bytes[0] != 0).to_owned().into_any()),
        Kind::I8 => int(py, i64::from(bytes[0] as i8)),
        Kind::U8 => int(py, i64::from(bytes[0])),
        Kind::I16 => int(py, i64::from(word2 as i16)),
        Kind::U16 => int(py, i64::from(word2)),
        Kind::I32 => int(py, i64::from(i32::from_ne_bytes(word4))),
        Kind::U32 => int(py, i64::from(u32::from_ne_bytes(word4))),
        Kind::I64 => int(py, i64::from_ne_bytes(word8(0))),
        Kind::U64 => Ok(PyInt::new(py, u64::from_ne_bytes(word8(0))).into_any()),
        Kind::F16 => float(half(word2)),
        Kind::BF16 => float(f64::from(f32::from_bits(u32::from(word2) << 16))),
        Kind::F32 => float(f64::from(f32::from_ne_bytes(word4))),
        Kind::F64 => float(f64::from_ne_bytes(word8(0))),
        Kind::C64 => {
            let imaginary = f32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            Ok(PyComplex::from_doubles(py, f64::from(f32::from_ne_bytes(word4)), f64::from(imaginary))
                .into_any())
        }
        Kind::C128 => {
            let (real, imaginary) = (f64::from_ne_bytes(word8(0)), f64::from_ne_bytes(word8(8)));
            Ok(PyComplex::from_doubles(py, real, imaginary).into_any())
        }
    }
}

fn int(py: Python<'_>, value: i64) -> PyResult<Bound<'_, PyAny>> {
    Ok(PyInt::new(py, value).into_any())
}

/// IEEE binary16, exactly.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * f64::powi(2.0, -24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * f64::powi(2.0, exponent - 25),
    }
}
