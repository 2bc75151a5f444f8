//! PyO3 to `overdrive._core`: the only crate that knows CPython's run time.

use pyo3::prelude::*;

pub mod mechanics;
pub mod objects;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    mechanics::register(module)?;
    objects::register(module)?;
    Ok(())
}
