//! Runs several iterations of an outer loop side by side through its inner loop, so that their sums become independent.
//!
//! A sum over an inner loop is one chain of additions whose order may not change. The sums of neighbouring outer
//! iterations are independent, so U of them run in one inner loop (unroll and jam); each adds its own terms in its own
//! order, hence to the same bits. What follows the inner loop then runs for one outer iteration after the other.
//!
//! Taken where what precedes the inner loop and the inner loop itself only compute, from nothing that the outer loop
//! carries but its counter, and where what the rest stores is known to be apart from what they load ([`nests`] tests
//! that at its entry). Only loops that nests made are of this kind: all others poll. Their counters have fewer than 63
//! bits.
//!
//! [`nests`]: super::nests

use std::collections::{BTreeMap, BTreeSet};

use crate::dominators::{Dominators, successors};
use crate::entities::{Block, Value};
use crate::function::{Function, Iterations};
use crate::inst::{Cmp, Inst, IntOp, Terminator};
use crate::loops::{self, Loop};
use crate::opt::copies::{Copies, like, push, redirect};
use crate::opt::counted::{counted, edges, made_by, step_of};
use crate::opt::tested::{Place, array_of, computes};

/// Iterations side by side when neighbours load neighbouring elements, which makes vectors of them, and otherwise.
const WIDE: usize = 16;
const NARROW: usize = 4;
/// An inner loop with more instructions fills the processor by itself.
const MAX_BODY: usize = 60;

/// The pass.
pub fn run(f: &mut Function) {
    let dominators = Dominators::new(f);
    let all = loops::find(f, &dominators);
    let found: Vec<Shape> = (0..all.len()).filter_map(|inner| shape(f, &dominators, &all, inner)).collect();
    for shape in found {
        f.has_neighbours |= shape.width == WIDE;
        if let Some(offset) = f.blocks[shape.header.index()].offset {
            f.remarks.push((offset, format!("{} iterations run side by side", shape.width)));
        }
        jam(f, &shape);
    }
}

/// An outer loop with one inner loop.
struct Shape {
    header: Block,
    blocks: BTreeSet<Block>,
    counter: Value,
    step: i64,
    bound: Value,
    /// From the outer loop's body to the inner header, one after the other.
    before: Vec<Block>,
    inner: Block,
    /// Whether the inner loop goes on; of its header only this is not copied.
    question: Value,
    inner_bound: Value,
    /// Of the two headers' parameters, the counters.
    at_counter: usize,
    at_inner: usize,
    /// What the inner header gets at first, and from the end of its body.
    first: Vec<Value>,
    back: Vec<Value>,
    /// The inner loop's other blocks, one after the other.
    body: Vec<Block>,
    /// Behind the inner loop; the first is where it is left to.
    rest: Vec<Block>,
    width: usize,
}

