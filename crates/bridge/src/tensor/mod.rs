//! `overdrive.tensor`, `Tensor`, arenas and shared memory: the Python side of the crate `overdrive-tensor`.
//!
//! In: objects that have memory. Out: objects that lend it, each keeping alive what it stands on. The type is raw C API
//! because making one from an array must cost less than the array's own view does. Files: `object` is the type, `memory`
//! what stands behind one, `make` the way in; each exchange format has a file with both directions.

mod arena;
mod array_interface;
mod arrow;
mod attributes;
mod buffer;
mod create;
mod dlpack;
mod door;
mod held;
mod hooks;
mod index;
mod make;
mod memory;
mod methods;
pub(crate) mod native;
mod numpy;
mod object;
mod pool;
mod raw;
mod ring;
mod shared;

pub(crate) use door::to_python;
pub(crate) use held::Held;
use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult};

/// Adds the type and the functions to `overdrive._core`.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    object::register(module)?;
    make::register(module)?;
    create::register(module)?;
    hooks::register(module)?;
    module.add_class::<arena::Arena>()?;
    shared::register(module)?;
    module.add_class::<pool::Pool>()?;
    module.add_class::<ring::Ring>()
}
