//! One run of native code for one interpreter frame, and the ways out of it.
//!
//! In: a frame that either executes a stub (function entry) or stands at a loop head (in-place entry). Out: the
//! result, or the frame put into exactly the state (locals, stack, position) from which CPython goes on. Leaving
//! never makes a new frame: identity, tracing, recursion depth and C stack stay as in plain Python.
//!
//! How a stub frame is left: `leave` keeps the stack values and returns null; the stub then calls a tiny Python
//! function (see `trampoline`), the interpreter inlines that call, and its native part writes the state of the
//! frame below, which the interpreter reads again when the inlined call returns.
#![expect(unsafe_code, reason = "moves references between native code and interpreter frames")]

use std::ffi::c_int;

use pyo3::ffi;

use super::bytecode::{Opcodes, Shape};
use super::frame::{Frame, Thread, Unit};
use super::gil_cell::GilCell;
use super::raised::Raised;
use super::{native, raiser};

/// In the arrays given to [`Activation::leave`]: this slot already holds what it must hold.
pub const KEEP: *mut ffi::PyObject = std::ptr::without_provenance_mut(1);

/// What happens at the offset that native code leaves for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Exit {
    /// The operation runs (again) in CPython.
    Reexecute = 0,
    /// The operation has raised: the pending exception goes to the handler that covers it, or out of the frame.
    Raise = 1,
}

impl Exit {
    /// Levels of the recursion limit that leaving takes for itself and gives back: the trampoline's frame, and for an
    /// exception on 3.11, where both kinds of call share one limit, the C call inside it.
    fn recursion(self) -> c_int {
        match self {
            Exit::Raise if cfg!(not(Py_3_12)) => 2,
            Exit::Reexecute | Exit::Raise => 1,
        }
    }
}

/// Why this native code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EnteredBy {
    /// A stub's call: arguments are in the first slots, cells are not made yet, the stack is empty.
    Call = 0,
    /// A loop head: all slots and the stack are live.
    Loop = 1,
}

/// The frame that native code works for. Machine code reads the first fields, so their order is fixed.
#[repr(C)]
pub struct Activation<'a> {
    /// The frame.
    pub frame: Frame,
    /// Its first local; cells, free variables and stack follow.
    pub locals: *mut *mut ffi::PyObject,
    /// Unit 0 of the original bytecode inside the code object that the frame executes.
    pub code_units: *mut Unit,
    /// Where the frame keeps its position: store `code_units + offset / 2` before anything that can run Python.
    pub position: *mut *mut Unit,
    /// The word that is not zero when a poll is due.
    pub eval_breaker: *mut u8,
    pub thread: Thread,
    pub entered_by: EnteredBy,
    /// Set once the frame was left.
    pub is_left: bool,
    /// For a loop: the unit of its head in the original code, where CPython looks for the handler of an exception.
    pub loop_unit: u32,
    pub shape: &'a Shape,
    ops: &'static Opcodes,
}

/// State of stub frames that were left and whose trampoline has not run yet.
struct Pending {
    frame: Frame,
    /// Where the frame goes on, in units of its own code.
    unit: u32,
    stack: Vec<*mut ffi::PyObject>,
    exit: Exit,
    raised: Raised,
    evaluator: Option<ffi::_PyFrameEvalFunction>,
}

static PENDING: GilCell<Vec<Pending>> = GilCell::new(Vec::new());

// `pyo3-ffi` leaves these out; all supported versions export them.
unsafe extern "C" {
    fn _PyInterpreterState_GetEvalFrameFunc(
        interp: *mut ffi::PyInterpreterState,
    ) -> ffi::_PyFrameEvalFunction;
    fn _PyInterpreterState_SetEvalFrameFunc(
        interp: *mut ffi::PyInterpreterState,
        evaluator: ffi::_PyFrameEvalFunction,
    );
    fn _PyEval_EvalFrameDefault(
        thread: *mut ffi::PyThreadState,
        frame: *mut ffi::_PyInterpreterFrame,
        throw: c_int,
    ) -> *mut ffi::PyObject;
}

