//! 3.12 and later: backward jumps of one code object, reported by `sys.monitoring` to a C callback.
//!
//! In: code objects to arm. Out: calls of `offer`. The tool id is taken when the first code is armed and given back with
//! the last.
#![expect(unsafe_code, reason = "a callback from the interpreter with raw arguments")]

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use pyo3::prelude::*;
use pyo3::{ffi, intern};

use super::{Offer, Thread, is_idle, offer, set_own_tool};

/// Our tool id while something is armed, else -1.
static TOOL: AtomicI32 = AtomicI32::new(-1);
static DISABLE: OnceLock<Py<PyAny>> = OnceLock::new();
static CALLBACK: OnceLock<Py<PyAny>> = OnceLock::new();

const JUMP: c_int = 1 << 7;
const NAME: &str = "overdrive loops";

pub(super) fn arm(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = code.py();
    let monitoring = monitoring(py)?;
    let mut tool = TOOL.load(Ordering::Relaxed);
    if tool < 0 {
        // 5 is meant for optimizers; 0 to 2 for debuggers, coverage and profilers.
        for id in [5, 4, 3] {
            if monitoring.call_method1(intern!(py, "get_tool"), (id,))?.is_none() {
                monitoring.call_method1(intern!(py, "use_tool_id"), (id, NAME))?;
                tool = id;
                break;
            }
        }
        if tool < 0 {
            return Ok(false);
        }
        let callback = callback(py)?;
        monitoring.call_method1(intern!(py, "register_callback"), (tool, JUMP, callback))?;
        let _ = DISABLE.set(monitoring.getattr("DISABLE")?.unbind());
        TOOL.store(tool, Ordering::Relaxed);
        set_own_tool(tool as u8, true);
    }
    monitoring.call_method1(intern!(py, "set_local_events"), (tool, code, JUMP))?;
    Ok(true)
}

pub(super) fn disarm(code: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = code.py();
    let tool = TOOL.load(Ordering::Relaxed);
    if tool < 0 {
        return Ok(());
    }
    let monitoring = monitoring(py)?;
    monitoring.call_method1(intern!(py, "set_local_events"), (tool, code, 0))?;
    if is_idle() {
        monitoring.call_method1(intern!(py, "register_callback"), (tool, JUMP, py.None()))?;
        monitoring.call_method1(intern!(py, "free_tool_id"), (tool,))?;
        TOOL.store(-1, Ordering::Relaxed);
        set_own_tool(tool as u8, false);
    }
    Ok(())
}

/// `sys.settrace` works through tools of its own here, so no trace function is ever ours.
pub(super) unsafe fn is_own_tracer(_thread: Thread) -> bool {
    false
}

fn monitoring(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "sys"))?.getattr(intern!(py, "monitoring"))
}

/// The callback as a built-in function: the interpreter calls it without a frame of its own.
fn callback(py: Python<'_>) -> PyResult<&'static Py<PyAny>> {
    if let Some(made) = CALLBACK.get() {
        return Ok(made);
    }
    // CPython keeps the pointer as long as the function object, which is kept for ever.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"overdrive_jump".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: on_jump },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: std::ptr::null(),
    }));
    // SAFETY: a valid definition without a self object.
    let made = unsafe {
        let function = ffi::PyCFunction_NewEx(definition, std::ptr::null_mut(), std::ptr::null_mut());
        Bound::from_owned_ptr_or_err(py, function)?
    };
    Ok(CALLBACK.get_or_init(|| made.unbind()))
}

/// Arguments: code, offset of the jump, offset of its destination (bytes).
unsafe extern "C" fn on_jump(
    _module: *mut ffi::PyObject,
    args: *mut *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes three live objects for this event and has saved the frame's stack pointer; the
    // frame on top is the one that jumps, because a built-in function has none.
    unsafe {
        let none = || ffi::Py_NewRef(ffi::Py_None());
        if n_args != 3 {
            return none();
        }
        let (source, target) = (ffi::PyLong_AsLong(*args.add(1)), ffi::PyLong_AsLong(*args.add(2)));
        let thread = Thread::current();
        let frame = thread.frame();
        if target >= source || target < 0 || frame.0.is_null() || frame.code() != *args {
            return none();
        }
        match offer(thread, frame, target as u32 / 2) {
            Offer::Declined => none(),
            Offer::NeverAgain => DISABLE.get().map_or_else(none, |object| ffi::Py_NewRef(object.as_ptr())),
            Offer::Left if ffi::PyErr_Occurred().is_null() => none(),
            Offer::Left => std::ptr::null_mut(),
        }
    }
}
