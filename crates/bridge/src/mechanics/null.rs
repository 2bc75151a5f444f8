//! Null promotion: every function runs through a stub whose native code does nothing but leave at once.
//!
//! In: functions. Out: the same functions, with every entry and exit path of promotion in use and no compiled code.
//! It is how the mechanics are tested against whole programs.
#![expect(unsafe_code, reason = "implements the native entry points")]

use pyo3::ffi;
use pyo3::prelude::*;

use super::activation::{Activation, Exit, KEEP};
use super::native::{Body, LoopOutcome};
use super::stub;

/// How the empty native code leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// "Run the original from the start."
    FromStart,
    /// Through the trampoline, behind the original RESUME.
    Leave,
}

pub struct NullBody(pub Manner);

impl Body for NullBody {
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        match self.0 {
            Manner::FromStart => std::ptr::null_mut(),
            // SAFETY: nothing was touched, so all slots are as they must be.
            Manner::Leave => unsafe {
                let locals = vec![KEEP; activation.shape.n_locals_plus as usize];
                activation.leave(2 * activation.shape.resume + 2, &locals, &[], Exit::Reexecute)
            },
        }
    }

    unsafe fn enter_loop(&self, _activation: &mut Activation<'_>, _offset: u32) -> LoopOutcome {
        LoopOutcome::NotEntered
    }
}

/// Null-promotes one function.
///
/// # Errors
/// As [`stub::swap`].
#[pyfunction]
#[pyo3(name = "_null_promote", signature = (function, leave = false))]
pub fn null_promote(function: &Bound<'_, PyAny>, leave: bool) -> PyResult<()> {
    let manner = if leave { Manner::Leave } else { Manner::FromStart };
    stub::swap(function, Box::new(NullBody(manner)))
}

/// Undoes [`null_promote`].
///
/// # Errors
/// As [`stub::unswap`].
#[pyfunction]
#[pyo3(name = "_null_demote")]
pub fn null_demote(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    stub::unswap(function)
}