fn shape(f: &Function, dominators: &Dominators, all: &[Loop], inner: usize) -> Option<Shape> {
    let outer = &all[all[inner].parent?];
    let inner = &all[inner];
    if f.blocks[outer.header.index()].iterations == Iterations::Parallel {
        // Its iterations are told apart by their number.
        return None;
    }
    let n_inside = all.iter().filter(|l| outer.blocks.contains(&l.header)).count();
    if n_inside != 2 {
        return None;
    }
    let made_by = made_by(f);
    let (counter, bound, body, _) = counted(f, &made_by, outer)?;
    let step = step_of(f, &made_by, outer, counter)?;
    let (inner_counter, inner_bound, inner_body, after) = counted(f, &made_by, inner)?;
    let before = chain(f, body, inner.header, outer)?;
    let chain_of_body = chain(f, inner_body, inner.header, inner)?;
    let rest: Vec<Block> = dominators
        .order
        .iter()
        .copied()
        .filter(|b| {
            outer.blocks.contains(b) && *b != outer.header && !inner.blocks.contains(b) && !before.contains(b)
        })
        .collect();
    if rest.first() != Some(&after) {
        return None;
    }
    let defined_in = |v: Value| {
        outer.blocks.iter().copied().find(|b| {
            let data = &f.blocks[b.index()];
            data.params.contains(&v) || data.insts.iter().any(|(_, result)| *result == Some(v))
        })
    };
    let carried = |v: &Value| *v != counter && f.blocks[outer.header.index()].params.contains(v);
    let ahead = || before.iter().chain(&chain_of_body).chain([&inner.header]);
    let mut loads = BTreeSet::new();
    let (mut n_insts, mut neighbours) = (0, false);
    for block in ahead() {
        let data = &f.blocks[block.index()];
        for (inst, result) in &data.insts {
            if !computes(inst) || inst.operands().iter().any(carried) {
                return None;
            }
            if let Inst::Load(_, ptr) = inst {
                loads.insert(array_of(&made_by, *ptr)?);
            }
            // An index that counts outer iterations, times the size of an element.
            if let Inst::Int(IntOp::Mul, a, b) = inst {
                let counts = *a == counter
                    || matches!(made_by.get(a), Some(Inst::Int(_, x, y)) if *x == counter || *y == counter);
                neighbours |= counts && matches!(made_by.get(b), Some(Inst::IConst(_)));
            }
            n_insts += usize::from(result.is_some());
        }
        let read = data.terminator.as_ref().map_or(vec![], operands);
        if read.iter().any(carried) {
            return None;
        }
    }
    // The inner loop runs as often for each of them.
    let same_for_all = |v: Value| match made_by.get(&v) {
        Some(Inst::IConst(_)) => true,
        _ => defined_in(v).is_none(),
    };
    let position = |header: Block, v: Value| f.blocks[header.index()].params.iter().position(|p| *p == v);
    let (at_counter, at_inner) = (position(outer.header, counter)?, position(inner.header, inner_counter)?);
    let jump = |block: Option<&Block>| match &f.blocks[block?.index()].terminator {
        Some(Terminator::Jump(_, args)) => Some(args.clone()),
        _ => None,
    };
    let (first, back) = (jump(before.last())?, jump(chain_of_body.last())?);
    let Some(Terminator::Branch { cond: question, .. }) = f.blocks[inner.header.index()].terminator else {
        return None;
    };
    if !same_for_all(inner_bound) || !same_for_all(*first.get(at_inner)?) || n_insts > MAX_BODY {
        return None;
    }
    let place = Place { f, dominators, made_by: &made_by, here: outer.header };
    for block in &rest {
        let data = &f.blocks[block.index()];
        for (inst, _) in &data.insts {
            match inst {
                Inst::Store(_, ptr, _) => {
                    let stored = array_of(&made_by, *ptr)?;
                    if !loads.iter().all(|l| place.are_apart(stored, *l)) {
                        return None;
                    }
                }
                Inst::Guard(..) | Inst::Checked(..) => {}
                inst if computes(inst) => {}
                _ => return None,
            }
        }
        let leaves = match data.terminator.as_ref()? {
            Terminator::Return(_) => true,
            end => successors(end).iter().any(|to| *to != outer.header && !rest.contains(to)),
        };
        if leaves {
            return None;
        }
    }
    Some(Shape {
        header: outer.header,
        blocks: outer.blocks.clone(),
        counter,
        step,
        bound,
        before,
        inner: inner.header,
        question,
        inner_bound,
        at_counter,
        at_inner,
        first,
        back,
        body: chain_of_body,
        rest,
        width: if neighbours { WIDE } else { NARROW },
    })
}

/// The blocks from `from` to before `to`, each with one way on, inside the loop.
fn chain(f: &Function, from: Block, to: Block, l: &Loop) -> Option<Vec<Block>> {
    let mut blocks = vec![];
    let mut at = from;
    while at != to {
        if blocks.contains(&at) || !l.blocks.contains(&at) || !f.blocks[at.index()].params.is_empty() {
            return None;
        }
        blocks.push(at);
        let Some(Terminator::Jump(next, _)) = &f.blocks[at.index()].terminator else { return None };
        at = *next;
    }
    Some(blocks)
}

fn operands(end: &Terminator) -> Vec<Value> {
    edges(end).into_iter().flat_map(|(_, args)| args.to_vec()).collect()
}

