//! A segment as one process sees it: mapped, taken part in, counted, left.
//!
//! In: sizes, or the id of a segment that somebody made. Out: `Piece`s: blocks of it that this process holds, counted here
//! and marked there by one bit of this participant. The last to leave removes the name. All that changes several words
//! happens under the process-wide `STATE` first and the segment's change lock second, in this order.

#![expect(unsafe_code, reason = "structs in memory that other processes write")]

use std::collections::HashMap;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::file::{self, PAGE, PARTICIPANTS};
use super::layout::{Block, FORMAT, Header, MAGIC, SINGLE};
use super::{fork, list};
use crate::error::Error;

/// A mapped segment. Lives as long as any piece of it, or its pool or ring.
#[derive(Debug)]
pub struct Segment {
    pub(super) id: [u8; 16],
    /// The number stays; after a fork another opening of the same file stands behind it.
    pub(super) fd: i32,
    base: *mut u8,
    bytes: usize,
    read_only: bool,
    /// This participant's number.
    pub(super) place: AtomicUsize,
    /// A fork could not give the child a place of its own: both live on one, and neither may give anything up.
    pub(super) pinned: AtomicBool,
    left: AtomicBool,
}

// SAFETY: what is mapped is read and written by atomics, except the data, whose users answer for it.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// What this process knows of its segments.
#[derive(Default)]
pub(super) struct State {
    /// Segments that are shared by all who attach them here, by id and whether they are read-only.
    open: HashMap<([u8; 16], bool), Weak<Segment>>,
    /// Every segment, by address. An entry is removed before the segment is.
    pub(super) all: Vec<usize>,
    /// How many pieces of this process stand on a block, by address of the segment.
    pub(super) counts: HashMap<(usize, u32), usize>,
    /// Segments that were left with a lease in flight, with its end.
    orphans: Vec<([u8; 16], u64)>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Locks what this process knows. The first caller also prepares for forks and for the end of the process.
pub(super) fn state() -> MutexGuard<'static, Option<State>> {
    // A panic inside leaves counts that are at worst too high.
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_none() {
        *state = Some(State::default());
        fork::prepare_process();
    }
    state
}

/// A block that this process holds.
#[derive(Debug)]
pub struct Piece {
    segment: Arc<Segment>,
    pub block: u32,
    pub generation: u32,
    pub data: *mut u8,
    pub bytes: usize,
}

// SAFETY: the address is that of shared memory, whose users answer for it.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    /// The segment's id.
    pub fn id(&self) -> [u8; 16] {
        self.segment.id
    }

    /// True when the mapping forbids writing.
    pub fn read_only(&self) -> bool {
        self.segment.read_only
    }

    /// Holds the block for a tensor that is on its way to another process.
    ///
    /// # Errors
    /// `Crowded` when too many are, `TimedOut`, `System`.
    pub fn lease(&self, nanoseconds: u64) -> Result<u64, Error> {
        let token = u64::from_ne_bytes(file::random::<8>()?) | 1;
        let _state = state();
        let _change = file::change(self.segment.fd)?;
        let now = file::now();
        let leases = &self.segment.header().leases;
        let free = leases
            .iter()
            .find(|lease| lease.token.load(SeqCst) == 0 || lease.deadline.load(SeqCst) <= now)
            .ok_or(Error::Crowded { what: "the list of tensors in flight", most: leases.len() })?;
        free.token.store(0, SeqCst);
        free.deadline.store(now.saturating_add(nanoseconds), SeqCst);
        free.block.store(u64::from(self.block), SeqCst);
        free.token.store(token, SeqCst);
        Ok(token)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = state();
        let Some(state) = state.as_mut() else { return };
        let key = (Arc::as_ptr(&self.segment).addr(), self.block);
        let Some(count) = state.counts.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            state.counts.remove(&key);
            self.segment.unmark(self.block as usize);
        }
    }
}

