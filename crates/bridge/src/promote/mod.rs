//! Promotion: finds the hot functions of a running program and has them swapped for native code.
//!
//! In: a policy. Out: calls to an [`Engine`], and rows for the report. Data flows through the modules as
//! listed: the sampler sees places, `find` turns them into code and function objects, `calls` counts and times
//! a few of them, `score` decides, `session` drives. Nothing here knows how code is compiled.
//! Threads: one background thread samples without the GIL and takes it once per window, only when something
//! is warm. Nobody holds a lock while Python code can run.

mod sampler;

mod code;
mod find;

mod calls;
mod score;

mod candidate;
mod pattern;
mod policy;

mod timeline;
mod driver;
mod eager;
mod session;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// What promotion asks of the compiler. All methods are called with the GIL held.
pub trait Engine: Send + Sync {
    /// Has `function` compiled and swapped in. Returns at once: the function's next call brings the argument types,
    /// and the ticket tells how it went.
    fn promote(&self, function: &Bound<'_, PyAny>, when: When) -> PyResult<Ticket>;

    /// Puts the original code back. False when nothing was swapped in.
    fn demote(&self, function: &Bound<'_, PyAny>) -> PyResult<bool>;

    /// Has the loops of `code` compiled and entered in frames that run it now.
    fn enter_loops(&self, code: &Bound<'_, PyAny>) -> PyResult<Ticket>;

    /// What native code did so far for the function with this original code.
    fn stats(&self, code: &Bound<'_, PyAny>) -> Stats;

    /// The code object that a swapped-in one stands for; the argument itself when it is an original.
    fn original<'py>(&self, code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        code.clone()
    }

    /// Whether native code of `function` is in place.
    fn is_promoted(&self, function: &Bound<'_, PyAny>) -> bool;
}

/// When a function is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In the background; the original serves calls meanwhile.
    Behind,
    /// At its next call, which waits for it.
    NextCall,
}

/// What native code did for one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Calls that went to native code.
    pub calls: u64,
    /// Of those, the ones that were timed.
    pub timed_calls: u64,
    /// What the timed calls took together.
    pub timed: Duration,
    /// Times that native code left for CPython.
    pub exits: u64,
    /// Loops that were entered while they ran.
    pub loops_entered: u64,
    /// Sentences for the report: what stays in CPython and why ("line 31 runs in CPython: re.sub").
    pub notes: Vec<String>,
}

/// Where a promotion stands; shared between the engine's thread and the session.
#[derive(Clone, Debug)]
pub struct Ticket(Arc<Mutex<Progress>>);

/// State of a [`Ticket`].
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// Compiling, or waiting for its turn.
    Pending,
    /// Native code is in place since then.
    Done(Instant),
    /// It will not be; the reasons, in words.
    Refused(Vec<String>),
}

impl Ticket {
    /// A ticket in the given state.
    pub fn new(progress: Progress) -> Self {
        Self(Arc::new(Mutex::new(progress)))
    }

    /// The present state.
    pub fn progress(&self) -> Progress {
        // A panicking writer leaves a whole value: assignments are the only writes.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Whether both are the same ticket.
    pub fn is(&self, other: &Ticket) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Moves on; called by the engine.
    pub fn set(&self, progress: Progress) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = progress;
    }
}

/// The code object that a copy which counts calls stands for; any other as it is. Runs no Python code.
pub(crate) fn uncounted<'py>(code: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    calls::original(code)
}

/// Adds promotion to `overdrive._core`, on top of `engine`.
pub fn register(module: &Bound<'_, PyModule>, engine: Arc<dyn Engine>) -> PyResult<()> {
    session::register(module, engine)
}
