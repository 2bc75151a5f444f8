//! Kernels in shared libraries, by the C ABI of `include/overdrive.h`.
//!
//! In: the path of a library. Out: its kernels as Python callables. Files: `library` loads and checks, `kernel` is the
//! callable, `arguments` turns Python's arguments into descriptors, `context` is what a call has for itself.

mod arguments;
mod context;
mod kernel;
mod library;

use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult, wrap_pyfunction};

/// Adds the type and the loader to `overdrive._core`.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<kernel::Kernel>()?;
    module.add_function(wrap_pyfunction!(library::_load_library, module)?)
}
