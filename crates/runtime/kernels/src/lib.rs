//! What a language model computes with: quantised matrices, attention, norms, activations.
//!
//! In: blocks of weights as GGUF files hold them, rows of `f32`. Out: rows of `f32`. The processor is looked at once; every
//! kernel gives the bits of its scalar form on each processor and for any number of threads, so what a token gets
//! does not depend on its neighbours in a batch. Only BF16 weights have another sum with AMX, which has a scalar form, too. Must not know: files, models, tokens, Python.

#![warn(missing_docs)]

mod cpu;
mod format;
mod linear;
mod lanes;
mod exp;
mod aligned;
mod spread;
mod vector;
mod cache;
mod attention;
#[cfg(test)]
mod random;

pub use attention::{Part, attend};
pub use cache::{CacheError, KvCache, KvFormat, KvShape};
pub use cpu::{Level, LevelError, level, most_level, set_level};
pub use format::{Format, SizeError, decode};
pub use linear::{BuildError, Matrix, Room, Rows, ShapeError, Source, multiply};
pub use vector::{add, rms_norm, rotate, swiglu};
