//! The running interpreter's frame, thread state and recursion counters, as typed handles over raw memory.
//!
//! In: nothing but the thread that holds the GIL. Out: [`Frame`] (locals, stack, position), [`Thread`] (current
//! frame, counters, tracers, eval breaker). All offsets come from `layout`; nothing here decides anything.
//! Positions are code units (two bytes each); what users and front ends call an offset is in bytes.
#![expect(unsafe_code, reason = "reads and writes CPython's own structs at the offsets of the built version")]

use std::ffi::{c_int, c_void};

use pyo3::ffi;

use super::layout;

#[cfg(not(Py_3_12))]
unsafe extern "C" {
    /// The run time's state; only offsets of `layout::runtime` in it are used.
    static mut _PyRuntime: u8;
}

/// One code unit of bytecode: opcode and argument byte.
pub type Unit = u16;

/// Reads a field of type `T` at `offset` bytes behind `base`.
///
/// # Safety
/// `base + offset` must hold a valid `T`.
#[inline]
pub unsafe fn field<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: the caller's contract.
    unsafe { base.add(offset).cast::<T>().read() }
}

/// Writes a field of type `T` at `offset` bytes behind `base`.
///
/// # Safety
/// `base + offset` must be a writable `T` of a live struct, and the GIL is held.
#[inline]
pub unsafe fn set_field<T: Copy>(base: *mut u8, offset: usize, value: T) {
    // SAFETY: the caller's contract.
    unsafe { base.add(offset).cast::<T>().write(value) }
}

/// A borrowed `_PyInterpreterFrame`; valid while that frame is on its thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Frame(pub *mut u8);

impl Frame {
    /// The code object the frame executes (borrowed).
    ///
    /// # Safety
    /// The frame is live and belongs to a Python function (all methods of `Frame`).
    #[inline]
    pub unsafe fn code(self) -> *mut ffi::PyObject {
        // SAFETY: as above, for all methods here.
        unsafe { field(self.0, layout::frame::CODE) }
    }

    /// The function object (borrowed).
    ///
    /// # Safety
    /// As [`Frame::code`].
    pub unsafe fn function(self) -> *mut ffi::PyObject {
        // SAFETY: live frame.
        unsafe { field(self.0, layout::frame::FUNC) }
    }

    /// The globals dictionary (borrowed).
    ///
    /// # Safety
    /// As [`Frame::code`].
    pub unsafe fn globals(self) -> *mut ffi::PyObject {
        // SAFETY: live frame.
        unsafe { field(self.0, layout::frame::GLOBALS) }
    }

    /// The next outer frame, which may be one that CPython hides; null at the bottom.
    ///
    /// # Safety
    /// As [`Frame::code`].
    #[inline]
    pub unsafe fn previous(self) -> Frame {
        // SAFETY: live frame.
        unsafe { Frame(field(self.0, layout::frame::PREVIOUS)) }
    }

    /// First slot of the local variables; cells, free variables and the evaluation stack follow.
    ///
    /// # Safety
    /// As [`Frame::code`].
    #[inline]
    pub unsafe fn locals(self) -> *mut *mut ffi::PyObject {
        // SAFETY: live frame.
        unsafe { self.0.add(layout::frame::LOCALSPLUS).cast() }
    }

    /// Number of slots in front of the evaluation stack.
    ///
    /// # Safety
    /// As [`Frame::code`].
    #[inline]
    pub unsafe fn n_locals_plus(self) -> usize {
        // SAFETY: live frame.
        unsafe { code_int(self.code(), layout::code::NLOCALSPLUS) }
    }

    /// Stack depth as saved in memory; meaningless while the interpreter keeps the stack pointer in a register.
    ///
    /// # Safety
    /// As [`Frame::code`]; the interpreter has saved the stack pointer.
    pub unsafe fn depth(self) -> usize {
        // SAFETY: live frame.
        let top: c_int = unsafe { field(self.0, layout::frame::STACKTOP) };
        // SAFETY: live frame.
        usize::try_from(top).unwrap_or(0).saturating_sub(unsafe { self.n_locals_plus() })
    }

    /// Sets the stack pointer to `slots` slots behind the first local.
    ///
    /// # Safety
    /// As [`Frame::depth`]; the slots below hold owned references or null.
    #[inline]
    pub unsafe fn set_stacktop(self, slots: usize) {
        // SAFETY: live frame; a code object has fewer than 2^31 slots.
        unsafe { set_field(self.0, layout::frame::STACKTOP, slots as c_int) }
    }

    /// Where the frame's bytecode begins.
    ///
    /// # Safety
    /// As [`Frame::code`].
    #[inline]
    pub unsafe fn first_unit(self) -> *mut Unit {
        // SAFETY: live frame.
        unsafe { self.code().cast::<u8>().add(layout::code::BYTECODE).cast() }
    }

