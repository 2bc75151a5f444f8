//! An engine without a compiler: functions get stubs that only count and go on in CPython.
//!
//! In: functions. Out: the same functions behind stubs, so that finding, swapping, reporting and putting back can be
//! tested against whole programs before (and apart from) any code generation.

#![expect(unsafe_code, reason = "implements the native entry points")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;

use super::{Engine, Progress, Stats, Ticket, When};
use crate::mechanics::activation::Activation;
use crate::mechanics::gil_cell::GilCell;
use crate::mechanics::native::{Body, LoopOutcome};
use crate::mechanics::{osr, stub};

/// Counts by identity of the original code, which the stub keeps alive.
static CALLS: GilCell<Vec<(usize, Arc<Counts>)>> = GilCell::new(Vec::new());

#[derive(Default)]
struct Counts {
    calls: AtomicU64,
    loops: AtomicU64,
}

struct CountingBody(Arc<Counts>);

impl Body for CountingBody {
    unsafe fn call(&self, _activation: &mut Activation<'_>) -> *mut ffi::PyObject {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        std::ptr::null_mut()
    }

    unsafe fn enter_loop(&self, _activation: &mut Activation<'_>, _offset: u32) -> LoopOutcome {
        self.0.loops.fetch_add(1, Ordering::Relaxed);
        LoopOutcome::NeverAgain
    }
}

/// See the module.
pub struct NullEngine;

impl NullEngine {
    fn counts(code: &Bound<'_, PyAny>) -> Arc<Counts> {
        let identity = code.as_ptr() as usize;
        // SAFETY: the GIL is held, and the closure runs no Python.
        unsafe {
            CALLS.with(|calls| match calls.iter().find(|(code, _)| *code == identity) {
                Some((_, counts)) => counts.clone(),
                None => {
                    let counts = Arc::new(Counts::default());
                    calls.push((identity, counts.clone()));
                    counts
                }
            })
        }
    }
}

impl Engine for NullEngine {
    fn promote(&self, function: &Bound<'_, PyAny>, _when: When) -> PyResult<Ticket> {
        let code = function.getattr("__code__")?;
        if let Some(reason) = stub::refusal(&code)? {
            return Ok(Ticket::new(Progress::Refused(vec![reason.to_owned()])));
        }
        stub::swap(function, Box::new(CountingBody(Self::counts(&code))))?;
        Ok(Ticket::new(Progress::Done(Instant::now())))
    }

    fn demote(&self, function: &Bound<'_, PyAny>) -> PyResult<bool> {
        stub::unswap(function)
    }

    fn enter_loops(&self, code: &Bound<'_, PyAny>) -> PyResult<Ticket> {
        let armed = osr::arm(code, Some(Box::new(CountingBody(Self::counts(code)))))?;
        Ok(Ticket::new(if armed {
            Progress::Done(Instant::now())
        } else {
            Progress::Refused(vec!["a tracer is active or every sys.monitoring tool id is taken".into()])
        }))
    }

    fn stats(&self, code: &Bound<'_, PyAny>) -> Stats {
        let counts = Self::counts(code);
        Stats {
            calls: counts.calls.load(Ordering::Relaxed),
            loops_entered: counts.loops.load(Ordering::Relaxed),
            ..Stats::default()
        }
    }

    fn original<'py>(&self, code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        stub::original_of(code).unwrap_or_else(|| code.clone())
    }

    fn is_promoted(&self, function: &Bound<'_, PyAny>) -> bool {
        function.getattr("__code__").is_ok_and(|code| stub::original_of(&code).is_some())
    }
}
