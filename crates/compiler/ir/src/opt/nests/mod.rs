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
//! The copy differs from the nest in nothing but checks that cannot fail, so it may still leave through the exits that
//! the entry could not exclude, with the state that the nest would have.

mod affine;
mod afterwards;
mod arguments;
mod build;
mod counts;
mod elements;
mod hot;
mod peel;
mod plan;
mod ranges;
mod trial;

use std::collections::BTreeSet;

use crate::dominators::Dominators;
use crate::function::Function;
use crate::loops;
use hot::Hot;

/// A function with more blocks is left as it is: compile time grows with them.
const MAX_BLOCKS: usize = 600;

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
        let plan = Hot::new(f, &dominators, &all, root).and_then(|hot| {
            let plan = plan::plan(&hot)?;
            Some(build::Recipe::new(&hot, plan))
        });
        if let Some(mut recipe) = plan {
            // Two kinds of numbers that the copy treats alike need no first iteration apart.
            if recipe.peels() && trial::is_blind(f, &all[root], recipe.clone().without_peeling()) {
                recipe = recipe.without_peeling();
            }
            if let Some(offset) = f.blocks[all[root].header.index()].offset {
                f.remarks.push((offset, recipe.remark()));
            }
            build::build(f, &all[root], recipe);
            done.insert(root);
        }
    }
}
