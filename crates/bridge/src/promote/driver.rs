//! The decisions of a session, one window at a time.
//!
//! In: a window's [`Samples`]. Out: calls to the engine. Runs on the session's thread; everything that touches
//! Python gets the GIL from the caller. A failing look-up or promotion is noted and never reaches the program.

#![expect(unsafe_code, reason = "asks every thread state for its tracer")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use pyo3::ffi;
use pyo3::prelude::*;

use super::calls::Counter;
use super::candidate::{Candidate, Row, State};
use super::code::{CodeFacts, CodeKind};
use super::find;
use super::pattern;
use super::policy::Policy;
use super::sampler::{Place, Samples, Seen};
use super::score::{self, Window};
use super::timeline::Timeline;
use super::{Engine, Progress, Ticket, When};
use crate::mechanics::frame::Thread;
use crate::mechanics::osr;

/// A look-up of a place that found nothing, or no function object, is repeated after this many windows, then
/// after twice as many, and so on.
const FIRST_RETRY: u64 = 2;
/// Judgements in a row by which native code must have lost before it is put back.
const LOSSES: u32 = 3;
/// Where times are estimated from samples (3.11), counting goes on until the code was on the stack in this many.
const LEAST_SAMPLES: u32 = 4;
/// Windows for which a compilation takes one of the `Policy.max_compiles` places.
const PATIENCE: u64 = 4;
/// A counter that saw no call begin is given up after this many windows.
const COUNTED_WINDOWS: u32 = 3;

/// Functions beside the rows that the report names.
const N_OTHERS: usize = 12;

#[derive(Default)]
struct LookUp {
    candidates: Vec<usize>,
    next: u64,
    pause: u64,
}

/// All state of a session.
pub(super) struct Driver {
    policy: Policy,
    engine: Arc<dyn Engine>,
    only: Vec<String>,
    skip: Vec<String>,
    own_files: String,
    least_share: f64,
    started: Instant,
    /// Windows so far.
    window: u64,
    places: HashMap<Place, LookUp>,
    candidates: Vec<Candidate>,
    timeline: Timeline,
    /// Why nothing is promoted, where that is so.
    pub(super) trouble: Option<String>,
}

impl Driver {
    pub(super) fn new(
        policy: Policy,
        engine: Arc<dyn Engine>,
        only: Vec<String>,
        skip: Vec<String>,
        own_files: String,
    ) -> Self {
        let least_share = score::least_useful_share(&policy.weights, policy.threshold);
        Self {
            policy,
            engine,
            only,
            skip,
            own_files,
            least_share,
            started: Instant::now(),
            window: 0,
            places: HashMap::new(),
            candidates: Vec::new(),
            timeline: Timeline::default(),
            trouble: None,
        }
    }

    /// Whether this window has anything for which the GIL must be taken.
    pub(super) fn needs_python(&self, samples: &Samples) -> bool {
        let open = |c: &Candidate| {
            c.counter.is_some()
                || matches!(c.state, State::Compiling(_) | State::Promoted(_))
                || c.streak.last().is_some()
        };
        self.candidates.iter().any(open)
            || samples.functions.iter().any(|(place, seen)| self.is_warm(samples, seen) && self.wants(place))
    }

    fn is_warm(&self, samples: &Samples, seen: &Seen) -> bool {
        samples.ticks > 0 && f64::from(seen.own) / f64::from(samples.ticks) >= self.least_share
    }

    fn wants(&self, place: &Place) -> bool {
        let named =
            |patterns: &[String]| patterns.iter().any(|p| pattern::names(p, &place.file, &place.name));
        let ours = !self.own_files.is_empty() && place.file.starts_with(&self.own_files);
        !ours
            && !place.file.starts_with("<frozen ")
            && (self.only.is_empty() || named(&self.only))
            && !named(&self.skip)
    }

