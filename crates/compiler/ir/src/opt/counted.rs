//! Loops that count: what the passes share that run several iterations at once.
//!
//! In: a natural loop. Out: its counter, bound and step, if the header compares the two and every way back adds the same.

use std::collections::BTreeMap;

use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{Cmp, Inst, IntOp, Terminator};
use crate::loops::Loop;

/// The instruction that makes each value.
pub(super) fn made_by(f: &Function) -> BTreeMap<Value, Inst> {
    let insts = f.blocks.iter().flat_map(|b| &b.insts);
    insts.filter_map(|(inst, result)| Some(((*result)?, inst.clone()))).collect()
}

/// Counter, bound, first block of the body, and where the loop is left to, of a loop left at its header.
pub(super) fn counted(
    f: &Function,
    made_by: &BTreeMap<Value, Inst>,
    l: &Loop,
) -> Option<(Value, Value, Block, Block)> {
    let data = &f.blocks[l.header.index()];
    let Some(Terminator::Branch { cond, then, els }) = &data.terminator else { return None };
    let Some(Inst::ICmp(Cmp::Lt, counter, bound)) = made_by.get(cond) else { return None };
    let is_counted = data.params.contains(counter)
        && l.blocks.contains(&then.0)
        && !l.blocks.contains(&els.0)
        && then.1.is_empty()
        && els.1.is_empty();
    is_counted.then_some((*counter, *bound, then.0, els.0))
}

/// What all ways back add to the counter.
pub(super) fn step_of(
    f: &Function,
    made_by: &BTreeMap<Value, Inst>,
    l: &Loop,
    counter: Value,
) -> Option<i64> {
    let position = f.blocks[l.header.index()].params.iter().position(|v| *v == counter)?;
    let mut step = None;
    for block in &l.blocks {
        for (to, args) in edges(f.blocks[block.index()].terminator.as_ref()?) {
            if to != l.header {
                continue;
            }
            let Some(Inst::Int(IntOp::Add, a, b)) = made_by.get(args.get(position)?) else { return None };
            let Some(Inst::IConst(n)) = made_by.get(b) else { return None };
            if *a != counter || *n <= 0 || step.is_some_and(|known| known != *n) {
                return None;
            }
            step = Some(*n);
        }
    }
    step
}

/// The ways on, with what they pass.
pub(super) fn edges(end: &Terminator) -> Vec<(Block, &[Value])> {
    match end {
        Terminator::Jump(to, args) => vec![(*to, args.as_slice())],
        Terminator::Branch { then, els, .. } => vec![(then.0, then.1.as_slice()), (els.0, els.1.as_slice())],
        Terminator::Return(_) | Terminator::Exit(_) => vec![],
    }
}
