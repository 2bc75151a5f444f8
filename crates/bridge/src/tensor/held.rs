//! Tensors for the other parts of the bridge: a view that is held, and what it says of its memory.
//!
//! In: any object with memory, or a shape. Out: facts, and an address that is good as long as the value is held.
#![expect(unsafe_code, reason = "reads a tensor object through its C layout")]

use std::sync::Arc;

use overdrive_tensor::block::{ALIGN, Block};
use overdrive_tensor::dtype::{DType, Kind};
use overdrive_tensor::mapped::MappedFile;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::create::Plan;
use super::door::to_python;
use super::make::{self, Options};
use super::memory::Memory;
use super::object::{self, TensorObject};
use super::raw;

/// A strong tensor.
pub(crate) struct Held<'py>(object::Live<'py>);

impl<'py> Held<'py> {
    /// Views `x` as `overdrive.tensor(x)` does.
    ///
    /// # Errors
    /// Those of `overdrive.tensor`; `ReferenceError` for a weak tensor whose owner has gone.
    pub(crate) fn view(x: &Bound<'py, PyAny>) -> PyResult<Held<'py>> {
        let tensor =
            if object::is_tensor(x.as_ptr()) { x.clone() } else { make::view(x, Options::default())? };
        // SAFETY: a tensor.
        Ok(Held(unsafe { object::live(x.py(), tensor.as_ptr())? }))
    }

    /// A new tensor on memory of ours, as `overdrive.empty` makes.
    ///
    /// # Errors
    /// `ValueError` for impossible shapes, `MemoryError`.
    pub(crate) fn make(py: Python<'py>, shape: &[isize], dtype: DType) -> PyResult<Bound<'py, PyAny>> {
        let plan = Plan::of(shape, dtype)?;
        let block = Block::new(plan.n_bytes(), ALIGN, false).map_err(to_python)?;
        plan.tensor(py, block.data(), Memory::Block(block))
    }

    /// A new tensor, row-major, on numbers that were computed; they are not copied.
    ///
    /// # Errors
    /// `ValueError` when the shape has not as many elements; `MemoryError`.
    pub(crate) fn of_floats(
        py: Python<'py>,
        shape: &[isize],
        mut values: Vec<f32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let plan = Plan::of(shape, DType { kind: Kind::F32, swapped: false })?;
        if plan.n_bytes() != size_of_val(values.as_slice()) {
            return Err(PyValueError::new_err(format!("{} numbers are not {shape:?}", values.len())));
        }
        let data = values.as_mut_ptr().cast();
        plan.tensor(py, data, Memory::Floats(values))
    }

    /// A dense, read-only tensor on bytes of a mapped file from `start` on, which keeps the mapping.
    ///
    /// # Errors
    /// `ValueError` for impossible shapes.
    ///
    /// # Panics
    /// When it does not lie inside the file.
    pub(crate) fn mapped(
        py: Python<'py>,
        file: &Arc<MappedFile>,
        start: usize,
        shape: &[isize],
        dtype: DType,
    ) -> PyResult<Bound<'py, PyAny>> {
        let plan = Plan::of(shape, dtype)?;
        let bytes: &[u8] = (**file).as_ref();
        let data = bytes[start..][..plan.n_bytes()].as_ptr().cast_mut();
        plan.tensor_with(py, data, Memory::Mapped(Arc::clone(file)), true)
    }

    /// A dense, read-only tensor on this one's bytes from `start` on, which keeps this one. This one is dense.
    ///
    /// # Errors
    /// `ValueError` for impossible shapes.
    ///
    /// # Panics
    /// When it does not lie inside this one.
    pub(crate) fn part(&self, start: usize, shape: &[isize], dtype: DType) -> PyResult<Bound<'py, PyAny>> {
        let plan = Plan::of(shape, dtype)?;
        let room = self.n_bytes().checked_sub(start);
        assert!(self.is_dense() && room.is_some_and(|room| plan.n_bytes() <= room), "a part lies inside");
        raw::part(self.object(), start, &plan)
    }

    /// Shows the bytes of a dense tensor to `read`, while the GIL keeps Python's threads from writing to them.
    ///
    /// # Panics
    /// When the tensor is not dense.
    pub(crate) fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        assert!(self.is_dense(), "only dense bytes lie one behind the other");
        let this = self.tensor();
        // SAFETY: the tensor is dense and has so many bytes, and its owner is held.
        read(unsafe { std::slice::from_raw_parts(this.data_or_dummy(), this.n_bytes()) })
    }

    /// The tensor itself.
    pub(crate) fn object(&self) -> &Bound<'py, PyAny> {
        self.0.object()
    }

    /// Bytes of all elements.
    pub(crate) fn n_bytes(&self) -> usize {
        self.tensor().n_bytes()
    }

    fn tensor(&self) -> &TensorObject {
        self.0.tensor()
    }

    /// Address of the first element.
    pub(crate) fn data(&self) -> *mut u8 {
        self.tensor().data
    }

    pub(crate) fn dtype(&self) -> DType {
        self.tensor().dtype
    }

    pub(crate) fn shape(&self) -> &[isize] {
        self.tensor().shape()
    }

    /// In bytes.
    pub(crate) fn strides(&self) -> &[isize] {
        self.tensor().strides()
    }

    pub(crate) fn read_only(&self) -> bool {
        self.tensor().read_only()
    }

    /// Row-major without gaps.
    pub(crate) fn is_dense(&self) -> bool {
        make::is_dense(self.tensor())
    }
}
