//! Runs a batch of iterations of an innermost loop before it stores what they made.
//!
//! Arithmetic of NumPy's types asks of every result whether it is finite, since NumPy may have something to say when it
//! is not. Between the loads of an iteration and its store such a question keeps LLVM from making vectors. So a batch of
//! iterations loads and computes, one question is asked about all of them, and then they store.
//!
//! ```text
//! ─┬─ enough left? ── yes ── loads and results of all ── all finite? ── yes ── stores of all ─┐
//!  │ ↑       │ no                                           │ no                              │
//!  │ └───────┼──────────────────────────────────────────────┼─────────────────────────────────┘
//!  │         └── some left? ── yes: a batch that ends with the last, no ──┐
//!  └──────────────────────────────── loop as it was ◀──┴──────────────────┘
//! ```
//!
//! Nothing has been stored when the answer is no, so the first iteration of the batch begins anew in the loop as it was,
//! which leaves with the exact state. What all iterations load is apart from what they store ([`nests`] tests that at its
//! entry), and nothing but the counter goes from one to the next: hence the order of loads and stores does not matter, and
//! an iteration that is done twice stores the same. Only loops that nests made are of this kind: all others poll. Their
//! counters have fewer than 63 bits.
//!
//! [`nests`]: super::nests

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::{DType, Ty};

use crate::dominators::Dominators;
use crate::entities::{Block, Value};
use crate::function::{Function, Iterations};
use crate::inst::{BoolOp, Cmp, Inst, IntOp, Terminator};
use crate::loops::{self, Loop};
use crate::opt::copies::{Copies, like, push, redirect};
use crate::opt::counted::{counted, made_by, step_of};
use crate::opt::quiet::{Quiet, hands_on, quiet};
use crate::opt::tested::{Place, array_of, computes};

/// Elements of a batch: two vectors of 256 bits of the widest.
const BATCH_BYTES: usize = 64;
/// Iterations of a batch where there are not as many.
const SHORT: usize = 4;
/// A loop that runs to a smaller constant is unrolled by LLVM, and costs less without questions.
const FEW: i64 = 8;
/// A loop with more loads, stores and float operations has enough of them to fill the processor, and would become very
/// long.
const MAX_BODY: usize = 32;

/// The pass.
pub fn run(f: &mut Function) {
    for shape in find(f) {
        f.has_neighbours = true;
        if let Some(offset) = f.blocks[shape.header.index()].offset {
            let text = format!("results are tested for {} iterations at once", shape.width);
            f.remarks.push((offset, text));
        }
        build(f, &shape);
    }
}

/// The loops that the pass would change.
pub(super) fn find(f: &Function) -> Vec<Shape> {
    let dominators = Dominators::new(f);
    let all = loops::find(f, &dominators);
    let made_by = made_by(f);
    let innermost =
        all.iter().filter(|l| !all.iter().any(|o| o.header != l.header && l.blocks.contains(&o.header)));
    innermost.filter_map(|l| shape(f, &dominators, &made_by, l)).collect()
}

/// A loop whose iterations are one line of blocks with nothing in it but computation, stores and questions.
pub(super) struct Shape {
    pub(super) header: Block,
    /// All blocks of the loop.
    pub(super) blocks: BTreeSet<Block>,
    counter: Value,
    step: i64,
    bound: Value,
    /// Whether the loop goes on; of its header only this is not copied.
    question: Value,
    /// The header and the blocks behind it, one after the other.
    line: Vec<Block>,
    /// What is asked: no check of an iteration fails when all of these are true.
    all_true: Vec<Value>,
    width: usize,
}