impl<'a> Activation<'a> {
    /// # Safety
    /// The GIL is held; `frame` is the current frame and executes a code object in which the original bytecode of
    /// `shape` begins at unit `base`.
    #[inline]
    pub unsafe fn new(
        thread: Thread,
        frame: Frame,
        base: u32,
        shape: &'a Shape,
        ops: &'static Opcodes,
        entered_by: EnteredBy,
    ) -> Self {
        // SAFETY: live frame and thread.
        unsafe {
            Activation {
                frame,
                locals: frame.locals(),
                code_units: frame.first_unit().add(base as usize),
                position: frame.0.add(super::layout::frame::INSTR).cast(),
                eval_breaker: thread.eval_breaker(),
                thread,
                entered_by,
                is_left: false,
                loop_unit: 0,
                shape,
                ops,
            }
        }
    }

    /// Makes line numbers and tracebacks show the instruction at `offset` (bytes, in the original code).
    ///
    /// # Safety
    /// The frame is live; `offset` is inside the original code.
    #[inline]
    pub unsafe fn set_position(&self, offset: u32) {
        // SAFETY: the caller's contract.
        unsafe { *self.position = self.code_units.add(offset as usize / 2) }
    }

    /// Puts the frame into the state from which CPython goes on at `offset` (bytes, in the original code), and
    /// returns null, which native code returns at once. `locals` has one entry per slot (locals, cells, free
    /// variables), `stack` the evaluation stack, bottom first; both hold owned references, null, or [`KEEP`].
    /// A cell's slot takes the cell; what is not a cell there is wrapped into a new one. After a call, [`KEEP`] in a
    /// cell's slot stands for the argument as it came (not yet in a cell).
    ///
    /// May run finalisers of replaced values, with the frame already in its new state.
    ///
    /// # Safety
    /// The GIL is held, native code owns what it passes and did not leave before. For [`Exit::Raise`] an exception
    /// is set. `locals` is as long as the frame has slots, or empty (nothing changes). The frame's slots hold
    /// owned references or null.
    pub unsafe fn leave(
        &mut self,
        offset: u32,
        locals: &[*mut ffi::PyObject],
        stack: &[*mut ffi::PyObject],
        exit: Exit,
    ) -> *mut ffi::PyObject {
        debug_assert!(!self.is_left);
        self.is_left = true;
        let mut dead = Vec::new();
        // SAFETY: the caller's contract; every replaced reference goes to `dead` exactly once.
        unsafe {
            let raised = if exit == Exit::Raise { Raised::take() } else { Raised::none() };
            self.store_locals(locals, &mut dead);
            match self.entered_by {
                EnteredBy::Call => self.leave_stub(offset, stack, exit, raised),
                EnteredBy::Loop => self.leave_loop(offset, stack, exit, raised, &mut dead),
            }
            if !dead.is_empty() {
                release(dead);
            }
        }
        std::ptr::null_mut()
    }

    /// Whether native code has put the frame into another state.
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    unsafe fn store_locals(&self, locals: &[*mut ffi::PyObject], dead: &mut Vec<*mut ffi::PyObject>) {
        // SAFETY: `leave`'s contract: one entry per slot of the frame.
        unsafe {
            for (index, &value) in locals.iter().enumerate() {
                if value != KEEP {
                    let slot = self.locals.add(index);
                    dead.extend((!(*slot).is_null()).then_some(*slot));
                    *slot = value;
                }
            }
            if self.entered_by == EnteredBy::Call {
                for &index in &self.shape.cells {
                    let is_kept = locals.get(index as usize).is_none_or(|value| *value == KEEP);
                    make_cell(self.locals.add(index as usize), is_kept);
                }
            }
        }
    }