    /// Remembers a window for the report. Needs no Python.
    pub(super) fn remember(&mut self, samples: &Samples) {
        self.timeline.add(self.started.elapsed().as_secs_f64(), samples);
    }

    /// End in seconds and number of samples of each window.
    pub(super) fn windows(&self) -> &[(f64, u32)] {
        self.timeline.windows()
    }

    /// The functions that took most time, of those that have no row and are not ours.
    pub(super) fn others(&self, rows: &[Row]) -> Vec<(Place, Vec<(u32, u32)>)> {
        let is_row = |place: &Place| rows.iter().any(|r| r.name == place.name && r.file == place.file);
        let is_ours = |place: &Place| !self.own_files.is_empty() && place.file.starts_with(&self.own_files);
        self.timeline.largest(N_OTHERS, |place| !is_row(place) && !is_ours(place))
    }

    /// The end of a window of `seconds`.
    pub(super) fn window(&mut self, py: Python<'_>, samples: &Samples, seconds: f64) {
        self.window += 1;
        self.read_counters(py, samples, seconds);
        self.follow_compilations();
        let mut warm: Vec<(&Place, &Seen)> = samples
            .functions
            .iter()
            .filter(|(place, seen)| self.is_warm(samples, seen) && self.wants(place))
            .collect();
        warm.sort_by(|a, b| b.1.own.cmp(&a.1.own).then_with(|| a.0.cmp(b.0)));
        let mut seen_now = vec![false; self.candidates.len()];
        for (place, seen) in warm {
            for index in self.look_up(py, place, seen) {
                seen_now.resize(self.candidates.len(), false);
                seen_now[index] |= self.add_window(index, seen, samples, seconds);
            }
        }
        for (candidate, seen) in self.candidates.iter_mut().zip(&seen_now) {
            if !seen {
                candidate.streak.miss(self.policy.most_missed);
            }
        }
        self.start_counters(py);
        if !somebody_traces(py) {
            self.promote(py);
        }
        self.judge(py);
    }

    /// Candidates behind a place; searches for them when it is new, or when enough time has passed and something is
    /// missing: a function object, or the code of some lines (lambdas share their name).
    fn look_up(&mut self, py: Python<'_>, place: &Place, seen: &Seen) -> Vec<usize> {
        let (window, engine) = (self.window, self.engine.clone());
        let known = self.places.entry(place.clone()).or_default();
        let complete = !known.candidates.is_empty()
            && known.candidates.iter().all(|&i| {
                let c = &self.candidates[i];
                c.function.is_some() || c.facts.kind == CodeKind::Once
            })
            && seen.lines.keys().all(|line| {
                *line == 0 || known.candidates.iter().any(|&i| self.candidates[i].facts.lines.contains(line))
            });
        if complete || window < known.next {
            return known.candidates.clone();
        }
        // The heap is walked at the second try: a function that is really hot is still there by then.
        let heap = known.pause > 0;
        known.pause = (2 * known.pause).max(FIRST_RETRY);
        known.next = window + known.pause;
        let Ok(found) = find::find(py, &*engine, place, heap) else { return known.candidates.clone() };
        for found in found {
            let existing =
                known.candidates.iter().copied().find(|&i| self.candidates[i].code.is(&found.code));
            match existing {
                Some(index) => {
                    let candidate = &mut self.candidates[index];
                    candidate.function = candidate.function.take().or(found.function);
                }
                None => {
                    let Ok(facts) = CodeFacts::of(found.code.bind(py)) else { continue };
                    known.candidates.push(self.candidates.len());
                    self.candidates.push(Candidate::new(place.clone(), found.code, found.function, facts));
                }
            }
        }
        known.candidates.clone()
    }

