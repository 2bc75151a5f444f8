//! The pool: its threads, the jobs that wait for them, and how many may work on one.
//!
//! In: jobs by address, alive until `leave` has returned. Out: threads that call [`Job::help`].

#![expect(unsafe_code, reason = "jobs live on the stacks of those who wait for them")]

use std::collections::VecDeque;
use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::fork;
use crate::job::Job;

/// More threads than this never work on one job.
pub const MOST_THREADS: usize = 256;
/// How long a thread looks for the next job before it goes to sleep: parallel loops follow each other closely.
const LOOKS_FOR: Duration = Duration::from_micros(40);
/// Bodies are machine code without recursion.
const STACK_BYTES: usize = 1 << 20;

/// A number of threads that the pool does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange(pub i64);

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the number of threads must be between 1 and {MOST_THREADS}, not {}", self.0)
    }
}

impl std::error::Error for OutOfRange {}

/// 0: nobody has said.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// The pool of this process, leaked: a forked child cannot free what another thread may have locked.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());

/// How many threads work on one job, that which asks for it included. At first: the processors that this process may run on.
pub fn threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS),
        n => n,
    }
}

/// Sets [`threads`] for jobs that begin later.
///
/// # Errors
/// `OutOfRange` for less than 1 and more than [`MOST_THREADS`].
pub fn set_threads(n: i64) -> Result<(), OutOfRange> {
    let n = usize::try_from(n).ok().filter(|n| (1..=MOST_THREADS).contains(n)).ok_or(OutOfRange(n))?;
    THREADS.store(n, Ordering::Relaxed);
    Ok(())
}

/// Ends all threads behind the jobs that they work on, so that the kernel counts them no more; the next job starts others.
pub fn rest() {
    // SAFETY: null, or a pool that is never freed.
    let Some(pool) = (unsafe { POOL.load(Ordering::Acquire).as_ref() }) else { return };
    let handles = {
        let mut state = pool.lock();
        state.generation += 1;
        state.n_threads = 0;
        std::mem::take(&mut state.handles)
    };
    pool.wake.notify_all();
    for (handle, number) in handles {
        // A thread of the pool catches the panics of its jobs.
        let _ = handle.join();
        fork::until_forgotten(number.load(Ordering::Acquire));
    }
}

/// In a forked child: there is no pool.
pub(crate) fn forget() {
    POOL.store(null_mut(), Ordering::Release);
}

#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    wake: Condvar,
    /// Somebody left a job.
    left: Condvar,
    /// Jobs that take more threads, for those who look before they sleep.
    n_waiting: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Addresses of jobs that take more threads.
    jobs: VecDeque<usize>,
    n_threads: usize,
    /// Threads of an earlier generation end.
    generation: u64,
    /// With the number by which the kernel knows the thread.
    handles: Vec<(JoinHandle<()>, Arc<AtomicI32>)>,
}

impl Pool {
    /// The pool of this process.
    pub(crate) fn of_process() -> &'static Pool {
        // SAFETY: null, or a pool that is never freed.
        if let Some(pool) = unsafe { POOL.load(Ordering::Acquire).as_ref() } {
            return pool;
        }
        fork::prepare();
        let new = Box::leak(Box::<Pool>::default());
        match POOL.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: nobody else has seen `new`; `other` is a pool that is never freed.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets up to `n` other threads work on the job. Should the system refuse to start any, the one who asks works alone.
    pub(crate) fn offer(&'static self, job: &Job<'_>, n: usize) {
        let mut state = self.lock();
        while state.n_threads < n {
            let generation = state.generation;
            let thread =
                std::thread::Builder::new().name("overdrive-pool".to_owned()).stack_size(STACK_BYTES);
            let number = Arc::new(AtomicI32::new(0));
            let told = Arc::clone(&number);
            let serve = move || {
                told.store(fork::thread_number(), Ordering::Release);
                self.serve(generation);
            };
            match fork::without_signals(|| thread.spawn(serve)) {
                Ok(handle) => state.handles.push((handle, number)),
                Err(_) => break,
            }
            state.n_threads += 1;
        }
        job.permits.store(n, Ordering::Relaxed);
        state.jobs.push_back((&raw const *job).addr());
        (&raw const *job).expose_provenance();
        self.n_waiting.store(state.jobs.len(), Ordering::Release);
        drop(state);
        for _ in 0..n {
            self.wake.notify_one();
        }
    }

    /// Takes the job back and waits until nobody is in it.
    pub(crate) fn withdraw(&self, job: &Job<'_>) {
        let begin = Instant::now();
        while job.n_inside.load(Ordering::Acquire) > 0 && begin.elapsed() < LOOKS_FOR {
            std::hint::spin_loop();
        }
        let mut state = self.lock();
        let address = (&raw const *job).addr();
        state.jobs.retain(|other| *other != address);
        self.n_waiting.store(state.jobs.len(), Ordering::Release);
        while job.n_inside.load(Ordering::Acquire) > 0 {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What a thread of the pool does.
    fn serve(&self, generation: u64) {
        let mut state = self.lock();
        while state.generation == generation {
            let Some(address) = state.jobs.front().copied() else {
                drop(state);
                self.look();
                state = self.lock();
                if state.generation == generation && state.jobs.is_empty() {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            };
            // SAFETY: it is in the list, under the lock: `withdraw` has not returned, and does not before `n_inside`,
            // which is raised under the lock, is down again.
            let job = unsafe { &*std::ptr::with_exposed_provenance::<Job<'_>>(address) };
            let permits = job.permits.load(Ordering::Relaxed);
            if permits <= 1 || job.is_handed_out() {
                state.jobs.pop_front();
                self.n_waiting.store(state.jobs.len(), Ordering::Release);
            }
            if permits == 0 || job.is_handed_out() {
                continue;
            }
            job.permits.store(permits - 1, Ordering::Relaxed);
            job.n_inside.fetch_add(1, Ordering::AcqRel);
            drop(state);
            job.help();
            // Under the lock, so that the job is not touched behind the end of `withdraw`.
            state = self.lock();
            if job.n_inside.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.left.notify_all();
            }
        }
    }

    fn look(&self) {
        let begin = Instant::now();
        while self.n_waiting.load(Ordering::Acquire) == 0 && begin.elapsed() < LOOKS_FOR {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
    }
}