    unsafe fn leave_stub(&mut self, offset: u32, stack: &[*mut ffi::PyObject], exit: Exit, raised: Raised) {
        let base = self.base();
        let unit = base
            + match exit {
                Exit::Reexecute => self.shape.entry_of(self.ops, offset / 2),
                Exit::Raise => self.shape.raise_unit(self.ops, offset / 2),
            };
        // SAFETY: `leave`'s contract. The trampoline's call must be inlined by the evaluator, which it is not
        // while another frame evaluator is installed: that one is put back by the trampoline, and nothing but the
        // stub's own instructions runs in between. The call must not fail on the recursion limit either.
        unsafe {
            self.frame.set_position(unit as isize);
            let interp = self.thread.interp();
            let current = _PyInterpreterState_GetEvalFrameFunc(interp);
            let evaluator =
                (current as usize != _PyEval_EvalFrameDefault as *const () as usize).then_some(current);
            if evaluator.is_some() {
                _PyInterpreterState_SetEvalFrameFunc(interp, _PyEval_EvalFrameDefault);
            }
            self.thread.add_py_recursion(exit.recursion());
            PENDING.with(|pending| {
                pending.push(Pending {
                    frame: self.frame,
                    unit,
                    stack: stack.to_vec(),
                    exit,
                    raised,
                    evaluator,
                });
            });
        }
    }

    unsafe fn leave_loop(
        &mut self,
        offset: u32,
        stack: &[*mut ffi::PyObject],
        exit: Exit,
        raised: Raised,
        dead: &mut Vec<*mut ffi::PyObject>,
    ) {
        let at = self.shape.opcode_unit(self.ops, offset / 2);
        let has_other_handler = exit == Exit::Raise && {
            let handlers = &self.shape;
            handlers.handler_at(at) != handlers.handler_at(self.loop_unit)
        };
        let unit = match exit {
            Exit::Raise if !has_other_handler => at,
            Exit::Raise | Exit::Reexecute => self.shape.entry_of(self.ops, offset / 2),
        };
        // SAFETY: `leave`'s contract; at a loop head the interpreter has saved its stack pointer and reads it back.
        unsafe {
            let n_slots = self.frame.n_locals_plus();
            let old_depth = self.frame.depth();
            for index in 0..old_depth.max(stack.len()) {
                let slot = self.locals.add(n_slots + index);
                let new = stack.get(index).copied().unwrap_or(std::ptr::null_mut());
                if new == KEEP {
                    continue;
                }
                if index < old_depth && !(*slot).is_null() {
                    dead.push(*slot);
                }
                *slot = new;
            }
            self.frame.set_stacktop(n_slots + stack.len());
            self.frame.set_position((self.base() + unit) as isize);
            if has_other_handler {
                self.raise_by_operand(at, stack.len(), raised, dead);
            } else if exit == Exit::Raise {
                raised.restore();
            }
        }
    }

    /// Exchanges an operand of the operation at `at` for one that raises. Native code must not be entered where an
    /// operation can raise that has none (`Shape::raises_in_loop`): then the exception is raised at the loop head.
    unsafe fn raise_by_operand(
        &self,
        at: u32,
        depth: usize,
        raised: Raised,
        dead: &mut Vec<*mut ffi::PyObject>,
    ) {
        // SAFETY: the stack was written just now.
        unsafe {
            let stack = self.locals.add(self.frame.n_locals_plus());
            let is_null = |index: usize| (*stack.add(index)).is_null();
            let operand = raiser::operand(self.ops, self.shape, at, is_null, depth);
            debug_assert!(operand.is_some(), "no operand can raise here");
            let Some(index) = operand else {
                raised.restore();
                return;
            };
            let slot = stack.add(index);
            dead.extend((!(*slot).is_null()).then_some(*slot));
            *slot = raiser::new(raised);
        }
    }

    fn base(&self) -> u32 {
        // SAFETY: both pointers are into the frame's code object.
        unsafe { self.code_units.offset_from(self.frame.first_unit()) as u32 }
    }
}

