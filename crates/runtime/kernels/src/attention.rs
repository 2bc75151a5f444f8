//! Attention of many queries over cached keys and values, several sequences at once.
//!
//! In: caches, queries, the place of the first. Out: for each query the mean of the values it sees, weighted by the softmax of
//! its scores. The work is cut into items of one head of keys and some positions, largest first, for the threads of the
//! pool; where queries are few, also into spans of 256 positions of the cache. The bits do not depend on the cut, because
//! the definition (in `item.rs`) has the same spans. Must not know: where queries come from.

mod item;
mod kernel;

use std::cell::RefCell;
use std::ops::Range;

use crate::cache::{KvCache, KvShape};
use crate::cpu::{Level, level};
use crate::spread::Pieces;

use item::{SPAN, Scratch, State};

/// Rows of queries that an item has at most, unless one position has more: they use each tile of keys while it is near.
const ROWS: usize = 96;
/// Products that one thread does faster than it wakes another.
const FEW: usize = 1 << 18;

/// Queries of one sequence.
pub struct Part<'a> {
    /// Keys and values, those of the queries' own positions included.
    pub cache: &'a KvCache,
    /// Position of the first query; the last has the last position of the cache's layer.
    pub first: usize,
    /// `(positions, heads, head_dim)`; how many heads follows from the length.
    pub queries: &'a [f32],
    /// Results, shaped like the queries.
    pub out: &'a mut [f32],
}