fn jam(f: &mut Function, shape: &Shape) {
    let params = |f: &Function, block: Block| f.blocks[block.index()].params.clone();
    let head = like(f, shape.header);
    redirect(f, shape.header, head, |b| shape.blocks.contains(&b));

    // Enough iterations left for one more round?
    let head_params = params(f, head);
    let counter = head_params[shape.at_counter];
    let ahead = push(f, head, Inst::IConst(shape.step * (shape.width as i64 - 1)));
    let last = push(f, head, Inst::Int(IntOp::Add, counter, ahead));
    let fits = push(f, head, Inst::ICmp(Cmp::Lt, last, shape.bound));
    let before = f.add_block();
    let rest_of_loop = (shape.header, head_params.clone());
    f.terminate(head, Terminator::Branch { cond: fits, then: (before, vec![]), els: rest_of_loop });

    // What precedes the inner loop, of all.
    let mut all: Vec<Copies> = vec![];
    for u in 0..shape.width {
        let mut copies = Copies::default();
        copies.bind(f, shape.header, head);
        if u > 0 {
            let n = push(f, before, Inst::IConst(shape.step * u as i64));
            copies.map.insert(shape.counter, push(f, before, Inst::Int(IntOp::Add, counter, n)));
        }
        shape.before.iter().for_each(|block| copies.insts(f, *block, before, None));
        all.push(copies);
    }

    // The inner loop: one counter, and of each iteration all else that it carries.
    let inner = f.add_block();
    let inner_params = params(f, shape.inner);
    let inner_counter = f.add_param(inner, overdrive_base::flavour::Ty::I64);
    let mut args = vec![all[0].value(shape.first[shape.at_inner])];
    for copies in &mut all {
        for (i, (param, arg)) in inner_params.iter().zip(&shape.first).enumerate() {
            if i == shape.at_inner {
                copies.map.insert(*param, inner_counter);
                continue;
            }
            args.push(copies.value(*arg));
            let ty = f.ty(*param);
            copies.map.insert(*param, f.add_param(inner, ty));
        }
    }
    f.terminate(before, Terminator::Jump(inner, args));
    let bound = all[0].value(shape.inner_bound);
    let more = push(f, inner, Inst::ICmp(Cmp::Lt, inner_counter, bound));
    all.iter_mut().for_each(|copies| copies.insts(f, shape.inner, inner, Some(shape.question)));
    let body = f.add_block();
    let mut back = vec![];
    for (u, copies) in all.iter().enumerate() {
        let mut copies = copies.clone();
        shape.body.iter().for_each(|block| copies.insts(f, *block, body, None));
        if u == 0 {
            back.push(copies.value(shape.back[shape.at_inner]));
        }
        let others = shape.back.iter().enumerate().filter(|(i, _)| *i != shape.at_inner);
        back.extend(others.map(|(_, arg)| copies.value(*arg)));
    }
    f.terminate(body, Terminator::Jump(inner, back));

    // The rest, one iteration after the other.
    let entries: Vec<Block> = (0..shape.width).map(|_| like(f, shape.header)).collect();
    f.terminate(
        inner,
        Terminator::Branch { cond: more, then: (body, vec![]), els: (entries[0], head_params.clone()) },
    );
    for (u, mut copies) in all.into_iter().enumerate() {
        let own_counter = copies.value(shape.counter);
        copies.bind(f, shape.header, entries[u]);
        copies.map.insert(shape.counter, own_counter);
        let next = entries.get(u + 1).copied().unwrap_or(head);
        copy_rest(f, shape, entries[u], next, copies);
    }
}

/// What follows the inner loop, of one iteration; goes on at `next` with what the outer header would get.
fn copy_rest(f: &mut Function, shape: &Shape, entry: Block, next: Block, mut copies: Copies) {
    let blocks: BTreeMap<Block, Block> = shape.rest.iter().map(|b| (*b, like(f, *b))).collect();
    for (old, new) in &blocks {
        copies.bind(f, *old, *new);
        f.blocks[new.index()].cold = f.blocks[old.index()].cold;
    }
    f.terminate(entry, Terminator::Jump(blocks[&shape.rest[0]], vec![]));
    for old in &shape.rest {
        let new = blocks[old];
        copies.insts(f, *old, new, None);
        let Some(end) = f.blocks[old.index()].terminator.clone() else { continue };
        let end = copies.end(f, end, |b| blocks.get(&b).copied().unwrap_or(next));
        f.terminate(new, end);
    }
}
