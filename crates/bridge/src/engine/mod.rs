//! The engine: compiled versions of Python functions, made, called, left and replaced.
//!
//! In: functions (by `jit` or promotion) and the calls they get. Out: results that are CPython's. It joins the front
//! end, the code generator, the object table and the mechanics of frames, and decides which version runs. It does not
//! know how any of these works, nor which function is worth compiling.
//!
//! The modules stand in the order of a function's life.
#![expect(unsafe_code, reason = "calls machine code and reads live frames and objects under the GIL")]

// From a code object to facts.
mod input;
mod meaning;
mod oracle;
// From facts to a version.
mod consts;
mod version;
mod build;
mod compiler;
mod build_id;
mod cache;
mod hints;
// From a call to a version and out of it.
mod unit;
mod run;
mod loops;
mod rest;
mod parallel;
// What people see.
mod jit;
mod promotion;
mod verify;
mod explain;
mod debug;
mod errors;
mod api;

pub(crate) use api::register;
