//! What runs in a loop nest when nothing unusual happens, and how its values are defined.
//!
//! In: a loop. Out: its blocks without the cold ones, each branch into which is a *check*; the inner loops, all counted;
//! definitions and incoming values. `None` for a loop whose usual path does more than compute, load, store and leave
//! through exits, or is left elsewhere than at its header.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use overdrive_base::flavour::KnownType;
use overdrive_base::table::{Effect, Entry};

use super::affine::Sym;
use crate::dominators::Dominators;
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{Cmp, Field, Inst, IntOp, Seq, Terminator};
use crate::loops::Loop;

/// Where a value comes from, as the nest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Def {
    /// From outside the nest.
    Outside,
    /// Parameter of a block.
    Param(Block),
    /// Instruction of a block.
    Inst(Block, usize),
}

/// The least and the greatest an integer can be.
pub(super) type Ends = (i64, i64);

/// A loop whose header compares a counter with a bound and leaves when it is not below.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub header: Block,
    /// Of the usual path only.
    pub blocks: BTreeSet<Block>,
    pub parent: Option<usize>,
    /// The header's parameter that counts.
    pub counter: Value,
    /// Invariant in this loop.
    pub bound: Value,
    /// Above 0.
    pub step: i64,
    /// Where the loop is left to.
    pub after: Block,
}

/// A list that is an item of a list, the same one in all iterations: nothing in a nest changes which lists a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The `ItemGet`.
    pub item: Value,
    pub list: Value,
    pub index: Value,
}

/// The usual path of a nest.
pub(super) struct Hot<'a> {
    pub f: &'a Function,
    /// The nest's loops; the first is the outermost.
    pub loops: Vec<Counted>,
    /// In reverse postorder, the outermost header first.
    pub order: Vec<Block>,
    pub blocks: BTreeSet<Block>,
    /// Branches with a cold way: the condition and what it must be.
    pub checks: BTreeMap<Block, (Value, bool)>,
    defs: Vec<Def>,
    /// The instruction that makes each value, in the nest or not.
    made_by: Vec<Option<&'a Inst>>,
    /// For each parameter, what comes in over the usual edges, and from where.
    incoming: BTreeMap<Value, Vec<(Block, Value)>>,
    /// Objects whose exact type was tested before the nest.
    guarded: BTreeSet<Value>,
    invariant: Vec<bool>,
    /// Rows of lists, each behind those that it is found with.
    pub rows: Vec<Row>,
    /// Blocks of the nest that are not on the usual path.
    aside: BTreeSet<Block>,
    ranks: Vec<usize>,
    /// Integers that the outermost loop carries and whose range something was derived from.
    pub sums: RefCell<BTreeSet<Value>>,
    /// Bounds that ranges of sums were derived from: the entry tests what they are made of.
    pub leaned_on: RefCell<Vec<Sym>>,
    /// What depends on a parameter, once somebody asked.
    pub families: RefCell<BTreeMap<Value, Rc<BTreeSet<Value>>>>,
    /// Ranges that were found, and with how many steps left.
    pub ranges: RefCell<BTreeMap<Value, (u32, Option<Ends>)>>,
    /// Integers loaded from arrays whose elements the entry looks at, with both ends.
    pub counts: RefCell<BTreeMap<Value, Ends>>,
    /// Floats that are known to be below 2^62 in magnitude.
    pub converted: RefCell<BTreeSet<Value>>,
}

