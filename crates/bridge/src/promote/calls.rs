//! Counts the calls of a few functions for a while, and times some of them.
//!
//! In: code objects (and function objects on 3.11). Out: [`Counts`]. On 3.12 and later a local `sys.monitoring`
//! event calls a C function at each start and return, on those code objects alone; the frame's address pairs
//! them, so recursion, other threads and exceptions do not mix up times. 3.11 has no such events: the function
//! runs a copy of its code behind a prologue that counts; times are then estimated from the samples.

#![expect(unsafe_code, reason = "C callbacks that the interpreter calls at every start of a function")]

use std::time::{Duration, Instant};

use pyo3::prelude::*;

#[cfg(not(Py_3_12))]
mod prologue;

use crate::mechanics::gil_cell::GilCell;

/// What was counted for one code object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub calls: u64,
    pub timed_calls: u64,
    pub timed: Duration,
}

/// At most this many functions are counted at a time; `Policy.max_counted` is lower or equal.
pub const SLOTS: usize = 64;
/// The first calls are all timed, later one in `TIME_EVERY`.
const TIME_FIRST: u64 = 32;
const TIME_EVERY: u64 = 16;

#[derive(Clone, Copy)]
struct Slot {
    /// Identity of the counted code, 0 when free. The counter holds a reference to it.
    code: usize,
    counts: Counts,
    /// Frame being timed, 0 for none.
    frame: usize,
    since: Option<Instant>,
}

const FREE: Slot = Slot {
    code: 0,
    counts: Counts { calls: 0, timed_calls: 0, timed: Duration::ZERO },
    frame: 0,
    since: None,
};

static COUNTED: GilCell<[Slot; SLOTS]> = GilCell::new([FREE; SLOTS]);

/// The slot of `code`.
fn slot_of(slots: &mut [Slot; SLOTS], code: usize) -> Option<&mut Slot> {
    slots.iter_mut().take_while(|slot| slot.code != 0).find(|slot| slot.code == code)
}

/// A function whose calls are counted until this is stopped.
pub struct Counter {
    code: Py<PyAny>,
    #[cfg(not(Py_3_12))]
    swapped: prologue::Swapped,
}

impl Counter {
    /// Starts to count. `None` when it is not possible now: no slot or no tool id is free, or the function
    /// has another code object by now.
    pub fn start(code: &Bound<'_, PyAny>, function: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Counter>> {
        let identity = code.as_ptr() as usize;
        // SAFETY: the GIL is held and the closure runs no Python.
        let taken = unsafe {
            COUNTED.with(|slots| {
                let free = slots.iter_mut().find(|slot| slot.code == 0 || slot.code == identity);
                free.map(|slot| *slot = Slot { code: identity, ..FREE }).is_some()
            })
        };
        if !taken {
            return Ok(None);
        }
        match Self::attach(code, function) {
            Ok(Some(counter)) => Ok(Some(counter)),
            other => {
                release(identity);
                other
            }
        }
    }

    /// What was counted so far.
    pub fn read(&self) -> Counts {
        let identity = self.code.as_ptr() as usize;
        // SAFETY: the caller holds the GIL (it has the session), and the closure runs no Python.
        unsafe { COUNTED.with(|slots| slot_of(slots, identity).map(|slot| slot.counts)) }.unwrap_or_default()
    }

    /// Stops counting.
    pub fn stop(self, py: Python<'_>) -> PyResult<Counts> {
        let counts = self.read();
        release(self.code.as_ptr() as usize);
        self.detach(py)?;
        Ok(counts)
    }

    #[cfg(Py_3_12)]
    fn attach(code: &Bound<'_, PyAny>, _function: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Counter>> {
        if !monitoring::set(code, true)? {
            return Ok(None);
        }
        Ok(Some(Counter { code: code.clone().unbind() }))
    }

    #[cfg(Py_3_12)]
    fn detach(self, py: Python<'_>) -> PyResult<()> {
        monitoring::set(self.code.bind(py), false).map(|_| ())
    }

    #[cfg(not(Py_3_12))]
    fn attach(code: &Bound<'_, PyAny>, function: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Counter>> {
        let Some(function) = function else { return Ok(None) };
        let swapped = prologue::swap_in(code, function)?;
        Ok(swapped.map(|swapped| Counter { code: code.clone().unbind(), swapped }))
    }

