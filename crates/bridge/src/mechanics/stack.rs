//! How much C stack is left on this thread.
//!
//! In: nothing. Out: [`stack_low`]. Native code is not entered when more than half of the stack is used: the
//! interpreter then goes on in the same frame, and Python calls inside the interpreter need no C stack.
#![expect(unsafe_code, reason = "asks pthread for the bounds of this thread's stack")]

use std::cell::Cell;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Set with the limit; 0: never.
    static OUT: Cell<usize> = const { Cell::new(0) };
}

/// Whether the C stack is more than half used. Costs a thread-local load and a comparison.
#[inline]
pub fn stack_low() -> bool {
    let here = 0u8;
    let address = std::ptr::from_ref(&here) as usize;
    LIMIT.with(|limit| {
        if limit.get() == usize::MAX {
            limit.set(find_limit());
        }
        address < limit.get()
    })
}

/// Bytes of C stack until it counts as low.
pub fn stack_left() -> usize {
    let here = 0u8;
    let address = std::ptr::from_ref(&here) as usize;
    // Finds the limit, if that was not done yet.
    if stack_low() { 0 } else { address - LIMIT.with(Cell::get) }
}

/// Whether the C stack is used up but for an eighth: calls that need more of it must raise.
pub fn stack_out() -> bool {
    let here = 0u8;
    let address = std::ptr::from_ref(&here) as usize;
    stack_low() && address < OUT.with(Cell::get)
}

/// The address below which the stack counts as low; 0 (never) when the bounds cannot be had.
fn find_limit() -> usize {
    // SAFETY: all pointers are to locals; the attribute object is destroyed on the only path that made it.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 0;
        }
        let (mut bottom, mut size) = (std::ptr::null_mut(), 0usize);
        let status = libc::pthread_attr_getstack(&raw const attributes, &raw mut bottom, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        // An unlimited stack is reported as enormous: count on 8 MiB of it.
        let top = bottom as usize + size;
        let usable = size.min(if size > 1 << 30 { 8 << 20 } else { size });
        if status != 0 {
            return 0;
        }
        OUT.with(|out| out.set(top - usable / 8 * 7));
        top - usable / 2
    }
}
