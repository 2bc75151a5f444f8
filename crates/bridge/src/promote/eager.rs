//! The policy `eager`: every function of the script's own project is swapped at its second call.
//!
//! In: the start of each first call. Out: `Engine::promote(.., When::NextCall)` for the function that starts, so
//! that its second call compiles for the arguments it brings and runs natively. 3.12 and later tell by a
//! `sys.monitoring` event; on 3.11 an audit hook sees each module's code before it runs and gives the functions
//! in it a copy that reports its first call (`calls::prologue`).

#![expect(unsafe_code, reason = "state guarded by the GIL")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pyo3::prelude::*;

use super::candidate::{Candidate, Row, State};
use super::code::{CodeFacts, CodeKind};
use super::pattern;
use super::sampler::Place;
use super::{Engine, Progress, Ticket, When};
use crate::mechanics::gil_cell::GilCell;

struct Entry {
    candidate: Candidate,
    ticket: Ticket,
}

struct Eager {
    engine: Arc<dyn Engine>,
    only: Vec<String>,
    skip: Vec<String>,
    /// The directory of the standard library.
    standard: String,
    /// The directory of this package, which is nobody's project.
    own_files: String,
    entries: Vec<Entry>,
}

static ACTIVE: AtomicBool = AtomicBool::new(false);
static STATE: GilCell<Option<Eager>> = GilCell::new(None);

/// Whether starts are of interest now.
pub(super) fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Begins to watch for first calls.
pub(super) fn start(
    py: Python<'_>,
    engine: Arc<dyn Engine>,
    only: Vec<String>,
    skip: Vec<String>,
    own_files: &str,
) -> PyResult<()> {
    let standard = py.import("os")?.getattr("__file__")?.extract::<String>()?;
    let standard = standard.rsplit_once('/').map_or("", |(directory, _)| directory);
    let (standard, own_files) = (format!("{standard}/"), own_files.to_owned());
    let state = Eager { engine, only, skip, standard, own_files, entries: Vec::new() };
    // SAFETY: the GIL is held; dropping the old state happens outside.
    drop(unsafe { STATE.with(|slot| slot.replace(state)) });
    ACTIVE.store(true, Ordering::Relaxed);
    super::calls::watch_starts(py, true)
}

/// Stops watching; what was swapped stays, and so do the rows until [`clear`].
pub(super) fn stop(py: Python<'_>) -> PyResult<()> {
    if ACTIVE.swap(false, Ordering::Relaxed) {
        super::calls::watch_starts(py, false)?;
    }
    Ok(())
}

/// Forgets the functions, which must not be kept alive when their program ends.
pub(super) fn clear() {
    // SAFETY: the GIL is held by the caller; the value is dropped outside, as that may run Python.
    drop(unsafe { STATE.with(Option::take) });
}

/// In a forked child nothing new is compiled.
pub(super) fn after_fork() {
    ACTIVE.store(false, Ordering::Relaxed);
}

/// Promotes `function` if it belongs to the project. True when its code need not be reported again.
pub(super) fn offer(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let code = function.getattr("__code__")?;
    let place = Place {
        file: code.getattr("co_filename")?.extract()?,
        name: code.getattr("co_qualname")?.extract()?,
    };
    // SAFETY: the GIL is held, and the closure runs no Python.
    let engine = unsafe {
        STATE.with(|state| {
            state.as_ref().filter(|state| state.wants(&place)).map(|state| state.engine.clone())
        })
    };
    let Some(engine) = engine else { return Ok(true) };
    if !engine.original(&code).is(&code) {
        return Ok(true);
    }
    let facts = CodeFacts::of(&code)?;
    if facts.kind != CodeKind::Function {
        return Ok(true);
    }
    let ticket = match engine.promote(function, When::NextCall) {
        Ok(ticket) => ticket,
        Err(error) => Ticket::new(Progress::Refused(vec![error.to_string()])),
    };
    let candidate = Candidate::new(place, code.unbind(), Some(function.clone().unbind()), facts);
    // SAFETY: the GIL is held; comparing and pushing run no Python.
    let surplus = unsafe {
        STATE.with(|state| {
            let entries = &mut state.as_mut()?.entries;
            let known = entries.iter().any(|entry| entry.candidate.code.is(&candidate.code));
            let entry = Entry { candidate, ticket };
            if known {
                return Some(entry);
            }
            entries.push(entry);
            None
        })
    };
    drop(surplus);
    // A closure's code comes again with each new function object.
    Ok(false)
}

impl Eager {
    /// Libraries are the project's where `only` names their files by path.
    fn is_project(&self, file: &str) -> bool {
        if file.starts_with('<') || (!self.own_files.is_empty() && file.starts_with(&self.own_files)) {
            return false;
        }
        let is_library = file.starts_with(&self.standard)
            || file.contains("/site-packages/")
            || file.contains("/dist-packages/");
        !is_library || self.only.iter().any(|p| pattern::names_path(p, file))
    }

    fn wants(&self, place: &Place) -> bool {
        let named =
            |patterns: &[String]| patterns.iter().any(|p| pattern::names(p, &place.file, &place.name));
        self.is_project(&place.file) && (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// Whether code from `file` may be the project's.
#[cfg(not(Py_3_12))]
pub(super) fn wants_file(file: &str) -> bool {
    // SAFETY: the GIL is held, and the closure runs no Python.
    unsafe { STATE.with(|state| state.as_ref().is_some_and(|state| state.is_project(file))) }
}

/// The rows of the functions that were offered.
pub(super) fn rows(py: Python<'_>, engine: &dyn Engine, started: Instant) -> Vec<Row> {
    // SAFETY: the GIL is held; copying references runs no Python.
    let entries: Vec<(Py<PyAny>, Ticket)> = unsafe {
        STATE.with(|state| {
            let entries = state.iter().flat_map(|state| &state.entries);
            entries.map(|entry| (entry.candidate.code.clone_ref(py), entry.ticket.clone())).collect()
        })
    };
    let stats: Vec<_> = entries.iter().map(|(code, _)| engine.stats(code.bind(py))).collect();
    // SAFETY: as above; making a row copies plain data.
    unsafe {
        STATE.with(|state| {
            let known = state.iter_mut().flat_map(|state| &mut state.entries);
            known
                .zip(entries.iter().zip(&stats))
                .filter_map(|(entry, ((_, ticket), stats))| {
                    match ticket.progress() {
                        Progress::Pending => entry.candidate.state = State::Compiling(Vec::new()),
                        Progress::Done(at) => entry.candidate.becomes(State::Promoted(at)),
                        Progress::Refused(reasons) => {
                            entry.candidate.state = State::Refused;
                            reasons.into_iter().for_each(|reason| entry.candidate.note(reason));
                        }
                    }
                    entry.candidate.row(stats, started)
                })
                .collect()
        })
    }
}
