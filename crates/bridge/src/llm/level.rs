//! Which kernels compute: the best that this processor has, or others to measure and compare.
//!
//! In: a level's name. Out: the same. A level holds for the whole process.

use overdrive_kernels::{Level, level, set_level};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Name of the level that kernels run at: "amx", "avx512", "avx2" or "scalar".
#[pyfunction]
pub(super) fn kernel_level() -> &'static str {
    level().name()
}

/// Have kernels that begin later run at a level. ValueError for one that this processor has not.
#[pyfunction]
#[pyo3(signature = (name, /))]
pub(super) fn set_kernel_level(name: &str) -> PyResult<()> {
    let Some(level) = Level::from_name(name) else {
        let names: Vec<_> = Level::ALL.into_iter().map(Level::name).collect();
        return Err(PyValueError::new_err(format!("kernels are one of {}, not {name:?}", names.join(", "))));
    };
    set_level(level).map_err(|error| PyValueError::new_err(error.to_string()))
}
