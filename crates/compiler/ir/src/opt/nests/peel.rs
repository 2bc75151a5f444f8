//! Gives the first iteration of a loop a copy of its own, so that what is special about it leaves the loop.
//!
//! In: a loop that is known to run at least once, left only at its header, with parameters that are true in the first
//! iteration at most. Out: the copy, which all ways into the loop lead to; in the loop those parameters are false.

use std::collections::BTreeMap;

use crate::dominators::Dominators;
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{Inst, Terminator};
use crate::loops;
use crate::opt::copies::{Copies, like, push, redirect};
use crate::opt::rewrite::replace_uses;

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
    let new_block: BTreeMap<Block, Block> = blocks.iter().map(|b| (*b, like(f, *b))).collect();
    let mut copies = Copies::default();
    for (old, new) in &new_block {
        f.blocks[new.index()].cold = f.blocks[old.index()].cold;
        copies.bind(f, *old, *new);
    }
    for old in &blocks {
        let new = new_block[old];
        let Some(end) = f.blocks[old.index()].terminator.clone() else { continue };
        // The loop runs at least once: nobody asks the header's question.
        let (skip, end) = match end {
            Terminator::Branch { cond, then, .. } if *old == header => {
                (Some(cond), Terminator::Jump(then.0, then.1))
            }
            end => (None, end),
        };
        copies.insts(f, *old, new, skip);
        // Back to the header means on to the other iterations.
        let end = copies.end(f, end, |b| {
            if b == header { next.unwrap_or(header) } else { new_block.get(&b).copied().unwrap_or(b) }
        });
        f.terminate(new, end);
    }
    debug_assert!(new_block.contains_key(&header), "the loop is there");
    let first = new_block.get(&header).copied().unwrap_or(header);
    if next.is_none() {
        redirect(f, header, first, |b| blocks.contains(&b) || new_block.values().any(|new| *new == b));
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
