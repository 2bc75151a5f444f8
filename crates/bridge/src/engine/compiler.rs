//! The compile thread: machine code is made there while the program runs on.
//!
//! In: jobs, from threads that hold the GIL. Out: nothing; a job takes the GIL itself when its code is ready. One thread
//! with an 8 MB stack, started at the first job, at most `MAX_IN_FLIGHT` jobs at once. It ends before `os.fork`, which
//! from 3.12 on warns about other threads, and starts again behind it; a fork past Python waits until no compile is
//! inside LLVM (its locks must not be inherited). The child starts a thread of its own; at exit the thread is joined.

use std::collections::VecDeque;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, Once, PoisonError};

use pyo3::prelude::{PyAnyMethods, PyResult, Python};
use pyo3::types::PyCFunction;

use crate::background::{self, Thread};

/// Compiles that may wait or run at once; whoever comes later tries again at a later call.
pub(crate) const MAX_IN_FLIGHT: usize = 4;
/// LLVM recurses deeply.
const STACK_BYTES: usize = 8 << 20;

/// Work for the compile thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A job in the queue.
struct Waiting {
    job: Job,
    /// It takes a moment and needs no interpreter, so that it is done even when the process ends.
    is_brief: bool,
}

#[derive(Default)]
struct Worker {
    jobs: Mutex<VecDeque<Waiting>>,
    wake: Condvar,
    in_flight: AtomicUsize,
    closing: AtomicBool,
    /// The thread shall end and leave what waits to the next one.
    resting: AtomicBool,
    thread: Mutex<Option<Thread<()>>>,
}

/// The worker of this process, leaked: a forked child cannot free what another thread may have locked.
static WORKER: AtomicPtr<Worker> = AtomicPtr::new(null_mut());
/// Counts forks, so that a child does not wait for what only the parent's thread would finish.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static HOOKS: Once = Once::new();

/// Number of forks between the first process and this one.
pub(crate) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// Hands a job over; gives it back when too many are in flight or the interpreter is shutting down.
///
/// # Errors
/// What starting the thread or registering the exit hook raises.
pub(crate) fn submit(py: Python<'_>, job: Job) -> PyResult<Option<Job>> {
    let worker = worker(py)?;
    if worker.closing.load(Ordering::Acquire) || worker.in_flight.load(Ordering::Acquire) >= MAX_IN_FLIGHT {
        return Ok(Some(job));
    }
    worker.in_flight.fetch_add(1, Ordering::AcqRel);
    worker.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_back(Waiting { job, is_brief: false });
    worker.wake.notify_one();
    Ok(None)
}

/// Hands over a job that somebody waits for: it goes before the others and is never turned away, except at shutdown,
/// when it is dropped.
///
/// # Errors
/// As `submit`.
pub(crate) fn submit_first(py: Python<'_>, job: Job) -> PyResult<()> {
    push_first(py, Waiting { job, is_brief: false })
}

/// As `submit_first`, a job that nobody waits for but the end of the process: a file to be written.
///
/// # Errors
/// As `submit`.
pub(crate) fn submit_brief(py: Python<'_>, job: Job) -> PyResult<()> {
    push_first(py, Waiting { job, is_brief: true })
}

fn push_first(py: Python<'_>, waiting: Waiting) -> PyResult<()> {
    let worker = worker(py)?;
    // Who waits cannot wait for the end of a fork: a hook of the program's may call a function that compiles.
    start(worker)?;
    if !worker.closing.load(Ordering::Acquire) {
        worker.in_flight.fetch_add(1, Ordering::AcqRel);
        worker.jobs.lock().unwrap_or_else(PoisonError::into_inner).push_front(waiting);
        worker.wake.notify_one();
    }
    Ok(())
}

/// True once the interpreter began to shut down: a job must not ask for the GIL any more.
pub(crate) fn closing() -> bool {
    // SAFETY: null, or a worker that is never freed.
    let worker = unsafe { WORKER.load(Ordering::Acquire).as_ref() };
    worker.is_some_and(|w| w.closing.load(Ordering::Acquire))
}

/// Runs a stage that is inside LLVM. Must be called without the GIL: a fork waits for it with the GIL held.
pub(crate) fn outside_fork<R>(stage: impl FnOnce() -> R) -> R {
    install_fork_hooks();
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            // SAFETY: unlocks what this thread locked below.
            unsafe { libc::pthread_rwlock_unlock(fork_lock()) };
        }
    }
    // SAFETY: the lock is static and initialised.
    unsafe { libc::pthread_rwlock_rdlock(fork_lock()) };
    let _inside = Inside;
    stage()
}

