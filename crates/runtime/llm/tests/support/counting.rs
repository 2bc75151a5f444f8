//! An allocator that counts, for each thread, how much is allocated at once.
//!
//! In: allocations. Out: the most bytes that one piece of work had at any moment.
#![expect(unsafe_code, reason = "an allocator is one by unsafe functions")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub(crate) struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    // The last allocations of a thread come when its counts are gone.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: by contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: by contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The result of `work`, and the most bytes that it had allocated at any moment.
pub(crate) fn most_allocated<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = NOW.get();
    MOST.set(before);
    let result = work();
    (result, (MOST.get() - before).unsigned_abs())
}
