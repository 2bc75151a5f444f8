//! The promotion score: when is a function hot enough to be worth a compilation?
//!
//! In: what one window showed of one code object ([`Window`]) and the [`Weights`]. Out: a number from 0 to
//! 100; a function is promoted when it reaches the threshold in several windows in a row ([`Streak`]); windows in which
//! it did not run are no part of the row, since programs work in phases.
//! Pure arithmetic: it knows neither Python nor the sampler, so the table of expected decisions is a test.
//! The scales are logarithmic because call rates span six decades; with linear ones nothing reaches 85.

/// What one window showed of one code object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Part of the window's samples whose innermost frame was this code, 0 to 1.
    pub(super) self_share: f64,
    /// Samples per second of those whose line lies in a loop of this code.
    pub(super) loop_samples_per_s: f64,
    /// Counted calls per second; `None` when nobody counted.
    pub(super) calls_per_s: Option<f64>,
    /// Size of the bytecode in bytes.
    pub(super) code_bytes: usize,
}

/// Weights of the three terms; they add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weights {
    /// Of the call rate.
    pub(super) call_rate: f64,
    /// Of the share of CPU time.
    pub(super) cpu_share: f64,
    /// Of the bytecode's simplicity.
    pub(super) complexity: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { call_rate: 0.40, cpu_share: 0.35, complexity: 0.25 }
    }
}

/// A loop sample stands for this many activations: at 200 Hz a loop that fills its window counts as
/// 3200 calls per second, which is what such a loop's body would be if it were a function.
const ACTIVATIONS_PER_LOOP_SAMPLE: f64 = 16.0;
/// A self share of 5 % gives the full CPU term.
const FULL_CPU_SHARE: f64 = 0.05;
/// Up to this size bytecode counts as simple; each doubling above costs 20 points.
const SIMPLE_CODE_BYTES: f64 = 1024.0;

impl Window {
    /// 0 to 100: how often the code is activated, by calls or by going round its loops.
    pub(super) fn call_rate(&self) -> f64 {
        let loops = ACTIVATIONS_PER_LOOP_SAMPLE * self.loop_samples_per_s;
        let activations = self.calls_per_s.unwrap_or(0.0).max(loops).max(0.0);
        100.0 * ((1.0 + activations).log2() / 10.0).min(1.0)
    }

    /// 0 to 100: how much of the CPU time is the code's own.
    pub(super) fn cpu_share(&self) -> f64 {
        100.0 * (self.self_share.max(0.0) / FULL_CPU_SHARE).min(1.0)
    }

    /// 0 to 100: how likely a compilation is to be quick and to cover the code.
    pub(super) fn complexity(&self) -> f64 {
        let doublings = (self.code_bytes.max(1) as f64 / SIMPLE_CODE_BYTES).log2().max(0.0);
        (100.0 - 20.0 * doublings).max(0.0)
    }

    /// The score, 0 to 100.
    pub(super) fn score(&self, weights: &Weights) -> f64 {
        weights.call_rate * self.call_rate()
            + weights.cpu_share * self.cpu_share()
            + weights.complexity * self.complexity()
    }

    /// The score that counting the calls could still bring out. Below the threshold, counting is in vain.
    pub(super) fn best_possible(&self, weights: &Weights) -> f64 {
        let rate = if self.calls_per_s.is_some() { self.call_rate() } else { 100.0 };
        weights.call_rate * rate
            + weights.cpu_share * self.cpu_share()
            + weights.complexity * self.complexity()
    }
}

/// The smallest self share with which the threshold is in reach at all; the rest needs no look at Python.
pub(super) fn least_useful_share(weights: &Weights, threshold: f64) -> f64 {
    let missing = threshold - 100.0 * (weights.call_rate + weights.complexity);
    if weights.cpu_share <= 0.0 {
        return 0.0;
    }
    (missing / (100.0 * weights.cpu_share)).clamp(0.0, 1.0) * FULL_CPU_SHARE
}

/// The last windows of one code object in which it was seen, newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct Streak {
    windows: Vec<Window>,
    /// Windows since the newest.
    missed: u64,
}

impl Streak {
    /// Adds a window; keeps the newest `length`.
    pub(super) fn push(&mut self, window: Window, length: usize) {
        self.missed = 0;
        self.windows.push(window);
        let surplus = self.windows.len().saturating_sub(length);
        self.windows.drain(..surplus);
    }

    /// A window in which the code was not seen. More than `most` of them in a row break the row of the others.
    pub(super) fn miss(&mut self, most: u64) {
        self.missed += 1;
        if self.missed > most {
            self.windows.clear();
        }
    }

    /// Whether the code was seen in the window that has just ended.
    pub(super) fn is_fresh(&self) -> bool {
        self.missed == 0 && !self.windows.is_empty()
    }

    /// A call rate counted in one window holds for the ones before it that nobody counted.
    pub(super) fn fill_calls(&mut self, calls_per_s: f64) {
        for window in &mut self.windows {
            window.calls_per_s.get_or_insert(calls_per_s);
        }
    }

    /// Lowest score of the row when the row is complete and every window reaches the threshold.
    pub(super) fn decided(&self, weights: &Weights, threshold: f64, length: usize) -> Option<f64> {
        if self.windows.len() < length {
            return None;
        }
        let lowest = self.windows.iter().map(|w| w.score(weights)).fold(f64::INFINITY, f64::min);
        (lowest >= threshold).then_some(lowest)
    }