fn shape(f: &Function, dominators: &Dominators, made_by: &BTreeMap<Value, Inst>, l: &Loop) -> Option<Shape> {
    let header = &f.blocks[l.header.index()];
    let (counter, bound, body, _) = counted(f, made_by, l)?;
    let step = step_of(f, made_by, l, counter)?;
    let Some(Terminator::Branch { cond: question, .. }) = header.terminator else { return None };
    let is_made_inside = |v: Value| {
        l.blocks.iter().any(|b| f.blocks[b.index()].insts.iter().any(|(_, result)| *result == Some(v)))
    };
    if header.params[..] != [counter] || header.iterations != Iterations::InOrder || is_made_inside(bound) {
        return None;
    }
    if matches!(made_by.get(&bound), Some(Inst::IConst(n)) if *n < FEW) {
        return None;
    }
    let mut line = vec![l.header];
    let mut asked = vec![];
    let mut at = body;
    while at != l.header {
        let data = &f.blocks[at.index()];
        if line.contains(&at) || !l.blocks.contains(&at) || !data.params.is_empty() {
            return None;
        }
        line.push(at);
        let is_cold = |b: Block| f.blocks[b.index()].cold;
        at = match data.terminator.as_ref()? {
            Terminator::Jump(next, _) => *next,
            Terminator::Branch { cond, then, els } if is_cold(els.0) && !is_cold(then.0) => {
                asked.push(quiet(|v| made_by.get(&v), *cond)?);
                then.0
            }
            _ => return None,
        };
    }
    let place = Place { f, dominators, made_by, here: l.header };
    if asked.is_empty() || (asked.iter().any(|q| q.scales) && !place.is_under_ignored()) {
        return None;
    }
    let (mut loads, mut stores, mut widest, mut n) = (BTreeSet::new(), BTreeSet::new(), None, 0);
    let mut compared = vec![];
    for (inst, _) in line.iter().flat_map(|b| &f.blocks[b.index()].insts) {
        match inst {
            Inst::Load(_, ptr) => loads.insert(array_of(made_by, *ptr)?),
            Inst::Store(dtype @ (DType::F64 | DType::F32), ptr, _) => {
                widest = widest.max(Some(dtype.size() as usize));
                stores.insert(array_of(made_by, *ptr)?)
            }
            // Nothing but an operation on floats, which is none that could do harm, depends on how floats compare.
            Inst::Guard(cond, _) if matches!(made_by.get(cond), Some(Inst::FCmp(..))) => {
                compared.push(*cond);
                false
            }
            inst if computes(inst) => false,
            _ => return None,
        };
        n += usize::from(matches!(
            inst,
            Inst::Load(..) | Inst::Store(..) | Inst::Float(..) | Inst::Select(..)
        ));
    }
    let is_apart = stores.iter().all(|s| loads.iter().all(|l| place.are_apart(*s, *l)));
    if !is_apart || n > MAX_BODY {
        return None;
    }
    let mut all_true = telling(f, &line, &asked);
    all_true.extend(compared);
    let blocks = l.blocks.clone();
    let width = BATCH_BYTES / widest?;
    Some(Shape { header: l.header, blocks, counter, step, bound, question, line, all_true, width })
}

/// Of what is asked, as much as tells of the rest: a result that is not finite makes those so that are computed from it
/// by addition, subtraction and multiplication.
fn telling(f: &Function, line: &[Block], asked: &[Quiet]) -> Vec<Value> {
    let insts = || line.iter().flat_map(|b| &f.blocks[b.index()].insts);
    let is_reached_from = |from: Value, to: Value| {
        let mut reached = BTreeSet::from([from]);
        for (inst, result) in insts() {
            let is_reached = hands_on(inst, |v| reached.contains(&v));
            reached.extend(result.filter(|_| is_reached));
        }
        reached.contains(&to)
    };
    let mut telling: Vec<Value> = vec![];
    for (i, one) in asked.iter().enumerate() {
        // The last of two questions about one result counts.
        let is_told = asked[i + 1..].iter().any(|other| is_reached_from(one.result, other.result));
        if !is_told {
            telling.push(one.is_finite);
        }
    }
    telling
}

