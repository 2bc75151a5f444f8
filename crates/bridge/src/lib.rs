//! PyO3 to `overdrive._core`: the only crate that knows CPython's run time.

use pyo3::prelude::*;

mod background;
pub mod mechanics;
pub mod objects;
pub mod promote;
pub mod program;
pub mod engine;
mod tensor;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    mechanics::register(module)?;
    objects::register(module)?;
    program::register(module)?;
    engine::register(module)?;
    tensor::register(module)?;
    Ok(())
}
