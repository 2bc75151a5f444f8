//! PyO3 to `overdrive._core`: the only crate that knows CPython's run time.

use pyo3::prelude::*;

mod background;
mod pool;
pub mod mechanics;
pub mod objects;
pub mod promote;
pub mod program;
pub mod engine;
mod kernels;
mod tensor;
mod llm;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    if !mechanics::selftest::is_main_interpreter() {
        // 3.12 and later find out by themselves, in these words.
        return Err(pyo3::exceptions::PyImportError::new_err(
            "module overdrive._core does not support loading in subinterpreters",
        ));
    }
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    mechanics::register(module)?;
    objects::register(module)?;
    program::register(module)?;
    engine::register(module)?;
    tensor::register(module)?;
    kernels::register(module)?;
    llm::register(module)?;
    Ok(())
}