fn build(f: &mut Function, shape: &Shape) {
    let entry = like(f, shape.header);
    redirect(f, shape.header, entry, |b| shape.blocks.contains(&b));
    let first = f.blocks[entry.index()].params[0];
    // What is too short for a batch is done in smaller ones, at last one by one: then each still has one question instead
    // of one for each operation.
    let mut others = shape.header;
    for width in [1, SHORT, shape.width] {
        others = in_batches(f, shape, width, first, others);
    }
    f.terminate(entry, Terminator::Jump(others, vec![first]));
}

/// Batches of `width` iterations of the loop that begins with `first`. Gives the block that takes the counter; iterations
/// that are left go to `others`.
fn in_batches(f: &mut Function, shape: &Shape, width: usize, first: Value, others: Block) -> Block {
    let n = width as i64 * shape.step;
    let (head, batch, fine) = (f.add_block(), f.add_block(), f.add_block());
    let counter = f.add_param(head, Ty::I64);
    let start = f.add_param(batch, Ty::I64);

    // Enough iterations left for a whole batch?
    let ahead = push(f, head, Inst::IConst(n - shape.step));
    let last = push(f, head, Inst::Int(IntOp::Add, counter, ahead));
    let fits = push(f, head, Inst::ICmp(Cmp::Lt, last, shape.bound));
    let mut otherwise = (others, vec![counter]);
    if shape.step == 1 && width > 1 {
        // Some left, and as many as a batch in all: one more that ends with the last.
        let (tail, some) = (f.add_block(), f.add_block());
        let cond = push(f, tail, Inst::ICmp(Cmp::Lt, counter, shape.bound));
        let done = (shape.header, vec![counter]);
        f.terminate(tail, Terminator::Branch { cond, then: (some, vec![]), els: done });
        let size = push(f, some, Inst::IConst(n));
        let from = push(f, some, Inst::Int(IntOp::Sub, shape.bound, size));
        let cond = push(f, some, Inst::ICmp(Cmp::Le, first, from));
        f.terminate(some, Terminator::Branch { cond, then: (batch, vec![from]), els: otherwise });
        otherwise = (tail, vec![]);
    }
    f.terminate(head, Terminator::Branch { cond: fits, then: (batch, vec![counter]), els: otherwise });

    // Everything but the stores.
    let insts: Vec<(Inst, Option<Value>)> =
        shape.line.iter().flat_map(|b| f.blocks[b.index()].insts.clone()).collect();
    let mut all: Option<Value> = None;
    let mut stores = vec![];
    for i in 0..width as i64 {
        let mut copies = Copies::default();
        let mut own = start;
        if i > 0 {
            let n = push(f, batch, Inst::IConst(i * shape.step));
            own = push(f, batch, Inst::Int(IntOp::Add, start, n));
        }
        copies.map.insert(shape.counter, own);
        for (inst, result) in &insts {
            match inst {
                Inst::Store(dtype, ptr, v) => {
                    stores.push(Inst::Store(*dtype, copies.value(*ptr), copies.value(*v)));
                }
                Inst::Guard(..) => {}
                inst if *result != Some(shape.question) => copies.inst(f, batch, inst.clone(), *result),
                _ => {}
            }
        }
        for cond in &shape.all_true {
            let one = copies.value(*cond);
            all = Some(match all {
                Some(all) => push(f, batch, Inst::Bool(BoolOp::And, all, one)),
                None => one,
            });
        }
    }
    let Some(cond) = all else { return others };
    f.terminate(batch, Terminator::Branch { cond, then: (fine, vec![]), els: (shape.header, vec![counter]) });
    for store in stores {
        f.push(fine, store);
    }
    let size = push(f, fine, Inst::IConst(n));
    let next = push(f, fine, Inst::Int(IntOp::Add, start, size));
    f.terminate(fine, Terminator::Jump(head, vec![next]));
    head
}
