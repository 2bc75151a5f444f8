//! In-place entry of loops that already run: native code takes over a frame at a loop head.
//!
//! In: a code object (original or stub, of a function, class or module) and a [`Body`]. Out: while it is armed, the body
//! is offered the frames that arrive at loop heads of that code. 3.12 and later: `sys.monitoring` JUMP events of that
//! code object alone, with a C callback. 3.11: a C trace function on the threads that run the code now, for one loop
//! head. Steps aside for every debugger, tracer, profiler and coverage tool.
#![expect(unsafe_code, reason = "called by the interpreter in the middle of a frame")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use pyo3::prelude::*;

use super::activation::{Activation, EnteredBy};
use super::bytecode::{Opcodes, Shape};
use super::frame::{Frame, Thread, is_monitored};
use super::gil_cell::GilCell;
use super::native::{self, Body, LoopOutcome};
use super::stack::stack_low;
use super::stub;

#[cfg(not(Py_3_12))]
mod trace;
#[cfg(not(Py_3_12))]
use trace as mechanism;

#[cfg(Py_3_12)]
mod monitoring;
#[cfg(Py_3_12)]
use monitoring as mechanism;

/// A code object whose loop heads are offered.
struct Armed {
    /// Keeps the code object alive: the map's key is its address.
    _code: Py<PyAny>,
    source: Source,
    ops: &'static Opcodes,
}

enum Source {
    /// The original code with a body of its own.
    Original(Shape, Box<dyn Body>),
    /// A stub, entered through the body of its Native.
    Stub(Py<PyAny>),
}

static ARMED: GilCell<Option<HashMap<usize, Arc<Armed>>>> = GilCell::new(None);
/// `sys.monitoring` tools that belong to overdrive, one bit each.
static OWN_TOOLS: AtomicU8 = AtomicU8::new(0);

/// Offers `body` the loop heads of `code` from now on, or, without a body, those of a stub to the stub's own. Arming
/// again replaces the body. On 3.11 one offer is made to each thread that runs the code at this moment: arm again for
/// more. Says whether anything was armed: not while a tracer is active (3.11), or with all tool ids taken (3.12).
///
/// # Errors
/// `ValueError`: no body, and `code` is no stub. What `sys.monitoring` raises.
pub fn arm(code: &Bound<'_, PyAny>, body: Option<Box<dyn Body>>) -> PyResult<bool> {
    let py = code.py();
    let source = match body {
        Some(body) => Source::Original(Shape::of(py, code)?, body),
        None => Source::Stub(
            stub::native_of(code)
                .ok_or_else(|| pyo3::exceptions::PyValueError::new_err("not a stub, and no body given"))?
                .unbind(),
        ),
    };
    let armed = Arc::new(Armed { _code: code.clone().unbind(), source, ops: Opcodes::get(py)? });
    // SAFETY: the GIL is held; the replaced entry is dropped outside, as dropping may run Python.
    let before =
        unsafe { ARMED.with(|all| all.get_or_insert_default().insert(code.as_ptr() as usize, armed)) };
    drop(before);
    let is_armed = mechanism::arm(code)?;
    if !is_armed {
        forget(code);
    }
    Ok(is_armed)
}

/// Stops offering loop heads of `code`; says whether it was armed.
///
/// # Errors
/// What `sys.monitoring` raises.
pub fn disarm(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let was_armed = forget(code);
    if was_armed {
        mechanism::disarm(code)?;
    }
    Ok(was_armed)
}

fn forget(code: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the GIL is held; dropped outside.
    let before = unsafe { ARMED.with(|all| all.as_mut()?.remove(&(code.as_ptr() as usize))) };
    before.is_some()
}

/// Whether no code is armed.
fn is_idle() -> bool {
    // SAFETY: the caller holds the GIL.
    unsafe { ARMED.with(|all| all.as_ref().is_none_or(HashMap::is_empty)) }
}

/// The `sys.monitoring` tools whose events do not make native code step aside.
#[inline]
pub fn own_tools() -> u8 {
    OWN_TOOLS.load(Ordering::Relaxed)
}

/// Declares tool `id` to be one of overdrive's (or, when `is_own` is false, no longer).
pub fn set_own_tool(id: u8, is_own: bool) {
    let bit = 1u8 << (id & 7);
    if is_own {
        OWN_TOOLS.fetch_or(bit, Ordering::Relaxed);
    } else {
        OWN_TOOLS.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Whether a tracer or profiler that is not overdrive's own is active on this thread.
///
/// # Safety
/// As [`Thread::frame`].
#[inline]
pub unsafe fn has_foreign_tracer(thread: Thread) -> bool {
    // SAFETY: the caller's contract.
    unsafe { thread.has_tracer() && !mechanism::is_own_tracer(thread) }
}

/// What an offer led to.
enum Offer {
    /// This code is not armed, or the body declined.
    Declined,
    /// The body does not want this loop head again.
    NeverAgain,
    /// The frame is in another state; an exception may be set.
    Left,
}

/// Offers `frame`, which stands at `unit` of its code, to the body that is armed for it. `position` is restored when
/// the body declines.
///
/// # Safety
/// Called from the interpreter's event for that frame, with its stack pointer saved.
unsafe fn offer(thread: Thread, frame: Frame, unit: u32) -> Offer {
    // SAFETY: live frame and thread; the entry is kept alive by the clone.
    unsafe {
        let code = frame.code();
        let Some(armed) = ARMED.with(|all| all.as_ref()?.get(&(code as usize)).cloned()) else {
            return Offer::Declined;
        };
        if has_foreign_tracer(thread) || is_monitored(code, own_tools()) || stack_low() {
            return Offer::Declined;
        }
        let position = frame.position();
        let py = Python::assume_attached();
        let run = |body: &dyn Body, shape: &Shape, base: u32| {
            let Some(at) = unit.checked_sub(base) else { return LoopOutcome::NotEntered };
            let mut activation = Activation::new(thread, frame, base, shape, armed.ops, EnteredBy::Loop);
            activation.loop_unit = at;
            let _events = thread.allow_events();
            body.enter_loop(&mut activation, 2 * at)
        };
        let outcome = match &armed.source {
            Source::Original(shape, body) => run(body.as_ref(), shape, 0),
            Source::Stub(object) => match native::of(object.bind(py)) {
                Some(native) => run(native.body(), native.shape(), native.base()),
                None => LoopOutcome::NotEntered,
            },
        };
        if outcome != LoopOutcome::Left {
            frame.set_position(position);
        }
        match outcome {
            LoopOutcome::NotEntered => Offer::Declined,
            LoopOutcome::NeverAgain => Offer::NeverAgain,
            LoopOutcome::Left => Offer::Left,
        }
    }
}
