//! Where the program spends its time, seen from outside the GIL.
//!
//! In: the own process, read by py-spy without stopping it. Out: [`Samples`], counted per function and
//! line. It knows functions by file, qualified name and line only; `find.rs` turns those into objects.
//! Torn reads happen because nothing is stopped; such a sample is counted as lost. Only the thread that
//! holds the GIL is looked at: what runs without it (I/O, BLAS) is not Python's time.

use std::collections::HashMap;
use std::time::Duration;

/// A function as a sample names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// `co_filename`.
    pub(super) file: String,
    /// `co_qualname`.
    pub(super) name: String,
}

/// How often one function was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Samples in which it was the innermost frame.
    pub(super) own: u32,
    /// Samples in which it was anywhere on the stack, once per sample.
    pub(super) on_stack: u32,
    /// `own`, by line.
    pub(super) lines: HashMap<i32, u32>,
}

/// What the sampler saw since it was last asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// Samples taken, also those in which nobody held the GIL.
    pub(super) ticks: u32,
    /// Samples that failed (torn reads, stacks deeper than py-spy follows).
    pub(super) lost: u32,
    /// By function.
    pub(super) functions: HashMap<Place, Seen>,
}

impl Samples {
    /// Adds one stack, innermost frame first.
    fn add(&mut self, stack: impl Iterator<Item = (Place, i32)>) {
        let mut on_stack: Vec<Place> = Vec::new();
        for (depth, (place, line)) in stack.enumerate() {
            if depth == 0 {
                let seen = self.functions.entry(place.clone()).or_default();
                seen.own += 1;
                *seen.lines.entry(line).or_default() += 1;
            }
            if depth < STACK_DEPTH && !on_stack.contains(&place) {
                on_stack.push(place);
            }
        }
        for place in on_stack {
            self.functions.entry(place).or_default().on_stack += 1;
        }
    }
}

/// Callers further out than this are not told apart: nobody waits long for them.
const STACK_DEPTH: usize = 64;
/// The sampler may use this part of one core; a deep stack is then sampled less often.
const BUDGET: u32 = 100;

/// How long to wait between samples so that they stay within [`BUDGET`].
///
/// A sample is charged what the cheapest of the last few cost. One alone may be charged far more than its own work: a
/// virtual machine that was not running counts as CPU time of the thread, and a torn read may follow garbage through
/// thousands of frames. A hundred times such a hiccup would be a minute without samples.
#[derive(Default)]
struct Pace {
    recent: [Duration; 3],
    turn: usize,
}

impl Pace {
    /// The wait behind a sample that cost `cost`, at least `interval`.
    fn wait(&mut self, cost: Duration, interval: Duration) -> Duration {
        self.turn = (self.turn + 1) % self.recent.len();
        self.recent[self.turn] = cost;
        let usual = self.recent.into_iter().min().unwrap_or(cost);
        interval.max(usual.saturating_mul(BUDGET))
    }
}

/// py-spy on the own process.
pub(super) struct Sampler {
    spy: py_spy::PythonSpy,
    pace: Pace,
}

impl Sampler {
    /// Finds the interpreter in this process (about 10 ms, without the GIL).
    ///
    /// # Errors
    /// The reason in words, when the process may not be read (a container that forbids
    /// `process_vm_readv`) or the interpreter is not found in it.
    pub(super) fn attach() -> Result<Self, String> {
        let config = py_spy::Config {
            blocking: py_spy::config::LockingStrategy::NonBlocking,
            gil_only: true,
            include_idle: true,
            collect_thread_names: false,
            full_filenames: true,
            ..py_spy::Config::default()
        };
        let pid = py_spy::Pid::try_from(std::process::id()).map_err(|error| error.to_string())?;
        let spy = py_spy::PythonSpy::new(pid, &config).map_err(|error| format!("{error:#}"))?;
        Ok(Self { spy, pace: Pace::default() })
    }

    /// Takes one sample and says how long to wait for the next, at least `interval`.
    pub(super) fn sample(&mut self, into: &mut Samples, interval: Duration) -> Duration {
        let before = thread_time();
        into.ticks += 1;
        match self.spy.get_stack_traces() {
            Ok(traces) => {
                for trace in traces.into_iter().filter(|trace| trace.owns_gil) {
                    into.add(
                        trace
                            .frames
                            .into_iter()
                            .map(|frame| (Place { file: frame.filename, name: frame.name }, frame.line)),
                    );
                }
            }
            Err(_) => into.lost += 1,
        }
        self.pace.wait(thread_time().saturating_sub(before), interval)
    }
}

/// CPU time of this thread; the wall clock would charge us for being preempted.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "there is no other way to a thread's CPU clock")]
    // SAFETY: `time` is valid for the write.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    if status == 0 {
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    } else {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Pace, Place, Samples};

    fn frame(name: &str, line: i32) -> (Place, i32) {
        (Place { file: "m.py".into(), name: name.into() }, line)
    }

    #[test]
    fn the_innermost_frame_is_charged_and_recursion_counts_once() {
        let mut samples = Samples::default();
        samples.add([frame("leaf", 3), frame("walk", 9), frame("walk", 8), frame("main", 1)].into_iter());
        samples.add([frame("walk", 7), frame("main", 1)].into_iter());
        let seen = |name: &str| samples.functions[&frame(name, 0).0].clone();
        assert_eq!((seen("leaf").own, seen("leaf").on_stack), (1, 1));
        assert_eq!((seen("walk").own, seen("walk").on_stack), (1, 2));
        assert_eq!((seen("main").own, seen("main").on_stack), (0, 2));
        assert_eq!(seen("walk").lines, [(7, 1)].into());
    }

    #[test]
    fn one_hiccup_does_not_stop_the_samples_but_a_deep_stack_slows_them() {
        let (interval, usual) = (Duration::from_millis(5), Duration::from_micros(20));
        let mut pace = Pace::default();
        for cost in [usual, usual, Duration::from_millis(600), usual, Duration::from_millis(600), usual] {
            assert_eq!(pace.wait(cost, interval), interval);
        }
        let deep = Duration::from_millis(2);
        let waits: Vec<Duration> = (0..4).map(|_| pace.wait(deep, interval)).collect();
        assert_eq!(waits[2..], [deep * 100, deep * 100]);
    }
}
