//! Messages between processes: a ring of slots, written in turn, read in place.
//!
//! In: bytes with a shape. Out: messages that stay in their slot until they are dropped. `Broadcast`: each consumer gets
//! every message; `Work`: each message goes to one. A ticket counts messages; `head` alone says which exist, so a sender
//! that is killed halfway leaves nothing. Who holds a slot, or the senders' lock, is a participant's number, and a
//! number whose kernel lock is free is dead: who waits for it looks, and takes its marks off.

#![expect(unsafe_code, reason = "structs and messages in memory that other processes write")]

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use super::file;
use super::futex;
use super::layout::RING;
use super::segment::Segment;
use crate::block::ALIGN;
use crate::dtype::{DType, Kind};
use crate::error::Error;
use crate::layout;

/// Consumers of one ring in broadcast mode.
pub const CONSUMERS: usize = 62;
/// Axes of a message.
pub const MAX_AXES: usize = 8;
/// Bit of `pending` that stands for consumers to come.
const RETAINED: u64 = 1 << 63;
/// How often one looks again though nobody woke one: a wake-up dies with its sender.
const SLICE: Duration = Duration::from_millis(100);
/// The same where the other may have been killed holding what one waits for.
const SHORT_SLICE: Duration = Duration::from_millis(10);
/// Not a consumer.
const NOBODY: usize = usize::MAX;
/// Rounds of looking before sleeping, some microseconds.
const SPINS: u32 = 400;

/// Who gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    Broadcast = 1,
    Work = 2,
}

#[repr(C, align(64))]
struct Control {
    mode: u32,
    n_slots: u32,
    slot_bytes: u64,
    /// The next message's ticket: those below exist.
    head: AtomicU64,
    /// Work: no unclaimed message below.
    tail: AtomicU64,
    /// The sender's place plus 1, or 0.
    lock: AtomicU32,
    lock_waiters: AtomicU32,
    /// Counts messages, for consumers to sleep on.
    published: AtomicU32,
    published_waiters: AtomicU32,
    /// Counts freed slots, for senders to sleep on.
    freed: AtomicU32,
    freed_waiters: AtomicU32,
    /// No more messages will come.
    finished: AtomicU32,
    unused: u32,
    /// Place plus 1 of each consumer, or 0.
    consumers: [AtomicU32; CONSUMERS],
}

#[repr(C, align(64))]
struct Slot {
    /// Ticket, owner and `Tag`; see `word`.
    state: AtomicU64,
    /// Broadcast: the consumers that have not dropped it.
    pending: AtomicU64,
    bytes: AtomicU64,
    /// Kind, byte order, number of axes, a byte each.
    element: AtomicU64,
    shape: [AtomicU64; MAX_AXES],
}

const _: () = assert!(size_of::<Slot>() == 128 && size_of::<Control>() == 320);

const WRITING: u64 = 1;
const PUBLISHED: u64 = 2;
const CLAIMED: u64 = 3;
const DONE: u64 = 4;

/// A slot's state: ticket above, owner's place in the middle, tag below. Tickets begin at 1, so 0 is none.
fn word(ticket: u64, owner: usize, tag: u64) -> u64 {
    ticket << 16 | (owner as u64) << 4 | tag
}

fn ticket_of(state: u64) -> u64 {
    state >> 16
}

fn owner_of(state: u64) -> usize {
    (state >> 4 & 0xfff) as usize
}

fn tag_of(state: u64) -> u64 {
    state & 0xf
}

/// A ring as one participant sees it.
#[derive(Debug)]
pub struct Ring {
    segment: Arc<Segment>,
    mode: Mode,
    n_slots: u64,
    slot_bytes: usize,
    /// The place whose leftovers were cleared, or are being cleared by a thread: see `know_place`.
    known_place: AtomicUsize,
    /// Broadcast: number of this consumer, or `NOBODY`. Changes under the lock. No mutex, which a fork could leave locked.
    consumer: AtomicUsize,
    /// Broadcast: ticket of the next message to take.
    cursor: AtomicU64,
    /// Messages of this participant that have not been dropped.
    views: AtomicUsize,
}

/// A message in its slot.
#[derive(Debug)]
pub struct Message {
    ring: Arc<Ring>,
    ticket: u64,
    place: usize,
    /// Broadcast: this consumer's bit.
    bit: u64,
    pub data: *mut u8,
    pub dtype: DType,
    pub shape: Vec<isize>,
}

