//! Words that all stages share: flavours and exact types, the object table's entries, the layout that machine code reads.
//!
//! Depends on nothing, so every crate may use it. Holds data and names, no behaviour worth a test of its own beyond
//! consistency.

#![forbid(unsafe_code)]

pub mod fast;
pub mod flavour;
pub mod layout;
pub mod table;
