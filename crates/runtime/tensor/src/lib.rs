//! Memory that NumPy, PyTorch, Arrow, other processes and machine code work on together, as plain data.
//!
//! In: addresses, shapes, strides in bytes, names of element types in each exchange format. Out: checked layouts, the C
//! structs of those formats, aligned blocks, arenas, shared memory. Must not know: Python, and who owns foreign memory
//! (the bridge does). Strides are in bytes everywhere, as in PEP 3118; formats that count elements convert at the edge.

#![deny(unsafe_code)]

pub mod error;
pub mod dtype;
pub mod layout;
pub mod copy;
pub mod dlpack;
pub mod arrow;
pub mod block;
pub mod arena;
pub mod mapped;
pub mod shm;