impl Segment {
    /// Makes a segment with a table of `n_blocks` and `data_bytes` of data. `fill` is given the file and where the data
    /// begin, and reserves or writes them; the segment has no name until it has succeeded. With `only_block` the data
    /// are block 0, held by the returned piece.
    ///
    /// # Errors
    /// `NoSharedSpace`, `TooLarge`, `System`.
    pub fn create(
        kind: u32,
        n_blocks: usize,
        data_bytes: usize,
        fill: impl FnOnce(i32, u64) -> Result<(), Error>,
    ) -> Result<Arc<Segment>, Error> {
        sweep();
        let table = size_of::<Header>();
        let room = n_blocks.checked_mul(size_of::<Block>()).ok_or(Error::TooLarge)?;
        let data = room.checked_add(table).ok_or(Error::TooLarge)?.next_multiple_of(PAGE);
        let total = data.checked_add(data_bytes).ok_or(Error::TooLarge)?;
        if i64::try_from(total).is_err() {
            return Err(Error::TooLarge);
        }
        let fd = file::create()?;
        file::reserve(fd.as_raw_fd(), 0, data as u64)?;
        fill(fd.as_raw_fd(), data as u64)?;
        if file::status(fd.as_raw_fd())?.0 != total as u64 {
            return Err(Error::System { call: "filling of shared memory", code: libc::EIO });
        }
        let base = file::map(fd.as_raw_fd(), total)?;
        let id = file::random::<16>()?;
        // SAFETY: a zeroed mapping of ours that nobody else knows yet, and large enough for the header.
        unsafe {
            let header = base.cast::<Header>();
            (*header).magic = MAGIC;
            (*header).format = FORMAT;
            (*header).kind = kind;
            (*header).id = id;
            (*header).total = total as u64;
            (*header).table = table as u64;
            (*header).n_blocks = n_blocks as u64;
            (*header).data = data as u64;
        }
        let segment = Segment::new(id, fd.into_raw_fd(), base, total, false);
        segment.place.store(claim(segment.fd)?, SeqCst);
        if kind == SINGLE {
            let block = &segment.blocks()[0];
            block.bytes.store(data_bytes as u64, SeqCst);
            block.state.store(1 << 1 | 1, SeqCst);
        }
        file::publish(segment.fd, &id)?;
        Ok(segment.register(true))
    }

    /// Finds a segment that somebody made: the one this process has open already, or a new mapping. With `alone` it is
    /// a participant of its own, whatever is open here.
    ///
    /// # Errors
    /// `Handle` when there is none or it is none of ours, `Crowded`, `System`.
    pub fn attach(id: [u8; 16], kinds: &[u32], read_only: bool, alone: bool) -> Result<Arc<Segment>, Error> {
        if !alone && let Some(open) = Segment::find_open(id, read_only) {
            return Ok(open);
        }
        let gone = Error::Handle {
            reason: "this shared memory is gone: nobody holds it any more, or it was unlinked",
        };
        let fd = file::open(&id)?.ok_or_else(|| gone.clone())?;
        let raw = fd.as_raw_fd();
        let foreign = Error::Handle { reason: "the file of this handle is no shared memory of this version" };
        // Who leaves last removes the name while it has every place, so a name that is there once we have one stays.
        let place = claim(raw)?;
        let (size, named) = file::status(raw)?;
        if !named {
            return Err(gone);
        }
        let bytes = usize::try_from(size).map_err(|_| foreign.clone())?;
        if bytes < size_of::<Header>() {
            return Err(foreign);
        }
        let base = file::map(raw, bytes)?;
        // SAFETY: the mapping is at least as long as the header.
        let header = unsafe { &*base.cast::<Header>() };
        let sound = header.magic == MAGIC
            && header.format == FORMAT
            && header.id == id
            && kinds.contains(&header.kind)
            && header.total == size
            && header.table as usize == size_of::<Header>()
            && (header.data as usize).is_multiple_of(PAGE)
            && header.data <= size
            && header.n_blocks <= size / size_of::<Block>() as u64
            && header.table + header.n_blocks * size_of::<Block>() as u64 <= header.data;
        if !sound {
            // SAFETY: mapped above, used no more.
            unsafe { file::unmap(base, bytes) };
            return Err(foreign);
        }
        let data = header.data as usize;
        let segment = Segment::new(id, fd.into_raw_fd(), base, bytes, read_only);
        segment.place.store(place, SeqCst);
        segment.wipe(place);
        if read_only && data < bytes {
            // SAFETY: the data, whole pages, to which this mapping has not written.
            unsafe { file::protect(base.add(data), bytes - data)? };
        }
        Ok(segment.register(!alone))
    }

