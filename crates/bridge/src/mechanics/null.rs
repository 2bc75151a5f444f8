//! Null promotion: every function runs through a stub whose native code does nothing but leave at once.
//!
//! In: functions. Out: the same functions, with every entry and exit path of promotion in use and no compiled code.
//! It is how the mechanics are tested against whole programs. Loops go the same way: each back edge puts the frame
//! into the state that it has.
#![expect(unsafe_code, reason = "implements the native entry points")]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::activation::{Activation, Exit, KEEP};
use super::native::{Body, LoopOutcome};
use super::{osr, stub};

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

    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        if self.0 == Manner::FromStart {
            return LoopOutcome::NotEntered;
        }
        // SAFETY: the frame stands at the loop head, and nothing is changed.
        unsafe {
            let locals = vec![KEEP; activation.shape.n_locals_plus as usize];
            let stack = vec![KEEP; activation.frame.depth()];
            activation.leave(offset, &locals, &stack, Exit::Reexecute);
        }
        LoopOutcome::Left
    }
}

/// `code` with itself and every function inside it null-promoted; with `loops`, their loops are armed too (3.12 and
/// later), those of modules and classes as well. What cannot have a stub stays, its inner functions do not.
///
/// # Errors
/// What building code objects raises.
#[pyfunction]
#[pyo3(name = "_null_promote_code", signature = (code, leave = true, loops = false))]
pub fn null_promote_code<'py>(
    code: &Bound<'py, PyAny>,
    leave: bool,
    loops: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    if stub::original_of(code).is_some() {
        return Ok(code.clone());
    }
    let consts = code.getattr("co_consts")?.cast_into::<PyTuple>()?;
    let (mut inner, mut is_changed) = (Vec::with_capacity(consts.len()), false);
    for constant in consts.iter() {
        // SAFETY: a type check of a live object.
        if unsafe { ffi::PyCode_Check(constant.as_ptr()) } != 0 {
            is_changed = true;
            inner.push(null_promote_code(&constant, leave, loops)?);
        } else {
            inner.push(constant);
        }
    }
    let mut promoted = code.clone();
    if is_changed {
        let fields = PyDict::new(py);
        fields.set_item("co_consts", PyTuple::new(py, inner)?)?;
        promoted = code.call_method("replace", (), Some(&fields))?;
    }
    let manner = if leave { Manner::Leave } else { Manner::FromStart };
    let can_have_stub = stub::refusal(&promoted)?.is_none();
    if can_have_stub {
        promoted = stub::build(&promoted, Box::new(NullBody(manner)))?;
    }
    let is_function = code.getattr("co_flags")?.extract::<u32>()? & 0x1 != 0;
    if loops && cfg!(Py_3_12) && (can_have_stub || !is_function) {
        osr::arm(&promoted, (!can_have_stub).then(|| Box::new(NullBody(manner)) as Box<dyn Body>))?;
    }
    Ok(promoted)
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