// SAFETY: the address is that of shared memory, whose users answer for it.
unsafe impl Send for Message {}
// SAFETY: as above.
unsafe impl Sync for Message {}

/// What a waiting call asks now and then: true when it is to give up, because of a signal.
pub type Interrupted<'a> = &'a mut dyn FnMut() -> bool;

/// Why a call came back without its result.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    TimedOut,
    Interrupted,
    /// All messages have been taken and no more will come.
    Finished,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// `TooLarge`, `NoSharedSpace`, `System`.
    pub fn create(n_slots: u32, slot_bytes: usize, mode: Mode) -> Result<Arc<Ring>, Error> {
        let stride = stride(slot_bytes).ok_or(Error::TooLarge)?;
        let bytes = stride.checked_mul(n_slots as usize).ok_or(Error::TooLarge)?;
        let bytes = bytes.checked_add(size_of::<Control>()).ok_or(Error::TooLarge)?;
        let segment = Segment::create(RING, 0, bytes, |fd, start| {
            file::reserve(fd, start, bytes as u64)?;
            let control = [u64::from(mode as u32) | u64::from(n_slots) << 32, slot_bytes as u64, 1, 1];
            // SAFETY: four words on the stack: mode and number of slots, slot size, head and tail. The rest is zero.
            unsafe { file::write(fd, start, control.as_ptr().cast(), size_of_val(&control)) }
        })?;
        Ring::open(segment)
    }

    /// Takes part in a ring that somebody made.
    ///
    /// # Errors
    /// `Handle`, `Crowded`, `System`.
    pub fn attach(id: [u8; 16]) -> Result<Arc<Ring>, Error> {
        Ring::open(Segment::attach(id, &[RING], false, true)?)
    }

    fn open(segment: Arc<Segment>) -> Result<Arc<Ring>, Error> {
        let foreign = Error::Handle { reason: "the file of this handle is no ring of this version" };
        let (data, bytes) = segment.data();
        if bytes < size_of::<Control>() {
            return Err(foreign);
        }
        // SAFETY: as long as the struct. Its first fields are constant.
        let control = unsafe { &*data.cast::<Control>() };
        let mode = match control.mode {
            1 => Mode::Broadcast,
            2 => Mode::Work,
            _ => return Err(foreign),
        };
        let (n_slots, slot_bytes) = (control.n_slots, control.slot_bytes);
        let needed = usize::try_from(slot_bytes)
            .ok()
            .and_then(stride)
            .and_then(|stride| stride.checked_mul(n_slots as usize))
            .and_then(|slots| slots.checked_add(size_of::<Control>()));
        if n_slots == 0 || needed != Some(bytes) {
            return Err(foreign);
        }
        Ok(Arc::new(Ring {
            segment,
            mode,
            n_slots: u64::from(n_slots),
            slot_bytes: slot_bytes as usize,
            known_place: AtomicUsize::new(0),
            consumer: AtomicUsize::new(NOBODY),
            cursor: AtomicU64::new(0),
            views: AtomicUsize::new(0),
        }))
    }

    /// Sends a message: `write` is given the slot and fills in its bytes.
    ///
    /// # Errors
    /// `TooLong`, `TooManyAxes`; `Stop::TimedOut` when no slot became free, `Stop::Finished` after `finish`.
    pub fn send(
        &self,
        dtype: DType,
        shape: &[isize],
        deadline: Option<Instant>,
        interrupted: Interrupted<'_>,
        write: &mut dyn FnMut(*mut u8),
    ) -> Result<(), Stop> {
        if shape.len() > MAX_AXES {
            return Err(Error::TooManyAxes { ndim: shape.len() }.into());
        }
        let bytes = layout::count(shape, dtype.size())? * dtype.size();
        if bytes > self.slot_bytes {
            return Err(Error::TooLong { bytes, slot: self.slot_bytes }.into());
        }
        let control = self.control();
        let mut spins = 0;
        loop {
            let seen = control.freed.load(SeqCst);
            {
                let _lock = self.lock(deadline, interrupted)?;
                if control.finished.load(SeqCst) != 0 {
                    return Err(Stop::Finished);
                }
                let ticket = control.head.load(SeqCst);
                let slot = self.slot(ticket);
                if self.is_free(slot, ticket) || (spins >= SPINS && self.bury(ticket)) {
                    slot.state.store(word(ticket, 0, WRITING), SeqCst);
                    write(self.slot_data(ticket));
                    slot.bytes.store(bytes as u64, SeqCst);
                    let element =
                        dtype.kind as u64 | u64::from(dtype.swapped) << 8 | (shape.len() as u64) << 16;
                    slot.element.store(element, SeqCst);
                    for (stored, &length) in slot.shape.iter().zip(shape) {
                        stored.store(length as u64, SeqCst);
                    }
                    if self.mode == Mode::Broadcast {
                        let here = self.consumers_here();
                        slot.pending.store(if here == 0 { RETAINED } else { here }, SeqCst);
                    }
                    slot.state.store(word(ticket, 0, PUBLISHED), SeqCst);
                    control.head.store(ticket + 1, SeqCst);
                    control.published.fetch_add(1, SeqCst);
                    if control.published_waiters.load(SeqCst) > 0 {
                        futex::wake_all(&control.published);
                    }
                    return Ok(());
                }
            }
            if spins < SPINS {
                // A slot may come free at once. Look at the word without taking the lock.
                while spins < SPINS && control.freed.load(SeqCst) == seen {
                    spins += 1;
                    std::hint::spin_loop();
                }
                continue;
            }
            sleep(&control.freed, &control.freed_waiters, seen, SHORT_SLICE, deadline, interrupted)?;
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// `Stop::TimedOut` when none came, `Stop::Finished` when none will, `Crowded`.
    pub fn receive(
        self: &Arc<Ring>,
        deadline: Option<Instant>,
        interrupted: Interrupted<'_>,
    ) -> Result<Message, Stop> {
        let control = self.control();
        let mut spins = 0;
        loop {
            let seen = control.published.load(SeqCst);
            // Read before looking: messages sent before the end are still delivered.
            let finished = control.finished.load(SeqCst) != 0;
            if let Some(message) = self.take(deadline, interrupted)? {
                return Ok(message);
            }
            if finished {
                return Err(Stop::Finished);
            }
            while spins < SPINS && control.published.load(SeqCst) == seen {
                spins += 1;
                std::hint::spin_loop();
            }
            if control.published.load(SeqCst) == seen {
                sleep(&control.published, &control.published_waiters, seen, SLICE, deadline, interrupted)?;
            }
        }
    }

    /// Waits until `receive` would have something to say, without taking it. False: time ran out.
    ///
    /// # Errors
    /// As `receive`.
    pub fn wait(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<bool, Stop> {
        let control = self.control();
        loop {
            let seen = control.published.load(SeqCst);
            if control.finished.load(SeqCst) != 0 || self.has_message(deadline, interrupted)? {
                return Ok(true);
            }
            match sleep(&control.published, &control.published_waiters, seen, SLICE, deadline, interrupted) {
                Err(Stop::TimedOut) => return Ok(false),
                slept => slept?,
            }
        }
    }

    /// Becomes a consumer, which the first `receive` does too. In broadcast mode messages count from then on; the first
    /// consumer also gets those that were sent before it came.
    ///
    /// # Errors
    /// `Crowded`, `Stop::TimedOut`, `Stop::Interrupted`.
    pub fn join(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<(), Stop> {
        self.know_place(deadline, interrupted)?;
        if self.mode == Mode::Work || self.consumer.load(SeqCst) != NOBODY {
            return Ok(());
        }
        let _lock = self.lock(deadline, interrupted)?;
        if self.consumer.load(SeqCst) != NOBODY {
            return Ok(());
        }
        let control = self.control();
        let find = || control.consumers.iter().position(|owner| owner.load(SeqCst) == 0);
        let index = match find() {
            Some(index) => index,
            None => {
                self.bury_consumers();
                find().ok_or(Error::Crowded { what: "this ring", most: CONSUMERS })?
            }
        };
        let bit = 1u64 << index;
        let head = control.head.load(SeqCst);
        let mut cursor = head;
        // A predecessor that was killed while it joined may have left its bit.
        for ticket in head.saturating_sub(self.n_slots).max(1)..head {
            let slot = self.slot(ticket);
            slot.pending.fetch_and(!bit, SeqCst);
        }
        control.consumers[index].store(self.segment.place() as u32 + 1, SeqCst);
        for ticket in head.saturating_sub(self.n_slots).max(1)..head {
            let slot = self.slot(ticket);
            if ticket_of(slot.state.load(SeqCst)) == ticket && slot.pending.load(SeqCst) & RETAINED != 0 {
                slot.pending.fetch_or(bit, SeqCst);
                slot.pending.fetch_and(!RETAINED, SeqCst);
                cursor = cursor.min(ticket);
            }
        }
        self.cursor.store(cursor, SeqCst);
        self.consumer.store(index, SeqCst);
        Ok(())
    }

    /// Says that no more messages will come.
    ///
    /// # Errors
    /// `Stop::TimedOut`, `Stop::Interrupted`.
    pub fn finish(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<(), Stop> {
        let control = self.control();
        let _lock = self.lock(deadline, interrupted)?;
        control.finished.store(1, SeqCst);
        for word in [&control.published, &control.freed] {
            word.fetch_add(1, SeqCst);
            futex::wake_all(word);
        }
        Ok(())
    }

    /// Stops being a consumer: messages that were not taken are dropped.
    pub fn leave(&self) {
        if self.known_place.load(SeqCst) != known(self.segment.place())
            || self.consumer.load(SeqCst) == NOBODY
        {
            return;
        }
        // When the lock cannot be had in time, senders will bury this consumer once its place is free.
        let limit = Instant::now() + Duration::from_secs(1);
        if let Ok(_lock) = self.lock_known(Some(limit), &mut || false) {
            let index = self.consumer.swap(NOBODY, SeqCst);
            if index != NOBODY {
                self.remove_consumer(index);
            }
        }
    }

    /// Messages that are held by this participant.
    pub fn views(&self) -> usize {
        self.views.load(SeqCst)
    }

    /// Consumers that are alive; in work mode it is not known, and 0.
    pub fn n_consumers(&self) -> usize {
        let owners = self.control().consumers.iter().map(|owner| owner.load(SeqCst));
        owners.filter(|&owner| owner != 0 && self.segment.is_alive(owner as usize - 1)).count()
    }

    /// Messages sent so far.
    pub fn n_sent(&self) -> u64 {
        self.control().head.load(SeqCst) - 1
    }

    /// Slots that hold a message which somebody has yet to take or drop.
    pub fn n_used(&self) -> usize {
        let head = self.control().head.load(SeqCst);
        (head.saturating_sub(self.n_slots).max(1)..head)
            .filter(|&ticket| !self.is_free(self.slot(ticket), ticket + self.n_slots))
            .count()
    }

    /// The ring's id.
    pub fn id(&self) -> [u8; 16] {
        self.segment.id()
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn n_slots(&self) -> usize {
        self.n_slots as usize
    }

    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    fn has_message(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<bool, Stop> {
        self.join(deadline, interrupted)?;
        let head = self.control().head.load(SeqCst);
        Ok(match self.mode {
            Mode::Broadcast => self.cursor.load(SeqCst) < head,
            Mode::Work => {
                let tail = self.control().tail.load(SeqCst);
                (tail..head).any(|ticket| self.slot(ticket).state.load(SeqCst) == word(ticket, 0, PUBLISHED))
            }
        })
    }

    fn take(
        self: &Arc<Ring>,
        deadline: Option<Instant>,
        interrupted: Interrupted<'_>,
    ) -> Result<Option<Message>, Stop> {
        self.join(deadline, interrupted)?;
        let control = self.control();
        let place = self.segment.place();
        match self.mode {
            Mode::Broadcast => loop {
                let index = self.consumer.load(SeqCst);
                let ticket = self.cursor.load(SeqCst);
                if index == NOBODY || ticket >= control.head.load(SeqCst) {
                    return Ok(None);
                }
                // Several threads may take; each message is for one of them.
                if self.cursor.compare_exchange(ticket, ticket + 1, SeqCst, SeqCst).is_ok() {
                    return self.message(ticket, place, 1 << index).map(Some);
                }
            },
            Mode::Work => loop {
                let ticket = control.tail.load(SeqCst);
                if ticket >= control.head.load(SeqCst) {
                    return Ok(None);
                }
                let slot = self.slot(ticket);
                let claimed = slot
                    .state
                    .compare_exchange(
                        word(ticket, 0, PUBLISHED),
                        word(ticket, place, CLAIMED),
                        SeqCst,
                        SeqCst,
                    )
                    .is_ok();
                // Whoever comes here moves the tail on; who claimed may have been killed before it did.
                let _ = control.tail.compare_exchange(ticket, ticket + 1, SeqCst, SeqCst);
                if claimed {
                    return self.message(ticket, place, 0).map(Some);
                }
            },
        }
    }

    /// The message in a slot that this participant holds.
    fn message(self: &Arc<Ring>, ticket: u64, place: usize, bit: u64) -> Result<Message, Stop> {
        let slot = self.slot(ticket);
        let element = slot.element.load(SeqCst);
        let ndim = (element >> 16 & 0xff) as usize;
        let mut message = Message {
            ring: self.clone(),
            ticket,
            place,
            bit,
            data: self.slot_data(ticket),
            dtype: DType::native(Kind::U8),
            shape: Vec::new(),
        };
        self.views.fetch_add(1, SeqCst);
        let broken = Error::Handle { reason: "the ring's memory was overwritten by somebody" };
        // From here on dropping the message gives the slot back.
        let kind = Kind::ALL.get((element & 0xff) as usize).copied().ok_or_else(|| broken.clone())?;
        message.dtype = DType::ordered(kind, element >> 8 & 1 == 1);
        message.shape = slot.shape.iter().take(ndim).map(|length| length.load(SeqCst) as isize).collect();
        let bytes = layout::count(&message.shape, message.dtype.size())? * message.dtype.size();
        if ndim > MAX_AXES || bytes as u64 != slot.bytes.load(SeqCst) || bytes > self.slot_bytes {
            return Err(broken.into());
        }
        Ok(message)
    }

    fn is_free(&self, slot: &Slot, ticket: u64) -> bool {
        let state = slot.state.load(SeqCst);
        // A sender that was killed before its message existed leaves the slot to the next.
        state == 0
            || ticket_of(state) == ticket
            || match self.mode {
                Mode::Broadcast => slot.pending.load(SeqCst) == 0,
                Mode::Work => tag_of(state) == DONE,
            }
    }

    /// Frees the slot of this ticket from dead holders. True when it is free then. The caller has the lock.
    fn bury(&self, ticket: u64) -> bool {
        let slot = self.slot(ticket);
        match self.mode {
            Mode::Broadcast => self.bury_consumers(),
            Mode::Work => {
                let state = slot.state.load(SeqCst);
                if tag_of(state) == CLAIMED && !self.segment.is_alive(owner_of(state)) {
                    slot.state.store(word(ticket_of(state), 0, DONE), SeqCst);
                }
            }
        }
        self.is_free(slot, ticket)
    }

    /// Removes consumers that are dead, and bits that belong to none. The caller has the lock.
    fn bury_consumers(&self) {
        let mut unknown = !RETAINED;
        for (index, owner) in self.control().consumers.iter().enumerate() {
            match owner.load(SeqCst) {
                0 => {}
                place if self.segment.is_alive(place as usize - 1) => unknown &= !(1 << index),
                _ => self.remove_consumer(index),
            }
        }
        for ticket in 1..=self.n_slots {
            self.slot(ticket).pending.fetch_and(!unknown, SeqCst);
        }
    }

    fn remove_consumer(&self, index: usize) {
        let control = self.control();
        for ticket in 1..=self.n_slots {
            self.slot(ticket).pending.fetch_and(!(1 << index), SeqCst);
        }
        control.consumers[index].store(0, SeqCst);
        self.freed();
    }

    fn freed(&self) {
        let control = self.control();
        control.freed.fetch_add(1, SeqCst);
        if control.freed_waiters.load(SeqCst) > 0 {
            futex::wake_all(&control.freed);
        }
    }

    fn consumers_here(&self) -> u64 {
        let owners = self.control().consumers.iter().enumerate();
        owners.fold(0, |bits, (index, owner)| bits | u64::from(owner.load(SeqCst) != 0) << index)
    }

    /// Clears what a killed predecessor left under this participant's number, once; again after a fork, which gives the
    /// child a number of its own.
    fn know_place(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<(), Stop> {
        let place = self.segment.place();
        loop {
            let seen = self.known_place.load(SeqCst);
            if seen == known(place) {
                return Ok(());
            }
            if seen == busy(place) {
                // Another thread of this process is at it.
                std::thread::yield_now();
                if interrupted() {
                    return Err(Stop::Interrupted);
                }
            } else if self.known_place.compare_exchange(seen, busy(place), SeqCst, SeqCst).is_ok() {
                let cleared = self.clear_leftovers(place, deadline, interrupted);
                self.known_place.store(if cleared.is_ok() { known(place) } else { 0 }, SeqCst);
                return cleared;
            }
        }
    }

    fn clear_leftovers(
        &self,
        place: usize,
        deadline: Option<Instant>,
        interrupted: Interrupted<'_>,
    ) -> Result<(), Stop> {
        // Nobody else has this number, and no thread of ours locks before this is done: the lock, if it bears the
        // number, is the predecessor's.
        let control = self.control();
        let _ = control.lock.compare_exchange(place as u32 + 1, 0, SeqCst, SeqCst);
        let _lock = self.lock_known(deadline, interrupted)?;
        self.consumer.store(NOBODY, SeqCst);
        for (index, owner) in control.consumers.iter().enumerate() {
            if owner.load(SeqCst) as usize == place + 1 {
                self.remove_consumer(index);
            }
        }
        for ticket in 1..=self.n_slots {
            let slot = self.slot(ticket);
            let state = slot.state.load(SeqCst);
            if tag_of(state) == CLAIMED && owner_of(state) == place {
                slot.state.store(word(ticket_of(state), 0, DONE), SeqCst);
            }
        }
        Ok(())
    }

    fn lock(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<Lock<'_>, Stop> {
        self.know_place(deadline, interrupted)?;
        self.lock_known(deadline, interrupted)
    }

    fn lock_known(&self, deadline: Option<Instant>, interrupted: Interrupted<'_>) -> Result<Lock<'_>, Stop> {
        let control = self.control();
        let own = self.segment.place() as u32 + 1;
        let mut spins = 0;
        loop {
            let holder = match control.lock.compare_exchange(0, own, SeqCst, SeqCst) {
                Ok(_) => return Ok(Lock { control }),
                Err(holder) => holder,
            };
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
                continue;
            }
            sleep(&control.lock, &control.lock_waiters, holder, SHORT_SLICE, deadline, interrupted)?;
            // Another thread of this process may hold it under the same number: then it is alive.
            if control.lock.load(SeqCst) == holder
                && holder != own
                && !self.segment.is_alive(holder as usize - 1)
                && control.lock.compare_exchange(holder, own, SeqCst, SeqCst).is_ok()
            {
                return Ok(Lock { control });
            }
        }
    }

    fn control(&self) -> &Control {
        // SAFETY: the data are as long as the struct, as `open` found, and mapped as long as the segment.
        unsafe { &*self.segment.data().0.cast::<Control>() }
    }

    fn slot_address(&self, ticket: u64) -> *mut u8 {
        let index = (ticket % self.n_slots) as usize;
        let stride = stride(self.slot_bytes).unwrap_or(0);
        // SAFETY: `open` found room for every slot.
        unsafe { self.segment.data().0.add(size_of::<Control>() + index * stride) }
    }

    fn slot(&self, ticket: u64) -> &Slot {
        // SAFETY: as above; slots are aligned, since control, header and stride are multiples of 64.
        unsafe { &*self.slot_address(ticket).cast::<Slot>() }
    }

    fn slot_data(&self, ticket: u64) -> *mut u8 {
        self.slot_address(ticket).wrapping_add(size_of::<Slot>())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let ring = &*self.ring;
        ring.views.fetch_sub(1, SeqCst);
        // In a child the message is the parent's, which gives the slot back.
        if self.place != ring.segment.place() {
            return;
        }
        let slot = ring.slot(self.ticket);
        match ring.mode {
            Mode::Broadcast => {
                slot.pending.fetch_and(!self.bit, SeqCst);
            }
            Mode::Work => {
                let claimed = word(self.ticket, self.place, CLAIMED);
                let _ = slot.state.compare_exchange(claimed, word(self.ticket, 0, DONE), SeqCst, SeqCst);
            }
        }
        ring.freed();
    }
}

/// The right to send, or to change who consumes.
struct Lock<'a> {
    control: &'a Control,
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.control.lock.store(0, SeqCst);
        if self.control.lock_waiters.load(SeqCst) > 0 {
            futex::wake_all(&self.control.lock);
        }
    }
}

/// `known_place` once the leftovers of a place are cleared. 0 stands for none.
fn known(place: usize) -> usize {
    2 * place + 2
}

/// `known_place` meanwhile.
fn busy(place: usize) -> usize {
    2 * place + 1
}

/// Bytes from one slot to the next.
fn stride(slot_bytes: usize) -> Option<usize> {
    size_of::<Slot>().checked_add(slot_bytes)?.checked_next_multiple_of(ALIGN)
}

fn sleep(
    word: &AtomicU32,
    waiters: &AtomicU32,
    seen: u32,
    slice: Duration,
    deadline: Option<Instant>,
    interrupted: Interrupted<'_>,
) -> Result<(), Stop> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if left == Some(Duration::ZERO) {
        return Err(Stop::TimedOut);
    }
    waiters.fetch_add(1, SeqCst);
    futex::wait(word, seen, left.map_or(slice, |left| left.min(slice)));
    waiters.fetch_sub(1, SeqCst);
    if interrupted() { Err(Stop::Interrupted) } else { Ok(()) }
}
