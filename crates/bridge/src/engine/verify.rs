//! Promotion that is verified first: at a function's first calls, Python is asked whether native code may go in.
//!
//! In: promotions, while there is a verifier. Out: the same promotions some calls later, or a refusal with the
//! verifier's words. The verifier gets the function and the arguments and runs both kinds of code on copies of them. The call
//! itself starts when it has returned: CPython's, in its own frame, with the arguments as they came.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::{
    Bound, Py, PyAny, PyAnyMethods, PyModule, PyModuleMethods, PyResult, Python, pyfunction,
};
use pyo3::types::{PyString, PyTuple};
use pyo3::wrap_pyfunction;

use super::promotion;
use crate::mechanics::activation::Activation;
use crate::mechanics::gil_cell::GilCell;
use crate::mechanics::native::Body;
use crate::mechanics::stub;
use crate::promote::{Progress, Ticket, When};

static VERIFIER: GilCell<Option<Py<PyAny>>> = GilCell::new(None);

const CO_VARARGS: u32 = 0x4;
const CO_VARKEYWORDS: u32 = 0x8;

/// Sets the verifier of all promotions from now on; `None`: they are not verified.
///
/// It is called as `verifier(function, code, arguments)`, code being the original, arguments the values of its parameters
/// in the order of its variables. It returns None to be asked again at the next call, True to have native code go
/// in, or a str: native code does not, and this is why.
#[pyfunction]
#[pyo3(signature = (verifier, /))]
fn verify_with(verifier: Option<Py<PyAny>>) {
    // SAFETY: the GIL is held; the old verifier is dropped outside of the closure.
    drop(unsafe { VERIFIER.with(|slot| std::mem::replace(slot, verifier)) });
}

/// Whether promotions are to be verified.
pub(crate) fn is_on() -> bool {
    // SAFETY: the callers hold the GIL.
    unsafe { VERIFIER.with(|slot| slot.is_some()) }
}

fn verifier(py: Python<'_>) -> Option<Py<PyAny>> {
    // SAFETY: the GIL is held, and a reference more runs no Python.
    unsafe { VERIFIER.with(|slot| slot.as_ref().map(|verifier| verifier.clone_ref(py))) }
}

/// Promotes a function when the verifier is content with its first calls.
///
/// # Errors
/// As `promotion::promote`.
pub(crate) fn promote(function: &Bound<'_, PyAny>, when: When) -> PyResult<Ticket> {
    let code = function.getattr("__code__")?;
    if stub::original_of(&code).is_some() {
        return promotion::promote(function, when);
    }
    if let Some(why) = promotion::refusal(&code)? {
        return Ok(Ticket::new(Progress::Refused(vec![why])));
    }
    let ticket = Ticket::new(Progress::Pending);
    stub::swap(function, Box::new(FirstCalls { when, ticket: ticket.clone() }))?;
    Ok(ticket)
}

/// The body of a function that is being verified: nothing of it runs natively.
struct FirstCalls {
    when: When,
    ticket: Ticket,
}

impl Body for FirstCalls {
    unsafe fn call(&self, activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        // SAFETY: the trait's contract: the GIL is held and the frame, which owns the function and its code, is live.
        let asked = unsafe {
            let py = Python::assume_attached();
            let function = activation.frame.function();
            Bound::from_borrowed_ptr_or_opt(py, function).map(|function| self.ask(&function, activation))
        };
        if let Some(Err(error)) = asked {
            // Ctrl-C while the copies ran. SAFETY: the GIL is held.
            error.restore(unsafe { Python::assume_attached() });
        }
        std::ptr::null_mut()
    }
}

impl FirstCalls {
    /// # Safety
    /// As `Body::call`.
    unsafe fn ask(&self, function: &Bound<'_, PyAny>, activation: &Activation<'_>) -> PyResult<()> {
        let py = function.py();
        let Some(verifier) = verifier(py) else {
            // The session is over: what it had not decided stays as it was written.
            promotion::put_back(function)?;
            return Ok(());
        };
        let stub = function.getattr("__code__")?;
        let Some(original) = stub::original_of(&stub) else {
            // The program has given the function other code, in another thread.
            return Ok(());
        };
        // SAFETY: by contract; the arguments are in the first slots, and cells are not made yet.
        let arguments = unsafe {
            let values = (0..n_parameters(&original)?)
                .map(|i| Bound::from_borrowed_ptr_or_opt(py, *activation.locals.add(i)))
                .collect::<Option<Vec<_>>>();
            PyTuple::new(py, values.ok_or_else(|| PyTypeError::new_err("an argument is missing"))?)?
        };
        let answer = verifier.bind(py).call1((function, original, arguments))?;
        if answer.is_none() || !function.getattr("__code__")?.is(&stub) {
            return Ok(());
        }
        promotion::put_back(function)?;
        if let Ok(why) = answer.cast::<PyString>() {
            self.ticket.set(Progress::Refused(vec![why.to_string()]));
            return Ok(());
        }
        promotion::promote_for(function, self.when, &self.ticket)
    }
}

/// Number of slots that a call fills: `*args` and `**kwargs` take one each.
fn n_parameters(code: &Bound<'_, PyAny>) -> PyResult<usize> {
    let number = |name: &str| code.getattr(name)?.extract::<usize>();
    let flags: u32 = code.getattr("co_flags")?.extract()?;
    let collected = [CO_VARARGS, CO_VARKEYWORDS].into_iter().filter(|flag| flags & flag != 0).count();
    Ok(number("co_argcount")? + number("co_kwonlyargcount")? + collected)
}

/// Adds this module's function to `overdrive._core`.
///
/// # Errors
/// What adding to a module raises.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(verify_with, module)?)
}
