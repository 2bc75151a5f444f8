//! One head of keys, some rows of queries: the definition of attention, and how it is computed.
//!
//! The cache is divided into spans of 256 positions from position 0 on. In a span a row's scores are `Σ (scale·q[d])·k[d]` in ascending
//! order of `d`; `m` is the largest that the row sees; `p = exp(score - m)`; sums of `p` are kept apart by position mod 16,
//! those of `p·v` by `d`, both in ascending order of positions. Spans are joined in ascending order: what has the
//! smaller `m` is scaled by `exp` of the difference. At the end the 16 sums are added by halves. All products are added with
//! one rounding. Positions that a row does not see take no part, whatever they hold.

use std::ops::Range;

use crate::aligned::Aligned;
use crate::attention::kernel::{scores, weigh};
use crate::attention::{Item, View};
use crate::cache::TILE;
use crate::exp::{exp, exp_one};
use crate::lanes::{LANES, Lanes, Plain, on_each_level};

/// Positions whose scores are kept until the largest is known.
pub(crate) const SPAN: usize = 4 * TILE;

/// What a thread works in, kept from item to item.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Queries times scale: `(row, head_dim)`.
    queries: Aligned<f32>,
    /// `(rows, SPAN)`: scores, then their exponentials.
    scores: Aligned<f32>,
    /// Keys `(d, TILE)` or values `(TILE, padded d)`.
    tile: Aligned<f32>,
    /// State of the spans so far, and of the one at hand.
    sum: Aligned<f32>,
    span: Aligned<f32>,
    /// What each row sees.
    visible: Vec<Range<usize>>,
    n_rows: usize,
    dim: usize,
}

/// Sums of some rows: `(row, [largest, 1 if anything was seen, …] + 16 sums of p + sums of p·v)`.
pub(crate) struct State<'a> {
    values: &'a [f32],
    n_rows: usize,
    dim: usize,
}

const SEEN: usize = 1;
const HEAD: usize = 2 * LANES;

impl<'a> State<'a> {
    /// Values of a state; `dim` is whole vectors.
    pub(crate) fn len(n_rows: usize, dim: usize) -> usize {
        n_rows * (HEAD + dim)
    }

    pub(crate) fn of(values: &'a [f32], n_rows: usize, dim: usize) -> Self {
        Self { values, n_rows, dim }
    }

    pub(crate) fn values(&self) -> &'a [f32] {
        self.values
    }

    /// Calls `put(place, result)` for each query of an item.
    pub(crate) fn write(
        &self,
        view: &View<'_>,
        kv_head: usize,
        positions: &Range<usize>,
        mut put: impl FnMut(Range<usize>, &[f32]),
    ) {
        debug_assert_eq!(self.n_rows, positions.len() * view.group);
        let mut result = vec![0.0; self.dim];
        for (row, state) in self.values.chunks_exact(HEAD + self.dim).enumerate() {
            let (head, sums) = state.split_at(HEAD);
            let mut lanes = [0.0; LANES];
            lanes.copy_from_slice(&head[LANES..]);
            let share = 1.0 / Plain.sum(lanes);
            for (result, sum) in result.iter_mut().zip(sums) {
                *result = sum * share;
            }
            let (position, head) =
                (positions.start + row / view.group, kv_head * view.group + row % view.group);
            put(view.place(position, head), &result[..view.shape.head_dim]);
        }
    }
}

impl Scratch {
    /// What the last item came to.
    pub(crate) fn state(&self) -> State<'_> {
        State::of(&self.sum[..State::len(self.n_rows, self.dim)], self.n_rows, self.dim)
    }
}

