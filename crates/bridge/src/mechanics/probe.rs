//! What the tests of the mechanics need to see and do from Python; nothing else uses it.
//!
//! In: frames and functions. Out: the raw state of a frame, functions continued from a given state, bodies that do what
//! a test says. A null is shown as `_core._NULL`.
#![expect(unsafe_code, reason = "reads and builds raw frame states")]

use std::sync::OnceLock;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::activation::{Activation, Exit, KEEP};
use super::bytecode::Opcodes;
use super::frame::{Frame, code_int, field};
use super::native::{Body, LoopOutcome};
use super::raised::Raised;
use super::resume::{Resumer, State};
use super::{layout, osr, poll, stack, stub};

static NULL: OnceLock<Py<PyAny>> = OnceLock::new();

/// Adds the functions.
///
/// # Errors
/// None but those of a broken interpreter.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let null = NULL.get_or_init(|| {
        super::evaluate(py, c"type('NULL', (), {'__repr__': lambda s: 'NULL'})()")
            .map_or_else(|_| py.None(), Bound::unbind)
    });
    module.add("_NULL", null)?;
    module.add_function(wrap_pyfunction!(frame_slots, module)?)?;
    module.add_function(wrap_pyfunction!(resume, module)?)?;
    module.add_function(wrap_pyfunction!(swap, module)?)?;
    module.add_function(wrap_pyfunction!(arm_loops, module)?)?;
    module.add_function(wrap_pyfunction!(disarm_loops, module)?)?;
    module.add_function(wrap_pyfunction!(poll_until, module)?)?;
    module.add_function(wrap_pyfunction!(original_code, module)?)?;
    module.add_function(wrap_pyfunction!(stack_is_low, module)?)?;
    module.add_function(wrap_pyfunction!(raises_in_loop, module)?)?;
    module.add_function(wrap_pyfunction!(recursion_left, module)?)?;
    Ok(())
}

/// `(locals, stack)` of a running frame whose stack has `depth` entries.
#[pyfunction]
#[pyo3(name = "_frame_slots")]
fn frame_slots<'py>(
    frame: &Bound<'py, PyAny>,
    depth: usize,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let py = frame.py();
    // SAFETY: the type is checked; a running frame's slots are live, and the interpreter keeps its stack in memory.
    unsafe {
        if ffi::PyFrame_Check(frame.as_ptr()) == 0 {
            return Err(PyTypeError::new_err("not a frame"));
        }
        let inner = Frame(field(frame.as_ptr().cast(), layout::frame_object::FRAME));
        let n_slots = inner.n_locals_plus();
        let all = PyList::empty(py);
        for index in 0..n_slots + depth {
            let object = *inner.locals().add(index);
            all.append(if object.is_null() { null(py) } else { Bound::from_borrowed_ptr(py, object) })?;
        }
        Ok((all.get_slice(0, n_slots), all.get_slice(n_slots, n_slots + depth)))
    }
}

/// Continues `function` at `offset` with the given state; `raised` makes the operation there raise it.
#[pyfunction]
#[pyo3(name = "_resume", signature = (function, offset, locals, stack, raised = None))]
fn resume<'py>(
    function: &Bound<'py, PyAny>,
    offset: u32,
    locals: &Bound<'py, PyList>,
    stack: &Bound<'py, PyList>,
    raised: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let code = function.getattr("__code__")?;
    let resumer = Resumer::new(&code, None)?;
    let mut state = state_of(offset, locals, stack, raised)?;
    // SAFETY: a code object; the test gives a state that this code has at that offset.
    unsafe {
        let n_free = code_int(code.as_ptr(), layout::code::NFREEVARS);
        let n_slots = state.locals.len();
        for slot in state.locals.iter_mut().skip(n_slots - n_free.min(n_slots)) {
            ffi::Py_XDECREF(std::mem::replace(slot, KEEP));
        }
        let closure = function.getattr("__closure__")?;
        let closure = if closure.is_none() { std::ptr::null_mut() } else { closure.as_ptr() };
        let globals = function.getattr("__globals__")?;
        // The lists would keep what the continuation must own alone.
        locals.del_slice(0, locals.len())?;
        stack.del_slice(0, stack.len())?;
        let value = resumer.resume(py, globals.as_ptr(), closure, state);
        Bound::from_owned_ptr_or_err(py, value)
    }
}

