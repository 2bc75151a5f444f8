//! From a function of the IR to a callable: the list of stages, in one place, each named and timed.
//!
//! In: a function of the IR, and the process that its code will run in. Out: machine code that lives as long as its
//! owner wants, with a table of what each stage cost. Code that was generated before, by whatever process, comes from a
//! store. It must not know CPython's run time; `bridge` makes the IR's constants and the object table into addresses.

#![forbid(unsafe_code)]

mod stages;

pub use stages::{Cache, CompileRequest, JitError, News, Version, compile};
