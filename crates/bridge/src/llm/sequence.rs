//! `_core.LlmSequence`: a text so far, with its keys and values.
//!
//! In: tokens, by way of a model. Out: the same, lent to one computation at a time. While it is lent there is nothing here,
//! so that no lock is held during a computation: a second thread, and a forked child, get an error instead of waiting.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use overdrive_llm::Sequence;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::errors;

/// A text so far. Private: the face is `overdrive.llm.Session`.
#[pyclass(frozen, module = "overdrive._core")]
pub(super) struct LlmSequence(Mutex<Option<Sequence>>);

impl LlmSequence {
    pub(super) fn new(sequence: Sequence) -> Self {
        Self(Mutex::new(Some(sequence)))
    }

    /// Held for moments only, and never while the GIL is given up.
    fn lock(&self) -> MutexGuard<'_, Option<Sequence>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, action: impl FnOnce(&mut Sequence) -> R) -> PyResult<R> {
        self.lock().as_mut().map(action).ok_or_else(in_use)
    }
}

fn in_use() -> PyErr {
    PyRuntimeError::new_err(
        "this session is in use: by another thread, or by a stream that has not ended (close() ends it)",
    )
}

/// A sequence on loan; it goes back when this is dropped, whatever happens.
pub(super) struct Loan {
    owner: Py<LlmSequence>,
    pub(super) sequence: Option<Sequence>,
}

impl Loan {
    /// # Errors
    /// `RuntimeError` while it is lent already.
    pub(super) fn of(owner: &Bound<'_, LlmSequence>) -> PyResult<Loan> {
        let sequence = owner.get().lock().take().ok_or_else(in_use)?;
        Ok(Loan { owner: owner.clone().unbind(), sequence: Some(sequence) })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence.take() {
            *self.owner.get().lock() = Some(sequence);
        }
    }
}

#[pymethods]
impl LlmSequence {
    /// The tokens whose keys and values are there.
    #[getter]
    fn tokens(&self) -> PyResult<Vec<u32>> {
        self.with(|sequence| sequence.tokens().to_vec())
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|sequence| sequence.len())
    }

    /// Forget all that is not the beginning of ``tokens``; return how many tokens are left.
    fn keep_common_prefix(&self, tokens: Vec<u32>) -> PyResult<usize> {
        self.with(|sequence| sequence.keep_common_prefix(&tokens))
    }

    /// Forget everything.
    fn clear(&self) -> PyResult<()> {
        self.with(|sequence| sequence.truncate(0))
    }

    /// Write tokens, keys and values to a file.
    fn save(slf: &Bound<'_, Self>, path: PathBuf) -> PyResult<()> {
        let loan = Loan::of(slf)?;
        let Some(sequence) = &loan.sequence else { return Err(in_use()) };
        slf.py().detach(|| sequence.save(&path)).map_err(|error| errors::of_model(&error))
    }
}
