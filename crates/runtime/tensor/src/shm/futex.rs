//! Waiting for a word in shared memory to change, without using the processor.
//!
//! In: a word and the value it had. Out: back when somebody woke us, the value differs, time ran out or a signal came;
//! the caller looks again in any case.

#![expect(unsafe_code, reason = "a system call without a wrapper")]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word has the value, at most `limit`. True when a signal interrupted it.
pub fn wait(word: &AtomicU32, value: u32, limit: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // SAFETY: the word is mapped as long as the reference; the call reads it and the time.
    let done = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time, 0usize, 0)
    };
    done < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// Wakes everybody who waits for the word.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: as in `wait`; only the address counts.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0usize, 0usize, 0);
    }
}
