//! `empty` and `zeros`: tensors on memory of ours.
//!
//! In: shape, element type, alignment, where. Out: a tensor that owns its memory, row-major, aligned to 64 bytes or more.

#![expect(unsafe_code, reason = "takes ownership of new objects")]

use overdrive_tensor::block::{Block, check_align};
use overdrive_tensor::dtype::DType;
use overdrive_tensor::error::{Error, MAX_NDIM};
use overdrive_tensor::layout;
use overdrive_tensor::shm::file::PAGE;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::door::to_python;
use super::memory::Memory;
use super::object::{self, Parts};
use super::{numpy, shared};

/// Shape, strides and sizes of a dense tensor to be made.
pub(super) struct Plan {
    pub(super) dtype: DType,
    ndim: usize,
    n_items: usize,
    /// Lengths, then strides, of up to `INLINE` axes; with more, all stand in `long`.
    short: [isize; 2 * INLINE],
    long: Vec<isize>,
}

/// Few, because the plan is moved about.
const INLINE: usize = 4;

impl Plan {
    /// Reads `shape` (an integer or a sequence of them) and `dtype`.
    ///
    /// # Errors
    /// `TypeError`, `ValueError` for lengths that are negative, too many or too large together.
    pub(super) fn new(shape: &Bound<'_, PyAny>, dtype: &Bound<'_, PyAny>) -> PyResult<Plan> {
        let dtype = numpy::dtype_from_object(dtype)?;
        let mut short = [0; INLINE];
        let mut long = Vec::new();
        let mut ndim = 0;
        let mut push = |length: &Bound<'_, PyAny>| {
            if ndim == MAX_NDIM {
                return Err(to_python(Error::TooManyAxes { ndim: MAX_NDIM + 1 }));
            }
            // SAFETY: a live object; what is no index, or does not fit, raises.
            let value = unsafe { ffi::PyNumber_AsSsize_t(length.as_ptr(), ffi::PyExc_ValueError) };
            if value == -1
                && let Some(error) = PyErr::take(length.py())
            {
                return Err(error);
            }
            if ndim < INLINE {
                short[ndim] = value;
            } else {
                if ndim == INLINE {
                    long.extend_from_slice(&short);
                }
                long.push(value);
            }
            ndim += 1;
            Ok(())
        };
        if let Ok(lengths) = shape.cast_exact::<PyTuple>() {
            for length in lengths.iter_borrowed() {
                push(&length)?;
            }
        } else if is_index(shape) {
            push(shape)?;
        } else {
            let lengths = shape.try_iter().map_err(|_| {
                PyTypeError::new_err(format!("shape is an int or a sequence of ints, not {shape}"))
            })?;
            for length in lengths {
                push(&length?)?;
            }
        }
        Plan::of(if ndim <= INLINE { &short[..ndim] } else { &long }, dtype)
    }

    /// For lengths in an array.
    ///
    /// # Errors
    /// `ValueError` for lengths that are negative, too many or too large together.
    pub(super) fn of(shape: &[isize], dtype: DType) -> PyResult<Plan> {
        let n_items = layout::count(shape, dtype.size()).map_err(to_python)?;
        let ndim = shape.len();
        let mut plan = Plan { dtype, ndim, n_items, short: [0; 2 * INLINE], long: Vec::new() };
        let dims = if ndim <= INLINE {
            &mut plan.short[..2 * ndim]
        } else {
            plan.long = vec![0; 2 * ndim];
            &mut plan.long[..]
        };
        let (lengths, strides) = dims.split_at_mut(ndim);
        lengths.copy_from_slice(shape);
        layout::row_major(shape, dtype.size(), strides);
        Ok(plan)
    }

    fn dims(&self) -> &[isize] {
        if self.ndim <= INLINE { &self.short[..2 * self.ndim] } else { &self.long }
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.n_items * self.dtype.size()
    }

    /// The tensor, on memory with room for `n_bytes()`.
    pub(super) fn tensor<'py>(
        &self,
        py: Python<'py>,
        data: *mut u8,
        memory: Memory,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.tensor_with(py, data, memory, false)
    }

    /// The same, read-only or not.
    pub(super) fn tensor_with<'py>(
        &self,
        py: Python<'py>,
        data: *mut u8,
        memory: Memory,
        read_only: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.tensor_on(py, data, std::ptr::null_mut(), memory, read_only)
    }

    /// The tensor, read-only on memory that `owner` keeps.
    pub(super) fn tensor_of<'py>(
        &self,
        owner: &Bound<'py, PyAny>,
        data: *mut u8,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.tensor_on(owner.py(), data, owner.as_ptr(), Memory::Owner, true)
    }

    fn tensor_on<'py>(
        &self,
        py: Python<'py>,
        data: *mut u8,
        owner: *mut ffi::PyObject,
        memory: Memory,
        read_only: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (shape, strides) = self.dims().split_at(self.ndim);
        let parts = Parts {
            data,
            dtype: self.dtype,
            shape,
            strides,
            n_items: self.n_items,
            read_only,
            owner,
            memory,
        };
        // SAFETY: a new reference.
        Ok(unsafe { Bound::from_owned_ptr(py, object::new(py, parts)?) })
    }
}

fn is_index(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object.
    unsafe { ffi::PyIndex_Check(object.as_ptr()) != 0 }
}

/// Return a tensor of the given shape with whatever was in its memory.
///
/// The memory is ours, row-major, and aligned to ``align`` bytes, at least 64. With ``shared`` other processes can
/// attach to it through `Tensor.handle`, or by being sent the tensor; shared memory is zeroed and ``align`` at most 4096.
#[pyfunction]
#[pyo3(signature = (shape, dtype, *, align=64, shared=false, device="cpu"))]
fn empty<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    align: usize,
    shared: bool,
    device: &str,
) -> PyResult<Bound<'py, PyAny>> {
    make(shape, dtype, align, shared, device, false)
}

/// Return a tensor of the given shape whose bytes are all zero.
///
/// The memory is ours, row-major, and aligned to ``align`` bytes, at least 64. With ``shared`` other processes can
/// attach to it through `Tensor.handle`, or by being sent the tensor; shared memory is zeroed and ``align`` at most 4096.
#[pyfunction]
#[pyo3(signature = (shape, dtype, *, align=64, shared=false, device="cpu"))]
fn zeros<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    align: usize,
    shared: bool,
    device: &str,
) -> PyResult<Bound<'py, PyAny>> {
    make(shape, dtype, align, shared, device, true)
}

fn make<'py>(
    shape: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    align: usize,
    shared: bool,
    device: &str,
    zeroed: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = shape.py();
    if device != "cpu" {
        return Err(PyValueError::new_err(format!(
            "device {device:?} is not known; memory is made on 'cpu' only"
        )));
    }
    let plan = Plan::new(shape, dtype)?;
    if shared {
        check_align(align, PAGE).map_err(to_python)?;
        return shared::make(py, &plan);
    }
    let block = Block::new(plan.n_bytes(), align, zeroed).map_err(to_python)?;
    plan.tensor(py, block.data(), Memory::Block(block))
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(empty, module)?)?;
    module.add_function(wrap_pyfunction!(zeros, module)?)
}
