//! Where the program spent its time while it ran: the samples of each window, by function, for the report.
//!
//! In: every window's [`Samples`], also those of functions that nobody will promote. Out: for each function the samples that
//! were its own, window by window. Memory is bounded: long sessions get coarser windows. Decides nothing.

use std::collections::HashMap;

use super::sampler::{Place, Samples};

/// Windows that are told apart; above, two neighbours become one.
const MAX_WINDOWS: usize = 400;
/// Part of a window's samples below which a function is not remembered.
const LEAST_SHARE: f64 = 0.005;

/// See the module's contract.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// End of each window in seconds after the session's start, and the samples taken in it.
    windows: Vec<(f64, u32)>,
    /// Number of a window, and samples in it whose innermost frame was the function's.
    own: HashMap<Place, Vec<(u32, u32)>>,
    /// How many of the session's windows each of these is.
    step: u32,
    /// How many of these the last one is so far.
    filled: u32,
}

impl Timeline {
    /// Adds a window that ended `end` seconds after the start.
    pub(super) fn add(&mut self, end: f64, samples: &Samples) {
        self.step = self.step.max(1);
        if self.filled == 0 || self.filled == self.step {
            if self.windows.len() == MAX_WINDOWS {
                self.halve();
            }
            self.windows.push((end, 0));
            self.filled = 0;
        }
        self.filled += 1;
        let number = self.windows.len() as u32 - 1;
        if let Some(last) = self.windows.last_mut() {
            *last = (end, last.1 + samples.ticks);
        }
        for (place, seen) in &samples.functions {
            if seen.own == 0 || f64::from(seen.own) < LEAST_SHARE * f64::from(samples.ticks) {
                continue;
            }
            match self.own.get_mut(place) {
                Some(all) => add(all, number, seen.own),
                None => {
                    self.own.insert(place.clone(), vec![(number, seen.own)]);
                }
            }
        }
    }

    fn halve(&mut self) {
        self.step *= 2;
        self.windows = self
            .windows
            .chunks(2)
            .map(|pair| (pair[pair.len() - 1].0, pair.iter().map(|w| w.1).sum()))
            .collect();
        for all in self.own.values_mut() {
            let mut merged = Vec::with_capacity(all.len());
            all.iter().for_each(|(number, own)| add(&mut merged, number / 2, *own));
            *all = merged;
        }
    }

    pub(super) fn windows(&self) -> &[(f64, u32)] {
        &self.windows
    }

    /// The samples of one function.
    pub(super) fn of(&self, place: &Place) -> Vec<(u32, u32)> {
        self.own.get(place).cloned().unwrap_or_default()
    }

    /// The functions that took most time, of those that `is_other` picks.
    pub(super) fn largest(
        &self,
        n: usize,
        is_other: impl Fn(&Place) -> bool,
    ) -> Vec<(Place, Vec<(u32, u32)>)> {
        let total = |all: &[(u32, u32)]| all.iter().map(|(_, own)| u64::from(*own)).sum::<u64>();
        let mut found: Vec<_> = self.own.iter().filter(|(place, _)| is_other(place)).collect();
        found.sort_by(|a, b| total(b.1).cmp(&total(a.1)).then_with(|| a.0.cmp(b.0)));
        found.into_iter().take(n).map(|(place, all)| (place.clone(), all.clone())).collect()
    }
}

fn add(all: &mut Vec<(u32, u32)>, number: u32, own: u32) {
    match all.last_mut() {
        Some((last, sum)) if *last == number => *sum += own,
        _ => all.push((number, own)),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_WINDOWS, Timeline};
    use crate::promote::sampler::{Place, Samples, Seen};

    fn place(name: &str) -> Place {
        Place { file: "m.py".into(), name: name.into() }
    }

    fn window(hot: u32) -> Samples {
        let seen = |own| Seen { own, on_stack: own, ..Seen::default() };
        let functions = [(place("hot"), seen(hot)), (place("cold"), seen(100 - hot))].into();
        Samples { ticks: 100, lost: 0, functions }
    }

    #[test]
    fn long_sessions_get_coarser_windows_and_lose_no_sample() {
        let mut timeline = Timeline::default();
        let n = 3 * MAX_WINDOWS + 5;
        for i in 0..n {
            timeline.add(i as f64, &window(90));
        }
        assert!(timeline.windows().len() <= MAX_WINDOWS);
        assert_eq!(timeline.windows().last().map(|w| w.0), Some((n - 1) as f64));
        let ticks: u32 = timeline.windows().iter().map(|w| w.1).sum();
        let own: u32 = timeline.of(&place("hot")).iter().map(|w| w.1).sum();
        assert_eq!((ticks, own), (100 * n as u32, 90 * n as u32));
        let numbers: Vec<u32> = timeline.of(&place("cold")).iter().map(|w| w.0).collect();
        assert!(numbers.iter().copied().eq(0..timeline.windows().len() as u32));
    }

    #[test]
    fn what_is_hardly_seen_is_not_remembered_and_the_largest_comes_first() {
        let mut timeline = Timeline::default();
        timeline.add(0.5, &window(100));
        timeline.add(1.0, &window(40));
        assert_eq!(timeline.of(&place("cold")), [(1, 60)]);
        let all = timeline.largest(5, |_| true);
        assert_eq!(all.iter().map(|(p, _)| p.name.as_str()).collect::<Vec<_>>(), ["hot", "cold"]);
        assert_eq!(timeline.largest(1, |p| p.name != "hot").len(), 1);
    }
}
