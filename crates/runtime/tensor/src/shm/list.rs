//! What shared memory of ours there is on this machine, and the removal of what nobody holds.
//!
//! In: the directory. Out: one row a segment; names removed. A segment is garbage when no participant holds a place, and
//! no lease runs. Names that cannot be opened (another user's) are passed over.

#![expect(unsafe_code, reason = "maps segments of processes that may have been killed in any state")]

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::SeqCst;

use super::file;
use super::layout::{Header, LEASES, MAGIC, POOL, RING, SINGLE};
use super::pool;
use super::segment::{Segment, state};
use crate::error::Error;

/// One segment.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: [u8; 16],
    /// `"tensor"`, `"pool"`, `"ring"`, or `"unknown"` for a file that another version wrote.
    pub kind: &'static str,
    /// Bytes of the file.
    pub bytes: u64,
    /// Processes (or attached rings) that take part.
    pub participants: usize,
    /// Tensors on their way.
    pub in_flight: usize,
}

/// Ids of all segments, sorted.
pub fn ids() -> Vec<[u8; 16]> {
    let entries = std::fs::read_dir(file::DIRECTORY).into_iter().flatten().flatten();
    let mut ids: Vec<[u8; 16]> =
        entries.filter_map(|entry| parse(entry.file_name().to_str()?.strip_prefix(file::PREFIX)?)).collect();
    ids.sort_unstable();
    ids
}

/// Reads the hexadecimal digits of an id.
pub fn parse(hex: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    for (i, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(id)
}

/// All segments that can be looked at.
pub fn rows() -> Vec<Row> {
    ids().into_iter().filter_map(|id| row(id).ok().flatten()).collect()
}

fn row(id: [u8; 16]) -> Result<Option<Row>, Error> {
    let Some(fd) = file::open(&id)? else { return Ok(None) };
    let (bytes, _) = file::status(fd.as_raw_fd())?;
    let participants = file::count_others(fd.as_raw_fd());
    let (kind, in_flight) = look(fd.as_raw_fd(), bytes, |header| {
        let kind = match header.kind {
            SINGLE => "tensor",
            POOL => "pool",
            RING => "ring",
            _ => "unknown",
        };
        (kind, running(header).count())
    })?
    .unwrap_or(("unknown", 0));
    Ok(Some(Row { id, kind, bytes, participants, in_flight }))
}

/// Shows the header of a file to `see`, if it has one of this format.
fn look<R>(fd: i32, bytes: u64, see: impl FnOnce(&Header) -> R) -> Result<Option<R>, Error> {
    if bytes < size_of::<Header>() as u64 {
        return Ok(None);
    }
    let base = file::map(fd, size_of::<Header>())?;
    // SAFETY: as long as the header, and unmapped when the reference has ended.
    unsafe {
        let header = &*base.cast::<Header>();
        let seen = (header.magic == MAGIC && header.format == super::layout::FORMAT).then(|| see(header));
        file::unmap(base, size_of::<Header>());
        Ok(seen)
    }
}

fn running(header: &Header) -> impl Iterator<Item = usize> + '_ {
    let now = file::now();
    (0..LEASES).filter(move |&i| {
        let lease = &header.leases[i];
        lease.token.load(SeqCst) != 0 && lease.deadline.load(SeqCst) > now
    })
}

/// Removes a segment that nobody holds. True when it was removed.
///
/// # Errors
/// `TimedOut`, `System`.
pub fn collect(id: &[u8; 16]) -> Result<bool, Error> {
    let Some(fd) = file::open(id)? else { return Ok(false) };
    let raw = fd.as_raw_fd();
    // While we have every place nobody can take part; they go with the file.
    if !file::take_all_places(raw) {
        return Ok(false);
    }
    let (bytes, named) = file::status(raw)?;
    if !named {
        return Ok(false);
    }
    // A file that another version wrote is left to that version.
    match look(raw, bytes, |header| running(header).next().is_some())? {
        Some(false) => Ok(file::unlink(id)),
        Some(true) | None => Ok(false),
    }
}

/// Removes every segment that nobody holds, and takes the marks of killed processes off the others.
pub fn gc() -> Vec<[u8; 16]> {
    let mut removed = Vec::new();
    for id in ids() {
        if collect(&id).unwrap_or(false) {
            removed.push(id);
        } else if let Ok(segment) = Segment::attach(id, &[SINGLE, POOL], false, true) {
            reap(&segment);
        }
    }
    removed
}

fn reap(segment: &Segment) {
    let _state = state();
    if let Ok(_change) = file::change(segment.fd) {
        segment.reap();
    }
}

/// Blocks in use of a segment, for tests.
///
/// # Errors
/// `Handle`, `System`.
pub fn blocks_in_use(id: [u8; 16]) -> Result<usize, Error> {
    let segment = Segment::attach(id, &[SINGLE, POOL], false, true)?;
    Ok(pool::usage(&segment).0)
}
