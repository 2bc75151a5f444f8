//! Python front end: code object → normalised instructions → control-flow graph → IR.
//!
//! In: a `code::CodeObject`, plain data. Out: IR and the exit states it needs.
//! Must not know: CPython's run time, object layouts, machine code.
//! The modules stand in the order in which the data flows.
#![forbid(unsafe_code)]

pub mod code;
pub mod op;
