//! What stands at the beginning of every segment, read and written by several processes at once.
//!
//! In: offsets from the segment's first byte. Out: structs of atomics whose sizes are asserted. Each word is right by
//! itself at any moment, so that a process may be killed between any two writes; what belongs together changes under the
//! segment's change lock, last the word that makes it valid.

use std::sync::atomic::AtomicU64;

use super::file::PARTICIPANTS;

/// First bytes of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"overdrv\0");
/// Counts up when anything here changes.
pub const FORMAT: u32 = 1;
/// Leases in flight of one segment.
pub const LEASES: usize = 64;
/// 64-bit words of a set of participants.
pub const WORDS: usize = PARTICIPANTS / 64;

/// One tensor.
pub const SINGLE: u32 = 1;
/// Many tensors.
pub const POOL: u32 = 2;
/// Messages.
pub const RING: u32 = 3;

/// The first bytes. Written before the segment has a name, then constant up to `leases`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    pub magic: u64,
    pub format: u32,
    pub kind: u32,
    pub id: [u8; 16],
    /// Bytes of the file.
    pub total: u64,
    /// Offset of the blocks.
    pub table: u64,
    pub n_blocks: u64,
    /// Offset of the data, whole pages.
    pub data: u64,
    pub leases: [Lease; LEASES],
}

/// A tensor on its way between processes holds its block for a while, with no process that could be asked.
#[repr(C)]
#[derive(Debug)]
pub struct Lease {
    /// Names the lease; 0: none. Written last.
    pub token: AtomicU64,
    /// Nanoseconds since the machine started.
    pub deadline: AtomicU64,
    pub block: AtomicU64,
}

/// One piece of the data.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Block {
    /// Twice the generation, plus 1 while in use. Written last.
    pub state: AtomicU64,
    /// From the beginning of the data.
    pub offset: AtomicU64,
    pub bytes: AtomicU64,
    pub unused: AtomicU64,
    /// The set of participants that hold it.
    pub holders: [AtomicU64; WORDS],
}

const _: () = {
    assert!(size_of::<Header>() == 1600);
    assert!(size_of::<Lease>() == 24);
    assert!(size_of::<Block>() == 64);
};
