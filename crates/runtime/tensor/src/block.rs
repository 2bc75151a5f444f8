//! One aligned block of private memory, freed when it is dropped.
//!
//! In: bytes and alignment. Out: an address with at least that alignment. A block of no bytes still has an address.
//! C's allocator is used, because it hands out zeroed pages without touching them.

#![expect(unsafe_code, reason = "calls C's allocator and frees what it returned")]

use std::ffi::c_void;

use crate::error::Error;

/// What every block of ours is aligned to: a cache line, and the widest vector.
pub const ALIGN: usize = 64;
/// Largest alignment that can be asked for.
pub const MAX_ALIGN: usize = 1 << 21;

/// An owned block.
#[derive(Debug)]
pub struct Block {
    base: *mut c_void,
    data: *mut u8,
}

// SAFETY: the block is plain memory that nobody else owns.
unsafe impl Send for Block {}
// SAFETY: `Block` itself only hands out the address.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates, zeroed or with whatever was there.
    ///
    /// # Errors
    /// `BadAlignment`, `OutOfMemory`.
    pub fn new(bytes: usize, align: usize, zeroed: bool) -> Result<Block, Error> {
        let align = check_align(align, MAX_ALIGN)?;
        let room = bytes.max(1).checked_add(align).ok_or(Error::OutOfMemory { bytes })?;
        // SAFETY: the allocator takes any size.
        let base = unsafe { if zeroed { libc::calloc(1, room) } else { libc::malloc(room) } };
        if base.is_null() {
            return Err(Error::OutOfMemory { bytes });
        }
        let skip = base.cast::<u8>().align_offset(align);
        // SAFETY: at most `align` bytes are skipped, which were allocated on top.
        Ok(Block { base, data: unsafe { base.cast::<u8>().add(skip) } })
    }

    /// Address of the first byte.
    pub fn data(&self) -> *mut u8 {
        self.data
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once.
        unsafe { libc::free(self.base) }
    }
}

/// The alignment to use: what was asked for, and never below `ALIGN`.
///
/// # Errors
/// `BadAlignment`.
pub fn check_align(align: usize, largest: usize) -> Result<usize, Error> {
    if !align.is_power_of_two() || align > largest {
        return Err(Error::BadAlignment { align, largest });
    }
    Ok(align.max(ALIGN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_kept() {
        for align in [1, 8, 64, 256, 4096, MAX_ALIGN] {
            for bytes in [0, 1, 63, 4097] {
                let block = Block::new(bytes, align, true).unwrap();
                assert_eq!(block.data() as usize % align.max(64), 0);
                // SAFETY: the block has that many bytes, and they are zeroed.
                assert!((0..bytes).all(|i| unsafe { *block.data().add(i) } == 0));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(matches!(Block::new(8, 48, false), Err(Error::BadAlignment { .. })));
        assert!(matches!(Block::new(8, 0, false), Err(Error::BadAlignment { .. })));
        assert!(matches!(Block::new(usize::MAX, 64, false), Err(Error::OutOfMemory { .. })));
        assert!(matches!(Block::new(isize::MAX as usize, 64, false), Err(Error::OutOfMemory { .. })));
    }
}
