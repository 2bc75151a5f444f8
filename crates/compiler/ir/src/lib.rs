//! The typed SSA that front ends produce and back ends consume.
//!
//! A `Function` is one version of one code object: blocks with parameters, instructions, guards, and the exits through
//! which CPython takes over. Knows no CPython: objects are opaque references, operations on them are named entries of
//! the object table.

#![forbid(unsafe_code)]

pub mod entities;
pub mod inst;
pub mod exit;
pub mod places;
pub mod function;
pub mod names;
pub mod print;
mod lex;
pub mod parse;
pub mod dominators;
pub mod loops;
pub mod parallel;
mod gil;
pub mod verify;
pub mod interpret;
pub mod opt;
pub mod cases;
