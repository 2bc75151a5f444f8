//! 3.11: a C trace function on the threads that run an armed code object, until one of them stands at a loop head.
//!
//! In: code objects to arm. Out: calls of `offer`. Tracing makes the interpreter slow, so it ends with the first loop
//! head, with the frame's return, or after a number of events. The thread state's fields are set directly:
//! `PyEval_SetTrace` would run audit hooks, which are user code, and only reaches the calling thread.
#![expect(unsafe_code, reason = "a trace function: raw arguments, thread states of other threads")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

use super::super::frame::{field, set_field};
use super::super::layout;
use super::{ARMED, Frame, Offer, Thread, offer};

/// Events after which a thread gives up waiting for a loop head.
const MAX_EVENTS: u32 = 200_000;

thread_local! {
    static N_EVENTS: Cell<u32> = const { Cell::new(0) };
}

pub(super) fn arm(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    let mut is_armed = false;
    // SAFETY: the GIL is held, so no thread of this interpreter runs or starts; thread states and frames are live.
    unsafe {
        let interp = Thread::current().interp();
        let mut state = ffi::PyInterpreterState_ThreadHead(interp);
        while !state.is_null() {
            let thread = Thread(state.cast());
            if runs(thread, code.as_ptr()) && (!thread.has_tracer() || is_own_tracer(thread)) {
                set_tracer(thread, true);
                is_armed = true;
            }
            state = ffi::PyThreadState_Next(state);
        }
    }
    Ok(is_armed)
}

pub(super) fn disarm(_code: &Bound<'_, PyAny>) -> PyResult<()> {
    // A thread that still waits finds nothing armed and ends its tracing by itself.
    Ok(())
}

/// Whether `code` has a frame on the stack of `thread`.
unsafe fn runs(thread: Thread, code: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller holds the GIL.
    unsafe {
        let mut frame = thread.frame();
        while !frame.0.is_null() {
            if frame.code() == code {
                return true;
            }
            frame = frame.previous();
        }
        false
    }
}

/// Whether the trace function of `thread` is ours.
pub(super) unsafe fn is_own_tracer(thread: Thread) -> bool {
    // SAFETY: the caller holds the GIL.
    unsafe {
        let profiler: *mut c_void = field(thread.0, layout::thread::PROFILEFUNC);
        let tracer: *mut c_void = field(thread.0, layout::thread::TRACEFUNC);
        profiler.is_null() && tracer == on_event as *mut c_void
    }
}

/// Sets or removes our trace function, which owns nothing.
unsafe fn set_tracer(thread: Thread, on: bool) {
    // SAFETY: the caller holds the GIL and has found no other tracer.
    unsafe {
        let tracer = if on { on_event as *mut c_void } else { std::ptr::null_mut() };
        set_field(thread.0, layout::thread::TRACEFUNC, tracer);
        let cframe: *mut u8 = field(thread.0, layout::thread::CFRAME);
        set_field(cframe, layout::cframe::USE_TRACING, if on { 255u8 } else { 0 });
    }
}

unsafe extern "C" fn on_event(
    _object: *mut ffi::PyObject,
    frame_object: *mut ffi::PyFrameObject,
    what: c_int,
    _argument: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: called by the interpreter for the frame on top, with its stack pointer saved at a LINE event.
    unsafe {
        let thread = Thread::current();
        let frame = thread.frame();
        let n_events = N_EVENTS.with(|n| {
            n.set(n.get() + 1);
            n.get()
        });
        if n_events > MAX_EVENTS || super::is_idle() {
            return end(thread);
        }
        let is_armed =
            ARMED.with(|all| all.as_ref().is_some_and(|all| all.contains_key(&(frame.code() as usize))));
        if !is_armed || (what != ffi::PyTrace_LINE && what != ffi::PyTrace_RETURN) {
            return 0;
        }
        if what == ffi::PyTrace_RETURN {
            return end(thread);
        }
        let Some(unit) = loop_head(frame) else { return 0 };
        end(thread);
        // While an event is handled, the frame object pretends to stand on the event's line.
        set_field(frame_object.cast(), layout::frame_object::LINENO, 0 as c_int);
        match offer(thread, frame, unit) {
            Offer::Left if !ffi::PyErr_Occurred().is_null() => -1,
            Offer::Declined | Offer::NeverAgain | Offer::Left => 0,
        }
    }
}

unsafe fn end(thread: Thread) -> c_int {
    // SAFETY: our own trace function is running.
    unsafe { set_tracer(thread, false) };
    N_EVENTS.with(|n| n.set(0));
    0
}

/// The unit at which `frame` stands, when backward jumps lead there.
unsafe fn loop_head(frame: Frame) -> Option<u32> {
    // SAFETY: an armed frame.
    unsafe {
        let armed = ARMED.with(|all| all.as_ref()?.get(&(frame.code() as usize)).cloned())?;
        let unit = u32::try_from(frame.position()).ok()?;
        let py = Python::assume_attached();
        let is_head = match &armed.source {
            super::Source::Original(shape, _) => shape.loop_heads.contains(&unit),
            super::Source::Stub(object) => super::native::of(object.bind(py)).is_some_and(|n| {
                unit.checked_sub(n.base()).is_some_and(|at| n.shape().loop_heads.contains(&at))
            }),
        };
        is_head.then_some(unit)
    }
}
