//! Tensors on an address that somebody else vouches for.
//!
//! In: an address, or an offset into another tensor, with a checked layout. Out: a tensor that keeps the owner.
#![expect(unsafe_code, reason = "turns a number into an address")]

use overdrive_tensor::dtype::DType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::create::Plan;
use super::make::is_dense;
use super::memory::Memory;
use super::object::{self, Parts};

/// On foreign memory at an address; `owner` keeps it.
pub(super) fn foreign<'py>(
    owner: &Bound<'py, PyAny>,
    address: usize,
    dtype: DType,
    shape: &[isize],
    strides: &[isize],
    n_items: usize,
    read_only: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    let data = std::ptr::with_exposed_provenance_mut(address);
    let parts = Parts {
        data,
        dtype,
        shape,
        strides,
        n_items,
        read_only,
        owner: owner.as_ptr(),
        memory: Memory::Owner,
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
}

/// Bytes of a dense tensor, and whether it is read-only.
///
/// # Errors
/// `ValueError` when it is not dense.
pub(super) fn span(tensor: &Bound<'_, PyAny>) -> PyResult<(usize, bool)> {
    let this = object::of(tensor).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
    if !is_dense(this) {
        return Err(PyValueError::new_err("the buffer behind __array_interface__ is not contiguous"));
    }
    Ok((this.n_bytes(), this.read_only()))
}

/// On part of another tensor's memory. The caller has checked that it lies inside.
pub(super) fn inside<'py>(
    whole: &Bound<'py, PyAny>,
    offset: isize,
    dtype: DType,
    shape: &[isize],
    strides: &[isize],
    n_items: usize,
    read_only: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = whole.py();
    let this = object::of(whole).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
    let parts = Parts {
        data: this.data.wrapping_offset(offset),
        dtype,
        shape,
        strides,
        n_items,
        read_only,
        owner: whole.as_ptr(),
        memory: Memory::Owner,
    };
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
}

/// A dense, read-only one on part of another tensor's memory. The caller has checked that it lies inside.
pub(super) fn part<'py>(whole: &Bound<'py, PyAny>, start: usize, plan: &Plan) -> PyResult<Bound<'py, PyAny>> {
    let this = object::of(whole).ok_or_else(|| PyTypeError::new_err("not a tensor"))?;
    plan.tensor_of(whole, this.data.wrapping_add(start))
}
