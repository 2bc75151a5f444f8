//! Forks and the end of the process.
//!
//! In: nothing but the moments. Out: before a fork a place in every segment for the child, so that at no time a mapping
//! exists that nobody stands for; at the end of the process every segment is left, though mapped to the last. A child
//! shares its parent's open files, and so its locks, until it has openings of its own.

#![expect(unsafe_code, reason = "callbacks of the C library, and a lock that is held across fork")]

use std::cell::UnsafeCell;
use std::os::fd::IntoRawFd;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::SeqCst;

use super::file;
use super::segment::{Segment, State, claim, state};

/// A place for the child: the segment's address, the opening of its file, the number of the place.
struct ForChild {
    segment: usize,
    fd: i32,
    place: usize,
}

struct Forking {
    guard: MutexGuard<'static, Option<State>>,
    places: Vec<ForChild>,
}

/// Holds `Forking` between the callbacks, which one thread calls in order.
struct Cell(UnsafeCell<Option<Forking>>);
// SAFETY: touched only by the thread that forks, while it holds the state's lock.
unsafe impl Sync for Cell {}
static FORKING: Cell = Cell(UnsafeCell::new(None));

/// Registers the callbacks, once in a process; children inherit them.
pub(super) fn prepare_process() {
    // SAFETY: three callbacks without arguments, and one for the end. Without memory for them a child would share
    // its parent's places: then nothing is given up early, since locks last as long as either lives.
    unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
        libc::atexit(at_exit);
    }
}

unsafe extern "C" fn before() {
    let guard = state();
    let mut places = Vec::new();
    if let Some(state) = guard.as_ref() {
        for &address in &state.all {
            // SAFETY: a segment takes its address out, under this lock, before it goes.
            let segment = unsafe { &*std::ptr::with_exposed_provenance::<Segment>(address) };
            match place_for_child(segment, state) {
                Some(place) => places.push(place),
                None => segment.pinned.store(true, SeqCst),
            }
        }
    }
    // SAFETY: this thread alone is between `before` and its counterpart.
    unsafe { *FORKING.0.get() = Some(Forking { guard, places }) };
}

fn place_for_child(segment: &Segment, state: &State) -> Option<ForChild> {
    let opening = file::reopen(segment.fd).ok()?;
    let address = (&raw const *segment).addr();
    let fd = opening.into_raw_fd();
    let Ok(place) = claim(fd) else {
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
        return None;
    };
    segment.wipe(place);
    for (_, block) in state.counts.keys().filter(|key| key.0 == address) {
        segment.mark_for(*block as usize, place);
    }
    Some(ForChild { segment: address, fd, place })
}

unsafe extern "C" fn in_parent() {
    // SAFETY: as in `before`.
    let Some(Forking { guard, places }) = (unsafe { (*FORKING.0.get()).take() }) else { return };
    for place in &places {
        // SAFETY: our descriptor; the child has its own reference to the opening.
        unsafe { libc::close(place.fd) };
    }
    drop(guard);
}

/// Runs in a child of possibly many threads, where only this one goes on: no allocation, only system calls and stores.
unsafe extern "C" fn in_child() {
    // SAFETY: as in `before`; the memory is the child's copy.
    let Some(Forking { guard, places }) = (unsafe { (*FORKING.0.get()).take() }) else { return };
    for place in &places {
        // SAFETY: as in `before`.
        let segment = unsafe { &*std::ptr::with_exposed_provenance::<Segment>(place.segment) };
        file::replace(place.fd, segment.fd);
        segment.place.store(place.place, SeqCst);
        // SAFETY: our descriptor, of which the segment has a duplicate now.
        unsafe { libc::close(place.fd) };
    }
    // Freeing is left out: another thread of the parent may have been in the allocator.
    std::mem::forget(places);
    drop(guard);
}

extern "C" fn at_exit() {
    let mut guard = state();
    if let Some(state) = guard.as_mut() {
        for address in std::mem::take(&mut state.all) {
            // SAFETY: as in `before`. The address is forgotten, not the segment: a tensor may live to the very end.
            let segment = unsafe { &*std::ptr::with_exposed_provenance::<Segment>(address) };
            segment.leave(state);
        }
    }
}
