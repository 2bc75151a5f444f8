//! Runs several iterations of an outer loop side by side through its inner loop, so that their sums become independent.
//!
//! A sum over an inner loop is one chain of additions whose order may not change. The sums of neighbouring outer
//! iterations are independent, so U of them run in one inner loop (unroll and jam); each adds its own terms in its own
//! order, hence to the same bits. What follows the inner loop then runs for one outer iteration after the other.
//!
//! Taken where what precedes the inner loop and the inner loop itself only compute, from nothing that the outer loop
//! carries but its counter, and where what the rest stores is known to be apart from what they load ([`nests`] tests
//! that at its entry). Only loops that nests made are of this kind: all others poll. Their counters have fewer than 32
//! bits.
//!
//! [`nests`]: super::nests

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::table::Entry;

use crate::dominators::{Dominators, successors};
use crate::entities::{Block, ExitId, Value};
use crate::function::Function;
use crate::inst::{BoolOp, Cmp, Field, Inst, IntOp, Terminator};
use crate::loops::{self, Loop};
use crate::opt::rewrite::{each_operand, each_slot_value, each_terminator_operand};

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
    inner_counter: Value,
    inner_bound: Value,
    /// The inner loop's other blocks, one after the other.
    body: Vec<Block>,
    /// Behind the inner loop; the first is where it is left to.
    rest: Vec<Block>,
    width: usize,
}

