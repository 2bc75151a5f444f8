//! Where CPython keeps things: one file of byte offsets per supported version, chosen when this crate is built.
//!
//! In: nothing. Out: `layout::frame::INSTR` and the like, the same names on every version as far as the version
//! has the field. A version that is not listed does not compile, so no table is ever used for another version.

#[cfg(all(Py_3_11, not(Py_3_12)))]
mod v311;
#[cfg(all(Py_3_11, not(Py_3_12)))]
use v311 as this_version;

#[cfg(all(Py_3_12, not(Py_3_13)))]
mod v312;
#[cfg(all(Py_3_12, not(Py_3_13)))]
use v312 as this_version;

#[cfg(all(Py_3_13, not(Py_3_14)))]
mod v313;
#[cfg(all(Py_3_13, not(Py_3_14)))]
use v313 as this_version;

#[cfg(not(all(Py_3_11, not(Py_3_14))))]
compile_error!("overdrive knows the run-time structs of CPython 3.11, 3.12 and 3.13 only");

#[cfg(not(Py_3_13))]
pub use this_version::cframe;
#[cfg(not(Py_3_13))]
pub use this_version::interp;
#[cfg(not(Py_3_12))]
pub use this_version::runtime;
pub use this_version::{
    bytearray, bytes, cell, code, dict, dict_keys, enumerate, float, frame, frame_object, function, list,
    list_iter, long, range_iter, seq_iter, thread, tuple, tuple_iter, type_object, zip,
};
