//! A session: the background thread that samples, decides and promotes, and what Python sees of it.
//!
//! In: a policy and an engine. Out: a [`Report`] of plain data. The thread owns all state ([`Driver`]);
//! others send it a [`Command`] and wait without the GIL, so no lock is ever held while Python code runs.
//! The thread ends before a fork and starts again behind it, in the parent: the child has no session, and what was
//! swapped in keeps working there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::Engine;
use super::candidate::Row;
use super::driver::Driver;
use super::policy::Policy;
use super::sampler::{Place, Sampler, Samples};
use crate::background::{self, Rests, Thread};

/// What a session did so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// Functions and loops that were promoted, refused, put back, or (policy `observe`) found hot enough.
    pub(super) rows: Vec<Row>,
    /// Seconds since the start.
    pub(super) seconds: f64,
    /// Samples taken.
    pub(super) samples: u64,
    /// Why nothing is promoted, where that is so.
    pub(super) trouble: Option<String>,
    /// End in seconds and number of samples of each window that rows' samples refer to.
    pub(super) windows: Vec<(f64, u32)>,
    /// Functions without a row that took most time, with their samples.
    pub(super) others: Vec<(Place, Vec<(u32, u32)>)>,
}

enum Command {
    Report(Sender<Report>),
    Stop(Sender<Report>),
    /// End the thread and hand back its state: a fork is about to happen.
    Pause,
}

/// What the thread works on; parked while a process forks.
struct State {
    driver: Driver,
    policy: Policy,
    sampler: Option<Sampler>,
    samples: Samples,
    started: Instant,
    total: u64,
}

enum Session {
    Running { commands: Sender<Command>, thread: Thread<Option<Box<State>>> },
    Parked(Box<State>),
}

struct Owned {
    session: Session,
    process: u32,
}

static ENGINE: OnceLock<Arc<dyn Engine>> = OnceLock::new();
/// The session of this process. Only locked with the GIL held and released before Python can run, so a fork, which
/// needs the GIL, finds it free.
static SESSION: Mutex<Option<Owned>> = Mutex::new(None);

/// A window with fewer samples than this says nothing; it is extended.
const LEAST_TICKS: u32 = 20;
/// Reading a deep stack of frames recurses a little.
const STACK_BYTES: usize = 2 << 20;

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
    if lock().as_ref().is_some_and(Owned::is_ours) {
        return Ok(false);
    }
    if policy.eager && !policy.observe {
        super::eager::start(py, engine.clone(), only.clone(), skip.clone(), &own_files)?;
    }
    let driver = Driver::new(policy.clone(), engine, only, skip, own_files);
    let state = State {
        driver,
        policy,
        sampler: None,
        samples: Samples::default(),
        started: Instant::now(),
        total: 0,
    };
    let session = spawn(Box::new(state))?;
    put(session);
    rest_at_fork(py)?;
    Ok(true)
}