fn shape(f: &Function, dominators: &Dominators, all: &[Loop], inner: usize) -> Option<Shape> {
    let outer = &all[all[inner].parent?];
    let inner = &all[inner];
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
        .filter(|b| outer.blocks.contains(b) && *b != outer.header && !inner.blocks.contains(b) && !before.contains(b))
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
                let counts = *a == counter || matches!(made_by.get(a), Some(Inst::Int(_, x, y)) if *x == counter || *y == counter);
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
    let position = f.blocks[inner.header.index()].params.iter().position(|v| *v == inner_counter)?;
    let first = before.last().copied().or(Some(outer.header))?;
    let Some(Terminator::Jump(_, args)) = &f.blocks[first.index()].terminator else { return None };
    if before.is_empty() || !same_for_all(inner_bound) || !same_for_all(*args.get(position)?) || n_insts > MAX_BODY {
        return None;
    }
    for block in &rest {
        let data = &f.blocks[block.index()];
        for (inst, _) in &data.insts {
            match inst {
                Inst::Store(_, ptr, _) => {
                    let stored = array_of(&made_by, *ptr)?;
                    if !loads.iter().all(|l| are_apart(f, dominators, &made_by, outer.header, stored, *l)) {
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
        inner_counter,
        inner_bound,
        body: chain_of_body,
        rest,
        width: if neighbours { WIDE } else { NARROW },
    })
}

fn made_by(f: &Function) -> BTreeMap<Value, Inst> {
    let insts = f.blocks.iter().flat_map(|b| &b.insts);
    insts.filter_map(|(inst, result)| Some(((*result)?, inst.clone()))).collect()
}

/// Counter, bound, first block of the body, and where the loop is left to, of a loop left at its header.
fn counted(f: &Function, made_by: &BTreeMap<Value, Inst>, l: &Loop) -> Option<(Value, Value, Block, Block)> {
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
fn step_of(f: &Function, made_by: &BTreeMap<Value, Inst>, l: &Loop, counter: Value) -> Option<i64> {
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

fn edges(end: &Terminator) -> Vec<(Block, &[Value])> {
    match end {
        Terminator::Jump(to, args) => vec![(*to, args.as_slice())],
        Terminator::Branch { then, els, .. } => vec![(then.0, then.1.as_slice()), (els.0, els.1.as_slice())],
        Terminator::Return(_) | Terminator::Exit(_) => vec![],
    }
}

fn operands(end: &Terminator) -> Vec<Value> {
    edges(end).into_iter().flat_map(|(_, args)| args.to_vec()).collect()
}

/// No effect, no way out.
fn computes(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::IConst(_)
            | Inst::FConst(_)
            | Inst::F32Const(_)
            | Inst::BConst(_)
            | Inst::OConst(_)
            | Inst::Int(..)
            | Inst::ICmp(..)
            | Inst::ULt(..)
            | Inst::Float(..)
            | Inst::FloatUnary(..)
            | Inst::FCmp(..)
            | Inst::IntToFloat(_)
            | Inst::F32ToF64(_)
            | Inst::F64ToF32(_)
            | Inst::Bool(..)
            | Inst::Not(_)
            | Inst::BoolToInt(_)
            | Inst::Select(..)
            | Inst::Field(..)
            | Inst::Load(..)
            | Inst::PtrAdd(..)
    )
}

/// The array that an address lies in.
fn array_of(made_by: &BTreeMap<Value, Inst>, ptr: Value) -> Option<Value> {
    match made_by.get(&ptr)? {
        Inst::PtrAdd(base, _) => array_of(made_by, *base),
        Inst::Field(Field::ArrayData, array) => Some(*array),
        _ => None,
    }
}

/// Whether it was tested on every way here that two arrays share no memory.
fn are_apart(
    f: &Function,
    dominators: &Dominators,
    made_by: &BTreeMap<Value, Inst>,
    here: Block,
    a: Value,
    b: Value,
) -> bool {
    let is_test = |v: Value| match made_by.get(&v) {
        Some(Inst::Table { entry: Entry::ArraysApart, args, .. }) => args[..] == [a, b] || args[..] == [b, a],
        _ => false,
    };
    dominators.order.iter().any(|block| {
        let Some(Terminator::Branch { cond, then, els }) = &f.blocks[block.index()].terminator else { return false };
        // Only the branch leads to its first target, so who comes through that has passed the test.
        let ways_in = dominators.order.iter().filter(|from| {
            f.blocks[from.index()].terminator.as_ref().is_some_and(|end| successors(end).contains(&then.0))
        });
        let mut work = vec![*cond];
        let mut is_tested = false;
        while let Some(v) = work.pop() {
            is_tested |= is_test(v);
            if let Some(Inst::Bool(BoolOp::And, x, y)) = made_by.get(&v) {
                work.extend([x, y]);
            }
        }
        is_tested && then.0 != els.0 && ways_in.count() == 1 && dominators.dominates(then.0, here)
    })
}

/// Copies of blocks with their own values.
struct Copier<'f> {
    f: &'f mut Function,
    map: BTreeMap<Value, Value>,
    exits: BTreeMap<ExitId, ExitId>,
}

impl Copier<'_> {
    fn new_value(&self, v: Value) -> Value {
        self.map.get(&v).copied().unwrap_or(v)
    }

    /// Appends copies of a block's instructions to another.
    fn copy(&mut self, from: Block, to: Block, skip: Option<Value>) {
        for (mut inst, result) in self.f.blocks[from.index()].insts.clone() {
            if skip.is_some() && result == skip {
                continue;
            }
            each_operand(&mut inst, &mut |v| *v = self.new_value(*v));
            if let Inst::Checked(_, _, _, exit) | Inst::Guard(_, exit) = &mut inst {
                *exit = self.exit(*exit);
            }
            if let (Some(old), Some(new)) = (result, self.f.push(to, inst)) {
                self.map.insert(old, new);
            }
        }
    }

    fn exit(&mut self, old: ExitId) -> ExitId {
        if let Some(known) = self.exits.get(&old) {
            return *known;
        }
        let mut exit = self.f.exits[old.index()].clone();
        for slot in exit.locals.iter_mut().chain(&mut exit.stack) {
            each_slot_value(slot, &mut |v| *v = self.new_value(*v));
        }
        let new = self.f.add_exit(exit);
        self.exits.insert(old, new);
        new
    }
}

fn push(f: &mut Function, block: Block, inst: Inst) -> Value {
    let result = f.push(block, inst);
    debug_assert!(result.is_some(), "an instruction without a result");
    result.unwrap_or(Value(0))
}

fn like(f: &mut Function, block: Block) -> Block {
    let new = f.add_block();
    for v in f.blocks[block.index()].params.clone() {
        let ty = f.ty(v);
        f.add_param(new, ty);
    }
    new
}

fn jam(f: &mut Function, shape: &Shape) {
    let params = |f: &Function, block: Block| f.blocks[block.index()].params.clone();
    let old_params = params(f, shape.header);
    let Some(at_counter) = old_params.iter().position(|v| *v == shape.counter) else { return };
    let head = like(f, shape.header);
    enter_at(f, shape, head);

    // Enough iterations left for one more round?
    let head_params = params(f, head);
    let counter = head_params[at_counter];
    let ahead = push(f, head, Inst::IConst(shape.step * (shape.width as i64 - 1)));
    let last = push(f, head, Inst::Int(IntOp::Add, counter, ahead));
    let fits = push(f, head, Inst::ICmp(Cmp::Lt, last, shape.bound));
    let before = f.add_block();
    let rest_of_loop = (shape.header, head_params.clone());
    f.terminate(head, Terminator::Branch { cond: fits, then: (before, vec![]), els: rest_of_loop });

    // What precedes the inner loop, of all.
    let mut maps: Vec<BTreeMap<Value, Value>> = vec![];
    for u in 0..shape.width {
        let mut map: BTreeMap<Value, Value> = old_params.iter().copied().zip(head_params.iter().copied()).collect();
        if u > 0 {
            let n = push(f, before, Inst::IConst(shape.step * u as i64));
            map.insert(shape.counter, push(f, before, Inst::Int(IntOp::Add, counter, n)));
        }
        let mut copier = Copier { f, map, exits: BTreeMap::new() };
        shape.before.iter().for_each(|block| copier.copy(*block, before, None));
        maps.push(copier.map);
    }

    // The inner loop: one counter, and of each iteration all else that it carries.
    let inner = f.add_block();
    let inner_params = params(f, shape.inner);
    let Some(at_inner) = inner_params.iter().position(|v| *v == shape.inner_counter) else { return };
    let first = shape.before.last().copied().unwrap_or(shape.header);
    let first_args = match &f.blocks[first.index()].terminator {
        Some(Terminator::Jump(_, args)) => args.clone(),
        _ => return,
    };
    let inner_counter = f.add_param(inner, overdrive_base::flavour::Ty::I64);
    let mut args = vec![maps[0].get(&first_args[at_inner]).copied().unwrap_or(first_args[at_inner])];
    for map in &mut maps {
        for (i, (param, arg)) in inner_params.iter().zip(&first_args).enumerate() {
            if i == at_inner {
                map.insert(*param, inner_counter);
                continue;
            }
            args.push(map.get(arg).copied().unwrap_or(*arg));
            let ty = f.ty(*param);
            map.insert(*param, f.add_param(inner, ty));
        }
    }
    f.terminate(before, Terminator::Jump(inner, args));
    let question = match &f.blocks[shape.inner.index()].terminator {
        Some(Terminator::Branch { cond, .. }) => Some(*cond),
        _ => None,
    };
    let bound = maps[0].get(&shape.inner_bound).copied().unwrap_or(shape.inner_bound);
    let more = push(f, inner, Inst::ICmp(Cmp::Lt, inner_counter, bound));
    for map in &mut maps {
        let mut copier = Copier { f, map: std::mem::take(map), exits: BTreeMap::new() };
        copier.copy(shape.inner, inner, question);
        *map = copier.map;
    }
    let body = f.add_block();
    let back_args = match shape.body.last().and_then(|b| f.blocks[b.index()].terminator.clone()) {
        Some(Terminator::Jump(_, args)) => args,
        _ => return,
    };
    let mut back = vec![];
    for (u, map) in maps.iter().enumerate() {
        let mut copier = Copier { f, map: map.clone(), exits: BTreeMap::new() };
        shape.body.iter().for_each(|block| copier.copy(*block, body, None));
        for (i, arg) in back_args.iter().enumerate() {
            if i != at_inner || u == 0 {
                let at = if i == at_inner { 0 } else { back.len() };
                back.insert(at, copier.new_value(*arg));
            }
        }
    }
    f.terminate(body, Terminator::Jump(inner, back));

    // The rest, one iteration after the other.
    let entries: Vec<Block> = (0..shape.width).map(|_| like(f, shape.header)).collect();
    f.terminate(inner, Terminator::Branch { cond: more, then: (body, vec![]), els: (entries[0], head_params.clone()) });
    for (u, map) in maps.into_iter().enumerate() {
        let mut map = map;
        for (i, (old, new)) in old_params.iter().zip(params(f, entries[u])).enumerate() {
            if i != at_counter {
                map.insert(*old, new);
            }
        }
        let next = entries.get(u + 1).copied().unwrap_or(head);
        copy_rest(f, shape, entries[u], next, map);
    }
}

/// Ways into the outer loop from elsewhere lead to the jammed one.
fn enter_at(f: &mut Function, shape: &Shape, head: Block) {
    for (at, block) in f.blocks.iter_mut().enumerate() {
        if shape.blocks.contains(&Block(at as u32)) {
            continue;
        }
        match &mut block.terminator {
            Some(Terminator::Jump(to, _)) if *to == shape.header => *to = head,
            Some(Terminator::Branch { then, els, .. }) => {
                for (to, _) in [then, els] {
                    if *to == shape.header {
                        *to = head;
                    }
                }
            }
            _ => {}
        }
    }
}

/// What follows the inner loop, of one iteration; goes on at `next` with what the outer header would get.
fn copy_rest(f: &mut Function, shape: &Shape, entry: Block, next: Block, map: BTreeMap<Value, Value>) {
    let blocks: BTreeMap<Block, Block> = shape.rest.iter().map(|b| (*b, like(f, *b))).collect();
    let mut copier = Copier { f, map, exits: BTreeMap::new() };
    for (old, new) in &blocks {
        let pairs: Vec<(Value, Value)> = {
            let data = |b: &Block| copier.f.blocks[b.index()].params.clone();
            data(old).into_iter().zip(data(new)).collect()
        };
        copier.map.extend(pairs);
        copier.f.blocks[new.index()].cold = copier.f.blocks[old.index()].cold;
    }
    copier.f.terminate(entry, Terminator::Jump(blocks[&shape.rest[0]], vec![]));
    for old in &shape.rest {
        let new = blocks[old];
        copier.copy(*old, new, None);
        let Some(mut end) = copier.f.blocks[old.index()].terminator.clone() else { continue };
        each_terminator_operand(&mut end, &mut |v| *v = copier.new_value(*v));
        let to = |b: Block| blocks.get(&b).copied().unwrap_or(next);
        let end = match end {
            Terminator::Jump(b, args) => Terminator::Jump(to(b), args),
            Terminator::Branch { cond, then, els } => {
                Terminator::Branch { cond, then: (to(then.0), then.1), els: (to(els.0), els.1) }
            }
            Terminator::Exit(exit) => Terminator::Exit(copier.exit(exit)),
            Terminator::Return(v) => Terminator::Return(v),
        };
        copier.f.terminate(new, end);
    }
}
