//! Hooks: what is to be called when the last reference to a tensor and to all that was exported from it goes.
//!
//! In: a tensor and a callable. Out: one call, after the memory has been given back; at the end of the process for
//! tensors that are still alive then. Exports (arrays, memoryviews, DLPack and Arrow consumers) hold the tensor itself,
//! so its death is the moment to be told about.
#![expect(unsafe_code, reason = "runs inside a destructor, on borrowed C pointers")]

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::object::TensorObject;

/// One callable that has not been called yet.
#[pyclass(frozen, module = "overdrive._core")]
struct Hook {
    callback: Py<PyAny>,
    arguments: Py<PyTuple>,
}

/// Hooks that wait, by the address of their `Hook`: the end of the process calls them.
fn waiting(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let value = py.import("overdrive._core")?.getattr("_waiting_hooks")?;
    Ok(value.cast_into::<PyDict>()?)
}

/// The end of the process knows of us. Children of fork inherit both.
static AT_END: AtomicBool = AtomicBool::new(false);

/// Registers a callable.
pub(super) fn add(tensor: &Bound<'_, PyAny>, callback: Py<PyAny>, arguments: Py<PyTuple>) -> PyResult<()> {
    let py = tensor.py();
    let hook = Py::new(py, Hook { callback, arguments })?;
    if !AT_END.swap(true, Ordering::Relaxed) {
        let run = py.import("overdrive._core")?.getattr("_run_waiting_hooks")?;
        py.import("atexit")?.call_method1("register", (run,))?;
    }
    waiting(py)?.set_item(hook.as_ptr().addr(), &hook)?;
    let this = tensor.as_ptr().cast::<TensorObject>();
    // SAFETY: callers pass a tensor, which owns the list. The collector need not see it: a waiting hook is immortal.
    unsafe {
        if (*this).hooks.get().is_null() {
            (*this).hooks.set(PyList::empty(py).into_ptr());
        }
        Bound::from_borrowed_ptr(py, (*this).hooks.get()).cast_into::<PyList>()?.append(hook)
    }
}

/// Calls the hooks of a tensor that has died, first come first. Errors are reported as those of destructors are.
///
/// # Safety
/// The GIL is held and the caller gives away its reference to a list of hooks.
pub(super) unsafe fn run(hooks: *mut ffi::PyObject) {
    // SAFETY: by contract.
    let hooks = unsafe { Bound::from_owned_ptr(Python::assume_attached(), hooks) };
    let Ok(hooks) = hooks.cast_into::<PyList>() else { return };
    for hook in hooks.iter() {
        call(&hook);
    }
}

fn call(hook: &Bound<'_, PyAny>) {
    let py = hook.py();
    let Ok(hook) = hook.cast::<Hook>() else { return };
    let key = hook.as_ptr().addr();
    // A hook that waits no more was called at the end of the process already.
    let waits = waiting(py).and_then(|waiting| {
        let waits = waiting.contains(key)?;
        if waits {
            waiting.del_item(key)?;
        }
        Ok(waits)
    });
    if matches!(waits, Ok(true)) {
        let hook = hook.get();
        if let Err(error) = hook.callback.bind(py).call(hook.arguments.bind(py), None) {
            error.write_unraisable(py, Some(hook.callback.bind(py)));
        }
    }
}

/// Calls every hook that still waits: the process ends before its tensor does.
#[pyfunction]
fn _run_waiting_hooks(py: Python<'_>) -> PyResult<()> {
    for hook in waiting(py)?.values().iter() {
        call(&hook);
    }
    Ok(())
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("_waiting_hooks", PyDict::new(module.py()))?;
    module.add_function(wrap_pyfunction!(_run_waiting_hooks, module)?)
}