fn state_of(
    offset: u32,
    locals: &Bound<'_, PyList>,
    stack: &Bound<'_, PyList>,
    raised: Option<&Bound<'_, PyAny>>,
) -> PyResult<State> {
    // SAFETY: the GIL is held; the exception with its traceback is raised and taken back at once.
    let error = raised.map_or_else(Raised::none, |raised| unsafe {
        PyErr::from_value(raised.clone()).restore(raised.py());
        Raised::take()
    });
    Ok(State {
        offset,
        locals: owned(locals),
        stack: owned(stack),
        exit: if raised.is_some() { Exit::Raise } else { Exit::Reexecute },
        raised: error,
    })
}

fn null(py: Python<'_>) -> Bound<'_, PyAny> {
    NULL.get().map_or_else(|| py.None().into_bound(py), |null| null.bind(py).clone())
}

fn owned(list: &Bound<'_, PyList>) -> Vec<*mut ffi::PyObject> {
    let null = null(list.py());
    list.iter().map(|item| if item.is(&null) { std::ptr::null_mut() } else { item.into_ptr() }).collect()
}

/// A body that asks a Python function what to do. `decide(locals)` (a list of the slots) or, at a loop head,
/// `decide(locals, stack, offset)` gives `None` (not entered), or `(offset, locals, stack, exception or None)`.
struct Scripted(Py<PyAny>);

impl Scripted {
    unsafe fn follow(&self, activation: &mut Activation<'_>, decision: &Bound<'_, PyAny>) -> PyResult<bool> {
        if decision.is_none() {
            return Ok(false);
        }
        let (offset, locals, stack, raised): (u32, Bound<'_, PyList>, Bound<'_, PyList>, Bound<'_, PyAny>) =
            decision.extract()?;
        let raised = if raised.is_none() { None } else { Some(raised) };
        let mut state = state_of(offset, &locals, &stack, raised.as_ref())?;
        locals.del_slice(0, locals.len())?;
        stack.del_slice(0, stack.len())?;
        // SAFETY: the test answers for the state.
        unsafe {
            state.give_back_raised();
            let (locals, stack) = (std::mem::take(&mut state.locals), std::mem::take(&mut state.stack));
            activation.leave(offset, &locals, &stack, state.exit);
        }
        Ok(true)
    }

    unsafe fn slots<'py>(
        &self,
        py: Python<'py>,
        activation: &Activation<'_>,
        depth: usize,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        // SAFETY: the activation's frame is live.
        unsafe {
            let n_slots = activation.frame.n_locals_plus();
            let all = PyList::empty(py);
            for index in 0..n_slots + depth {
                let object = *activation.locals.add(index);
                all.append(if object.is_null() { null(py) } else { Bound::from_borrowed_ptr(py, object) })?;
            }
            Ok((all.get_slice(0, n_slots), all.get_slice(n_slots, n_slots + depth)))
        }
    }
}

impl Body for Scripted {
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        // SAFETY: called with the GIL for a live frame.
        unsafe {
            let py = Python::assume_attached();
            (|| {
                let (locals, _) = self.slots(py, activation, 0)?;
                let decision = self.0.bind(py).call1((locals,))?;
                if decision.is_instance_of::<PyTuple>() || decision.is_none() {
                    self.follow(activation, &decision)?;
                    return Ok(std::ptr::null_mut());
                }
                // A list of one item: the function's value.
                Ok(decision.get_item(0)?.into_ptr())
            })()
            .unwrap_or_else(|error: PyErr| {
                error.restore(py);
                std::ptr::null_mut()
            })
        }
    }

    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        // SAFETY: called with the GIL for a live frame at a loop head.
        unsafe {
            let py = Python::assume_attached();
            let outcome: PyResult<LoopOutcome> = (|| {
                let (locals, stack) = self.slots(py, activation, activation.frame.depth())?;
                let decision = self.0.bind(py).call1((locals, stack, offset))?;
                if decision.is(py.NotImplemented()) {
                    return Ok(LoopOutcome::NeverAgain);
                }
                let is_left = self.follow(activation, &decision)?;
                Ok(if is_left { LoopOutcome::Left } else { LoopOutcome::NotEntered })
            })();
            outcome.unwrap_or_else(|error| {
                error.write_unraisable(py, None);
                LoopOutcome::NotEntered
            })
        }
    }
}

