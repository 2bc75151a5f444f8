//! The filters between logits and the draw.
//!
//! In: candidates, in order of ids. Out: fewer candidates, and one drawn. Where only the largest matter they are selected,
//! not sorted: vocabularies have 100,000 tokens and more, and what stays is mostly a few dozen.

use std::cmp::Ordering;

use super::exponential::exp;

/// A token still in question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) logit: f64,
    /// Proportional to its probability; the most probable token has 1.
    pub(super) weight: f64,
    pub(super) id: u32,
}

/// The larger logit first, of equal ones the lower id; a total order, so that a selection is unique.
fn by_rank(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Top-k: keeps the first `n` by rank; 0 keeps all.
pub(super) fn keep_largest(candidates: &mut Vec<Candidate>, n: usize) {
    if n == 0 || n >= candidates.len() {
        return;
    }
    candidates.select_nth_unstable_by(n - 1, by_rank);
    candidates.truncate(n);
}

/// Gives each candidate its weight, exp((logit - largest) / temperature).
pub(super) fn weigh(candidates: &mut [Candidate], largest: f64, temperature: f64) {
    for candidate in candidates {
        candidate.weight = exp((candidate.logit - largest) / temperature);
    }
}

/// Top-p: keeps the shortest head by rank that has at least the part `p` of the weight, at least one; 1 keeps all.
pub(super) fn keep_mass(candidates: &mut Vec<Candidate>, p: f64) {
    if p >= 1.0 {
        return;
    }
    candidates.sort_unstable_by_key(|candidate| candidate.id);
    let wanted = p * candidates.iter().map(|candidate| candidate.weight).sum::<f64>();
    let mut mass = 0.0;
    let mut n_sorted = 0;
    let mut n_next = 64;
    while n_sorted < candidates.len() {
        let rest = &mut candidates[n_sorted..];
        let n_head = n_next.min(rest.len());
        if n_head < rest.len() {
            rest.select_nth_unstable_by(n_head - 1, by_rank);
        }
        rest[..n_head].sort_unstable_by(by_rank);
        for (n, candidate) in rest[..n_head].iter().enumerate() {
            mass += candidate.weight;
            if mass >= wanted {
                candidates.truncate(n_sorted + n + 1);
                return;
            }
        }
        n_sorted += n_head;
        n_next *= 4;
    }
}

/// Min-p: keeps candidates of at least the part `p` of the largest weight, which is 1; 0 keeps all.
pub(super) fn keep_likely(candidates: &mut Vec<Candidate>, p: f64) {
    if p > 0.0 {
        candidates.retain(|candidate| candidate.weight >= p);
    }
}

/// The candidate at the place `unit`, in [0, 1), of the weights laid end to end in order of ids. There is at least one.
pub(super) fn draw(candidates: &mut [Candidate], unit: f64) -> u32 {
    candidates.sort_unstable_by_key(|candidate| candidate.id);
    let wanted = unit * candidates.iter().map(|candidate| candidate.weight).sum::<f64>();
    let mut mass = 0.0;
    let mut last = 0;
    for candidate in candidates.iter().filter(|candidate| candidate.weight > 0.0) {
        mass += candidate.weight;
        last = candidate.id;
        if mass > wanted {
            break;
        }
    }
    last
}
