//! Gives the first iteration of a loop a copy of its own, so that what is special about it leaves the loop.
//!
//! In: a loop that is known to run at least once, left only at its header, with parameters that are true in the first
//! iteration at most. Out: the copy, which all ways into the loop lead to; in the loop those parameters are false.

use std::collections::BTreeMap;

use super::build::push;
use crate::dominators::Dominators;
use crate::entities::{Block, ExitId, Value};
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::loops;
use crate::opt::rewrite::{each_operand, each_slot_value, each_terminator_operand, replace_uses};

/// Peels; gives the copy's first block, which takes the header's arguments. With `next` the ways into the loop stay as
/// they are, and the copy goes on there instead of at the header.
pub(super) fn first_iteration(
    f: &mut Function,
    header: Block,
    flags: &[usize],
    next: Option<Block>,
) -> Block {
    let dominators = Dominators::new(f);
    let blocks: Vec<Block> = loops::find(f, &dominators)
        .into_iter()
        .find(|l| l.header == header)
        .map_or(vec![], |l| dominators.order.iter().copied().filter(|b| l.blocks.contains(b)).collect());
    let mut new_block: BTreeMap<Block, Block> = BTreeMap::new();
    let mut map: BTreeMap<Value, Value> = BTreeMap::new();
    for old in &blocks {
        let new = f.add_block();
        f.blocks[new.index()].cold = f.blocks[old.index()].cold;
        for v in f.blocks[old.index()].params.clone() {
            let ty = f.ty(v);
            map.insert(v, f.add_param(new, ty));
        }
        new_block.insert(*old, new);
    }
    let mut exits: BTreeMap<ExitId, ExitId> = BTreeMap::new();
    for old in &blocks {
        let data = f.blocks[old.index()].clone();
        let at = new_block[old];
        // The first iteration is certain: nobody asks the header's question.
        let question = match &data.terminator {
            Some(Terminator::Branch { cond, .. }) if *old == header => Some(*cond),
            _ => None,
        };
        for (mut inst, result) in data.insts {
            if result.is_some() && result == question {
                continue;
            }
            each_operand(&mut inst, &mut |v| *v = map.get(v).copied().unwrap_or(*v));
            if let Inst::Checked(_, _, _, exit)
            | Inst::Guard(_, exit)
            | Inst::Table { fail: Some(exit), .. } = &mut inst
            {
                *exit = copied_exit(f, &map, &mut exits, *exit);
            }
            if let (Some(old), Some(new)) = (result, f.push(at, inst)) {
                map.insert(old, new);
            }
        }
        let Some(mut end) = data.terminator else { continue };
        each_terminator_operand(&mut end, &mut |v| *v = map.get(v).copied().unwrap_or(*v));
        // Back to the header means on to the other iterations.
        let to = |b: Block| {
            if b == header { next.unwrap_or(header) } else { new_block.get(&b).copied().unwrap_or(b) }
        };
        let end = match end {
            // The loop runs at least once.
            Terminator::Branch { then, .. } if *old == header => Terminator::Jump(to(then.0), then.1),
            Terminator::Branch { cond, then, els } => {
                Terminator::Branch { cond, then: (to(then.0), then.1), els: (to(els.0), els.1) }
            }
            Terminator::Jump(b, args) => Terminator::Jump(to(b), args),
            Terminator::Exit(exit) => Terminator::Exit(copied_exit(f, &map, &mut exits, exit)),
            Terminator::Return(v) => Terminator::Return(v),
        };
        f.terminate(at, end);
    }
    debug_assert!(new_block.contains_key(&header), "the loop is there");
    let first = new_block.get(&header).copied().unwrap_or(header);
    if next.is_none() {
        enter_at(f, header, first, &blocks, &new_block);
    }
    let flags: Vec<Value> = flags.iter().map(|i| f.blocks[header.index()].params[*i]).collect();
    let never = push(f, header, Inst::BConst(false));
    // In front of everything else in the header.
    if let Some(last) = f.blocks[header.index()].insts.pop() {
        f.blocks[header.index()].insts.insert(0, last);
    }
    replace_uses(f, |v| if flags.contains(&v) { never } else { v });
    first
}

/// Ways into the loop from elsewhere lead to the copy.
fn enter_at(f: &mut Function, header: Block, first: Block, blocks: &[Block], new: &BTreeMap<Block, Block>) {
    for (at, block) in f.blocks.iter_mut().enumerate() {
        let at = Block(at as u32);
        if blocks.contains(&at) || new.values().any(|b| *b == at) {
            continue;
        }
        match &mut block.terminator {
            Some(Terminator::Jump(to, _)) if *to == header => *to = first,
            Some(Terminator::Branch { then, els, .. }) => {
                for (to, _) in [then, els] {
                    if *to == header {
                        *to = first;
                    }
                }
            }
            _ => {}
        }
    }
}

fn copied_exit(
    f: &mut Function,
    map: &BTreeMap<Value, Value>,
    exits: &mut BTreeMap<ExitId, ExitId>,
    old: ExitId,
) -> ExitId {
    *exits.entry(old).or_insert_with(|| {
        let mut exit = f.exits[old.index()].clone();
        for slot in exit.locals.iter_mut().chain(&mut exit.stack) {
            each_slot_value(slot, &mut |v| *v = map.get(v).copied().unwrap_or(*v));
        }
        f.add_exit(exit)
    })
}
