//! Bytes by key, in files that all processes of one user share.
//!
//! In: a directory, keys of 32 bytes, payloads. Out: a payload exactly as it was put, or nothing. A file that is torn,
//! cut, changed, somebody else's or another key's is nothing. Processes may put, get and remove at once and may be killed
//! at any point. What goes wrong is remembered for people and is never an error of the caller's.
//! Must not know: what the bytes are, where a user's caches are, Python.

#![forbid(unsafe_code)]

mod entry;
mod private;
mod store;
mod sweep;

pub use entry::Key;
pub use store::Store;
pub use sweep::Usage;