    /// The stored position, in units; negative before the first instruction.
    ///
    /// # Safety
    /// As [`Frame::code`].
    #[inline]
    pub unsafe fn position(self) -> isize {
        // SAFETY: live frame; both pointers are into (or one before) the same code object.
        unsafe {
            let at: *mut Unit = field(self.0, layout::frame::INSTR);
            (at as isize - self.first_unit() as isize) / 2
        }
    }

    /// Stores the position: this is the instruction that line numbers and tracebacks show.
    ///
    /// # Safety
    /// As [`Frame::code`]; `unit` lies in the code object.
    #[inline]
    pub unsafe fn set_position(self, unit: isize) {
        // SAFETY: live frame.
        unsafe { set_field(self.0, layout::frame::INSTR, self.first_unit().offset(unit)) }
    }

    /// Forgets how far behind its position an inlined call would return to.
    ///
    /// # Safety
    /// As [`Frame::code`].
    #[inline]
    pub unsafe fn clear_return_offset(self) {
        #[cfg(Py_3_12)]
        // SAFETY: live frame.
        unsafe {
            set_field(self.0, layout::frame::RETURN_OFFSET, 0u16)
        }
    }
}

/// An `int` field of a code object.
///
/// # Safety
/// `code` is a code object, `offset` one of `layout::code`'s `int` fields.
#[inline]
pub unsafe fn code_int(code: *mut ffi::PyObject, offset: usize) -> usize {
    // SAFETY: the caller's contract; the fields used are never negative.
    unsafe { field::<c_int>(code.cast(), offset) as usize }
}

/// What entering the evaluator from C takes from the counter of `add_c_recursion`.
const EVALUATOR_COST: c_int = if cfg!(Py_3_12) { 2 } else { 1 };

/// The thread state of the thread that holds the GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Thread(pub *mut u8);

impl Thread {
    /// # Safety
    /// The GIL is held.
    #[inline]
    pub unsafe fn current() -> Thread {
        // SAFETY: the GIL is held, so there is a thread state. 3.11 keeps it in a variable, which the self-test compares
        // with what the function says.
        unsafe {
            #[cfg(not(Py_3_12))]
            {
                Thread(field((&raw mut _PyRuntime).cast(), layout::runtime::TSTATE_CURRENT))
            }
            #[cfg(Py_3_12)]
            {
                Thread(ffi::PyThreadState_Get().cast())
            }
        }
    }

    /// The frame on top, which is the caller's when called from C; null outside Python.
    ///
    /// # Safety
    /// The thread state is live (all methods).
    #[inline]
    pub unsafe fn frame(self) -> Frame {
        #[cfg(not(Py_3_13))]
        // SAFETY: live thread state, which always has a cframe.
        unsafe {
            let cframe: *mut u8 = field(self.0, layout::thread::CFRAME);
            Frame(field(cframe, layout::cframe::CURRENT_FRAME))
        }
        #[cfg(Py_3_13)]
        // SAFETY: live thread state.
        unsafe {
            Frame(field(self.0, layout::thread::CURRENT_FRAME))
        }
    }

    /// The interpreter.
    ///
    /// # Safety
    /// As [`Thread::frame`].
    pub unsafe fn interp(self) -> *mut ffi::PyInterpreterState {
        // SAFETY: live thread state.
        unsafe { field(self.0, layout::thread::INTERP) }
    }

    /// Address of the word that is not zero when signals, thread switches, asynchronous exceptions or pending
    /// calls wait. Constant for the life of this thread.
    ///
    /// # Safety
    /// As [`Thread::frame`].
    pub unsafe fn eval_breaker(self) -> *mut u8 {
        #[cfg(not(Py_3_13))]
        // SAFETY: live thread state, hence live interpreter.
        unsafe {
            self.interp().cast::<u8>().add(layout::interp::EVAL_BREAKER)
        }
        #[cfg(Py_3_13)]
        // SAFETY: live thread state.
        unsafe {
            self.0.add(layout::thread::EVAL_BREAKER)
        }
    }

    /// How many more Python calls fit before RecursionError.
    ///
    /// # Safety
    /// As [`Thread::frame`].
    #[inline]
    pub unsafe fn py_recursion(self) -> c_int {
        // SAFETY: live thread state.
        unsafe { field(self.0, layout::thread::PY_RECURSION) }
    }

    /// Gives `by` Python calls back (or takes them, when negative).
    ///
    /// # Safety
    /// As [`Thread::frame`]; the change is undone when the call it stands for ends.
    #[inline]
    pub unsafe fn add_py_recursion(self, by: c_int) {
        // SAFETY: live thread state.
        unsafe { set_field(self.0, layout::thread::PY_RECURSION, self.py_recursion() + by) }
    }

    /// Makes one call from native code into Python count as the interpreter's own inlined call does.
    /// A C-level entry of the evaluator costs more: on 3.11 one in the same counter, later two of C's.
    ///
    /// # Safety
    /// As [`Thread::frame`]; paired with [`Thread::leave_python_call`].
    #[inline]
    pub unsafe fn enter_python_call(self) {
        // SAFETY: live thread state.
        unsafe { self.add_c_recursion(EVALUATOR_COST) }
    }