/// For each query: softmax of `scale · q·k` over the positions up to its own, at most the last `window` of them (its own always),
/// times their values. Query head `h` uses the head `h / (heads / kv_heads)` of keys. A query's result does not depend
/// on other queries, other parts, threads or the processor.
///
/// # Panics
/// When queries, results and cache do not fit.
pub fn attend(parts: &mut [Part<'_>], layer: usize, scale: f32, window: Option<usize>) {
    attend_at(level(), parts, layer, scale, window);
}

fn attend_at(level: Level, parts: &mut [Part<'_>], layer: usize, scale: f32, window: Option<usize>) {
    let window = window.unwrap_or(usize::MAX).max(1);
    let mut outs: Vec<Pieces<'_, f32>> = Vec::with_capacity(parts.len());
    let mut views: Vec<View<'_>> = Vec::with_capacity(parts.len());
    for part in parts {
        views.push(View::new(part.cache, layer, part.first, part.queries, part.out.len(), scale, window));
        outs.push(Pieces::new(part.out));
    }
    let plan = Plan::new(&views);
    let mut partial = vec![0.0; plan.partial_len];
    let partials = Pieces::new(&mut partial);
    let body = |items: Range<i64>| {
        SCRATCH.with_borrow_mut(|scratch| {
            for item in &plan.items[items.start as usize..items.end as usize] {
                let view = &views[item.part];
                item::run(level, view, item, scratch);
                finish(view, item, scratch, &outs[item.part], &partials);
            }
        });
    };
    if plan.work <= FEW {
        body(0..plan.items.len() as i64);
    } else {
        overdrive_pool::run(plan.items.len() as i64, &body)
            .expect("a kernel panics only where its caller broke its contract");
    }
    join(level, &views, &plan, &partial, &outs);
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A part, checked.
pub(crate) struct View<'a> {
    cache: &'a KvCache,
    shape: KvShape,
    layer: usize,
    first: usize,
    n_positions: usize,
    n_heads: usize,
    /// Heads of queries for each head of keys.
    group: usize,
    queries: &'a [f32],
    scale: f32,
    window: usize,
}

impl<'a> View<'a> {
    fn new(
        cache: &'a KvCache,
        layer: usize,
        first: usize,
        queries: &'a [f32],
        n_out: usize,
        scale: f32,
        window: usize,
    ) -> Self {
        let shape = cache.shape();
        let len = cache.layer_len(layer);
        assert!(first <= len, "queries from position {first} on, the cache has {len}");
        let n_positions = len - first;
        let n_heads = queries.len().checked_div(n_positions * shape.head_dim).unwrap_or(0);
        assert!(
            queries.len() == n_out
                && queries.len() == n_positions * n_heads * shape.head_dim
                && n_heads.is_multiple_of(shape.n_kv_heads)
                && (n_heads > 0 || n_positions == 0),
            "{} queries and {n_out} results of {n_positions} positions for {} heads of {}",
            queries.len(),
            shape.n_kv_heads,
            shape.head_dim
        );
        let group = n_heads / shape.n_kv_heads;
        Self { cache, shape, layer, first, n_positions, n_heads, group, queries, scale, window }
    }

    /// What a query of the part sees of its cache.
    fn visible(&self, position: usize) -> Range<usize> {
        let end = self.first + position + 1;
        end.saturating_sub(self.window)..end
    }

    /// Where a query, or its result, lies.
    fn place(&self, position: usize, head: usize) -> Range<usize> {
        let at = (position * self.n_heads + head) * self.shape.head_dim;
        at..at + self.shape.head_dim
    }
}

/// One head of keys of one part, and some positions of its queries.
pub(crate) struct Item {
    part: usize,
    kv_head: usize,
    /// Positions in the part.
    positions: Range<usize>,
    /// What of the cache is looked at.
    spans: Range<usize>,
    /// Where the state goes that is not yet the result; none where all spans are looked at.
    partial: Option<usize>,
    /// Products of a query with a key.
    work: usize,
}

struct Plan {
    items: Vec<Item>,
    /// Items of the same rows, in ascending order of spans: part, head, positions, where the first state lies, how many.
    joins: Vec<(usize, usize, Range<usize>, usize, usize)>,
    partial_len: usize,
    /// Multiplications of queries with keys.
    work: usize,
}

impl Plan {
    fn new(views: &[View<'_>]) -> Self {
        let mut plan = Self { items: Vec::new(), joins: Vec::new(), partial_len: 0, work: 0 };
        let n_tiles =
            |view: &View<'_>| view.n_positions.div_ceil(positions_per_item(view)) * view.shape.n_kv_heads;
        // Enough for the threads to end together without looking at spans one by one.
        let is_many = views.iter().map(n_tiles).sum::<usize>() >= 4 * overdrive_pool::threads();
        for (part, view) in views.iter().enumerate() {
            for first in (0..view.n_positions).step_by(positions_per_item(view)) {
                let positions = first..view.n_positions.min(first + positions_per_item(view));
                let seen = view.visible(first).start..view.visible(positions.end - 1).end;
                let spans = seen.start / SPAN..seen.end.div_ceil(SPAN);
                let n_rows = positions.len() * view.group;
                for kv_head in 0..view.shape.n_kv_heads {
                    let item = Item {
                        part,
                        kv_head,
                        positions: positions.clone(),
                        spans: spans.clone(),
                        partial: None,
                        work: n_rows * seen.len(),
                    };
                    plan.work += item.work * view.shape.head_dim;
                    if is_many || spans.len() == 1 {
                        plan.items.push(item);
                    } else {
                        plan.split(view, item);
                    }
                }
            }
        }
        // The largest first, so that no thread is left alone with one. Stable: nothing depends on it but time.
        plan.items.sort_by_key(|item| std::cmp::Reverse(item.work));
        plan
    }

    /// An item for each span.
    fn split(&mut self, view: &View<'_>, item: Item) {
        let Item { part, kv_head, positions, spans, work, .. } = item;
        let len = State::len(positions.len() * view.group, view.shape.padded_dim());
        self.joins.push((part, kv_head, positions.clone(), self.partial_len, spans.len()));
        let n_spans = spans.len();
        for span in spans {
            self.items.push(Item {
                part,
                kv_head,
                positions: positions.clone(),
                spans: span..span + 1,
                partial: Some(self.partial_len),
                work: work / n_spans,
            });
            self.partial_len += len;
        }
    }
}

fn positions_per_item(view: &View<'_>) -> usize {
    (ROWS / view.group.max(1)).max(1)
}

/// Writes what an item came to: results, or a state to be joined.
#[expect(unsafe_code, reason = "items write disjoint places of shared arrays")]
fn finish(
    view: &View<'_>,
    item: &Item,
    scratch: &Scratch,
    out: &Pieces<'_, f32>,
    partials: &Pieces<'_, f32>,
) {
    match item.partial {
        None => scratch.state().write(view, item.kv_head, &item.positions, |place, row| {
            // SAFETY: each query's result is written by the one item that has its head and position.
            unsafe { out.piece(place) }.copy_from_slice(row);
        }),
        Some(at) => {
            let state = scratch.state().values();
            // SAFETY: each item has its own part.
            unsafe { partials.piece(at..at + state.len()) }.copy_from_slice(state);
        }
    }
}

/// Joins the states of spans in ascending order, as an item that looks at all of them does.
#[expect(unsafe_code, reason = "the pool is done with the arrays that it shared")]
fn join(level: Level, views: &[View<'_>], plan: &Plan, partial: &[f32], outs: &[Pieces<'_, f32>]) {
    for (part, kv_head, positions, first, n) in &plan.joins {
        let view = &views[*part];
        let (n_rows, dim) = (positions.len() * view.group, view.shape.padded_dim());
        let len = State::len(n_rows, dim);
        let mut sum = partial[*first..first + len].to_vec();
        for i in 1..*n {
            item::merge_all(level, n_rows, dim, &mut sum, &partial[first + i * len..][..len]);
        }
        State::of(&sum, n_rows, dim).write(view, *kv_head, positions, |place, row| {
            // SAFETY: no thread is at work on it any more.
            unsafe { outs[*part].piece(place) }.copy_from_slice(row);
        });
    }
}

#[cfg(test)]
mod tests;