/// Makes `function` run through a body that follows `decide`.
#[pyfunction]
#[pyo3(name = "_scripted_swap")]
fn swap(function: &Bound<'_, PyAny>, decide: Py<PyAny>) -> PyResult<()> {
    stub::swap(function, Box::new(Scripted(decide)))
}

/// Arms the loops of `code` with a body that follows `decide`, or those of a stub with the stub's own.
#[pyfunction]
#[pyo3(name = "_arm_loops", signature = (code, decide = None))]
fn arm_loops(code: &Bound<'_, PyAny>, decide: Option<Py<PyAny>>) -> PyResult<bool> {
    osr::arm(code, decide.map(|decide| Box::new(Scripted(decide)) as Box<dyn Body>))
}

#[pyfunction]
#[pyo3(name = "_disarm_loops")]
fn disarm_loops(code: &Bound<'_, PyAny>) -> PyResult<bool> {
    osr::disarm(code)
}

/// Polls whenever the eval breaker is set, at most for `seconds`; returns the number of polls.
#[pyfunction]
#[pyo3(name = "_poll_until")]
fn poll_until(py: Python<'_>, seconds: f64) -> PyResult<u64> {
    let start = std::time::Instant::now();
    let mut n_polls = 0;
    while start.elapsed().as_secs_f64() < seconds {
        // SAFETY: the GIL is held; the word is read as the interpreter does.
        unsafe {
            let breaker = super::frame::Thread::current().eval_breaker().cast::<u32>();
            if breaker.read_volatile() != 0 {
                n_polls += 1;
                if poll::run() < 0 {
                    return Err(PyErr::fetch(py));
                }
            }
        }
    }
    Ok(n_polls)
}

/// The code object that a stub stands for, else the argument.
#[pyfunction]
#[pyo3(name = "_original_code")]
fn original_code<'py>(code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    stub::original_of(code).unwrap_or_else(|| code.clone())
}

#[pyfunction]
#[pyo3(name = "_stack_low")]
fn stack_is_low() -> bool {
    stack::stack_low()
}

/// Whether an exception of the operation at `offset` can be raised from native code entered at `head` (bytes).
#[pyfunction]
#[pyo3(name = "_raises_in_loop")]
fn raises_in_loop(code: &Bound<'_, PyAny>, offset: u32, head: u32) -> PyResult<bool> {
    let native = stub::native_of(code).ok_or_else(|| PyValueError::new_err("not a stub"))?;
    let ops = Opcodes::get(code.py())?;
    Ok(super::native::of(&native).is_some_and(|n| n.shape().raises_in_loop(ops, offset / 2, head / 2)))
}

/// How many calls fit before RecursionError: Python's, and C's.
#[pyfunction]
#[pyo3(name = "_recursion_left")]
fn recursion_left() -> (i32, i32) {
    // SAFETY: called with the GIL.
    unsafe {
        let thread = super::frame::Thread::current();
        (thread.py_recursion(), thread.c_recursion())
    }
}
