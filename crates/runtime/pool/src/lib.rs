//! The threads that parallel loops run on: one pool in a process, whoever asks for it.
//!
//! In: a job, which is a function of a range of chunks, and their number. Out: it was called once for every chunk. Chunks
//! are handed out in ascending order; the thread that asks works too, so a job ends even when no other thread helps.
//! A job that is asked for inside another runs on the thread that asks. Threads start at the first job that can use
//! them, wait without using the processor, and take no signals. A forked child starts a pool of its own.
//! Must not know: Python, what a chunk is.

mod float;
mod fork;
mod job;
mod threads;

pub use job::{Panicked, run};
pub use threads::{MOST_THREADS, OutOfRange, rest, set_threads, threads};
