//! `_core.LlmProfile`: what operators took, over several computations.
//!
//! In: computations, one at a time. Out: rows of numbers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use overdrive_llm::OpProfile;
use pyo3::prelude::*;

/// Sums by operator. Private: the face is `overdrive.llm.OpProfile`.
#[pyclass(frozen, module = "overdrive._core")]
#[derive(Default)]
pub(super) struct LlmProfile(Mutex<OpProfile>);

impl LlmProfile {
    /// For the time of a computation. To be called without the GIL, which those who wait would need otherwise.
    pub(super) fn lock(&self) -> MutexGuard<'_, OpProfile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl LlmProfile {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Name, calls, seconds, bytes and operations of each operator.
    fn rows(&self, py: Python<'_>) -> Vec<(&'static str, u64, f64, u64, u64)> {
        let profile = py.detach(|| self.lock().clone());
        let row = |(operator, cost): (overdrive_llm::Operator, overdrive_llm::Cost)| {
            (operator.name(), cost.n_calls, cost.time.as_secs_f64(), cost.n_bytes, cost.n_operations)
        };
        profile.costs().map(row).collect()
    }
}
