//! Many tensors in one segment.
//!
//! In: sizes. Out: pieces, in place, so that nothing need be copied. The table of blocks is the only record: gaps between
//! the blocks in use are free. A block is free when no participant's mark is on it and no lease; marks of killed
//! participants are taken off when room is short.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::file::{self, PAGE};
use super::layout::{Block, POOL};
use super::segment::{Piece, Segment, State, state};
use crate::block::ALIGN;
use crate::error::Error;

/// Blocks from this size on begin at a page of their own.
const PAGED: usize = 16 * PAGE;

/// Makes a pool with room for `bytes` in at most `n_blocks` pieces.
///
/// # Errors
/// `NoSharedSpace`, `TooLarge`, `System`.
pub fn create(bytes: usize, n_blocks: usize) -> Result<Arc<Segment>, Error> {
    Segment::create(POOL, n_blocks, bytes, |fd, start| file::reserve(fd, start, bytes as u64))
}

/// Hands out a piece.
///
/// # Errors
/// `PoolFull`, `TimedOut`, `System`.
pub fn allocate(pool: &Arc<Segment>, bytes: usize) -> Result<Piece, Error> {
    let mut guard = state();
    let Some(state) = guard.as_mut() else { return Err(Error::Closed { what: "process" }) };
    let _change = file::change(pool.fd)?;
    match place(pool, state, bytes) {
        Err(Error::PoolFull { .. }) => {
            pool.reap();
            place(pool, state, bytes)
        }
        placed => placed,
    }
}

fn place(pool: &Arc<Segment>, state: &mut State, bytes: usize) -> Result<Piece, Error> {
    let leased = leased_blocks(pool);
    let full = |reason| Error::PoolFull { bytes, reason };
    // An empty tensor has an address too.
    let room =
        bytes.max(1).checked_next_multiple_of(ALIGN).ok_or_else(|| full("it is larger than the pool"))?;
    let align = if room >= PAGED { PAGE } else { ALIGN };
    let mut used: Vec<(usize, usize)> = Vec::new();
    let mut entry = None;
    for (i, block) in pool.blocks().iter().enumerate() {
        if is_used(block) && (leased.contains(&(i as u64)) || is_held(block)) {
            let (offset, bytes) = (block.offset.load(SeqCst) as usize, block.bytes.load(SeqCst) as usize);
            used.push((offset, offset.saturating_add(bytes.next_multiple_of(ALIGN).max(ALIGN))));
        } else {
            entry = entry.or(Some(i));
        }
    }
    let entry = entry.ok_or_else(|| full("every block of its table is in use; make it with more blocks="))?;
    used.sort_unstable();
    let (_, end) = pool.data();
    let mut at = 0usize;
    for &(start, after) in used.iter().chain([&(end, end)]) {
        let begin = at.next_multiple_of(align);
        if start >= begin && start - begin >= bytes && (start - begin >= room || start == end) {
            let block = &pool.blocks()[entry];
            let generation = (block.state.load(SeqCst) >> 1).wrapping_add(1) & u64::from(u32::MAX);
            block.state.store(generation << 1, SeqCst);
            block.holders.iter().for_each(|word| word.store(0, SeqCst));
            block.offset.store(begin as u64, SeqCst);
            block.bytes.store(bytes as u64, SeqCst);
            block.state.store(generation << 1 | 1, SeqCst);
            return Ok(pool.hold_new(state, entry as u32));
        }
        at = at.max(after);
    }
    Err(full("there is no gap of this size; drop tensors, or make it larger"))
}

fn leased_blocks(pool: &Segment) -> Vec<u64> {
    let now = file::now();
    let running = pool
        .header()
        .leases
        .iter()
        .filter(|lease| lease.token.load(SeqCst) != 0 && lease.deadline.load(SeqCst) > now);
    running.map(|lease| lease.block.load(SeqCst)).collect()
}

fn is_used(block: &Block) -> bool {
    block.state.load(SeqCst) & 1 == 1
}

fn is_held(block: &Block) -> bool {
    block.holders.iter().any(|word| word.load(SeqCst) != 0)
}

/// Blocks in use, and their bytes.
pub fn usage(pool: &Segment) -> (usize, usize) {
    let leased = leased_blocks(pool);
    let mut total = (0, 0);
    for (i, block) in pool.blocks().iter().enumerate() {
        if is_used(block) && (is_held(block) || leased.contains(&(i as u64))) {
            total = (total.0 + 1, total.1 + block.bytes.load(SeqCst) as usize);
        }
    }
    total
}

/// Tensors of this process that stand on the pool.
pub fn views_here(pool: &Arc<Segment>) -> usize {
    let address = Arc::as_ptr(pool).addr();
    let state = state();
    state.iter().flat_map(|state| &state.counts).filter(|(key, _)| key.0 == address).map(|(_, n)| n).sum()
}
