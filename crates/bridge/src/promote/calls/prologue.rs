//! 3.11: a copy of a code object that calls one of our objects first, and then is the original.
//!
//! In: a code object and a callable. Out: the copy, whose last constant is the callable: that is how copies are
//! known again. Jumps of 3.11 are relative, so only the line and exception tables have to be shifted.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCode, PyDict, PyTuple};

use super::{COUNTED, slot_of};
use crate::mechanics::bytecode::{Assembler, Opcodes, Shape, emit_exception_table, unlocated};
use crate::mechanics::frame::Thread;
use crate::promote::eager;

/// A function that has the counting copy.
pub(super) struct Swapped {
    function: Py<PyAny>,
    copy: Py<PyAny>,
}

/// Counts its calls.
#[pyclass(module = "overdrive._core", frozen)]
struct CallCounter {
    original: Py<PyAny>,
}

/// Reports its first call to `eager`.
#[pyclass(module = "overdrive._core", frozen)]
struct FirstCall {
    original: Py<PyAny>,
}

#[pymethods]
impl CallCounter {
    fn __call__(&self) {
        let identity = self.original.as_ptr() as usize;
        // SAFETY: the GIL is held, and the closure runs no Python.
        unsafe {
            COUNTED.with(|slots| {
                if let Some(slot) = slot_of(slots, identity) {
                    slot.counts.calls += 1;
                }
            });
        }
    }

    /// A pickled function calls `bool()` here, which does nothing.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(py)
    }
}

#[pymethods]
impl FirstCall {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: the GIL is held; the frame on top is the copy's, which calls us, and is live.
        let function = unsafe {
            let function = Thread::current().frame().function();
            Bound::from_borrowed_ptr(py, function)
        };
        if original(&function.getattr("__code__")?).is(&self.original) {
            function.setattr("__code__", &self.original)?;
            // What goes wrong in there stays there: the program's call goes on as it would.
            let _ = eager::offer(&function);
        }
        Ok(())
    }

    /// As of [`CallCounter`].
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduce(py)
    }
}

type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyAny>, &'static str));

fn reduce(py: Python<'_>) -> PyResult<Reduced<'_>> {
    let builtins = py.import("builtins")?;
    Ok((builtins.getattr("getattr")?, (builtins.into_any(), "bool")))
}

/// Gives `function` the counting copy of `code`, if it still has `code`.
pub(super) fn swap_in(code: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<Option<Swapped>> {
    if !function.getattr("__code__")?.is(code) {
        return Ok(None);
    }
    let counter = Bound::new(code.py(), CallCounter { original: code.clone().unbind() })?;
    let copy = copy_with_call(code, counter.into_any())?;
    function.setattr("__code__", &copy)?;
    Ok(Some(Swapped { function: function.clone().unbind(), copy: copy.unbind() }))
}

impl Swapped {
    /// Puts the original back, unless somebody has replaced the code since.
    pub(super) fn swap_out(self, py: Python<'_>, code: &Py<PyAny>) -> PyResult<()> {
        let function = self.function.bind(py);
        if function.getattr("__code__")?.is(&self.copy) {
            function.setattr("__code__", code)?;
        }
        Ok(())
    }
}

/// Makes the functions among the constants of `code` report their first call. `code` has not run yet.
pub(super) fn watch_constants(code: &Bound<'_, PyAny>) -> PyResult<()> {
    let constants = code.getattr("co_consts")?.cast_into::<PyTuple>()?;
    for (index, constant) in constants.iter().enumerate() {
        if constant.cast::<PyCode>().is_err() {
            continue;
        }
        watch_constants(&constant)?;
        // Class bodies and comprehensions run where they stand; only functions are called.
        let flags: u32 = constant.getattr("co_flags")?.extract()?;
        let is_function = flags & 0x1 != 0 && flags & (0x20 | 0x80 | 0x200) == 0;
        let name: String = constant.getattr("co_name")?.extract()?;
        if !is_function || matches!(name.as_str(), "<listcomp>" | "<setcomp>" | "<dictcomp>" | "<genexpr>") {
            continue;
        }
        let first = Bound::new(code.py(), FirstCall { original: constant.clone().unbind() })?;
        let copy = copy_with_call(&constant, first.into_any())?;
        // SAFETY: the tuple belongs to a code object that no frame runs yet, so nobody has borrowed the item;
        // the new reference is given away and the old one is taken over and dropped.
        unsafe {
            let slot = (constants.as_ptr().cast::<u8>().add(crate::mechanics::layout::tuple::ITEMS))
                .cast::<*mut pyo3::ffi::PyObject>()
                .add(index);
            drop(Bound::from_owned_ptr(code.py(), slot.replace(copy.into_ptr())));
        }
    }
    Ok(())
}

fn copy_with_call<'py>(code: &Bound<'py, PyAny>, callable: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = code.py();
    let ops = Opcodes::get(py)?;
    let shape = Shape::of(py, code)?;
    let constants = code.getattr("co_consts")?.cast_into::<PyTuple>()?;
    let mut prologue = Assembler::default();
    prologue.emit(ops, ops.push_null, 0);
    prologue.emit(ops, ops.load_const, constants.len() as u32);
    if let Some(precall) = ops.precall {
        prologue.emit(ops, precall, 0);
    }
    prologue.emit(ops, ops.call, 0);
    prologue.emit(ops, ops.pop_top, 0);
    let length = prologue.n_units();
    let lines = code.getattr("co_linetable")?.cast_into::<PyBytes>()?;
    let changes = PyDict::new(py);
    changes.set_item("co_code", PyBytes::new(py, &[&prologue.bytes, &shape.bytecode[..]].concat()))?;
    changes.set_item("co_linetable", PyBytes::new(py, &[&unlocated(length), lines.as_bytes()].concat()))?;
    changes
        .set_item("co_exceptiontable", PyBytes::new(py, &emit_exception_table(&shape.handlers, length)))?;
    let all: Vec<Bound<'_, PyAny>> = constants.iter().chain([callable]).collect();
    changes.set_item("co_consts", PyTuple::new(py, all)?)?;
    let depth: usize = code.getattr("co_stacksize")?.extract()?;
    changes.set_item("co_stacksize", depth.max(2))?;
    code.call_method("replace", (), Some(&changes))
}

/// The code object that a copy stands for; itself when it is not one of ours.
pub(super) fn original<'py>(code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    let py = code.py();
    let last = code
        .getattr("co_consts")
        .ok()
        .and_then(|constants| constants.cast_into::<PyTuple>().ok())
        .and_then(|constants| constants.get_item(constants.len().checked_sub(1)?).ok());
    let Some(last) = last else { return code.clone() };
    if let Ok(counter) = last.cast::<CallCounter>() {
        return counter.get().original.bind(py).clone();
    }
    match last.cast::<FirstCall>() {
        Ok(first) => first.get().original.bind(py).clone(),
        Err(_) => code.clone(),
    }
}
