//! Loops that already run: code that is armed, and the units of frames that are met at its loop heads.
//!
//! In: a code object whose loops are hot. Out: native code in the frames that run them, as each arrives at a loop head.
//! A module or a function that is called once is promoted this way, and interpreted rests of promoted functions return
//! to native code.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use pyo3::ffi;
use pyo3::prelude::{Bound, Py, PyAny, PyResult, Python};

use super::run;
use super::unit::{Kind, Unit, Wants};
use crate::mechanics::activation::Activation;
use crate::mechanics::frame::field;
use crate::mechanics::native::{Body, LoopOutcome};
use crate::mechanics::{layout, osr, selftest, stub};
use crate::promote::{Progress, Ticket};

/// Has the loops of `code` offered to native code from now on.
///
/// # Errors
/// What arming raises.
pub(crate) fn arm(code: &Bound<'_, PyAny>) -> PyResult<Ticket> {
    let ticket = Ticket::new(Progress::Pending);
    if let Err(problem) = selftest::check(code.py()) {
        ticket.set(Progress::Refused(vec![format!("this CPython is not laid out as expected: {problem}")]));
        return Ok(ticket);
    }
    let body: Option<Box<dyn Body>> = match stub::original_of(code) {
        Some(_) => None,
        None => Some(Box::new(LoopBody(Arc::new(Loops {
            code: code.clone().unbind(),
            ticket: ticket.clone(),
            units: RefCell::new(Vec::new()),
        })))),
    };
    if !osr::arm(code, body)? {
        ticket.set(Progress::Refused(vec!["a tracer is active, or no frame runs this code now".to_owned()]));
    }
    Ok(ticket)
}

/// Arms once more what `arm` armed (3.11 makes one offer for each arming).
///
/// # Errors
/// What arming raises.
pub(crate) fn arm_again(py: Python<'_>, loops: Arc<Loops>) -> PyResult<bool> {
    let code = loops.code.clone_ref(py);
    osr::arm(code.bind(py), Some(Box::new(LoopBody(loops))))
}

/// The loops of code that is not a stub. Units are made when frames come, since only a frame knows its globals.
pub(crate) struct Loops {
    code: Py<PyAny>,
    ticket: Ticket,
    units: RefCell<Vec<Arc<Unit>>>,
}

// SAFETY: used under the GIL only (`Body`'s contract).
unsafe impl Send for Loops {}
// SAFETY: as above.
unsafe impl Sync for Loops {}

/// What is offered the frames.
struct LoopBody(Arc<Loops>);

impl Body for LoopBody {
    unsafe fn call(&self, _activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        // Never entered by a call; this means "run the original".
        std::ptr::null_mut()
    }

    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        // SAFETY: the trait's contract.
        unsafe {
            let unit = self.0.unit(activation);
            run::enter_loop(&unit, activation, offset)
        }
    }
}

/// What is offered the frames of calls that had none at first.
pub(super) struct ResumedLoops(pub(super) Weak<Unit>);

impl Body for ResumedLoops {
    unsafe fn call(&self, _activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        std::ptr::null_mut()
    }

    unsafe fn enter_loop(&self, activation: &mut Activation<'_>, offset: u32) -> LoopOutcome {
        match self.0.upgrade() {
            // SAFETY: the trait's contract.
            Some(unit) => unsafe { run::enter_loop(&unit, activation, offset) },
            None => LoopOutcome::NeverAgain,
        }
    }
}

impl Loops {
    /// The unit for the dictionaries of this frame.
    unsafe fn unit(self: &Arc<Loops>, activation: &Activation<'_>) -> Arc<Unit> {
        // SAFETY: the frame is live, the GIL is held.
        unsafe {
            if let Some(unit) = self.units.borrow().iter().find(|unit| unit.serves(activation.frame)) {
                return Arc::clone(unit);
            }
            let py = Python::assume_attached();
            let builtins = field(activation.frame.0, layout::frame::BUILTINS);
            let unit = Unit::new(
                Kind::Promoted,
                false,
                Wants::default(),
                self.code.bind(py),
                activation.frame.globals(),
                builtins,
            );
            unit.state.borrow_mut().ticket = Some(self.ticket.clone());
            *unit.loops.borrow_mut() = Arc::downgrade(self);
            self.units.borrow_mut().push(Arc::clone(&unit));
            unit
        }
    }
}
