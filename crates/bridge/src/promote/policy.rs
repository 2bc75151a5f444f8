//! The policy as Rust data; `python/overdrive/policy.py` documents every field and holds the defaults.

use std::time::Duration;

use pyo3::prelude::*;

use super::score::Weights;

/// How a session decides. Field names are those of `overdrive.Policy`.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) weights: Weights,
    pub(super) threshold: f64,
    pub(super) windows: usize,
    pub(super) most_missed: u64,
    pub(super) window: Duration,
    pub(super) interval: Duration,
    pub(super) max_counted: usize,
    pub(super) max_compiles: usize,
    pub(super) max_attempts: u32,
    pub(super) back_off: u64,
    pub(super) least_gain: Duration,
    pub(super) eager: bool,
    pub(super) observe: bool,
}

impl Policy {
    /// Reads an `overdrive.Policy`, which has checked the ranges.
    pub(super) fn read(policy: &Bound<'_, PyAny>) -> PyResult<Self> {
        let number = |name: &str| policy.getattr(name)?.extract::<f64>();
        let seconds = |name: &str| {
            Duration::try_from_secs_f64(number(name)?)
                .map_err(|error| pyo3::exceptions::PyValueError::new_err(format!("{name}: {error}")))
        };
        Ok(Self {
            weights: Weights {
                call_rate: number("call_rate_weight")?,
                cpu_share: number("cpu_share_weight")?,
                complexity: number("complexity_weight")?,
            },
            threshold: number("threshold")?,
            windows: policy.getattr("windows")?.extract()?,
            most_missed: policy.getattr("most_missed")?.extract()?,
            window: seconds("window")?,
            interval: Duration::from_secs_f64(1.0 / number("rate")?.max(1.0)),
            max_counted: policy.getattr("max_counted")?.extract()?,
            max_compiles: policy.getattr("max_compiles")?.extract()?,
            max_attempts: policy.getattr("max_attempts")?.extract()?,
            back_off: policy.getattr("back_off")?.extract()?,
            least_gain: seconds("least_gain")?,
            eager: policy.getattr("eager")?.extract()?,
            observe: policy.getattr("observe")?.extract()?,
        })
    }
}