impl<'a> Hot<'a> {
    /// The usual path of `loops[root]`.
    pub(super) fn new(
        f: &'a Function,
        dominators: &Dominators,
        loops: &[Loop],
        root: usize,
    ) -> Option<Hot<'a>> {
        let all = &loops[root];
        let mut hot = Hot {
            f,
            loops: vec![],
            order: vec![],
            blocks: BTreeSet::new(),
            checks: BTreeMap::new(),
            defs: vec![Def::Outside; f.n_values()],
            made_by: vec![None; f.n_values()],
            incoming: BTreeMap::new(),
            guarded: guarded_before(f, dominators, all.header),
            invariant: vec![],
            rows: vec![],
            aside: BTreeSet::new(),
            ranks: vec![usize::MAX; f.blocks.len()],
            sums: RefCell::default(),
            leaned_on: RefCell::default(),
            families: RefCell::default(),
            ranges: RefCell::default(),
            counts: RefCell::default(),
            converted: RefCell::default(),
        };
        for (inst, result) in f.blocks.iter().flat_map(|b| &b.insts) {
            if let Some(v) = result {
                hot.made_by[v.index()] = Some(inst);
            }
        }
        hot.walk(all)?;
        hot.aside = all.blocks.difference(&hot.blocks).copied().collect();
        for (rank, block) in dominators.order.iter().enumerate() {
            hot.ranks[block.index()] = rank;
        }
        hot.define();
        hot.find_invariant();
        for (index, l) in loops.iter().enumerate() {
            if index == root || (all.blocks.contains(&l.header) && hot.blocks.contains(&l.header)) {
                let counted = hot.counted(l)?;
                hot.loops.push(counted);
            }
        }
        for inner in 1..hot.loops.len() {
            let header = hot.loops[inner].header;
            hot.loops[inner].parent = (0..inner).rev().find(|o| hot.loops[*o].blocks.contains(&header));
        }
        // Only counted loops, each left at its header, make a cycle.
        let is_left_elsewhere = |block: &Block| {
            hot.usual_successors(*block).iter().any(|to| {
                hot.loops.iter().any(|l| {
                    l.blocks.contains(block)
                        && !l.blocks.contains(to)
                        && (*block != l.header || *to != l.after)
                })
            })
        };
        (!hot.order.iter().any(is_left_elsewhere)).then_some(hot)
    }

    pub(super) fn def(&self, v: Value) -> Def {
        self.defs[v.index()]
    }

    /// The instruction that makes a value.
    pub(super) fn inst(&self, v: Value) -> Option<&'a Inst> {
        self.made_by[v.index()]
    }

    pub(super) fn incoming(&self, param: Value) -> &[(Block, Value)] {
        self.incoming.get(&param).map_or(&[], Vec::as_slice)
    }

    /// The loop that a block is the header of.
    pub(super) fn loop_of_header(&self, block: Block) -> Option<usize> {
        self.loops.iter().position(|l| l.header == block)
    }

    /// Whether a value is the same in all iterations of the nest and can be computed in front of it.
    pub(super) fn is_invariant(&self, v: Value) -> bool {
        self.def(v) == Def::Outside || self.invariant[v.index()]
    }

    /// Whether a value is computed in the nest although it is invariant.
    pub(super) fn is_computed_invariant(&self, v: Value) -> bool {
        self.def(v) != Def::Outside && self.invariant[v.index()]
    }

    /// Whether items of lists are read: a thread that has the GIL could change them.
    pub(super) fn reads_lists(&self) -> bool {
        let insts = |block: &Block| self.f.blocks[block.index()].insts.iter();
        self.order.iter().flat_map(insts).any(|(inst, _)| matches!(inst, Inst::ItemGet(Seq::List, ..)))
    }

    /// Whether a block belongs to the nest but not to its usual path.
    pub(super) fn is_aside(&self, block: Block) -> bool {
        self.aside.contains(&block)
    }

    /// Place of a block in reverse postorder.
    pub(super) fn rank(&self, block: Block) -> usize {
        self.ranks.get(block.index()).copied().unwrap_or(usize::MAX)
    }

    /// The value of an integer constant.
    pub(super) fn constant(&self, v: Value) -> Option<i64> {
        match self.inst(v)? {
            Inst::IConst(n) => Some(*n),
            _ => None,
        }
    }

    /// Where a block goes on the usual path.
    pub(super) fn usual_successors(&self, block: Block) -> Vec<Block> {
        let Some(terminator) = &self.f.blocks[block.index()].terminator else { return vec![] };
        match terminator {
            Terminator::Jump(to, _) => vec![*to],
            Terminator::Branch { then, els, .. } => match self.checks.get(&block) {
                Some((_, true)) => vec![then.0],
                Some((_, false)) => vec![els.0],
                None => vec![then.0, els.0],
            },
            Terminator::Return(_) | Terminator::Exit(_) => vec![],
        }
    }

    /// Finds the blocks of the usual path and looks at what they do.
    fn walk(&mut self, all: &Loop) -> Option<()> {
        let mut post = vec![];
        let mut seen = BTreeSet::new();
        let mut work = vec![(all.header, false)];
        while let Some((block, is_done)) = work.pop() {
            if is_done {
                post.push(block);
                continue;
            }
            if !seen.insert(block) {
                continue;
            }
            work.push((block, true));
            let data = &self.f.blocks[block.index()];
            if let Some(Terminator::Branch { cond, then, els }) = &data.terminator {
                let is_cold = |to: Block| self.f.blocks[to.index()].cold;
                if is_cold(then.0) != is_cold(els.0) {
                    self.checks.insert(block, (*cond, is_cold(els.0)));
                }
            }
            for to in self.usual_successors(block) {
                if all.blocks.contains(&to) {
                    work.push((to, false));
                } else if block != all.header {
                    return None;
                }
            }
            if !data.insts.iter().all(|(inst, _)| is_usual(inst)) {
                return None;
            }
        }
        post.reverse();
        self.blocks = post.iter().copied().collect();
        self.order = post;
        Some(())
    }

    fn define(&mut self) {
        for block in &self.order {
            let data = &self.f.blocks[block.index()];
            for v in &data.params {
                self.defs[v.index()] = Def::Param(*block);
            }
            for (at, (_, result)) in data.insts.iter().enumerate() {
                if let Some(v) = result {
                    self.defs[v.index()] = Def::Inst(*block, at);
                }
            }
        }
        for block in &self.order {
            for (to, args) in self.usual_edges(*block) {
                let params = &self.f.blocks[to.index()].params;
                for (param, arg) in params.iter().zip(args).filter(|_| self.blocks.contains(&to)) {
                    self.incoming.entry(*param).or_default().push((*block, *arg));
                }
            }
        }
    }

    /// On the usual path, with their arguments.
    pub(super) fn usual_edges(&self, block: Block) -> Vec<(Block, &'a [Value])> {
        match &self.f.blocks[block.index()].terminator {
            Some(Terminator::Jump(to, args)) => vec![(*to, args)],
            Some(Terminator::Branch { then, els, .. }) => match self.checks.get(&block) {
                Some((_, true)) => vec![(then.0, then.1.as_slice())],
                Some((_, false)) => vec![(els.0, els.1.as_slice())],
                None => vec![(then.0, then.1.as_slice()), (els.0, els.1.as_slice())],
            },
            _ => vec![],
        }
    }

    fn find_invariant(&mut self) {
        let mut invariant = vec![false; self.f.n_values()];
        let is_list = self.tested_for_list();
        let mut rows: Vec<Row> = vec![];
        for block in &self.order {
            for (inst, result) in &self.f.blocks[block.index()].insts {
                let Some(v) = result else { continue };
                let known = |v: Value| self.def(v) == Def::Outside || invariant[v.index()];
                if !inst.operands().into_iter().all(known) {
                    continue;
                }
                let is_row = |v: &Value| rows.iter().any(|row| row.item == *v);
                match inst {
                    // Numbers in lists may be replaced in a nest, lists may not.
                    Inst::ItemGet(Seq::List, list, index)
                        if is_list.contains(v) && (self.guarded.contains(list) || is_row(list)) =>
                    {
                        rows.push(Row { item: *v, list: *list, index: *index });
                        invariant[v.index()] = true;
                    }
                    Inst::Field(Field::ListLen, list) if is_row(list) => invariant[v.index()] = true,
                    inst if self.may_be_hoisted(inst) => invariant[v.index()] = true,
                    _ => {}
                }
            }
        }
        self.invariant = invariant;
        self.rows = rows;
    }

    /// Items that a guard of the nest lets through only when they are lists.
    fn tested_for_list(&self) -> BTreeSet<Value> {
        let insts = self.order.iter().flat_map(|block| &self.f.blocks[block.index()].insts);
        insts
            .filter_map(|(inst, _)| match inst {
                Inst::Guard(cond, _) => match self.inst(*cond) {
                    Some(Inst::TypeIs(item, KnownType::List)) => Some(*item),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }

    /// Whether an instruction may be executed where it would not have been: no effect, no exit, no precondition that a
    /// check in the nest establishes. What is read does not change in the nest, but array elements do.
    fn may_be_hoisted(&self, inst: &Inst) -> bool {
        match inst {
            Inst::IConst(_)
            | Inst::FConst(_)
            | Inst::F32Const(_)
            | Inst::BConst(_)
            | Inst::OConst(_)
            | Inst::Null
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
            | Inst::TypeIs(..)
            | Inst::Same(..)
            | Inst::IsNull(_)
            | Inst::ArrayIs { .. } => true,
            Inst::Int(op, ..) => !matches!(op, IntOp::FloorDiv | IntOp::FloorMod | IntOp::Shl | IntOp::Shr),
            Inst::Field(_, object) => self.guarded.contains(object),
            Inst::Table { entry, fail, .. } => fail.is_none() && entry.signature().effect == Effect::Pure,
            _ => false,
        }
    }

    fn counted(&self, l: &Loop) -> Option<Counted> {
        let data = &self.f.blocks[l.header.index()];
        let Some(Terminator::Branch { cond, then, els }) = &data.terminator else { return None };
        let Some(Inst::ICmp(Cmp::Lt, counter, bound)) = self.inst(*cond) else { return None };
        let blocks: BTreeSet<Block> = l.blocks.intersection(&self.blocks).copied().collect();
        let is_outside = |v: Value| match self.def(v) {
            Def::Outside => true,
            Def::Param(b) | Def::Inst(b, _) => !blocks.contains(&b) || self.is_invariant(v),
        };
        if self.def(*counter) != Def::Param(l.header)
            || !is_outside(*bound)
            || !blocks.contains(&then.0)
            || blocks.contains(&els.0)
            || !els.1.is_empty()
        {
            return None;
        }
        let mut step = None;
        for (from, next) in self.incoming(*counter) {
            if !blocks.contains(from) {
                continue;
            }
            let Some(Inst::Int(IntOp::Add, a, b)) = self.inst(*next) else { return None };
            let n = self.constant(*b).filter(|n| a == counter && (1..1 << 16).contains(n))?;
            if step.is_some_and(|known| known != n) {
                return None;
            }
            step = Some(n);
        }
        let (counter, bound, step) = (*counter, *bound, step?);
        Some(Counted { header: l.header, blocks, parent: None, counter, bound, step, after: els.0 })
    }
}

/// What may stand on the usual path: computation, array elements, floats of lists, exits; nothing that counts references
/// or runs code, or changes what a list holds but for one number instead of another.
pub(super) fn is_usual(inst: &Inst) -> bool {
    match inst {
        Inst::Table { entry, .. } => {
            matches!(entry, Entry::PollPending | Entry::ListSetFloat | Entry::ListSetInt)
                || (entry.signature().effect == Effect::Pure
                    && !matches!(
                        entry,
                        Entry::ArraysApart
                            | Entry::ArrayWithin
                            | Entry::ArrayAbove
                            | Entry::ArrayWithinShared
                    ))
        }
        Inst::IncRef(_)
        | Inst::DecRef { .. }
        | Inst::OwnArg(_)
        | Inst::CallRoutine { .. }
        | Inst::Poll { .. }
        | Inst::ListSwap { .. }
        | Inst::AttrSwap { .. }
        | Inst::AttrSet { .. }
        | Inst::HasFrame => false,
        _ => true,
    }
}

/// Objects that a guard of their exact type, on every way to the block, has let through.
fn guarded_before(f: &Function, dominators: &Dominators, block: Block) -> BTreeSet<Value> {
    let mut tests: BTreeMap<Value, Value> = BTreeMap::new();
    let mut guarded = BTreeSet::new();
    for before in dominators.order.iter().filter(|b| **b != block && dominators.dominates(**b, block)) {
        for (inst, result) in &f.blocks[before.index()].insts {
            match (inst, result) {
                (Inst::TypeIs(object, _) | Inst::ArrayIs { array: object, .. }, Some(v)) => {
                    tests.insert(*v, *object);
                }
                (Inst::Guard(cond, _), _) => guarded.extend(tests.get(cond)),
                _ => {}
            }
        }
    }
    guarded
}
