//! Tensors for the other parts of the bridge: a view that is held, and what it says of its memory.
//!
//! In: any object with memory, or a shape. Out: facts, and an address that is good as long as the value is held.
#![expect(unsafe_code, reason = "reads a tensor object through its C layout")]

use overdrive_tensor::block::{ALIGN, Block};
use overdrive_tensor::dtype::DType;
use pyo3::prelude::*;

use super::create::Plan;
use super::door::to_python;
use super::make::{self, Options};
use super::memory::Memory;
use super::object::{self, TensorObject};

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
