//! Builds a nest's copy on trial, to see what other passes make of it: whether it can tell first iterations from others at
//! all, whether the questions in it are asked in batches.
//!
//! `s = 0.0` before a loop that adds NumPy's numbers is a `float` at first and an `np.float64` from then on. With the
//! checks and warnings gone, the copy adds either in the same way, and nothing but exits asks for the flag that tells
//! them apart. Then there is nothing to peel, which would cost code and the first of few iterations.

use crate::dominators::Dominators;
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::loops::{self, Loop};
use crate::opt::{alike, batches, dead, fold, params};
use overdrive_base::flavour::Ty;
use overdrive_base::table::Entry;

use super::build::{self, Recipe};

/// Whether no loop of the unpeeled copy computes with a flag of its first iteration.
pub(super) fn is_blind(f: &Function, nest: &Loop, recipe: Recipe) -> bool {
    let f = built(f, nest, recipe);
    let dominators = Dominators::new(&f);
    loops::find(&f, &dominators).iter().filter(|l| is_copy(&f, l)).all(|l| {
        let flags = flags(&f, l);
        !l.blocks.iter().any(|b| {
            let data = &f.blocks[b.index()];
            let asks = match &data.terminator {
                Some(Terminator::Branch { cond, .. }) => flags.contains(cond),
                _ => false,
            };
            asks || data.insts.iter().any(|(inst, _)| inst.operands().iter().any(|v| flags.contains(v)))
        })
    })
}

/// Whether nothing can leave from the copy's loops but what [`batches`] asks about.
pub(super) fn asks_in_batches(f: &Function, nest: &Loop, recipe: Recipe) -> bool {
    let n_before = f.blocks.len();
    let f = built(f, nest, recipe);
    let found = batches::find(&f);
    let dominators = Dominators::new(&f);
    let all = loops::find(&f, &dominators);
    let is_new = |b: &Block| b.index() >= n_before && !f.blocks[b.index()].cold;
    let in_loops = dominators.order.iter().filter(|b| is_new(b) && all.iter().any(|l| l.blocks.contains(b)));
    let may_leave = |b: &Block| {
        let data = &f.blocks[b.index()];
        let is_asked = match &data.terminator {
            Some(Terminator::Branch { then, els, .. }) => {
                f.blocks[then.0.index()].cold != f.blocks[els.0.index()].cold
            }
            _ => false,
        };
        is_asked || data.insts.iter().any(|(inst, _)| inst.exit().is_some())
    };
    !found.is_empty() && in_loops.filter(|b| may_leave(b)).all(|b| found.iter().any(|l| l.blocks.contains(b)))
}

fn built(f: &Function, nest: &Loop, recipe: Recipe) -> Function {
    let mut f = f.clone();
    build::build(&mut f, nest, recipe);
    params::run(&mut f);
    fold::run(&mut f);
    alike::run(&mut f);
    params::run(&mut f);
    dead::run(&mut f);
    f
}

/// Loops that let CPython have its turn are none of ours.
fn is_copy(f: &Function, l: &Loop) -> bool {
    let polls =
        |inst: &Inst| matches!(inst, Inst::Poll { .. } | Inst::Table { entry: Entry::PollPending, .. });
    !l.blocks.iter().any(|b| f.blocks[b.index()].insts.iter().any(|(inst, _)| polls(inst)))
}

/// The header's parameters that are false from the second iteration on.
fn flags(f: &Function, l: &Loop) -> Vec<Value> {
    let is_false = |v: &Value| {
        f.blocks
            .iter()
            .flat_map(|b| &b.insts)
            .any(|(inst, result)| *result == Some(*v) && matches!(inst, Inst::BConst(false)))
    };
    let params = &f.blocks[l.header.index()].params;
    let candidates = params.iter().enumerate().filter(|(_, v)| f.ty(**v) == Ty::I1);
    candidates
        .filter(|(i, _)| {
            l.blocks.iter().all(|b| match &f.blocks[b.index()].terminator {
                Some(Terminator::Jump(to, args)) if *to == l.header => is_false(&args[*i]),
                Some(Terminator::Branch { then, els, .. }) => {
                    [then, els].iter().all(|(to, args)| *to != l.header || is_false(&args[*i]))
                }
                _ => true,
            })
        })
        .map(|(_, v)| *v)
        .collect()
}