    #[cfg(not(Py_3_12))]
    fn detach(self, py: Python<'_>) -> PyResult<()> {
        self.swapped.swap_out(py, &self.code)
    }
}

/// Frees the slot and closes the gap, because look-ups stop at the first free one.
fn release(identity: usize) {
    // SAFETY: the GIL is held by the callers above, and the closure runs no Python.
    unsafe {
        COUNTED.with(|slots| {
            let used = slots.iter().take_while(|slot| slot.code != 0).count();
            if let Some(at) = slots.iter().position(|slot| slot.code == identity)
                && used > 0
            {
                slots.swap(at, used - 1);
                slots[used - 1] = FREE;
            }
        })
    }
}

#[cfg(Py_3_12)]
mod monitoring {
    //! `sys.monitoring` with C callbacks.

    use std::ffi::c_int;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::{COUNTED, Instant, TIME_EVERY, TIME_FIRST, slot_of};
    use crate::mechanics::frame::Thread;
    use crate::mechanics::osr;
    use pyo3::ffi;
    use pyo3::prelude::*;

    const PY_START: u32 = 1;
    const PY_RETURN: u32 = 1 << 2;
    const EVENTS: u32 = PY_START | PY_RETURN;

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
        if super::super::eager::is_active() {
            // Of the callback's callers only this one runs Python code, and it holds no cell.
            return Python::attach(|py| {
                let disable = super::super::eager::started(py).then(|| disable(py)).flatten();
                disable.unwrap_or_else(|| py.None().into_ptr())
            });
        }
        // SAFETY: the interpreter calls with the GIL.
        unsafe {
            none()
        }
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
}

/// Reports the first call of each function to `eager`, or stops it.
pub(super) fn watch_starts(py: Python<'_>, on: bool) -> PyResult<()> {
    #[cfg(Py_3_12)]
    return monitoring::set_global(py, on);
    #[cfg(not(Py_3_12))]
    first_calls::watch(py, on)
}

/// The code object that `code` stands for: the original of a copy that counts or reports; else itself.
pub fn original<'py>(code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    #[cfg(Py_3_12)]
    return code.clone();
    #[cfg(not(Py_3_12))]
    prologue::original(code)
}

#[cfg(not(Py_3_12))]
mod first_calls {
    //! 3.11: reports the first call of every function of the project.

    use std::ffi::{CStr, c_char, c_int, c_void};
    use std::ptr::null_mut;
    use std::sync::Once;

    use super::prologue;
    use crate::promote::eager;
    use pyo3::ffi;
    use pyo3::prelude::*;
    use pyo3::types::PyString;

    /// Installs the hook, which cannot be taken away again; it does nothing while `eager` is off.
    pub(super) fn watch(_py: Python<'_>, on: bool) -> PyResult<()> {
        static ONCE: Once = Once::new();
        if on {
            // SAFETY: the hook is a static function that checks what it gets.
            ONCE.call_once(|| unsafe {
                PySys_AddAuditHook(on_audit, null_mut());
            });
        }
        Ok(())
    }

    type AuditHook = unsafe extern "C" fn(*const c_char, *mut ffi::PyObject, *mut c_void) -> c_int;

    unsafe extern "C" {
        fn PySys_AddAuditHook(hook: AuditHook, data: *mut c_void) -> c_int;
    }

    /// `exec` is raised with a code object right before it runs: a module, a class body is not among them.
    unsafe extern "C" fn on_audit(event: *const c_char, arguments: *mut ffi::PyObject, _: *mut c_void) -> c_int {
        if !eager::is_active() {
            return 0;
        }
        // SAFETY: CPython passes a C string and a tuple (or null), with the GIL held.
        unsafe {
            if arguments.is_null() || CStr::from_ptr(event) != c"exec" {
                return 0;
            }
        }
        Python::attach(|py| {
            // SAFETY: see above.
            let arguments = unsafe { Bound::from_borrowed_ptr(py, arguments) };
            let Ok(code) = arguments.get_item(0) else { return };
            let ours = code
                .getattr("co_filename")
                .is_ok_and(|file| file.cast::<PyString>().is_ok_and(|file| file.to_str().is_ok_and(eager::wants_file)));
            if ours {
                // A code object that cannot be copied runs as it is.
                let _ = prologue::watch_constants(&code);
            }
        });
        0
    }
}