fn worker(py: Python<'_>) -> PyResult<&'static Worker> {
    // SAFETY: null, or a worker that is never freed.
    if let Some(worker) = unsafe { WORKER.load(Ordering::Acquire).as_ref() } {
        start_unless_forking(worker)?;
        return Ok(worker);
    }
    install_fork_hooks();
    let worker: &'static Worker = Box::leak(Box::default());
    start_unless_forking(worker)?;
    // The GIL is held, so nobody else starts one meanwhile.
    WORKER.store(std::ptr::from_ref(worker).cast_mut(), Ordering::Release);
    join_at_exit(py)?;
    rest_at_fork(py)?;
    Ok(worker)
}

/// While the process forks the jobs wait: `go_on` starts the thread then.
fn start_unless_forking(worker: &'static Worker) -> PyResult<()> {
    if background::forking() { Ok(()) } else { start(worker) }
}

/// Starts the thread, if there is none. The GIL is held.
fn start(worker: &'static Worker) -> PyResult<()> {
    let mut thread = worker.thread.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() && !worker.closing.load(Ordering::Acquire) {
        let handle =
            background::spawn("overdrive-compile", STACK_BYTES, move || run(worker)).map_err(|e| {
                pyo3::exceptions::PyRuntimeError::new_err(format!("cannot start the compile thread: {e}"))
            })?;
        *thread = Some(handle);
    }
    Ok(())
}

/// Ends the thread behind the job that it works on; further jobs wait for the next thread.
fn rest(py: Python<'_>) {
    // SAFETY: null, or a worker that is never freed.
    let Some(worker) = (unsafe { WORKER.load(Ordering::Acquire).as_ref() }) else { return };
    let handle = worker.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(handle) = handle {
        worker.resting.store(true, Ordering::Release);
        py.detach(|| {
            drop(worker.jobs.lock().unwrap_or_else(PoisonError::into_inner));
            worker.wake.notify_all();
            handle.join();
        });
        worker.resting.store(false, Ordering::Release);
    }
}

/// Starts a thread for the jobs that waited over a fork.
fn go_on(_: Python<'_>) {
    // SAFETY: null, or a worker that is never freed.
    if let Some(worker) = unsafe { WORKER.load(Ordering::Acquire).as_ref() } {
        let waits = !worker.jobs.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if waits {
            // Without a thread the functions stay interpreted.
            let _ = start(worker);
        }
    }
}

fn rest_at_fork(py: Python<'_>) -> PyResult<()> {
    static ONCE: AtomicBool = AtomicBool::new(false);
    // A forked child has inherited the hooks.
    if ONCE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    background::around_forks(py, background::Rests { end: rest, go_on })
}

fn run(worker: &Worker) {
    loop {
        let mut jobs = worker.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let job = loop {
            let is_closing = worker.closing.load(Ordering::Acquire);
            if !is_closing && worker.resting.load(Ordering::Acquire) {
                return;
            }
            // The others own references, which cannot be dropped without the interpreter: they stay where they are.
            let next = jobs.iter().position(|waiting| waiting.is_brief || !is_closing);
            match next.and_then(|at| jobs.remove(at)) {
                Some(waiting) => break waiting.job,
                None if is_closing => return,
                None => jobs = worker.wake.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(jobs);
        // A panic is a bug of ours in one compile: that function stays interpreted, the thread goes on.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        worker.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Joins the thread before the interpreter is torn down: a thread that asks for the GIL later would be killed in the
/// middle of Rust code. Costs at most the compile that runs.
fn join_at_exit(py: Python<'_>) -> PyResult<()> {
    let hook = PyCFunction::new_closure(py, None, None, |args, _| {
        let py = args.py();
        // SAFETY: null, or a worker that is never freed.
        if let Some(worker) = unsafe { WORKER.load(Ordering::Acquire).as_ref() } {
            worker.closing.store(true, Ordering::Release);
            let handle = worker.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            py.detach(|| {
                drop(worker.jobs.lock().unwrap_or_else(PoisonError::into_inner));
                worker.wake.notify_all();
                handle.map(Thread::join)
            });
        }
    })?;
    py.import("atexit")?.call_method1("register", (hook,))?;
    Ok(())
}

struct ForkLock(std::cell::UnsafeCell<libc::pthread_rwlock_t>);
// SAFETY: only handed to pthread functions, which synchronise.
unsafe impl Sync for ForkLock {}
static FORK_LOCK: ForkLock = ForkLock(std::cell::UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));

fn fork_lock() -> *mut libc::pthread_rwlock_t {
    FORK_LOCK.0.get()
}

fn install_fork_hooks() {
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    HOOKS.call_once(|| unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
    });
}

unsafe extern "C" fn before_fork() {
    // SAFETY: waits for compiles that are inside LLVM; they need nothing that this thread holds.
    unsafe { libc::pthread_rwlock_wrlock(fork_lock()) };
}

unsafe extern "C" fn after_fork_parent() {
    // SAFETY: locked by this thread in `before_fork`.
    unsafe { libc::pthread_rwlock_unlock(fork_lock()) };
}

unsafe extern "C" fn after_fork_child() {
    // SAFETY: the child has one thread. The lock names its owner by a thread id that no longer exists, so it is made
    // anew; the worker's thread is gone, so is the worker.
    unsafe { fork_lock().write(libc::PTHREAD_RWLOCK_INITIALIZER) };
    WORKER.store(null_mut(), Ordering::Release);
    EPOCH.fetch_add(1, Ordering::Relaxed);
}
