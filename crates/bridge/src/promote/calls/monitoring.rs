//! 3.12 and later: `sys.monitoring` events with C callbacks.
//!
//! In: code objects. Out: counts and times in their slots; starts of functions, for `eager`.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use super::{COUNTED, slot_of};
use crate::mechanics::frame::Thread;
use crate::mechanics::osr;
use crate::promote::eager;
use pyo3::ffi;
use pyo3::prelude::*;

const PY_START: u32 = 1;
const PY_RETURN: u32 = 1 << 2;
const EVENTS: u32 = PY_START | PY_RETURN;
/// The first calls are all timed, later one in `TIME_EVERY`.
const TIME_FIRST: u64 = 32;
const TIME_EVERY: u64 = 16;

/// Our tool id; -1 before the first use.
static TOOL: AtomicI32 = AtomicI32::new(-1);

/// Switches the events of `code` on or off. False when another tool has taken all free ids.
pub(super) fn set(code: &Bound<'_, PyAny>, on: bool) -> PyResult<bool> {
    let monitoring = code.py().import("sys")?.getattr("monitoring")?;
    let Some(tool) = tool(&monitoring)? else { return Ok(false) };
    let events = if on { EVENTS } else { 0 };
    monitoring.call_method1("set_local_events", (tool, code, events))?;
    Ok(true)
}

/// Ids 3 and 4 have no meaning assigned; a debugger, coverage tool or profiler takes 0 to 2.
fn tool(monitoring: &Bound<'_, PyAny>) -> PyResult<Option<c_int>> {
    let known = TOOL.load(Ordering::Relaxed);
    if known >= 0 {
        return Ok(Some(known));
    }
    for id in [4, 3] {
        if monitoring.call_method1("use_tool_id", (id, "overdrive calls")).is_err() {
            continue;
        }
        let py = monitoring.py();
        monitoring.call_method1("register_callback", (id, PY_START, callback(py, &START)?))?;
        monitoring.call_method1("register_callback", (id, PY_RETURN, callback(py, &RETURN)?))?;
        // Native code does not step aside for this tool.
        osr::set_own_tool(id as u8, true);
        TOOL.store(id, Ordering::Relaxed);
        return Ok(Some(id));
    }
    Ok(None)
}

/// Reports the start of every function, for the policy `eager`, or stops it.
pub(super) fn set_global(py: Python<'_>, on: bool) -> PyResult<()> {
    let monitoring = py.import("sys")?.getattr("monitoring")?;
    let Some(tool) = tool(&monitoring)? else {
        return Err(pyo3::exceptions::PyRuntimeError::new_err("no sys.monitoring tool id is free"));
    };
    monitoring.call_method1("set_events", (tool, if on { PY_START } else { 0 }))?;
    if on {
        // What an earlier session had switched off, function by function.
        monitoring.call_method0("restart_events")?;
    }
    Ok(())
}

struct Definition(ffi::PyMethodDef);
// SAFETY: the definition is never written after it is made.
unsafe impl Sync for Definition {}

static START: Definition = definition(c"overdrive_start", on_start);
static RETURN: Definition = definition(c"overdrive_return", on_return);

const fn definition(name: &'static std::ffi::CStr, function: ffi::PyCFunctionFast) -> Definition {
    Definition(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: function },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: std::ptr::null(),
    })
}

fn callback<'py>(py: Python<'py>, definition: &'static Definition) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the definition is static; CPython only reads it.
    unsafe {
        let definition = (&raw const definition.0).cast_mut();
        Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(definition, null_mut(), null_mut()))
    }
}

/// The event's first argument is the code object; the frame on top is the one that starts.
unsafe extern "C" fn on_start(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with the GIL and at least one argument; no Python runs in here.
    unsafe {
        let code = *arguments as usize;
        let frame = Thread::current().frame().0 as usize;
        COUNTED.with(|slots| {
            let Some(slot) = slot_of(slots, code) else { return };
            let call = slot.counts.calls;
            slot.counts.calls += 1;
            // The same address again means that the timed call ended by an exception.
            let unused = slot.frame == 0 || slot.frame == frame;
            if unused && (call < TIME_FIRST || call % TIME_EVERY == 0) {
                slot.frame = frame;
                slot.since = Some(Instant::now());
            }
        });
    }
    if eager::is_active() {
        // Of the callback's callers only this one runs Python code, and it holds no cell.
        return Python::attach(|py| {
            let disable = started(py).then(|| disable(py)).flatten();
            disable.unwrap_or_else(|| py.None().into_ptr())
        });
    }
    // SAFETY: the interpreter calls with the GIL.
    unsafe { none() }
}

unsafe extern "C" fn on_return(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: as above.
    unsafe {
        let code = *arguments as usize;
        let frame = Thread::current().frame().0 as usize;
        COUNTED.with(|slots| {
            let Some(slot) = slot_of(slots, code) else { return };
            if slot.frame == frame
                && let Some(since) = slot.since.take()
            {
                slot.frame = 0;
                slot.counts.timed_calls += 1;
                slot.counts.timed += since.elapsed();
            }
        });
        none()
    }
}

/// The function on top of this thread's stack starts a call. True when its code need not be reported again.
fn started(py: Python<'_>) -> bool {
    // SAFETY: the GIL is held and the frame on top is live while its start is reported; what is taken out of
    // it is made an owned reference at once.
    let function = unsafe {
        let frame = Thread::current().frame();
        if frame.0.is_null() {
            return true;
        }
        let function = frame.function();
        if function.is_null() || ffi::PyFunction_Check(function) == 0 {
            return true;
        }
        Bound::from_borrowed_ptr(py, function)
    };
    eager::offer(&function).unwrap_or(true)
}

/// A new reference to the object that switches the event off for this function.
fn disable(py: Python<'_>) -> Option<*mut ffi::PyObject> {
    let disable = py.import("sys").and_then(|sys| sys.getattr("monitoring")?.getattr("DISABLE"));
    disable.ok().map(|disable| disable.into_ptr())
}

/// A new reference to None.
unsafe fn none() -> *mut ffi::PyObject {
    // SAFETY: the GIL is held.
    unsafe {
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}
