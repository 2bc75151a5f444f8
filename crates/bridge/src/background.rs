//! Threads of ours that the program must not notice: no signals, and gone while the process forks.
//!
//! In: what a thread runs, and how it ends and starts again. Out: nothing. From 3.12 on `os.fork` warns about processes
//! with more threads than one, which it counts behind the fork by asking the kernel. So before a fork our threads end,
//! and are waited for until the kernel has forgotten them, which is a moment later than they can be joined; and they
//! start again only when `os.fork` has returned, not while the hooks that other libraries registered still run.
#![expect(unsafe_code, reason = "signal masks, pending calls, and the frame that is forking")]

use std::ffi::{c_int, c_void};
use std::io;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

use crate::mechanics::gil_cell::GilCell;

/// A running thread and the number by which the kernel knows it.
pub(crate) struct Thread<T> {
    handle: JoinHandle<T>,
    id: Arc<AtomicI32>,
}

/// Starts a thread that receives no signals: they belong to the program's own threads, whose system calls they end.
///
/// # Errors
/// What the operating system says when it has no thread to give.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Thread<T>> {
    let id = Arc::new(AtomicI32::new(0));
    let told = id.clone();
    let handle =
        std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(move || {
            block_signals();
            // SAFETY: asks for this thread's number.
            told.store(unsafe { libc::gettid() }, Ordering::Release);
            body()
        })?;
    Ok(Thread { handle, id })
}

impl<T> Thread<T> {
    /// Waits for the end of the thread, until the kernel does not count it any more. `None` if it panicked, which was
    /// printed when it happened. Called without the GIL.
    pub(crate) fn join(self) -> Option<T> {
        let result = self.handle.join().ok();
        let task = format!("/proc/self/task/{}", self.id.load(Ordering::Acquire));
        // A joined thread has left our code and is a few microseconds away from its end; the limit is for a kernel
        // that shows no threads there or is stopped by a debugger.
        let limit = Instant::now() + Duration::from_millis(500);
        while Path::new(&task).exists() && Instant::now() < limit {
            std::thread::sleep(Duration::from_micros(20));
        }
        result
    }
}

fn block_signals() {
    // SAFETY: fills and applies a signal set on this thread's stack.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, null_mut());
    }
}

/// What has a thread: how to end it before a fork, and to start it again behind it in the parent.
#[derive(Clone, Copy)]
pub(crate) struct Rests {
    pub(crate) end: fn(Python<'_>),
    pub(crate) go_on: fn(Python<'_>),
}

/// The Python frame that called `os.fork`, if Python did, and the instruction that it was at.
struct Forking(Option<(Py<PyAny>, c_int)>);

struct Forks {
    rests: Vec<Rests>,
    installed: bool,
    /// Set from before a fork until our threads may run again.
    forking: Option<Forking>,
}

static FORKS: GilCell<Forks> = GilCell::new(Forks { rests: Vec::new(), installed: false, forking: None });

/// From now on `rests` is called around each `os.fork` of this process and of its children.
///
/// # Errors
/// What `os.register_at_fork` raises.
pub(crate) fn around_forks(py: Python<'_>, rests: Rests) -> PyResult<()> {
    // SAFETY: the GIL is held, nothing in here runs Python.
    let installed = unsafe {
        FORKS.with(|forks| {
            forks.rests.push(rests);
            std::mem::replace(&mut forks.installed, true)
        })
    };
    if installed {
        return Ok(());
    }
    let before = PyCFunction::new_closure(py, None, None, |args, _| before_fork(args.py()))?;
    let parent = PyCFunction::new_closure(py, None, None, |_, _| soon())?;
    let child = PyCFunction::new_closure(py, None, None, |_, _| drop(take_forking()))?;
    let hooks = PyDict::new(py);
    hooks.set_item("before", before)?;
    hooks.set_item("after_in_parent", parent)?;
    hooks.set_item("after_in_child", child)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

fn rests() -> Vec<Rests> {
    // SAFETY: the GIL is held, cloning plain data runs no Python.
    unsafe { FORKS.with(|forks| forks.rests.clone()) }
}

/// True around a fork, while no thread of ours may be started. The GIL is held.
pub(crate) fn forking() -> bool {
    // SAFETY: the GIL is held.
    unsafe { FORKS.with(|forks| forks.forking.is_some()) }
}

fn take_forking() -> Option<Forking> {
    // SAFETY: the GIL is held, and what was there is dropped by the caller.
    unsafe { FORKS.with(|forks| forks.forking.take()) }
}

fn before_fork(py: Python<'_>) {
    let at = current_frame(py).map(|frame| {
        let at = instruction(&frame);
        (frame.unbind(), at)
    });
    // SAFETY: the GIL is held; what was there is dropped outside.
    drop(unsafe { FORKS.with(|forks| forks.forking.replace(Forking(at))) });
    for each in rests() {
        (each.end)(py);
    }
}

/// Behind the fork `go_on` comes as a pending call, which the interpreter makes between two bytecode instructions.
fn soon() {
    // SAFETY: a static function that needs no argument.
    let full = unsafe { ffi::Py_AddPendingCall(Some(go_on), null_mut()) } != 0;
    if full {
        // The threads start when they are needed.
        drop(take_forking());
    }
}

extern "C" fn go_on(_: *mut c_void) -> c_int {
    Python::attach(|py| {
        if still_forking(py) {
            soon();
        } else {
            drop(take_forking());
            for each in rests() {
                (each.go_on)(py);
            }
        }
    });
    0
}

/// True inside a hook in Python that another library registered: the frame that called `os.fork` is further out, at the
/// same instruction.
fn still_forking(py: Python<'_>) -> bool {
    /// Hooks nest no deeper; with more frames above it, the frame that forked calls something else by now.
    const MOST_FRAMES: usize = 64;
    // SAFETY: the GIL is held, cloning a reference runs no Python.
    let by = unsafe {
        FORKS.with(|forks| match &forks.forking {
            Some(Forking(Some((frame, at)))) => Some((frame.clone_ref(py), *at)),
            _ => None,
        })
    };
    let Some((forking, at)) = by else { return false };
    let forking = forking.into_bound(py);
    let mut frame = current_frame(py);
    for depth in 0..MOST_FRAMES {
        match frame {
            None => return false,
            Some(same) if same.is(&forking) => return depth > 0 && instruction(&same) == at,
            Some(inner) => frame = outer_frame(&inner),
        }
    }
    false
}

fn current_frame(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the GIL is held; a borrowed reference or null.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }
}

fn outer_frame<'py>(frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: `frame` is a frame object; a new reference or null.
    unsafe { Bound::from_owned_ptr_or_opt(frame.py(), ffi::PyFrame_GetBack(frame.as_ptr().cast()).cast()) }
}

fn instruction(frame: &Bound<'_, PyAny>) -> c_int {
    // SAFETY: `frame` is a frame object.
    unsafe { ffi::PyFrame_GetLasti(frame.as_ptr().cast()) }
}