    /// Holds a block that a handle names.
    ///
    /// # Errors
    /// `Handle` when it is not in that use any more or smaller than the handle says, `TimedOut`, `System`.
    pub fn hold(
        self: &Arc<Segment>,
        block: u32,
        generation: u32,
        bytes: usize,
        lease: u64,
    ) -> Result<Piece, Error> {
        let mut guard = state();
        let Some(state) = guard.as_mut() else { return Err(Error::Closed { what: "process" }) };
        let gone =
            Error::Handle { reason: "this tensor's shared memory was released: nobody holds it any more" };
        let key = (Arc::as_ptr(self).addr(), block);
        let here = state.counts.get(&key).copied().unwrap_or(0);
        // One tensor's block is never given to another, so its marks need no agreement.
        let alone = self.header().kind == SINGLE;
        let change = if lease != 0 || (here == 0 && !alone) { Some(file::change(self.fd)?) } else { None };
        let entry = self.blocks().get(block as usize).ok_or_else(|| gone.clone())?;
        let in_flight = (lease != 0)
            .then(|| self.header().leases.iter().find(|entry| entry.token.load(SeqCst) == lease))
            .flatten()
            .filter(|entry| entry.block.load(SeqCst) == u64::from(block));
        let held = alone
            || here > 0
            || in_flight.is_some()
            || entry.holders.iter().any(|word| word.load(SeqCst) != 0);
        if !held || entry.state.load(SeqCst) != u64::from(generation) << 1 | 1 {
            return Err(gone);
        }
        let (offset, room) = (entry.offset.load(SeqCst), entry.bytes.load(SeqCst));
        let inside = (bytes as u64) <= room
            && offset.checked_add(room).is_some_and(|end| end <= (self.bytes - self.data_offset()) as u64);
        if !inside {
            return Err(Error::Handle { reason: "this handle describes more than the shared memory holds" });
        }
        self.mark(block as usize);
        if let Some(lease) = in_flight {
            lease.token.store(0, SeqCst);
        }
        drop(change);
        state.counts.insert(key, here + 1);
        Ok(self.piece(block, generation, offset as usize, bytes))
    }

    /// Holds a block for the first time. The caller has both locks and has put the block into use.
    pub(super) fn hold_new(self: &Arc<Segment>, state: &mut State, block: u32) -> Piece {
        let entry = &self.blocks()[block as usize];
        self.mark(block as usize);
        state.counts.insert((Arc::as_ptr(self).addr(), block), 1);
        let generation = (entry.state.load(SeqCst) >> 1) as u32;
        self.piece(block, generation, entry.offset.load(SeqCst) as usize, entry.bytes.load(SeqCst) as usize)
    }

    /// Holds block 0 of a segment that has just been made for one tensor.
    pub fn hold_only(self: &Arc<Segment>) -> Result<Piece, Error> {
        match state().as_mut() {
            Some(state) => Ok(self.hold_new(state, 0)),
            None => Err(Error::Closed { what: "process" }),
        }
    }

    fn piece(self: &Arc<Segment>, block: u32, generation: u32, offset: usize, bytes: usize) -> Piece {
        // SAFETY: the block lies in the mapping.
        let data = unsafe { self.base.add(self.data_offset() + offset) };
        Piece { segment: self.clone(), block, generation, data, bytes }
    }

    fn find_open(id: [u8; 16], read_only: bool) -> Option<Arc<Segment>> {
        let open = state().as_ref().and_then(|state| state.open.get(&(id, read_only)).cloned());
        // Upgraded outside the lock: were this the last reference, dropping it would want the lock.
        let open = open?.upgrade()?;
        // One that was unlinked leads nowhere for those who ask by name.
        file::status(open.fd).is_ok_and(|(_, named)| named).then_some(open)
    }