    /// Adds what was seen of a candidate. False when the samples were of another code of the same name.
    fn add_window(&mut self, index: usize, seen: &Seen, samples: &Samples, seconds: f64) -> bool {
        let candidate = &mut self.candidates[index];
        let (mut own, mut in_loops) = (0, 0);
        for (line, count) in &seen.lines {
            // Line 0 is one that could not be read.
            if *line == 0 || candidate.facts.lines.contains(line) {
                own += count;
            }
            if candidate.facts.loop_lines.contains(line) {
                in_loops += count;
            }
        }
        if own == 0 {
            return false;
        }
        let share = f64::from(own) / f64::from(samples.ticks);
        candidate.share = candidate.share.max(share);
        // Per second at the nominal rate: the sampler may have been slower.
        let per_tick = 1.0 / self.policy.interval.as_secs_f64();
        let calls_per_s = (candidate.counted_windows > 0 && seconds > 0.0)
            .then(|| candidate.counts.calls as f64 / (f64::from(candidate.counted_windows) * seconds));
        let window = Window {
            self_share: share,
            loop_samples_per_s: f64::from(in_loops) / f64::from(samples.ticks) * per_tick,
            calls_per_s,
            code_bytes: candidate.facts.bytes,
        };
        candidate.streak.push(window, self.policy.windows);
        if let Some(rate) = calls_per_s {
            candidate.streak.fill_calls(rate);
        }
        candidate.score = candidate.streak.latest(&self.policy.weights);
        true
    }

    /// Counters that have run a window are read, and stopped when they tell how long a call takes.
    fn read_counters(&mut self, py: Python<'_>, samples: &Samples, seconds: f64) {
        for candidate in &mut self.candidates {
            let Some(counter) = candidate.counter.take() else { continue };
            let on_stack = samples.functions.get(&candidate.place).map_or(0, |seen| seen.on_stack);
            let counts = counter.read();
            if on_stack == 0 && counts.calls == candidate.counts.calls && candidate.streak.last().is_some() {
                // Another phase of the program: this window says nothing of how often it is called in its own.
                candidate.counter = Some(counter);
                continue;
            }
            candidate.counted_windows += 1;
            candidate.on_stack += f64::from(on_stack) / f64::from(samples.ticks.max(1)) * seconds;
            candidate.n_on_stack += on_stack;
            let is_measured = if cfg!(Py_3_12) {
                counts.timed_calls > 0
            } else {
                counts.calls > 0 && candidate.n_on_stack >= LEAST_SAMPLES
            };
            if is_measured || candidate.counted_windows >= COUNTED_WINDOWS {
                candidate.counts = counter.stop(py).unwrap_or(counts);
            } else {
                candidate.counts = counts;
                candidate.counter = Some(counter);
            }
        }
    }

    fn start_counters(&mut self, py: Python<'_>) {
        let mut n_counted = self.candidates.iter().filter(|c| c.counter.is_some()).count();
        let mut wanted: Vec<usize> = (0..self.candidates.len())
            .filter(|&i| {
                let c = &self.candidates[i];
                matches!(c.state, State::Watched)
                    && c.counter.is_none()
                    && c.counted_windows == 0
                    && c.facts.kind == CodeKind::Function
                    && c.streak.is_fresh()
                    && c.streak
                        .last()
                        .is_some_and(|w| w.best_possible(&self.policy.weights) >= self.policy.threshold)
            })
            .collect();
        wanted.sort_by(|&a, &b| self.candidates[b].share.total_cmp(&self.candidates[a].share));
        for index in wanted {
            if n_counted >= self.policy.max_counted.min(super::calls::SLOTS) {
                break;
            }
            let candidate = &mut self.candidates[index];
            let function = candidate.function.as_ref().map(|f| f.bind(py));
            if let Ok(Some(counter)) = Counter::start(candidate.code.bind(py), function) {
                candidate.counter = Some(counter);
                candidate.overhead = super::calls::overhead(py);
                n_counted += 1;
            }
        }
    }

