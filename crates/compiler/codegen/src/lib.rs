//! Typed IR to machine code through LLVM 22.
//!
//! In: verified IR and the addresses of the object table. Out: an object in memory, with its LLVM IR and
//! assembly on request. The only crate that links LLVM; it must not know CPython's run time.