impl Owned {
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

fn spawn(state: Box<State>) -> PyResult<Session> {
    let (commands, inbox) = mpsc::channel();
    let thread = background::spawn("overdrive", STACK_BYTES, move || run(state, &inbox))
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start the sampling thread: {error}")))?;
    Ok(Session::Running { commands, thread })
}

/// Makes `session` this process's. What a fork has inherited is neither joined nor dropped: its thread is elsewhere.
fn put(session: Session) {
    let before = lock().replace(Owned { session, process: std::process::id() });
    std::mem::forget(before);
}

/// Takes this process's session.
fn take() -> Option<Session> {
    let mut slot = lock();
    match &*slot {
        Some(owned) if owned.is_ours() => slot.take().map(|owned| owned.session),
        _ => None,
    }
}

/// The session's thread, started again if it is parked.
fn commands() -> PyResult<Option<Sender<Command>>> {
    session_resume()?;
    Ok(match &*lock() {
        Some(Owned { session: Session::Running { commands, .. }, process })
            if *process == std::process::id() =>
        {
            Some(commands.clone())
        }
        _ => None,
    })
}

/// Before a fork: the thread ends and leaves its state.
fn pause(py: Python<'_>) {
    match take() {
        Some(Session::Running { commands, thread }) => {
            let state = py.detach(move || {
                commands.send(Command::Pause).ok()?;
                thread.join().flatten()
            });
            if let Some(state) = state {
                put(Session::Parked(state));
            }
        }
        Some(parked) => put(parked),
        None => {}
    }
}

/// After a fork, in the parent.
fn go_on(_: Python<'_>) {
    // Without a thread there is no promotion any more; the program goes on.
    let _ = session_resume();
}

/// Once per process and its children, which inherit the hooks.
fn rest_at_fork(py: Python<'_>) -> PyResult<()> {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    background::around_forks(py, Rests { end: pause, go_on })
}

fn session_resume() -> PyResult<()> {
    match take() {
        Some(Session::Parked(state)) if !background::forking() => put(spawn(state)?),
        Some(other) => put(other),
        None => {}
    }
    Ok(())
}

/// The report so far; `None` without a session in this process.
#[pyfunction]
fn session_report(py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
    let Some(commands) = commands()? else { return Ok(None) };
    ask(py, commands, Command::Report).map(|report| to_dict(py, &report)).transpose()
}

/// Ends the session and returns its report; `None` without a session in this process.
#[pyfunction]
fn session_stop(py: Python<'_>) -> PyResult<Option<Py<PyDict>>> {
    let Some(commands) = commands()? else { return Ok(None) };
    super::eager::stop(py)?;
    let report = ask(py, commands, Command::Stop);
    if let Some(Session::Running { thread, .. }) = take() {
        py.detach(|| thread.join());
    }
    super::eager::clear();
    report.map(|report| to_dict(py, &report)).transpose()
}

/// In a forked child: there is no session, and nothing of the parent's is touched.
#[pyfunction]
fn session_after_fork() {
    std::mem::forget(lock().take());
    super::eager::after_fork();
}

/// Sends a command and waits for the answer without the GIL, which the thread needs for it.
fn ask(py: Python<'_>, commands: Sender<Command>, command: fn(Sender<Report>) -> Command) -> Option<Report> {
    let (sender, answer) = mpsc::channel();
    py.detach(move || commands.send(command(sender)).ok().and_then(|()| answer.recv().ok()))
}

fn lock() -> std::sync::MutexGuard<'static, Option<Owned>> {
    // The holders only assign whole values.
    SESSION.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The background thread. Returns its state when it is to be parked.
fn run(mut state: Box<State>, inbox: &Receiver<Command>) -> Option<Box<State>> {
    if state.sampler.is_none() {
        match Sampler::attach() {
            Ok(sampler) => state.sampler = Some(sampler),
            Err(reason) => {
                state.driver.trouble = Some(format!("the sampler cannot read this process: {reason}"));
            }
        }
    }
    let (mut since, mut wait) = (Instant::now(), state.policy.interval);
    loop {
        let command = match &state.sampler {
            Some(_) => inbox.recv_timeout(wait),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match command {
            Ok(Command::Report(answer)) => {
                // The asker may have been interrupted; nobody misses the answer then.
                let _ = answer.send(report(&mut state));
                continue;
            }
            Ok(Command::Stop(answer)) => {
                Python::try_attach(|py| state.driver.finish(py));
                let rest = std::mem::take(&mut state.samples);
                if rest.ticks > 0 {
                    state.driver.remember(&rest);
                }
                let last = report(&mut state);
                // References are given back while there is an interpreter to take them: a program's objects
                // must be finalised when it ends, not kept by us.
                Python::try_attach(move |_| drop(state));
                let _ = answer.send(last);
                return None;
            }
            Ok(Command::Pause) => return Some(state),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        let State { driver, policy, sampler, samples, total, .. } = &mut *state;
        if let Some(sampler) = sampler {
            wait = sampler.sample(samples, policy.interval);
            *total += 1;
        }
        if since.elapsed() >= policy.window && samples.ticks >= LEAST_TICKS.min(enough(policy)) {
            let seconds = since.elapsed().as_secs_f64();
            since = Instant::now();
            let window = std::mem::take(samples);
            driver.remember(&window);
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

fn report(state: &mut State) -> Report {
    let rows = Python::try_attach(|py| state.driver.rows(py)).unwrap_or_default();
    Report {
        windows: state.driver.windows().to_vec(),
        others: state.driver.others(&rows),
        rows,
        seconds: state.started.elapsed().as_secs_f64(),
        samples: state.total,
        trouble: state.driver.trouble.clone(),
    }
}

fn to_dict(py: Python<'_>, report: &Report) -> PyResult<Py<PyDict>> {
    let dict = PyDict::new(py);
    let rows = report.rows.iter().map(|row| row.to_dict(py)).collect::<PyResult<Vec<_>>>()?;
    dict.set_item("rows", rows)?;
    dict.set_item("seconds", report.seconds)?;
    dict.set_item("samples", report.samples)?;
    dict.set_item("trouble", &report.trouble)?;
    dict.set_item("windows", &report.windows)?;
    let others = report.others.iter().map(|(place, samples)| {
        let other = PyDict::new(py);
        other.set_item("name", &place.name)?;
        other.set_item("file", &place.file)?;
        other.set_item("samples", samples)?;
        Ok(other)
    });
    dict.set_item("others", others.collect::<PyResult<Vec<_>>>()?)?;
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