    fn new(id: [u8; 16], fd: i32, base: *mut u8, bytes: usize, read_only: bool) -> Segment {
        Segment {
            id,
            fd,
            base,
            bytes,
            read_only,
            place: AtomicUsize::new(usize::MAX),
            pinned: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    fn register(self, shared: bool) -> Arc<Segment> {
        let segment = Arc::new(self);
        if let Some(state) = state().as_mut() {
            state.all.push(Arc::as_ptr(&segment).addr());
            if shared {
                state.open.insert((segment.id, segment.read_only), Arc::downgrade(&segment));
            }
        }
        segment
    }

    /// Takes a participant's marks off all blocks.
    pub(super) fn wipe(&self, place: usize) {
        let (word, bit) = (place / 64, 1u64 << (place % 64));
        for block in self.blocks() {
            if block.holders[word].load(Relaxed) & bit != 0 {
                block.holders[word].fetch_and(!bit, SeqCst);
            }
        }
    }

    /// Takes the marks of killed participants off. The caller has both locks.
    pub(super) fn reap(&self) {
        let own = self.place.load(SeqCst);
        for place in (0..PARTICIPANTS).filter(|&place| place != own) {
            let (word, bit) = (place / 64, 1u64 << (place % 64));
            let marked = self.blocks().iter().any(|block| block.holders[word].load(Relaxed) & bit != 0);
            if marked && !file::is_taken(self.fd, place) {
                self.wipe(place);
            }
        }
    }

    pub(super) fn mark(&self, block: usize) {
        self.mark_for(block, self.place.load(SeqCst));
    }

    pub(super) fn mark_for(&self, block: usize, place: usize) {
        self.blocks()[block].holders[place / 64].fetch_or(1 << (place % 64), SeqCst);
    }

    fn unmark(&self, block: usize) {
        if !self.pinned.load(SeqCst) && !self.left.load(SeqCst) {
            let place = self.place.load(SeqCst);
            self.blocks()[block].holders[place / 64].fetch_and(!(1 << (place % 64)), SeqCst);
        }
    }

    /// End of the last lease that is still running.
    pub(super) fn last_lease(&self) -> Option<u64> {
        let now = file::now();
        self.header()
            .leases
            .iter()
            .filter(|lease| lease.token.load(SeqCst) != 0)
            .map(|lease| lease.deadline.load(SeqCst))
            .filter(|&deadline| deadline > now)
            .max()
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: mapped, large enough, and of this format, as was checked when it was attached.
        unsafe { &*self.base.cast::<Header>() }
    }

    pub(super) fn blocks(&self) -> &[Block] {
        let header = self.header();
        // SAFETY: the table lies in front of the data, as was checked. The header is constant by agreement; whoever
        // breaks it has the right to write to our memory anyhow.
        unsafe {
            std::slice::from_raw_parts(self.base.add(size_of::<Header>()).cast(), header.n_blocks as usize)
        }
    }

    pub(super) fn data_offset(&self) -> usize {
        self.header().data as usize
    }

    /// Address and length of the data.
    pub fn data(&self) -> (*mut u8, usize) {
        let offset = self.data_offset();
        // SAFETY: it lies in the mapping.
        (unsafe { self.base.add(offset) }, self.bytes - offset)
    }

    /// The segment's id.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// This participant's number; another one after a fork.
    pub fn place(&self) -> usize {
        self.place.load(SeqCst)
    }

    /// Whether a participant is alive.
    pub fn is_alive(&self, place: usize) -> bool {
        place == self.place() || file::is_taken(self.fd, place)
    }

    /// Gives up the part in the segment; who is the last removes its name. The mapping stays.
    pub(super) fn leave(&self, state: &mut State) {
        if self.left.swap(true, SeqCst) || self.pinned.load(SeqCst) {
            return;
        }
        let place = self.place.load(SeqCst);
        if place < PARTICIPANTS {
            self.wipe(place);
        }
        // Own place first: of two who leave at once, the later to try finds nobody.
        file::leave_place(self.fd, place);
        if file::take_all_places(self.fd) {
            match self.last_lease() {
                None => {
                    file::unlink(&self.id);
                }
                Some(deadline) => state.orphans.push((self.id, deadline)),
            }
            file::leave_all_places(self.fd);
        }
    }
}

/// Takes a place for an opening of a segment's file; wipe it before using it.
pub(super) fn claim(fd: i32) -> Result<usize, Error> {
    // Anywhere, so that two rarely try the same.
    let first = file::now() as usize / 64;
    // Who leaves has every place for a moment.
    for patience in 0..20 {
        for i in 0..PARTICIPANTS {
            let place = (first + i) % PARTICIPANTS;
            if file::take_place(fd, place)? {
                return Ok(place);
            }
        }
        std::thread::sleep(Duration::from_micros(50 << (patience / 4)));
    }
    Err(Error::Crowded { what: "this shared memory", most: PARTICIPANTS })
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(state) = state().as_mut() {
            let address = (&raw const *self).addr();
            state.all.retain(|&other| other != address);
            let key = (self.id, self.read_only);
            if state.open.get(&key).is_some_and(|open| open.as_ptr().addr() == address) {
                state.open.remove(&key);
            }
            if self.place.load(SeqCst) != usize::MAX {
                self.leave(state);
            }
        }
        // SAFETY: nobody has a piece of it any more; the descriptor is ours.
        unsafe {
            file::unmap(self.base, self.bytes);
            libc::close(self.fd);
        }
    }
}

/// Removes what was left with a lease that has run out since.
fn sweep() {
    let expired: Vec<[u8; 16]> = match state().as_mut() {
        Some(state) if !state.orphans.is_empty() => {
            let now = file::now();
            let (expired, running) = state.orphans.drain(..).partition(|orphan| orphan.1 <= now);
            state.orphans = running;
            Vec::into_iter(expired).map(|orphan: ([u8; 16], u64)| orphan.0).collect()
        }
        _ => Vec::new(),
    };
    for id in expired {
        // Whatever is wrong with it, `gc` will say.
        let _ = list::collect(&id);
    }
}