    /// Score of the newest window.
    pub(super) fn latest(&self, weights: &Weights) -> f64 {
        self.windows.last().map_or(0.0, |w| w.score(weights))
    }

    /// The newest window.
    pub(super) fn last(&self) -> Option<&Window> {
        self.windows.last()
    }
}

#[cfg(test)]
mod tests {
    use super::{Streak, Weights, Window, least_useful_share};

    const THRESHOLD: f64 = 85.0;

    struct Expected {
        what: &'static str,
        window: Window,
        score: f64,
        promoted: bool,
    }

    fn window(share: f64, loop_share: f64, calls: Option<f64>, bytes: usize) -> Window {
        Window {
            self_share: share,
            loop_samples_per_s: 200.0 * loop_share,
            calls_per_s: calls,
            code_bytes: bytes,
        }
    }

    /// Rule 25's table of expected decisions (docs of the engine); change it only with a new measurement.
    fn table() -> Vec<Expected> {
        let row = |what, window, score, promoted| Expected { what, window, score, promoted };
        vec![
            row("fibonacci_iter at 20 % share", window(0.20, 0.19, Some(60_000.0), 76), 100.0, true),
            row("matrix_multiply at 19 %", window(0.19, 0.19, Some(50.0), 340), 97.0, true),
            row("mandelbrot at 6 %", window(0.06, 0.06, Some(1.5), 330), 90.0, true),
            row("a hot loop at module level", window(1.0, 1.0, Some(0.0), 900), 100.0, true),
            row("a helper at 1 %", window(0.01, 0.0, Some(100_000.0), 60), 72.0, false),
            row("a driver that only calls", window(0.0, 0.0, Some(2_000.0), 200), 65.0, false),
            row("a driver called once", window(0.001, 0.0, Some(0.5), 400), 28.0, false),
            row("a parser of 24 KiB", window(0.9, 0.9, Some(5_000.0), 24 * 1024), 77.0, false),
        ]
    }

    #[test]
    fn the_table_of_expected_decisions_holds() {
        for row in table() {
            let score = row.window.score(&Weights::default());
            assert!((score - row.score).abs() < 1.0, "{}: {score:.1}, expected {}", row.what, row.score);
            let mut streak = Streak::default();
            for seen in 1..=3 {
                streak.push(row.window, 3);
                let decided = streak.decided(&Weights::default(), THRESHOLD, 3).is_some();
                assert_eq!(decided, row.promoted && seen == 3, "{} after {seen} windows", row.what);
            }
        }
    }

    #[test]
    fn one_cool_window_breaks_the_row() {
        let (hot, cool) = (window(0.5, 0.5, None, 100), window(0.01, 0.01, None, 100));
        let mut streak = Streak::default();
        for w in [hot, hot, cool, hot, hot] {
            streak.push(w, 3);
            assert_eq!(streak.decided(&Weights::default(), THRESHOLD, 3), None);
        }
        streak.push(hot, 3);
        assert!(streak.decided(&Weights::default(), THRESHOLD, 3).is_some());
    }

    #[test]
    fn windows_without_it_are_no_part_of_the_row_unless_they_are_many() {
        let hot = window(0.5, 0.5, None, 100);
        let decided = |streak: &Streak| streak.decided(&Weights::default(), THRESHOLD, 3).is_some();
        let mut phases = Streak::default();
        for n in 0..3 {
            assert!(!decided(&phases), "after {n} phases");
            (0..20).for_each(|_| phases.miss(20));
            phases.push(hot, 3);
        }
        assert!(decided(&phases));
        let mut bursts = Streak::default();
        for _ in 0..5 {
            (0..21).for_each(|_| bursts.miss(20));
            bursts.push(hot, 3);
            assert!(!decided(&bursts));
        }
        assert!(bursts.is_fresh());
        bursts.miss(20);
        assert!(!bursts.is_fresh() && bursts.last().is_some());
    }

    #[test]
    fn a_rate_counted_once_holds_for_the_whole_row() {
        let uncounted = window(0.10, 0.0, None, 100);
        let mut streak = Streak::default();
        for _ in 0..3 {
            streak.push(uncounted, 3);
        }
        assert_eq!(streak.decided(&Weights::default(), THRESHOLD, 3), None);
        streak.fill_calls(80_000.0);
        assert_eq!(streak.decided(&Weights::default(), THRESHOLD, 3), Some(100.0));
    }

    #[test]
    fn shares_below_the_least_useful_one_cannot_be_promoted() {
        let weights = Weights::default();
        let least = least_useful_share(&weights, THRESHOLD);
        assert!((least - 0.02857).abs() < 1e-4, "{least}");
        assert!(window(least * 0.99, 1.0, None, 10).best_possible(&weights) < THRESHOLD);
        assert!(window(least * 1.01, 1.0, None, 10).best_possible(&weights) >= THRESHOLD);
    }

    #[test]
    fn odd_numbers_stay_within_the_scale() {
        for bytes in [0, 1, usize::MAX] {
            for share in [-1.0, 0.0, 0.5, 2.0] {
                let score = window(share, -1.0, Some(-5.0), bytes).score(&Weights::default());
                assert!((0.0..=100.0).contains(&score), "{score}");
            }
        }
    }
}
