//! Builds a nest's copy on trial, to see whether it can tell first iterations from others at all.
//!
//! `s = 0.0` before a loop that adds NumPy's numbers is a `float` at first and an `np.float64` from then on. With the
//! checks and warnings gone, the copy adds either in the same way, and nothing but exits asks for the flag that tells
//! them apart. Then there is nothing to peel, which would cost code and the first of few iterations.

use crate::dominators::Dominators;
use crate::entities::Value;
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::loops::{self, Loop};
use crate::opt::{alike, dead, params};
use overdrive_base::flavour::Ty;
use overdrive_base::table::Entry;

use super::build::{self, Recipe};

/// Whether no loop of the unpeeled copy computes with a flag of its first iteration.
pub(super) fn is_blind(f: &Function, nest: &Loop, recipe: Recipe) -> bool {
    let mut f = f.clone();
    build::build(&mut f, nest, recipe);
    params::run(&mut f);
    alike::run(&mut f);
    params::run(&mut f);
    dead::run(&mut f);
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
