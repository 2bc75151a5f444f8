//! Loop nests over arrays get a second copy without checks, entered when all of them would succeed.
//!
//! A nest of counted loops that computes on array elements checks every index, every sum and every float result, and
//! polls in every iteration; no vectoriser takes that. Whether all of it is going to be fine can mostly be seen before
//! the nest begins: bounds of indices follow from loop bounds and lengths ([`affine`]), those of numbers from element
//! types and one look at the elements ([`ranges`], [`elements`]; arguments of `math`: [`arguments`];
//! sums that tell by themselves: [`afterwards`]). So an entry tests that ([`plan`]), and the copy ([`build`]) does not.
//! It polls between strips of its outermost loop; the nest as it was takes over whenever the entry says no, when CPython
//! asks for its turn, and for what follows the last iteration.
//!
//! ```text
//!          ┌───────────────────── no ─────────────────────┐
//! before ──┴─ entry ── yes ── strip ── copy of the nest ──┴─ header of the nest ── …
//!                               └───────────┘ not done, nobody asks
//! ```
//!
//! Where the innermost loops only compute from elements and store, nobody looks at elements: the questions about results
//! stay in the copy, and [`batches`](super::batches) asks them.
//!
//! A nest whose iterations are independent by the program's word is shared out among threads in front of the copy
//! ([`parallel`]).
//!
//! The copy differs from the nest in nothing but checks that cannot fail, so it may still leave through the exits that
//! the entry could not exclude, with the state that the nest would have.

mod affine;
mod afterwards;
mod arguments;
mod build;
mod counts;
mod elements;
mod hot;
mod parallel;
mod peel;
mod plan;
mod ranges;
mod trial;

use std::collections::BTreeSet;

use crate::dominators::Dominators;
use crate::function::{Function, Iterations};
use crate::loops::{self, Loop};
use build::Recipe;
use hot::Hot;
use plan::Results;

/// A function with more blocks is left as it is: compile time grows with them.
const MAX_BLOCKS: usize = 600;

/// How a remark begins about a loop that was to run in parallel and does not.
pub const NOT_PARALLEL: &str = "not parallel: ";

/// The pass.
pub fn run(f: &mut Function) {
    if f.blocks.len() > MAX_BLOCKS {
        return;
    }
    let dominators = Dominators::new(f);
    let all = loops::find(f, &dominators);
    let mut done: BTreeSet<usize> = BTreeSet::new();
    for root in 0..all.len() {
        let mut around = Some(root);
        while let Some(l) = around.filter(|l| !done.contains(l)) {
            around = all[l].parent;
        }
        if around.is_some() {
            continue;
        }
        let is_free = |l: &Loop| f.blocks[l.header.index()].iterations == Iterations::Free;
        let has_free = all.iter().any(|l| all[root].blocks.contains(&l.header) && is_free(l));
        let is_free = is_free(&all[root]);
        if has_free && !is_free {
            // It is left to the loop inside to be a nest.
            continue;
        }
        let mut in_order = is_free
            .then(|| "it is no counted loop that only computes on numbers and array elements".to_owned());
        let plan = Hot::new(f, &dominators, &all, root).and_then(|hot| {
            let mut plan = plan::plan(&hot, Results::Foreseen)?;
            let mut shared = None;
            if is_free {
                match parallel::shared(&hot, &mut plan, &all[root]) {
                    Ok(parts) => (shared, in_order) = (Some(parts), None),
                    Err(why) => in_order = Some(why),
                }
            }
            Some(Recipe::new(&hot, plan, shared))
        });
        let offset = f.blocks[all[root].header.index()].offset;
        if let (Some(offset), Some(why)) = (offset, in_order) {
            f.remarks.push((offset, format!("{NOT_PARALLEL}{why}")));
        }
        if let Some(mut recipe) = plan {
            if !is_free && let Some(other) = in_batches(f, &dominators, &all, root, &recipe) {
                recipe = other;
            }
            // Two kinds of numbers that the copy treats alike need no first iteration apart. (Where floats are summed in
            // parallel the stated order has one.)
            if !is_free && recipe.peels() && trial::is_blind(f, &all[root], recipe.clone().without_peeling())
            {
                recipe = recipe.without_peeling();
            }
            if let Some(offset) = offset {
                f.remarks.push((offset, recipe.remark()));
            }
            build::build(f, &all[root], recipe);
            done.insert(root);
        }
    }
}

/// The nest without a look at the elements, where what it computes from them can be asked in batches instead: the look
/// takes about as long as loading them once more. Nor does it tell of everything: not of what is divided by an element.
fn in_batches(
    f: &Function,
    dominators: &Dominators,
    all: &[Loop],
    root: usize,
    recipe: &Recipe,
) -> Option<Recipe> {
    // Without the GIL nothing may leave.
    if recipe.peels() || f.gives_gil || !(recipe.plan.looks() || recipe.plan.asks()) {
        return None;
    }
    let hot = Hot::new(f, dominators, all, root)?;
    let recipe = Recipe::new(&hot, plan::plan(&hot, Results::Asked)?, None);
    trial::asks_in_batches(f, &all[root], recipe.clone()).then_some(recipe)
}
