//! What a forked child must not inherit: threads that it does not have, and locks that they held.
//!
//! In: nothing but the moment. Out: in the child the pool is gone, so that its first job makes another.

#![expect(unsafe_code, reason = "a callback of the C library, signal masks, numbers of threads")]

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Registers the callback, once in a process; children inherit it.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    // SAFETY: a callback without arguments, in a library that is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// Only stores: another thread of the parent may have been in the allocator.
unsafe extern "C" fn in_child() {
    crate::threads::forget();
    crate::job::forget();
}

/// Runs `start` with all signals blocked: threads that it starts never take one.
pub(crate) fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are initialised before they are read.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        let mut before = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        let is_set = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0;
        let result = start();
        if is_set {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
        result
    }
}

/// By which the kernel knows this thread.
pub(crate) fn thread_number() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}

/// A joined thread has left our code and is a few microseconds away from its end; the limit is for a kernel that shows no
/// threads there or is stopped by a debugger.
pub(crate) fn until_forgotten(number: i32) {
    let task = format!("/proc/self/task/{number}");
    let limit = Instant::now() + Duration::from_millis(500);
    while Path::new(&task).exists() && Instant::now() < limit {
        std::thread::sleep(Duration::from_micros(20));
    }
}
