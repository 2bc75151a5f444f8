//! The two tiny Python functions through which a stub frame is left.
//!
//! In: nothing. Out: for each [`Exit`] a function object that a stub calls with no arguments. Its code has no
//! RESUME, so CPython treats its frame as incomplete: it shows up in no traceback, trace or `sys._getframe`, and no
//! signal or thread switch can happen inside it.
#![expect(unsafe_code, reason = "defines a C-level type and reads the frame below the running one")]

use std::ffi::c_int;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{ffi, intern};

use super::activation::{Exit, finish_leave};
use super::bytecode::{Assembler, Opcodes, unlocated};
use super::frame::Thread;

struct Trampolines {
    reexecute: Py<PyAny>,
    raise: Py<PyAny>,
}

static TRAMPOLINES: OnceLock<Trampolines> = OnceLock::new();

/// Builds the functions; call once before any stub runs.
///
/// # Errors
/// What creating a type or a code object raises.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    if TRAMPOLINES.get().is_some() {
        return Ok(());
    }
    let ops = Opcodes::get(py)?;
    let leaver = new_leaver(py)?;
    let (mut reexecute, mut raise) = (Assembler::default(), Assembler::default());
    // A value is returned; no value means that null is pushed in the frame below.
    reexecute.emit(ops, ops.load_const, 0);
    reexecute.emit(ops, ops.for_iter, 1);
    reexecute.emit(ops, ops.return_value, 0);
    emit_loop_end(&mut reexecute, ops);
    reexecute.emit(ops, ops.push_null, 0);
    reexecute.emit(ops, ops.return_value, 0);

    if cfg!(Py_3_13) {
        raise.emit(ops, ops.load_const, 0);
        raise.emit(ops, ops.push_null, 0);
    } else {
        raise.emit(ops, ops.push_null, 0);
        raise.emit(ops, ops.load_const, 0);
    }
    raise.emit(ops, ops.call, 0);
    raise.emit(ops, ops.return_value, 0);
    let made = Trampolines {
        reexecute: function(py, &reexecute, &leaver)?.unbind(),
        raise: function(py, &raise, &leaver)?.unbind(),
    };
    let _ = TRAMPOLINES.set(made);
    Ok(())
}

/// What stands behind a loop's body for the interpreter to skip when the iterator ends.
pub fn emit_loop_end(code: &mut Assembler, ops: &Opcodes) {
    if let Some(end_for) = ops.end_for {
        code.emit(ops, end_for, 0);
        if cfg!(Py_3_13) {
            code.emit(ops, ops.pop_top, 0);
        }
    }
}

/// The function for `exit` as a new reference; null before [`prepare`].
pub fn function_for(exit: Exit) -> *mut ffi::PyObject {
    let Some(trampolines) = TRAMPOLINES.get() else { return std::ptr::null_mut() };
    let function = match exit {
        Exit::Reexecute => &trampolines.reexecute,
        Exit::Raise => &trampolines.raise,
    };
    // SAFETY: a stub calls this with the GIL held.
    unsafe { ffi::Py_NewRef(function.as_ptr()) }
}

fn function<'py>(
    py: Python<'py>,
    code: &Assembler,
    leaver: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let template = super::evaluate(py, c"lambda: None")?.getattr(intern!(py, "__code__"))?;
    let fields = PyDict::new(py);
    fields.set_item("co_code", PyBytes::new(py, &code.bytes))?;
    fields.set_item("co_consts", PyTuple::new(py, [leaver])?)?;
    fields.set_item("co_linetable", PyBytes::new(py, &unlocated(code.n_units())))?;
    fields.set_item("co_exceptiontable", PyBytes::new(py, b""))?;
    fields.set_item("co_stacksize", 4)?;
    fields.set_item("co_name", "<leave>")?;
    fields.set_item("co_qualname", "<leave>")?;
    fields.set_item("co_filename", "<overdrive>")?;
    let code = template.call_method("replace", (), Some(&fields))?;
    py.import("types")?.getattr("FunctionType")?.call1((code, PyDict::new(py)))
}

/// The constant of both trampolines: iterating or calling it writes the frame below.
fn new_leaver(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_iter, pfunc: ffi::PyObject_SelfIter as *mut _ },
        ffi::PyType_Slot { slot: ffi::Py_tp_iternext, pfunc: leaver_next as *mut _ },
        ffi::PyType_Slot { slot: ffi::Py_tp_call, pfunc: leaver_call as *mut _ },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"overdrive._core.Leaver".as_ptr(),
        basicsize: size_of::<ffi::PyObject>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: name and functions live for ever; the slots are copied; the object has no fields of its own.
    unsafe {
        let ty = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        let object = ffi::PyType_GenericAlloc(ty.as_ptr().cast(), 0);
        Bound::from_owned_ptr_or_err(py, object)
    }
}

unsafe extern "C" fn leaver_next(_leaver: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with the GIL held. Elsewhere than below a stub nothing is pending, and the
    // answer is an exhausted iterator.
    unsafe {
        let thread = Thread::current();
        finish_leave(thread, thread.frame().previous())
    }
}

unsafe extern "C" fn leaver_call(
    _leaver: *mut ffi::PyObject,
    _args: *mut ffi::PyObject,
    _kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as above; a call must not return null without an exception.
    unsafe {
        let thread = Thread::current();
        let value = finish_leave(thread, thread.frame().previous());
        if value.is_null() && ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_SetString(ffi::PyExc_SystemError, c"overdrive: nothing to leave".as_ptr());
        }
        value
    }
}
