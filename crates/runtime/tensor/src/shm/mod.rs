//! Memory that processes share, and the agreement on how long it lives.
//!
//! In: sizes and handles. Out: mapped segments, pools, rings. A segment is a file in `/dev/shm` that appears complete or
//! not at all. A process takes part by holding a kernel lock on one byte of it, which the kernel drops when the process
//! ends, however it ends; no process id decides anything. Who leaves last removes the name. Marks that a killed process
//! left are told by its missing lock. Must not know: Python.

pub mod file;
pub mod fork;
pub mod futex;
pub mod handle;
pub mod layout;
pub mod list;
pub mod pool;
pub mod ring;
pub mod segment;