on_each_level! {
    /// Computes an item; its state is then in `scratch`.
    pub(crate) fn run(view: &View<'_>, item: &Item, scratch: &mut Scratch) = run_in;
    /// Joins the state of a later span into `sum`.
    pub(crate) fn merge_all(n_rows: usize, dim: usize, sum: &mut [f32], span: &[f32]) = merge_in;
}

#[inline(always)]
fn run_in<L: Lanes>(l: L, view: &View<'_>, item: &Item, scratch: &mut Scratch) {
    let shape = view.shape;
    let (dim, group) = (shape.padded_dim(), view.group);
    let n_rows = item.positions.len() * group;
    (scratch.n_rows, scratch.dim) = (n_rows, dim);
    let queries = scratch.queries.at_least(n_rows * shape.head_dim);
    gather(view, item, queries);
    let all_scores = scratch.scores.at_least(n_rows * SPAN);
    let tile = scratch.tile.at_least(TILE * dim);
    let sum = scratch.sum.at_least(State::len(n_rows, dim));
    let spare = scratch.span.at_least(State::len(n_rows, dim));
    scratch.visible.clear();
    for position in item.positions.clone() {
        scratch.visible.extend(std::iter::repeat_n(view.visible(position), group));
    }
    let visible = &scratch.visible[..n_rows];
    let blocks = || (0..n_rows).step_by(L::ROWS).map(|first| first..n_rows.min(first + L::ROWS));

    for span in item.spans.clone() {
        let span = span * SPAN..(span + 1) * SPAN;
        let seen = common(&span, &(visible[0].start..visible[n_rows - 1].end));
        let tiles = || {
            (seen.start / TILE..seen.end.div_ceil(TILE)).map(|tile| (tile, tile * TILE..(tile + 1) * TILE))
        };

        for (number, places) in tiles() {
            view.cache.block(view.layer, number).widen_keys(l, shape, item.kv_head, tile);
            let keys = tile[..shape.head_dim * TILE].as_chunks::<TILE>().0;
            for rows in blocks() {
                let seen = common(&places, &(visible[rows.start].start..visible[rows.end - 1].end));
                if !seen.is_empty() {
                    let n_vectors = (seen.end - places.start).div_ceil(LANES);
                    let queries = &queries[rows.start * shape.head_dim..rows.end * shape.head_dim];
                    let out = &mut all_scores[rows.start * SPAN + places.start - span.start..];
                    scores(l, rows.len(), n_vectors, queries, keys, out, SPAN);
                }
            }
        }

        let is_first = span.start / SPAN == item.spans.start;
        let state: &mut [f32] = if is_first { &mut *sum } else { &mut *spare };
        for (row, state) in state.chunks_exact_mut(HEAD + dim).enumerate() {
            state.fill(0.0);
            let seen = common(&span, &visible[row]);
            if !seen.is_empty() {
                let seen = seen.start - span.start..seen.end - span.start;
                soften(l, &mut all_scores[row * SPAN..][..SPAN], &seen, &mut state[..HEAD]);
            }
        }

        for (number, places) in tiles() {
            let seen = common(&places, &seen);
            let block = view.cache.block(view.layer, number);
            block.widen_values(
                l,
                shape,
                item.kv_head,
                seen.start - places.start,
                seen.end - places.start,
                tile,
            );
            for rows in blocks() {
                // What all rows see they take together, the rest each on its own; each in ascending order. The steps are
                // listed first, so that there is one place where `weigh` is: two for each of six rows, and one for all.
                let mut steps: [(Range<usize>, Range<usize>); 13] = Default::default();
                let mut n_steps = 0;
                let mut take = |rows: Range<usize>, of: Range<usize>| {
                    if !of.is_empty() {
                        steps[n_steps] = (rows, of);
                        n_steps += 1;
                    }
                };
                let first = common(&places, &visible[rows.start]);
                let last = common(&places, &visible[rows.end - 1]);
                let (from, to) = (last.start, last.start.max(first.end));
                if first.start < from {
                    for row in rows.clone() {
                        let own = common(&places, &visible[row]);
                        take(row..row + 1, own.start..own.end.min(from));
                    }
                }
                take(rows.clone(), from..to);
                if to < last.end {
                    for row in rows.clone() {
                        let own = common(&places, &visible[row]);
                        take(row..row + 1, own.start.max(to)..own.end);
                    }
                }
                for (rows, of) in &steps[..n_steps] {
                    let values = &tile[(of.start - places.start) * dim..(of.end - places.start) * dim];
                    let p = &all_scores[rows.start * SPAN + of.start - span.start..];
                    let state = &mut state[rows.start * (HEAD + dim) + HEAD..];
                    weigh(l, rows.len(), p, SPAN, values, dim, state, HEAD + dim);
                }
            }
        }
        if !is_first {
            merge_in(l, n_rows, dim, sum, spare);
        }
    }
}

/// What is in both; empty, but inside of `a`, where nothing is.
#[inline(always)]
fn common(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = b.start.clamp(a.start, a.end);
    start..b.end.clamp(start, a.end)
}

/// Queries of the item, scaled: `(row, head_dim)`.
#[inline(always)]
fn gather(view: &View<'_>, item: &Item, out: &mut [f32]) {
    for (row, out) in out.chunks_exact_mut(view.shape.head_dim).enumerate() {
        let (position, head) = (item.positions.start + row / view.group, row % view.group);
        let query = &view.queries[view.place(position, item.kv_head * view.group + head)];
        for (out, q) in out.iter_mut().zip(query) {
            *out = q * view.scale;
        }
    }
}

/// Scores of a span to exponentials; `head` gets the largest and their sums. Places that are not seen, in the vectors where
/// seen ones are, become 0.
#[inline(always)]
fn soften<L: Lanes>(l: L, scores: &mut [f32], seen: &Range<usize>, head: &mut [f32]) {
    let (from, to) = (seen.start / LANES * LANES, seen.end.next_multiple_of(LANES));
    scores[from..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..to].fill(f32::NEG_INFINITY);
    let vectors = scores[from..to].as_chunks_mut::<LANES>().0;
    let mut largest = l.splat(f32::NEG_INFINITY);
    for v in &*vectors {
        largest = l.max(l.load(v), largest);
    }
    head[0] = l.largest(largest);
    head[SEEN] = 1.0;
    let largest = l.splat(head[0]);
    let mut sum = l.splat(0.0);
    for v in vectors {
        let p = exp(l, l.sub(l.load(v), largest));
        l.store(p, v);
        sum = l.add(sum, p);
    }
    l.store(sum, &mut head.as_chunks_mut::<LANES>().0[1]);
}

#[inline(always)]
fn merge_in<L: Lanes>(l: L, n_rows: usize, dim: usize, sum: &mut [f32], span: &[f32]) {
    let rows = sum.chunks_exact_mut(HEAD + dim).zip(span.chunks_exact(HEAD + dim));
    for (sum, span) in rows.take(n_rows) {
        if span[SEEN] == 0.0 {
            continue;
        }
        if sum[SEEN] == 0.0 {
            sum.copy_from_slice(span);
            continue;
        }
        let largest = if sum[0] > span[0] { sum[0] } else { span[0] };
        let keep = l.splat(exp_one(l, sum[0] - largest));
        let take = l.splat(exp_one(l, span[0] - largest));
        sum[0] = largest;
        let (sums, spans) = (sum.as_chunks_mut::<LANES>().0, span.as_chunks::<LANES>().0);
        // The first vector holds no sums.
        for (sum, span) in sums.iter_mut().zip(spans).skip(1) {
            l.store(l.fma(l.load(sum), keep, l.mul(l.load(span), take)), sum);
        }
    }
}
