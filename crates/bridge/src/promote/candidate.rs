//! One function, or body that runs once, that was warm enough to be looked at: its windows, counts and fate.
//!
//! In: windows and counts from the driver. Out: [`Row`], what the report shows. Decides nothing by itself.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::calls::{Counter, Counts};
use super::code::{CodeFacts, CodeKind};
use super::sampler::Place;
use super::score::Streak;
use super::{Stats, Ticket};

/// Native code is judged when at least this many calls were timed since it was last judged …
const LEAST_TIMED_CALLS: u64 = 8;
/// … or when of this many calls …
const LEAST_CALLS: u64 = 512;
/// … one in this many left for CPython: an exit costs more than a call without loops can save.
const EXITS: u64 = 4;

/// What became of a candidate.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Being watched.
    Watched,
    /// Handed to the engine: the function, its running loops, or both.
    Compiling(Vec<Ticket>),
    /// Native code is in place since then.
    Promoted(Instant),
    /// Hot enough; the policy only observes.
    Wanted(Instant),
    /// Native code saved too little and was put back.
    Demoted,
    /// The engine declined.
    Refused,
}

/// A code object that was warm at least once.
pub(super) struct Candidate {
    pub(super) place: Place,
    pub(super) code: Py<PyAny>,
    pub(super) function: Option<Py<PyAny>>,
    pub(super) facts: CodeFacts,
    pub(super) streak: Streak,
    pub(super) state: State,
    pub(super) counter: Option<Counter>,
    /// Windows that the counter has run.
    pub(super) counted_windows: u32,
    /// Counts of all counted windows together.
    pub(super) counts: Counts,
    /// Seconds that the code was on the stack during counted windows, estimated from samples.
    pub(super) on_stack: f64,
    /// The samples of that estimate.
    pub(super) n_on_stack: u32,
    /// What counting adds to the measured time of one call.
    pub(super) overhead: Duration,
    pub(super) share: f64,
    pub(super) score: f64,
    pub(super) attempts: u32,
    /// Number of the window from which it may be tried again.
    pub(super) next_try: u64,
    /// Number of the window in which it was handed to the engine.
    pub(super) handed_over: u64,
    /// Whether its running loops were handed to the engine.
    pub(super) entered_loops: bool,
    /// Statistics when it was last judged, to see what came since.
    pub(super) last_stats: Stats,
    /// Judgements in a row by which native code saved too little.
    pub(super) losses: u32,
    pub(super) notes: Vec<String>,
    /// What it became, and when.
    events: Vec<(Instant, &'static str)>,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Watched => "watched",
            // Compiled at its next call, which has not come, or being compiled at this moment.
            State::Compiling(_) => "compiling",
            State::Promoted(_) => "promoted",
            State::Wanted(_) => "would promote",
            State::Demoted => "put back",
            State::Refused => "refused",
        }
    }
}