    /// The end of [`Thread::enter_python_call`].
    ///
    /// # Safety
    /// As [`Thread::enter_python_call`].
    #[inline]
    pub unsafe fn leave_python_call(self) {
        // SAFETY: live thread state.
        unsafe { self.add_c_recursion(-EVALUATOR_COST) }
    }

    #[inline]
    unsafe fn add_c_recursion(self, by: c_int) {
        #[cfg(not(Py_3_12))]
        let offset = layout::thread::PY_RECURSION;
        #[cfg(Py_3_12)]
        let offset = layout::thread::C_RECURSION;
        // SAFETY: live thread state.
        unsafe { set_field(self.0, offset, field::<c_int>(self.0, offset) + by) }
    }

    /// How many C-level calls fit before RecursionError; 3.11 counts them with the Python calls.
    ///
    /// # Safety
    /// As [`Thread::frame`].
    #[inline]
    pub unsafe fn c_recursion(self) -> c_int {
        #[cfg(not(Py_3_12))]
        return c_int::MAX;
        #[cfg(Py_3_12)]
        // SAFETY: live thread state.
        unsafe {
            field(self.0, layout::thread::C_RECURSION)
        }
    }

    /// Lets events reach tracers and tools while native code runs inside an event's callback, as they would if the
    /// interpreter ran; the returned guard restores the callback's state.
    ///
    /// # Safety
    /// As [`Thread::frame`]; called inside a callback.
    pub unsafe fn allow_events(self) -> AllowEvents {
        // SAFETY: live thread state; the counter is at least one inside a callback.
        unsafe { set_field(self.0, layout::thread::TRACING, self.events_blocked() - 1) }
        AllowEvents(self)
    }

    unsafe fn events_blocked(self) -> c_int {
        // SAFETY: live thread state.
        unsafe { field(self.0, layout::thread::TRACING) }
    }

    /// Whether a trace or profile function of this thread is set (`sys.settrace`, `sys.setprofile`, C level).
    ///
    /// # Safety
    /// As [`Thread::frame`].
    #[inline]
    pub unsafe fn has_tracer(self) -> bool {
        // SAFETY: live thread state.
        unsafe {
            !field::<*mut c_void>(self.0, layout::thread::TRACEFUNC).is_null()
                || !field::<*mut c_void>(self.0, layout::thread::PROFILEFUNC).is_null()
        }
    }
}

/// See [`Thread::allow_events`].
pub struct AllowEvents(Thread);

impl Drop for AllowEvents {
    fn drop(&mut self) {
        // SAFETY: made inside a callback of this thread, which has not returned.
        unsafe { set_field(self.0.0, layout::thread::TRACING, self.0.events_blocked() + 1) }
    }
}

/// Whether events were switched on or off since the interpreter last ran this code object: it would look at its next
/// call, and only then `is_monitored` is right again.
///
/// # Safety
/// The GIL is held; `code` is a live code object.
#[inline]
pub unsafe fn has_new_events(thread: Thread, code: *mut ffi::PyObject) -> bool {
    #[cfg(not(Py_3_12))]
    {
        let _ = (thread, code);
        false
    }
    #[cfg(Py_3_12)]
    // SAFETY: the caller's contract.
    unsafe {
        let seen: u64 = field(code.cast(), layout::code::INSTRUMENTATION_VERSION);
        #[cfg(not(Py_3_13))]
        let now: u64 = field(thread.interp().cast(), layout::interp::MONITORING_VERSION);
        // 3.13 keeps it above the bits of the eval breaker.
        #[cfg(Py_3_13)]
        let now: u64 = field::<u64>(thread.eval_breaker(), 0) & !0xff;
        seen != now
    }
}

/// Whether any tool but `own_tools` (bits by tool id) watches events of `code` through `sys.monitoring`, which on
/// 3.12 and later is also how `sys.settrace` and `sys.setprofile` work.
///
/// # Safety
/// `code` is a code object; the GIL is held.
#[inline]
pub unsafe fn is_monitored(code: *mut ffi::PyObject, own_tools: u8) -> bool {
    #[cfg(not(Py_3_12))]
    {
        let _ = (code, own_tools);
        false
    }
    #[cfg(Py_3_12)]
    // SAFETY: the pointer is null or a live `_PyCoMonitoringData` of this code object.
    unsafe {
        let data: *const u8 = field(code.cast(), layout::code::MONITORING);
        if data.is_null() {
            return false;
        }
        let active = std::slice::from_raw_parts(
            data.add(layout::code::ACTIVE_MONITORS),
            layout::code::N_LOCAL_MONITORS,
        );
        active.iter().any(|tools| tools & !own_tools != 0)
    }
}
