//! Promotion and its undoing: the code of an existing function is swapped for a stub, its running loops are entered.
//!
//! In: what the session decided. Out: tickets and figures. The function's next call brings the argument types; until its
//! version is ready the original goes on.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult, Python};
use pyo3::types::{PyCode, PyFunction};

use super::explain;
use super::run::UnitBody;
use super::unit::{Kind, Unit, Wants, units_of};
use super::verify;
use crate::mechanics::{osr, selftest, stub};
use crate::promote::{Engine, Progress, Stats, Ticket, When};

/// The engine, as promotion sees it.
pub(crate) struct Overdrive;

impl Engine for Overdrive {
    fn promote(&self, function: &Bound<'_, PyAny>, when: When) -> PyResult<Ticket> {
        if verify::is_on() {
            verify::promote(exact_function(function)?, when)
        } else {
            promote(function, when)
        }
    }

    fn demote(&self, function: &Bound<'_, PyAny>) -> PyResult<bool> {
        put_back(exact_function(function)?)
    }

    fn enter_loops(&self, code: &Bound<'_, PyAny>) -> PyResult<Ticket> {
        if verify::is_on() && stub::refusal(code)?.is_none() {
            // Of a function: its calls are verified first. A body that runs once has none.
            let why = "its running loops stay in CPython: only its calls can be verified";
            return Ok(Ticket::new(Progress::Refused(vec![why.to_owned()])));
        }
        super::loops::arm(code)
    }

    fn stats(&self, code: &Bound<'_, PyAny>) -> Stats {
        let mut stats = Stats::default();
        for unit in units_of(code) {
            stats.calls += unit.n_calls();
            stats.timed_calls += unit.counters.timed_calls.get();
            stats.timed += unit.counters.timed.get();
            stats.exits += unit.counters.exits.get();
            stats.loops_entered += unit.n_loops_entered();
            stats.notes.extend(explain::sentences(&unit));
        }
        stats
    }

    fn original<'py>(&self, code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        stub::original_of(code).unwrap_or_else(|| code.clone())
    }

    fn is_promoted(&self, function: &Bound<'_, PyAny>) -> bool {
        function.getattr("__code__").is_ok_and(|code| stub::original_of(&code).is_some())
    }
}

/// Swaps a stub in. A function that cannot be compiled is left as it is; the ticket says why.
///
/// # Errors
/// `TypeError` when it is no Python function; what building a code object raises.
pub(crate) fn promote(function: &Bound<'_, PyAny>, when: When) -> PyResult<Ticket> {
    promote_with(function, when, Ticket::new(Progress::Pending))
}

/// As [`promote`], for somebody who holds `ticket` already.
///
/// # Errors
/// As [`promote`].
pub(crate) fn promote_for(function: &Bound<'_, PyAny>, when: When, ticket: &Ticket) -> PyResult<()> {
    let known = promote_with(function, when, ticket.clone())?;
    if !known.is(ticket) {
        // Another function of the same code came first.
        ticket.set(known.progress());
    }
    Ok(())
}

fn promote_with(function: &Bound<'_, PyAny>, when: When, ticket: Ticket) -> PyResult<Ticket> {
    let function = exact_function(function)?;
    let code = function.getattr("__code__")?;
    let (globals, builtins) = dictionaries(function);
    if let Some(original) = stub::original_of(&code) {
        let unit = units_of(&original).into_iter().find(|u| is_for(u, globals, builtins));
        let known = unit.and_then(|u| u.state.borrow().ticket.clone());
        return Ok(known.unwrap_or_else(|| Ticket::new(Progress::Done(Instant::now()))));
    }
    if let Some(why) = refusal(&code)? {
        return Ok(Ticket::new(Progress::Refused(vec![why])));
    }
    // Functions of one code object share its unit: closures made by one `def`.
    if let Some((unit, stub)) = units_of(&code)
        .into_iter()
        .filter(|unit| is_for(unit, globals, builtins))
        .find_map(|unit| Some((Arc::clone(&unit), unit.stub(function.py())?)))
    {
        let ticket = unit.state.borrow().ticket.clone();
        let ticket = ticket.unwrap_or_else(|| Ticket::new(Progress::Pending));
        if unit.is_closed() {
            return Ok(ticket);
        }
        function.setattr("__code__", stub)?;
        return Ok(ticket);
    }
    let unit = Unit::new(Kind::Promoted, false, Wants::default(), &code, globals, builtins);
    unit.waits.set(when == When::NextCall);
    unit.state.borrow_mut().ticket = Some(ticket.clone());
    let stub = stub::build(&code, Box::new(UnitBody(Arc::clone(&unit))))?;
    unit.set_stub(&stub)?;
    function.setattr("__code__", stub)?;
    Ok(ticket)
}

/// Gives a function its original code back, if it has a stub; says whether it had. Its loops are not offered any more,
/// so that the stub can die.
///
/// # Errors
/// What `sys.monitoring` raises.
pub(crate) fn put_back(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let code = function.getattr("__code__")?;
    let Some(original) = stub::original_of(&code) else { return Ok(false) };
    stub::unswap(function)?;
    if osr::disarm(&code)? {
        units_of(&original).iter().for_each(|unit| unit.rest.disarmed());
    }
    Ok(true)
}

/// Why a code object stays interpreted, if that can be told without knowing types.
///
/// # Errors
/// `AttributeError` when it is no code object.
pub(crate) fn refusal(code: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Err(problem) = selftest::check(code.py()) {
        return Ok(Some(format!("this CPython is not laid out as expected: {problem}")));
    }
    Ok(stub::refusal(code)?.map(str::to_owned))
}

/// Globals and builtins of a function, borrowed from it.
pub(crate) fn dictionaries(function: &Bound<'_, PyAny>) -> (*mut ffi::PyObject, *mut ffi::PyObject) {
    // SAFETY: callers pass an exact function; both fields are never null.
    unsafe {
        let function = function.as_ptr().cast::<ffi::PyFunctionObject>();
        ((*function).func_globals, (*function).func_builtins)
    }
}

fn is_for(unit: &Unit, globals: *mut ffi::PyObject, builtins: *mut ffi::PyObject) -> bool {
    unit.kind == Kind::Promoted && unit.globals == globals && unit.builtins == builtins
}

/// # Errors
/// `TypeError` for anything but a function made by `def` or `lambda`.
fn exact_function<'a, 'py>(function: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyAny>> {
    match function.is_exact_instance_of::<PyFunction>() {
        true => Ok(function),
        false => Err(PyTypeError::new_err("expected a Python function")),
    }
}

/// The original code object behind anything that `explain` takes: a function, a method, a jitted callable, a code object.
pub(crate) fn original_code<'py>(py: Python<'py>, of: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let mut of = of.clone();
    while !of.is_exact_instance_of::<PyCode>() {
        let next = ["__code__", "__func__", "__wrapped__"].into_iter().find_map(|name| of.getattr(name).ok());
        of = next.ok_or_else(|| PyTypeError::new_err("expected a function, a method or a code object"))?;
    }
    let _ = py;
    Ok(stub::original_of(&of).unwrap_or(of))
}
