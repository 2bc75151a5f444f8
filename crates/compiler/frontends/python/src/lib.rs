//! A code object of CPython 3.11, 3.12 or 3.13, as plain data, to typed IR.
//!
//! In: bytecode and its tables, plus the assumptions a version is compiled under. Out: IR whose every
//! exit names a bytecode offset. It must not touch a running interpreter.
//! The modules stand in the order in which the data flows.
#![forbid(unsafe_code)]

pub mod code;
pub mod opcodes;
pub mod decode;
pub mod tables;
pub mod op;
pub mod normalise;
pub mod cfg;
pub mod stack;
pub mod loops;
pub mod locals;
pub mod function;
pub mod error;
pub mod facts;
pub mod translate;