/// Wraps what a cell's slot holds into a cell, as MAKE_CELL does. A kept slot holds the argument as it came, which may
/// itself be somebody's cell; any other cell is the variable's own.
unsafe fn make_cell(slot: *mut *mut ffi::PyObject, is_kept: bool) {
    // SAFETY: the slot holds an owned reference or null; PyCell_New takes its own reference.
    unsafe {
        let value = *slot;
        if !is_kept && !value.is_null() && ffi::PyCell_Check(value) != 0 {
            return;
        }
        let cell = ffi::PyCell_New(value);
        if !cell.is_null() {
            ffi::Py_XDECREF(value);
            *slot = cell;
        }
    }
}

/// Drops references with no exception set, whatever their finalisers do, and restores the one that was.
unsafe fn release(dead: Vec<*mut ffi::PyObject>) {
    // SAFETY: owned references; the error indicator is saved around finalisers.
    unsafe {
        let raised = Raised::take();
        for object in dead {
            ffi::Py_DECREF(object);
        }
        raised.restore();
    }
}

/// How the stub frame on top of the pending ones leaves.
///
/// # Safety
/// The GIL is held.
pub unsafe fn pending_exit(frame: Frame) -> Option<Exit> {
    // SAFETY: the closure runs no Python.
    unsafe { PENDING.with(|pending| pending.iter().rev().find(|p| p.frame == frame).map(|p| p.exit)) }
}

/// Drops a state that was left for an earlier frame at the same address and never taken up: the interpreter found no
/// memory for the trampoline's frame.
///
/// # Safety
/// The GIL is held; `frame` was not left yet.
#[inline]
pub unsafe fn forget_pending(frame: Frame) {
    // SAFETY: the closures run no Python; the state is dropped outside of them.
    unsafe {
        if PENDING.with(|pending| !pending.is_empty()) {
            let stale = PENDING.with(|pending| {
                pending.iter().rposition(|p| p.frame == frame).map(|index| pending.remove(index))
            });
            if let Some(stale) = stale {
                stale.stack.into_iter().for_each(|object| ffi::Py_XDECREF(object));
            }
        }
    }
}

/// Writes the pending state into `frame`, the caller of the running trampoline, and returns what the trampoline
/// must return to it (null is a value here) or, for [`Exit::Raise`], null with the exception set.
///
/// # Safety
/// Called by the trampoline's native part only, with the frame below it.
pub unsafe fn finish_leave(thread: Thread, frame: Frame) -> *mut ffi::PyObject {
    // SAFETY: the closure runs no Python.
    let found = unsafe {
        PENDING.with(|pending| {
            let index = pending.iter().rposition(|p| p.frame == frame)?;
            Some(pending.remove(index))
        })
    };
    let Some(state) = found else { return std::ptr::null_mut() };
    // SAFETY: the frame belongs to this thread and waits for the trampoline, so the interpreter reads stack
    // pointer and position from memory next. The returned value is pushed at `stacktop`: it is the top of the
    // stack, or with an empty stack the last local, taken out of its slot and pushed back into it.
    unsafe {
        thread.add_py_recursion(-state.exit.recursion());
        if let Some(evaluator) = state.evaluator {
            _PyInterpreterState_SetEvalFrameFunc(thread.interp(), evaluator);
        }
        let n_slots = frame.n_locals_plus();
        let stack = frame.locals().add(n_slots);
        // The stub's iterator, the only entry below the trampoline's call; the code object owns it too.
        debug_assert!(frame.depth() == 1 && native::is_native(*stack));
        ffi::Py_DECREF(*stack);
        for (index, &value) in state.stack.iter().enumerate() {
            *stack.add(index) = value;
        }
        frame.clear_return_offset();
        match state.exit {
            Exit::Reexecute => {
                frame.set_position(state.unit as isize - if cfg!(Py_3_13) { 0 } else { 1 });
                frame.set_stacktop(n_slots + state.stack.len() - 1);
                *stack.offset(state.stack.len() as isize - 1)
            }
            Exit::Raise => {
                frame.set_position(state.unit as isize);
                frame.set_stacktop(n_slots + state.stack.len());
                state.raised.restore();
                std::ptr::null_mut()
            }
        }
    }
}
