//! Continuations: entering the middle of a function that has no frame yet.
//!
//! In: a code object, and a state (offset, locals, stack) that native code owns. Out: what the function returns or
//! raises from there. Native code that was called without a frame leaves this way; so does the test of exits. A
//! stub of the code is called with placeholders for arguments; its native part puts the new frame into the state
//! before the first instruction runs, so all references are handed over and every offset shares one code object.
#![expect(unsafe_code, reason = "hands over owned references and calls with a raw argument array")]

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::activation::{Activation, Exit, KEEP};
use super::frame::Thread;
use super::gil_cell::GilCell;
use super::native::{Body, LoopOutcome};
use super::raised::Raised;
use super::stack::stack_low;
use super::{osr, stub};

/// Where a function goes on. Owns its references; null is an unset variable or a null stack entry, and for a cell's
/// slot a new empty cell. Free variables come from the closure: their entries are [`KEEP`].
pub struct State {
    /// Bytes, in the original code.
    pub offset: u32,
    pub locals: Vec<*mut ffi::PyObject>,
    pub stack: Vec<*mut ffi::PyObject>,
    pub exit: Exit,
    /// The exception of [`Exit::Raise`], else none.
    pub raised: Raised,
}

impl State {
    /// Makes the exception of [`Exit::Raise`] the pending one.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn give_back_raised(&mut self) {
        if self.exit == Exit::Raise {
            // SAFETY: by contract.
            unsafe { std::mem::replace(&mut self.raised, Raised::none()).restore() };
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // SAFETY: owned references, taken out when they are handed over; the GIL is held wherever a state lives.
        unsafe {
            for object in self.locals.drain(..).chain(self.stack.drain(..)) {
                if object != KEEP {
                    ffi::Py_XDECREF(object);
                }
            }
        }
    }
}

/// The continuations of one code object.
pub struct Resumer {
    stub: Py<PyAny>,
    n_positional: usize,
    keyword_names: Option<Py<PyTuple>>,
}

/// States on their way into a frame, by the function object that was made for each.
static UNDER_WAY: GilCell<Vec<(usize, State)>> = GilCell::new(Vec::new());

/// Puts the state into the frame; `loops` is offered the loop heads that the frame then comes to.
struct ResumeBody {
    loops: Option<Box<dyn Body>>,
}

impl Body for ResumeBody {
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        // SAFETY: the state was put there by `resume`, which waits for this call; its references go to the frame.
        unsafe {
            let function = activation.frame.function() as usize;
            let found = UNDER_WAY.with(|all| {
                let index = all.iter().rposition(|(owner, _)| *owner == function)?;
                Some(all.swap_remove(index).1)
            });
            let Some(mut state) = found else { return std::ptr::null_mut() };
            state.give_back_raised();
            let (locals, stack) = (std::mem::take(&mut state.locals), std::mem::take(&mut state.stack));
            activation.leave(state.offset, &locals, &stack, state.exit)
        }
    }

    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        match &self.loops {
            // SAFETY: the trait's contract.
            Some(loops) => unsafe { loops.enter_loop(activation, offset) },
            None => LoopOutcome::NeverAgain,
        }
    }
}

impl Resumer {
    /// `loops`: native code for the loops of resumed frames, once they are armed.
    ///
    /// # Errors
    /// `ValueError` with the words of [`stub::refusal`].
    pub fn new(code: &Bound<'_, PyAny>, loops: Option<Box<dyn Body>>) -> PyResult<Resumer> {
        if let Some(reason) = stub::refusal(code)? {
            return Err(PyValueError::new_err(reason));
        }
        let n_positional: usize = code.getattr("co_argcount")?.extract()?;
        let n_keyword: usize = code.getattr("co_kwonlyargcount")?.extract()?;
        let names = code.getattr("co_varnames")?.cast_into::<PyTuple>()?;
        let keyword_names =
            (n_keyword > 0).then(|| names.get_slice(n_positional, n_positional + n_keyword).unbind());
        // 2: an entry that does not look for signals, which would be raised outside the state.
        let stub = stub::build_for_resume(code, Box::new(ResumeBody { loops }), 2)?.unbind();
        Ok(Resumer { stub, n_positional, keyword_names })
    }

    /// Has the loops of resumed frames offered to native code from now on, or no longer; says whether they are.
    ///
    /// # Errors
    /// As [`osr::arm`].
    pub fn arm(&self, py: Python<'_>, is_wanted: bool) -> PyResult<bool> {
        let stub = self.stub.bind(py);
        if is_wanted { osr::arm(stub, None) } else { osr::disarm(stub).map(|_| false) }
    }

    /// Runs the function from `state`; returns its value as a new reference, or null with an exception set.
    ///
    /// # Safety
    /// The GIL is held, no exception is set (that of the state is inside it), `state.locals` is empty or has one entry
    /// per slot, and the stack has the depth and the kinds of entries that the code has at that offset. `closure` is
    /// the tuple of cells for the free variables, or null.
    pub unsafe fn resume(
        &self,
        py: Python<'_>,
        globals: *mut ffi::PyObject,
        closure: *mut ffi::PyObject,
        state: State,
    ) -> *mut ffi::PyObject {
        // SAFETY: the caller's contract. The call counts once, as the interpreter's own would.
        unsafe {
            let function = ffi::PyFunction_New(self.stub.as_ptr(), globals);
            if function.is_null() {
                return function;
            }
            if !closure.is_null() && ffi::PyFunction_SetClosure(function, closure) < 0 {
                ffi::Py_DECREF(function);
                return std::ptr::null_mut();
            }
            UNDER_WAY.with(|all| all.push((function as usize, state)));
            let names = self.keyword_names.as_ref();
            let n_keyword = names.map_or(0, |names| names.bind(py).len());
            let args = vec![ffi::Py_None(); self.n_positional + n_keyword];
            let names = names.map_or(std::ptr::null_mut(), |names| names.as_ptr());
            // While there is C stack left, this call counts like the interpreter's own.
            let thread = Thread::current();
            let is_free = cfg!(not(Py_3_12)) || !stack_low();
            if is_free {
                thread.enter_python_call();
            }
            let value = ffi::PyObject_Vectorcall(function, args.as_ptr(), self.n_positional, names);
            if is_free {
                thread.leave_python_call();
            }
            // Only there when the call failed before it entered the frame.
            let unused = UNDER_WAY.with(|all| {
                let index = all.iter().rposition(|(owner, _)| *owner == function as usize)?;
                Some(all.swap_remove(index))
            });
            drop(unused);
            ffi::Py_DECREF(function);
            value
        }
    }
}
