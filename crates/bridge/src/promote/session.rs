//! A session: the background thread that samples, decides and promotes, and what Python sees of it.
//!
//! In: a policy and an engine. Out: a [`Report`] of plain data. The thread owns all state ([`Driver`]);
//! others send it a [`Command`] and wait without the GIL, so no lock is ever held while Python code runs.
//! A forked child has no such thread: there the session is over, and what was swapped in keeps working.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::Engine;
use super::candidate::Row;
use super::driver::Driver;
use super::policy::Policy;
use super::sampler::{Sampler, Samples};

/// What a session did so far.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Functions and loops that were promoted, refused, put back, or (policy `observe`) found hot enough.
    pub rows: Vec<Row>,
    /// Seconds since the start.
    pub seconds: f64,
    /// Samples taken.
    pub samples: u64,
    /// Why nothing is promoted, where that is so.
    pub trouble: Option<String>,
}

enum Command {
    Report(Sender<Report>),
    Stop(Sender<Report>),
}

struct Running {
    commands: Sender<Command>,
    thread: JoinHandle<()>,
    process: u32,
}

static ENGINE: OnceLock<Arc<dyn Engine>> = OnceLock::new();
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// A window with fewer samples than this says nothing; it is extended.
const LEAST_TICKS: u32 = 20;

/// Starts the session. One per process: false when there is one already.
#[pyfunction]
fn session_start(
    py: Python<'_>,
    policy: &Bound<'_, PyAny>,
    only: Vec<String>,
    skip: Vec<String>,
    own_files: String,
) -> PyResult<bool> {
    let policy = Policy::read(policy)?;
    let engine = ENGINE.get().ok_or_else(|| PyRuntimeError::new_err("the engine is not registered"))?.clone();
    let mut running = lock();
    if running.as_ref().is_some_and(|running| running.process == std::process::id()) {
        return Ok(false);
    }
    if policy.eager && !policy.observe {
        super::eager::start(py, engine.clone(), only.clone(), skip.clone(), &own_files)?;
    }
    let driver = Driver::new(policy.clone(), engine, only, skip, own_files);
    let (commands, inbox) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("overdrive".into())
        .spawn(move || run(driver, policy, inbox))
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start the sampling thread: {error}")))?;
    // A forked child may find a handle of its parent's thread here: it must neither be joined nor dropped.
    std::mem::forget(running.replace(Running { commands, thread, process: std::process::id() }));
    Ok(true)
}

/// The report so far; `None` without a session in this process.
#[pyfunction]
fn session_report(py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
    let commands = match &*lock() {
        Some(running) if running.process == std::process::id() => running.commands.clone(),
        _ => return Ok(None),
    };
    ask(py, &commands, Command::Report).map(|report| to_dict(py, &report)).transpose()
}

/// Ends the session and returns its report; `None` without a session in this process.
#[pyfunction]
fn session_stop(py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
    let running = {
        let mut running = lock();
        match &*running {
            Some(r) if r.process == std::process::id() => running.take(),
            _ => None,
        }
    };
    let Some(Running { commands, thread, .. }) = running else { return Ok(None) };
    super::eager::stop(py)?;
    let report = ask(py, &commands, Command::Stop);
    // A panic of the thread was reported by the hook that prints panics; the program goes on without it.
    let _ = py.detach(|| thread.join());
    report.map(|report| to_dict(py, &report)).transpose()
}

/// In a forked child: forgets the parent's thread.
#[pyfunction]
fn session_after_fork() {
    // The lock is only ever held with the GIL, which the forking thread had: it is free.
    if let Ok(mut running) = RUNNING.try_lock() {
        std::mem::forget(running.take());
    }
    super::eager::after_fork();
}

/// Sends a command and waits for the answer without the GIL, which the thread needs for it.
fn ask(py: Python<'_>, commands: &Sender<Command>, command: fn(Sender<Report>) -> Command) -> Option<Report> {
    let (sender, answer) = mpsc::channel();
    py.detach(move || commands.send(command(sender)).ok().and_then(|()| answer.recv().ok()))
}

fn lock() -> std::sync::MutexGuard<'static, Option<Running>> {
    // The holders only assign whole values.
    RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The background thread.
fn run(mut driver: Driver, policy: Policy, inbox: Receiver<Command>) {
    block_signals();
    let mut sampler = match Sampler::attach() {
        Ok(sampler) => Some(sampler),
        Err(reason) => {
            driver.trouble = Some(format!("the sampler cannot read this process: {reason}"));
            None
        }
    };
    let (mut samples, mut since, mut total) = (Samples::default(), Instant::now(), 0u64);
    let mut wait = policy.interval;
    let started = Instant::now();
    loop {
        let command = match &sampler {
            Some(_) => inbox.recv_timeout(wait),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match command {
            Ok(Command::Report(answer)) => {
                // The asker may have been interrupted; nobody misses the answer then.
                let _ = answer.send(report(&mut driver, started, total));
                continue;
            }
            Ok(Command::Stop(answer)) => {
                Python::try_attach(|py| driver.finish(py));
                let _ = answer.send(report(&mut driver, started, total));
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(sampler) = &mut sampler {
            wait = sampler.sample(&mut samples, policy.interval);
            total += 1;
        }
        if since.elapsed() >= policy.window && samples.ticks >= LEAST_TICKS.min(enough(&policy)) {
            let seconds = since.elapsed().as_secs_f64();
            since = Instant::now();
            let window = std::mem::take(&mut samples);
            if driver.needs_python(&window) {
                Python::try_attach(|py| driver.window(py, &window, seconds));
            }
        }
    }
}

/// Samples of a window at the wanted rate, less a quarter.
fn enough(policy: &Policy) -> u32 {
    (0.75 * policy.window.as_secs_f64() / policy.interval.as_secs_f64().max(1e-6)) as u32
}

fn report(driver: &mut Driver, started: Instant, samples: u64) -> Report {
    let rows = Python::try_attach(|py| driver.rows(py)).unwrap_or_default();
    Report { rows, seconds: started.elapsed().as_secs_f64(), samples, trouble: driver.trouble.clone() }
}

/// Signals go to Python's own threads: one taken here would not interrupt their system calls.
fn block_signals() {
    #[expect(unsafe_code, reason = "the standard library has no signal masks")]
    // SAFETY: the set is initialised before it is used, and only this thread's mask changes.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

fn to_dict(py: Python<'_>, report: &Report) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    let rows = report.rows.iter().map(|row| row.to_dict(py)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("rows", rows)?;
    dict.set_item("seconds", report.seconds)?;
    dict.set_item("samples", report.samples)?;
    dict.set_item("trouble", &report.trouble)?;
    Ok(dict.unbind())
}

/// Adds this module's functions to `overdrive._core`.
pub(super) fn register(module: &Bound<'_, PyModule>, engine: Arc<dyn Engine>) -> PyResult<()> {
    // A second import in another interpreter keeps the first engine: promotion is off in sub-interpreters.
    let _ = ENGINE.set(engine);
    module.add_function(wrap_pyfunction!(session_start, module)?)?;
    module.add_function(wrap_pyfunction!(session_report, module)?)?;
    module.add_function(wrap_pyfunction!(session_stop, module)?)?;
    module.add_function(wrap_pyfunction!(session_after_fork, module)?)
}