impl Candidate {
    pub(super) fn new(place: Place, code: Py<PyAny>, function: Option<Py<PyAny>>, facts: CodeFacts) -> Self {
        Self {
            place,
            code,
            function,
            facts,
            streak: Streak::default(),
            state: State::Watched,
            counter: None,
            counted_windows: 0,
            counts: Counts::default(),
            on_stack: 0.0,
            n_on_stack: 0,
            overhead: Duration::ZERO,
            share: 0.0,
            score: 0.0,
            attempts: 0,
            next_try: 0,
            handed_over: 0,
            entered_loops: false,
            last_stats: Stats::default(),
            losses: 0,
            notes: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Goes on to another state, and remembers when.
    pub(super) fn becomes(&mut self, state: State) {
        let at = match &state {
            State::Promoted(at) | State::Wanted(at) => *at,
            _ => Instant::now(),
        };
        let name = state.name();
        if self.events.last().is_none_or(|(_, last)| *last != name) {
            self.events.push((at, name));
        }
        self.state = state;
    }

    /// Time of one call before promotion: measured calls where there are any, else time on the stack by the
    /// number of calls, less what counting itself takes. `None` when no call was seen to begin, as in a function
    /// that is called once.
    pub(super) fn before(&self) -> Option<Duration> {
        let measured = if self.counts.timed_calls > 0 {
            self.counts.timed.div_f64(self.counts.timed_calls as f64)
        } else if self.counts.calls > 0 && self.on_stack > 0.0 {
            Duration::try_from_secs_f64(self.on_stack / self.counts.calls as f64).ok()?
        } else {
            return None;
        };
        Some(measured.saturating_sub(self.overhead))
    }

    /// Why native code is no gain, by what came since it was last judged; `None` while too little came, and `Some(None)` when
    /// it is one.
    pub(super) fn loss(&self, stats: &Stats, least_gain: Duration) -> Option<Option<String>> {
        let calls = stats.calls.saturating_sub(self.last_stats.calls);
        let exits = stats.exits.saturating_sub(self.last_stats.exits);
        // Times are of calls that stay in native code. Where there is a loop, one exit may follow long native work.
        if self.facts.loop_lines.is_empty() && calls >= LEAST_CALLS && EXITS * exits >= calls {
            return Some(Some(format!("{exits} of {calls} calls left native code")));
        }
        let before = self.before()?;
        let timed_calls = stats.timed_calls.saturating_sub(self.last_stats.timed_calls);
        if timed_calls < LEAST_TIMED_CALLS {
            return None;
        }
        let after = stats.timed.saturating_sub(self.last_stats.timed).div_f64(timed_calls as f64);
        let is_gain = after + least_gain <= before;
        Some((!is_gain).then(|| format!("{} per call native, {} in CPython", human(after), human(before))))
    }

    /// What a note says once need not be said again.
    pub(super) fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The report's line; `None` while there is nothing to say.
    pub(super) fn row(&self, stats: &Stats, started: Instant) -> Option<Row> {
        if matches!(self.state, State::Watched) {
            return None;
        }
        let at = match &self.state {
            State::Promoted(at) | State::Wanted(at) => Some(at.saturating_duration_since(started)),
            _ => None,
        };
        let native = matches!(self.state, State::Promoted(_) | State::Demoted);
        let after = (native && stats.timed_calls > 0)
            .then(|| stats.timed.div_f64(stats.timed_calls as f64))
            .map(|after| after.as_secs_f64());
        let before = self.before().map(|before| before.as_secs_f64());
        let mut notes = self.notes.clone();
        notes.extend(stats.notes.iter().cloned());
        Some(Row {
            name: self.place.name.clone(),
            file: self.place.file.clone(),
            line: self.facts.first_line,
            kind: match self.facts.kind {
                CodeKind::Once => "loops",
                CodeKind::Function | CodeKind::Generator => "function",
            },
            state: self.state.name(),
            score: self.score,
            share: self.share,
            calls: (self.facts.kind == CodeKind::Function).then_some(self.counts.calls + stats.calls),
            native_calls: stats.calls,
            before,
            after,
            promoted_at: at.map(|at| at.as_secs_f64()),
            exits: stats.exits,
            loops_entered: stats.loops_entered,
            notes,
            events: self
                .events
                .iter()
                .map(|(at, name)| (at.saturating_duration_since(started).as_secs_f64(), *name))
                .collect(),
            samples: Vec::new(),
        })
    }
}

/// One line of the report. Times are seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: i32,
    pub(super) kind: &'static str,
    pub(super) state: &'static str,
    pub(super) score: f64,
    pub(super) share: f64,
    /// Calls seen: those counted before promotion and those that went to native code.
    pub(super) calls: Option<u64>,
    pub(super) native_calls: u64,
    pub(super) before: Option<f64>,
    pub(super) after: Option<f64>,
    pub(super) promoted_at: Option<f64>,
    pub(super) exits: u64,
    pub(super) loops_entered: u64,
    pub(super) notes: Vec<String>,
    /// Seconds after the start, and what it became then.
    pub(super) events: Vec<(f64, &'static str)>,
    /// Number of a window of the report, and samples in it that were its own.
    pub(super) samples: Vec<(u32, u32)>,
}

impl Row {
    /// The row as the face reads it.
    pub(super) fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("name", &self.name)?;
        dict.set_item("file", &self.file)?;
        dict.set_item("line", self.line)?;
        dict.set_item("kind", self.kind)?;
        dict.set_item("state", self.state)?;
        dict.set_item("score", self.score)?;
        dict.set_item("share", self.share)?;
        dict.set_item("calls", self.calls)?;
        dict.set_item("native_calls", self.native_calls)?;
        dict.set_item("before", self.before)?;
        dict.set_item("after", self.after)?;
        dict.set_item("promoted_at", self.promoted_at)?;
        dict.set_item("exits", self.exits)?;
        dict.set_item("loops_entered", self.loops_entered)?;
        dict.set_item("notes", &self.notes)?;
        dict.set_item("events", &self.events)?;
        dict.set_item("samples", &self.samples)?;
        Ok(dict)
    }
}

/// "350 ns", "2.10 µs", "13.4 ms".
fn human(time: Duration) -> String {
    let ns = time.as_nanos() as f64;
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.3} µs", ns / 1e3),
        _ => format!("{:.3} ms", ns / 1e6),
    }
}