    /// Hands the best decided candidates to the engine, as many as may be in flight.
    fn promote(&mut self, py: Python<'_>) {
        let in_flight = self.candidates.iter().filter(|c| self.is_in_flight(c)).count();
        let Policy { weights, threshold, windows, .. } = &self.policy;
        let mut decided: Vec<(usize, f64)> = (0..self.candidates.len())
            .filter_map(|i| {
                let c = &self.candidates[i];
                let open = matches!(c.state, State::Watched | State::Refused | State::Demoted);
                let may = c.attempts < self.policy.max_attempts && self.window >= c.next_try;
                let score = c.streak.decided(weights, *threshold, *windows)?;
                (open && may).then_some((i, score))
            })
            .collect();
        decided.sort_by(|a, b| {
            b.1.total_cmp(&a.1).then(self.candidates[b.0].share.total_cmp(&self.candidates[a.0].share))
        });
        let free =
            if self.policy.observe { usize::MAX } else { self.policy.max_compiles.saturating_sub(in_flight) };
        for (index, score) in decided.into_iter().take(free) {
            self.candidates[index].score = score;
            self.promote_one(py, index);
        }
    }

    /// A ticket that is still open after some windows waits for its function's next call, not for the compiler.
    fn is_in_flight(&self, candidate: &Candidate) -> bool {
        matches!(candidate.state, State::Compiling(_)) && self.window < candidate.handed_over + PATIENCE
    }

    fn promote_one(&mut self, py: Python<'_>, index: usize) {
        let engine = self.engine.clone();
        let candidate = &mut self.candidates[index];
        if let Some(counter) = candidate.counter.take() {
            // A failure to detach leaves a counter that nobody reads: harmless.
            candidate.counts = counter.stop(py).unwrap_or_default();
        }
        if self.policy.observe {
            candidate.becomes(State::Wanted(Instant::now()));
            return;
        }
        candidate.attempts += 1;
        if candidate.facts.kind == CodeKind::Generator {
            candidate.attempts = u32::MAX;
            candidate.becomes(State::Refused);
            candidate.note("a generator or coroutine: stays in CPython".into());
            return;
        }
        let mut tickets = Vec::new();
        let code = candidate.code.clone_ref(py);
        let has_loops = !candidate.facts.loop_lines.is_empty();
        if has_loops && !candidate.entered_loops && find::is_running(py, &*engine, &code) {
            match engine.enter_loops(code.bind(py)) {
                Ok(ticket) => {
                    candidate.entered_loops = true;
                    tickets.push(ticket);
                }
                Err(error) => candidate.note(format!("its running loops stay in CPython: {error}")),
            }
        }
        if candidate.facts.kind == CodeKind::Function {
            let promoted = match &candidate.function {
                Some(function) => {
                    engine.promote(function.bind(py), When::Behind).map_err(|error| error.to_string())
                }
                None => Err("no function object was found for this code".to_owned()),
            };
            match promoted {
                Ok(ticket) => tickets.push(ticket),
                Err(reason) if tickets.is_empty() => return self.refuse(index, vec![reason], State::Refused),
                Err(reason) => candidate.note(reason),
            }
        }
        if tickets.is_empty() {
            // A module's code that is not on the stack at this moment: the next window decides again.
            candidate.attempts -= 1;
            return;
        }
        candidate.handed_over = self.window;
        candidate.becomes(State::Compiling(tickets));
    }

    fn refuse(&mut self, index: usize, reasons: Vec<String>, state: State) {
        let (window, back_off) = (self.window, self.policy.back_off);
        let candidate = &mut self.candidates[index];
        candidate.becomes(state);
        candidate.next_try =
            window + back_off.saturating_mul(4u64.saturating_pow(candidate.attempts.saturating_sub(1)));
        for reason in reasons {
            candidate.note(reason);
        }
    }

