//! What stops a computation that runs without the GIL: signals, and Python code that says how far it is.
//!
//! In: moments at which it may stop. Out: whether it does, and the exception.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use overdrive_llm::{Error, Kind};
use pyo3::prelude::*;

use super::errors;

/// Lets signal handlers run during a computation without the GIL, and keeps what they raise.
#[derive(Default)]
pub(super) struct Signals {
    raised: Option<PyErr>,
    looked: Option<Instant>,
}

impl Signals {
    /// Taking the GIL may cost a switch interval where other threads are busy, so it is not taken more often.
    const PAUSE: Duration = Duration::from_millis(20);

    /// To be called wherever the computation can stop. Handlers run on Python's main thread only.
    pub(super) fn look(&mut self) -> ControlFlow<()> {
        self.tell(None, 0, 1)
    }

    /// The same, and says how far the computation is to a callable; what that raises stops it, too.
    pub(super) fn tell(&mut self, progress: Option<&Py<PyAny>>, done: u64, total: u64) -> ControlFlow<()> {
        let is_early = self.looked.is_some_and(|looked| looked.elapsed() < Self::PAUSE);
        if is_early && done < total {
            return ControlFlow::Continue(());
        }
        let result = Python::attach(|py| {
            py.check_signals()?;
            progress.map_or(Ok(()), |progress| progress.call1(py, (done, total)).map(drop))
        });
        self.looked = Some(Instant::now());
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// As [`Self::or`]; what is wrong with a file is said with its name.
    pub(super) fn or_of_file(self, error: Error, path: &Path) -> PyErr {
        match (&self.raised, error.kind(), &error) {
            (Some(_), ..) | (.., Error::Argument { .. }) => self.or(error),
            (None, Kind::Value | Kind::NotImplemented, _) => errors::of_file(&error, path),
            _ => self.or(error),
        }
    }

    /// What a computation gave, unless something was raised at its very end, too late to stop it.
    pub(super) fn finish<T>(self, result: Result<T, Error>) -> PyResult<T> {
        match (self.raised, result) {
            (None, result) => result.map_err(|error| errors::of_model(&error)),
            (Some(raised), Ok(_)) => Err(raised),
            (Some(raised), Err(error)) => Err(Signals { raised: Some(raised), looked: None }.or(error)),
        }
    }

    /// The exception that stopped a computation, or the one that its own error is.
    pub(super) fn or(self, error: Error) -> PyErr {
        match (self.raised, error.kind()) {
            (Some(raised), Kind::Interrupted) => raised,
            (_, _) => errors::of_model(&error),
        }
    }
}
