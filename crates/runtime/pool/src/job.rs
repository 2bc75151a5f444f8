//! One job: who calls its body for which chunks.
//!
//! In: the body and the number of chunks. Out: every chunk once, in ranges that are handed out in ascending order.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use crate::float;
use crate::threads::{Pool, threads};

/// Ranges for each thread: enough for one to help another that was slow.
const RANGES_PER_THREAD: i64 = 8;

/// The body panicked; what it had left to do was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body of a parallel loop panicked")
    }
}

impl std::error::Error for Panicked {}

thread_local! {
    /// This thread is inside a job.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// In a forked child: its thread may have been inside a job of the parent's pool.
pub(crate) fn forget() {
    let _ = INSIDE.try_with(|inside| inside.set(false));
}

pub(crate) struct Job<'a> {
    body: &'a (dyn Fn(Range<i64>) + Sync),
    n_chunks: i64,
    /// Chunks handed out at a time.
    grain: i64,
    /// The first chunk that nobody has.
    next: AtomicI64,
    panicked: AtomicBool,
    /// How the asking thread rounds.
    float_control: u64,
    /// Threads of the pool that may still come. Changed under the pool's lock.
    pub(crate) permits: AtomicUsize,
    /// Threads of the pool that are here. Changed under the pool's lock.
    pub(crate) n_inside: AtomicUsize,
}

/// Calls `body` for the chunks 0 to `n_chunks`, range by range, on up to [`threads`] threads; returns behind the last.
///
/// # Errors
/// `Panicked` when a call panicked. All threads are out of `body` then, too.
pub fn run(n_chunks: i64, body: &(dyn Fn(Range<i64>) + Sync)) -> Result<(), Panicked> {
    let most = usize::try_from(n_chunks).unwrap_or(0);
    let n_threads = threads().min(most);
    let is_alone = n_threads <= 1 || INSIDE.with(Cell::get);
    let grain = if is_alone { n_chunks } else { n_chunks / (n_threads as i64 * RANGES_PER_THREAD) };
    let job = Job {
        body,
        n_chunks,
        grain: grain.max(1),
        next: AtomicI64::new(0),
        panicked: AtomicBool::new(false),
        float_control: float::control(),
        permits: AtomicUsize::new(0),
        n_inside: AtomicUsize::new(0),
    };
    if is_alone {
        job.work();
    } else {
        let pool = Pool::of_process();
        pool.offer(&job, n_threads - 1);
        job.work();
        pool.withdraw(&job);
    }
    if job.panicked.load(Ordering::Acquire) { Err(Panicked) } else { Ok(()) }
}

impl Job<'_> {
    pub(crate) fn is_handed_out(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.n_chunks
    }

    /// As a thread of the pool does it.
    pub(crate) fn help(&self) {
        float::set_control(self.float_control);
        self.work();
    }

    /// Takes ranges until none is left.
    pub(crate) fn work(&self) {
        let was_inside = INSIDE.replace(true);
        loop {
            let first = self.next.fetch_add(self.grain, Ordering::Relaxed);
            if first >= self.n_chunks {
                break;
            }
            let range = first..self.n_chunks.min(first + self.grain);
            if catch_unwind(AssertUnwindSafe(|| (self.body)(range))).is_err() {
                self.panicked.store(true, Ordering::Release);
                // Nobody takes another range. Far from the largest number: others still add to it.
                self.next.store(self.n_chunks, Ordering::Relaxed);
                break;
            }
        }
        INSIDE.set(was_inside);
    }
}
