//! Typed IR to machine code through LLVM 22.
//!
//! In: a function of the IR and a `Target`: the memory layout of the running CPython and the addresses of the object
//! table. Out: `Compiled`, which owns the code until it is dropped, with LLVM IR and assembly on request, and in a form
//! that another process can load, with a key that says what it was made of. The only crate that links LLVM. It must not know CPython's run time: what it calls, it calls by an address it was given.
//!
//! One LLVM context per compile and nothing shared between threads but LLVM's target registry, so any number of
//! compiles may run at once, on any thread with 8 MB of stack, without the GIL.

mod abi;
mod error;
mod symbols;
mod lower;
mod passes;
mod settings;
mod machine;
mod load;
mod pack;
mod key;
mod compile;
mod listing;

pub use abi::{Body, NativeFn, Rt, Services, Target, VectorForm};
pub use compile::{Compiled, Forced, Level, Options, compile, load};
pub use error::CodegenError;
pub use key::{Key, function_key, key};
pub use listing::{Line, listing};
pub use machine::{llvm_version, processor};