    /// One ticket that is done makes a promotion; only when all are refused is the candidate.
    fn follow_compilations(&mut self) {
        for index in 0..self.candidates.len() {
            let State::Compiling(tickets) = &self.candidates[index].state else { continue };
            let (mut done, mut reasons, mut pending) = (None::<Instant>, Vec::new(), false);
            for progress in tickets.iter().map(Ticket::progress) {
                match progress {
                    Progress::Pending => pending = true,
                    Progress::Done(at) => done = Some(done.map_or(at, |earlier| earlier.min(at))),
                    Progress::Refused(why) => reasons.extend(why),
                }
            }
            match done {
                Some(at) => self.candidates[index].becomes(State::Promoted(at)),
                None if !pending => self.refuse(index, reasons, State::Refused),
                None => {}
            }
        }
    }

    /// Puts back what saved too little, judgement by judgement: one with other arguments does not decide alone.
    fn judge(&mut self, py: Python<'_>) {
        for index in 0..self.candidates.len() {
            let candidate = &self.candidates[index];
            if !matches!(candidate.state, State::Promoted(_)) {
                continue;
            }
            let stats = self.engine.stats(candidate.code.bind(py));
            let Some(loss) = candidate.loss(&stats, self.policy.least_gain) else { continue };
            let candidate = &mut self.candidates[index];
            candidate.last_stats = stats;
            let Some(reason) = loss else {
                candidate.losses = 0;
                continue;
            };
            candidate.losses += 1;
            if candidate.losses < LOSSES {
                continue;
            }
            let Some(function) = candidate.function.as_ref().map(|f| f.bind(py).clone()) else { continue };
            if self.engine.demote(&function).is_ok_and(|demoted| demoted) {
                candidate.losses = 0;
                self.refuse(index, vec![format!("put back: {reason}")], State::Demoted);
            }
        }
    }

    /// Stops what is still being counted and takes the last news.
    pub(super) fn finish(&mut self, py: Python<'_>) {
        self.follow_compilations();
        for candidate in &mut self.candidates {
            if let Some(counter) = candidate.counter.take() {
                // At the end there is nobody to tell.
                let _ = counter.stop(py);
            }
        }
    }

    /// The report's rows, the earliest promotion first.
    pub(super) fn rows(&mut self, py: Python<'_>) -> Vec<Row> {
        self.follow_compilations();
        let mut rows: Vec<Row> = self
            .candidates
            .iter()
            .filter_map(|c| c.row(&self.engine.stats(c.code.bind(py)), self.started))
            .collect();
        rows.extend(super::eager::rows(py, &*self.engine, self.started));
        for row in &mut rows {
            let place = Place { file: row.file.clone(), name: row.name.clone() };
            row.samples = self.timeline.of(&place);
        }
        let order = |row: &Row| row.promoted_at.unwrap_or(f64::INFINITY);
        rows.sort_by(|a, b| order(a).total_cmp(&order(b)).then(b.share.total_cmp(&a.share)));
        rows
    }
}

/// A debugger, tracer, coverage tool or profiler is at work: nothing is swapped under its eyes.
fn somebody_traces(py: Python<'_>) -> bool {
    // SAFETY: the GIL is held, so thread states neither come nor go.
    let by_thread = unsafe {
        let mut thread =
            ffi::PyInterpreterState_ThreadHead(ffi::PyThreadState_GetInterpreter(ffi::PyThreadState_Get()));
        let mut found = false;
        while !thread.is_null() && !found {
            found = osr::has_foreign_tracer(Thread(thread.cast()));
            thread = ffi::PyThreadState_Next(thread);
        }
        found
    };
    by_thread || tool_is_registered(py).unwrap_or(false)
}

/// `sys.monitoring` keeps ids 0 to 2 for debuggers, coverage tools and profilers.
fn tool_is_registered(py: Python<'_>) -> PyResult<bool> {
    if cfg!(not(Py_3_12)) {
        return Ok(false);
    }
    let monitoring = py.import("sys")?.getattr("monitoring")?;
    for id in 0..3 {
        if !monitoring.call_method1("get_tool", (id,))?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}
