//! Makes a nest's copy and its entry.
//!
//! In: the usual path and the plan. Out: new blocks behind the old ones; all ways into the nest lead to the entry.

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::{KnownType, Ty};
use overdrive_base::table::Entry;

use super::affine::Sym;
use super::hot::{Counted, Hot, Row};
use super::parallel::Shared;
use super::peel;
use super::plan::{Cond, Plan};
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{BoolOp, CheckedOp, Cmp, Field, FloatUnary, Inst, IntOp, Terminator};
use crate::loops::Loop;
use crate::opt::copies::{Copies, like, push, redirect};
use crate::opt::rewrite::each_operand;

/// Iterations between two polls of a loop without inner loops.
const STRIP: i64 = 1 << 15;
/// And where the GIL is given away meanwhile: taking it back can last as long as another thread's turn.
const GIVING_STRIP: i64 = 1 << 22;

/// The plan, and of the usual path what building needs while it changes the function.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) plan: Plan,
    pub(super) loops: Vec<Counted>,
    order: Vec<Block>,
    checks: BTreeMap<Block, bool>,
    /// Values that the entry may compute.
    invariant: Vec<bool>,
    /// Lists in lists that it finds first.
    rows: Vec<Row>,
    /// Whether other threads of the program may run meanwhile.
    gives_gil: bool,
    /// How it is shared out among threads, if it is.
    shared: Option<Shared>,
}

impl Recipe {
    pub(super) fn new(hot: &Hot<'_>, plan: Plan, shared: Option<Shared>) -> Recipe {
        Recipe {
            gives_gil: hot.f.gives_gil && !hot.reads_lists(),
            plan,
            shared,
            loops: hot.loops.clone(),
            order: hot.order.clone(),
            rows: hot.rows.clone(),
            checks: hot.checks.iter().map(|(block, (_, way))| (*block, *way)).collect(),
            invariant: (0..hot.f.n_values()).map(|v| hot.is_computed_invariant(Value(v as u32))).collect(),
        }
    }
}

impl Recipe {
    /// Whether first iterations get copies of their own.
    pub(super) fn peels(&self) -> bool {
        !self.plan.flags.is_empty()
    }

    pub(super) fn without_peeling(mut self) -> Recipe {
        self.plan.flags.clear();
        self
    }

    /// What a person who looks at the loop's line wants to know.
    pub(super) fn remark(&self) -> String {
        let mut text = "indices and results are tested once, before the loop".to_owned();
        if self.shared.is_some() {
            text += "; parallel";
        }
        if self.gives_gil {
            text += "; without the GIL";
        }
        if !self.plan.stays.is_empty() {
            let stays: Vec<&str> = self.plan.stays.iter().map(String::as_str).collect();
            text += &format!("; tests that stay in it: {}", stays.join(", "));
        }
        let names: BTreeSet<&str> = self.plan.fast.values().filter_map(|fast| fast.fast_name()).collect();
        if !names.is_empty() {
            let names: Vec<&str> = names.into_iter().collect();
            text += &format!("; arguments too, of math's {}", names.join(", "));
        }
        text
    }
}

/// Builds it.
pub(super) fn build(f: &mut Function, nest: &Loop, recipe: Recipe) {
    let header = nest.header;
    let entry = like(f, header);
    // Those back to the header after CPython had its turn included.
    let is_usual: Vec<bool> = f.blocks.iter().map(|b| !b.cold).collect();
    redirect(f, header, entry, |b| nest.blocks.contains(&b) && is_usual[b.index()]);
    let strip = like(f, header);
    let end = recipe.loops[0].bound;
    let mut b =
        Builder { f, recipe, copies: Copies::default(), syms: vec![], in_rounds: false, end, at: entry };

    // The entry computes in its own parameters' terms.
    b.copies.bind(b.f, header, entry);
    let args = b.params(entry);
    b.end = b.invariant(end);
    let conds = std::mem::take(&mut b.recipe.plan.conds);
    let carried = b.recipe.plan.carried.clone();
    let late = std::mem::take(&mut b.recipe.plan.late);
    let elements = std::mem::take(&mut b.recipe.plan.strip);
    let flags = std::mem::take(&mut b.recipe.plan.flags);
    let finite_behind = std::mem::take(&mut b.recipe.plan.finite_behind);
    b.find_rows((header, args.clone()));
    b.branch_on(&conds, (header, args.clone()));
    b.branch_on(&carried, (header, args.clone()));
    b.branch_on(&late, (header, args.clone()));
    b.hoist_fields();
    let length = b.strip_length();
    let bound = b.end;
    let shared = b.recipe.shared.take();
    let may_share = shared.as_ref().and_then(|shared| b.may_share(shared));
    if flags.contains_key(&0) || may_share.is_some() {
        // The first iteration is a strip of its own.
        let (counter, step) = (b.copies.value(b.recipe.loops[0].counter), b.int(b.recipe.loops[0].step));
        let end = b.push(Inst::Int(IntOp::Add, counter, step));
        b.runs_to(end);
        b.branch_on(&elements, (header, args));
    }
    let (ready, at_entry) = (b.at, b.copies.map.clone());

    // A strip: up to which value the counter runs before the next poll.
    b.at = strip;
    b.copies.map = at_entry.clone();
    b.copies.bind(b.f, header, strip);
    let args = b.params(strip);
    b.branch_on(&carried, (header, args.clone()));
    let counter = b.copies.value(b.recipe.loops[0].counter);
    let end = b.push(Inst::Int(IntOp::Add, counter, length));
    let is_last = b.push(Inst::ICmp(Cmp::Lt, bound, end));
    let end = b.push(Inst::Select(is_last, bound, end));
    b.runs_to(end);
    if finite_behind.is_empty() {
        b.branch_on(&elements, (header, args.clone()));
    }
    let in_strip = b.at;

    let copy = b.copy_nest(&at_entry, end);
    if b.recipe.gives_gil {
        // A version that is not counted as active could be dropped meanwhile.
        b.f.needs_frame = true;
        for (at, entry) in [(in_strip, Entry::GilGive), (copy.after, Entry::GilTake)] {
            b.f.push(at, Inst::Table { entry, args: vec![], pos: None, fail: None });
        }
    }
    b.f.terminate(in_strip, Terminator::Jump(copy.header, args.clone()));
    if b.recipe.gives_gil {
        b.take_gil_aside(&copy);
    }

    // Behind a strip: done, or CPython asks, or the next one.
    b.at = copy.after;
    if !finite_behind.is_empty() {
        let mut all = b.push(Inst::BConst(true));
        for v in finite_behind {
            let v = b.copies.value(v);
            let finite = b.is_finite(v);
            all = b.push(Inst::Bool(BoolOp::And, all, finite));
        }
        b.go_on_if(Some(all), (header, args));
    }
    let args = b.params(copy.header);
    let counter = b.copies.value(b.recipe.loops[0].counter);
    let goes_on = b.push(Inst::ICmp(Cmp::Lt, counter, bound));
    let more = b.f.add_block();
    b.f.terminate(b.at, branch(goes_on, (more, vec![]), (header, args.clone())));
    b.at = more;
    let asked = b.push(Inst::Table { entry: Entry::PollPending, args: vec![], pos: None, fail: None });
    b.f.terminate(more, branch(asked, (header, args.clone()), (strip, args)));

    // In front of the strips, if iterations may run at once, rounds of them.
    let mut copied = vec![copy];
    let mut next = strip;
    if let Some(shared) = &shared {
        let (round, copy) = b.rounds(shared, (header, strip, bound), &at_entry, (&carried, &elements));
        copied.push(copy);
        next = round;
        if let Some(may) = may_share {
            next = like(b.f, header);
            let args = b.params(next);
            b.f.terminate(next, branch(may, (round, args.clone()), (strip, args)));
        }
    }

    // First iterations that differ get a copy of their own.
    let at_ready = b.params(entry);
    let headers: Vec<Vec<Block>> =
        copied.iter().map(|copy| b.recipe.loops.iter().map(|l| copy.blocks[&l.header]).collect()).collect();
    let f = b.f;
    f.terminate(ready, Terminator::Jump(next, at_ready.clone()));
    for headers in &headers {
        for (l, flags) in flags.iter().rev().filter(|(l, _)| **l > 0) {
            peel::first_iteration(f, headers[*l], flags, None);
        }
    }
    let flags = flags.get(&0).map_or(&[][..], Vec::as_slice);
    let mut any = may_share;
    for flag in flags {
        any = Some(match any {
            Some(any) => push(f, ready, Inst::Bool(BoolOp::Or, any, at_ready[*flag])),
            None => at_ready[*flag],
        });
    }
    if let Some(any) = any {
        let first = peel::first_iteration(f, headers[0][0], flags, Some(next));
        f.terminate(ready, branch(any, (first, at_ready.clone()), (next, at_ready)));
    }
}

pub(super) fn branch(cond: Value, then: (Block, Vec<Value>), els: (Block, Vec<Value>)) -> Terminator {
    Terminator::Branch { cond, then, els }
}

pub(super) struct Copy {
    pub(super) header: Block,
    /// Where the copy is left to; empty.
    pub(super) after: Block,
    /// New block of each old one.
    pub(super) blocks: BTreeMap<Block, Block>,
}

pub(super) struct Builder<'f> {
    pub(super) f: &'f mut Function,
    pub(super) recipe: Recipe,
    pub(super) copies: Copies,
    /// What the entry has computed.
    syms: Vec<(Sym, Value)>,
    /// What is asked is asked in front of a parallel loop.
    pub(super) in_rounds: bool,
    /// What the outermost counter stays below.
    pub(super) end: Value,
    /// Where instructions go.
    pub(super) at: Block,
}

impl Builder<'_> {
    pub(super) fn push(&mut self, inst: Inst) -> Value {
        push(self.f, self.at, inst)
    }

    pub(super) fn int(&mut self, n: i64) -> Value {
        self.push(Inst::IConst(n))
    }

    pub(super) fn params(&self, block: Block) -> Vec<Value> {
        self.f.blocks[block.index()].params.clone()
    }

    /// An invariant, computed here if need be.
    fn invariant(&mut self, v: Value) -> Value {
        if let Some(known) = self.copies.map.get(&v) {
            return *known;
        }
        if !self.recipe.invariant.get(v.index()).copied().unwrap_or(false) {
            return v;
        }
        let found = self.f.blocks.iter().flat_map(|b| &b.insts).find(|(_, result)| *result == Some(v));
        let Some(mut inst) = found.map(|(inst, _)| inst.clone()) else { return v };
        let operands: Vec<Value> = inst.operands().into_iter().map(|x| self.invariant(x)).collect();
        let mut operands = operands.into_iter();
        each_operand(&mut inst, &mut |x| *x = operands.next().unwrap_or(*x));
        let new = self.push(inst);
        self.f.places.copied(v, new);
        self.copies.map.insert(v, new);
        new
    }

    pub(super) fn sym(&mut self, sym: &Sym) -> Value {
        if let Some((_, v)) = self.syms.iter().find(|(known, _)| known == sym) {
            return *v;
        }
        let v = match sym {
            Sym::Const(n) => self.int(*n),
            Sym::Leaf(v) => self.invariant(*v),
            Sym::End => self.end,
            Sym::Add(a, b) => self.both(a, b, |a, b| Inst::Int(IntOp::Add, a, b)),
            Sym::Sub(a, b) => self.both(a, b, |a, b| Inst::Int(IntOp::Sub, a, b)),
            Sym::Mul(a, b) => self.both(a, b, |a, b| Inst::Int(IntOp::Mul, a, b)),
            Sym::Min(a, b) => self.choose(a, b, Cmp::Lt),
            Sym::Max(a, b) => self.choose(a, b, Cmp::Gt),
        };
        self.syms.push((sym.clone(), v));
        v
    }

    fn both(&mut self, a: &Sym, b: &Sym, make: fn(Value, Value) -> Inst) -> Value {
        let (a, b) = (self.sym(a), self.sym(b));
        self.push(make(a, b))
    }

    fn choose(&mut self, a: &Sym, b: &Sym, cmp: Cmp) -> Value {
        let (a, b) = (self.sym(a), self.sym(b));
        let first = self.push(Inst::ICmp(cmp, a, b));
        self.push(Inst::Select(first, a, b))
    }

    /// Lists in lists, each behind the tests that it is there and that it is one.
    fn find_rows(&mut self, no: (Block, Vec<Value>)) {
        for row in self.recipe.rows.clone() {
            let (list, index) = (self.invariant(row.list), self.invariant(row.index));
            let length = self.push(Inst::Field(Field::ListLen, list));
            let is_there = self.push(Inst::ULt(index, length));
            self.go_on_if(Some(is_there), no.clone());
            let item = self.invariant(row.item);
            let is_list = self.push(Inst::TypeIs(item, KnownType::List));
            self.go_on_if(Some(is_list), no.clone());
        }
    }

    /// Goes on in a new block when all conditions hold, else to `no`.
    pub(super) fn branch_on(&mut self, conds: &[Cond], no: (Block, Vec<Value>)) {
        let mut all: Option<Value> = None;
        // What objects are must be known before anything of them is read.
        let n_truths = conds.iter().take_while(|c| matches!(c, Cond::True(_))).count();
        for (i, cond) in conds.iter().enumerate() {
            if i == n_truths && all.is_some() {
                self.go_on_if(all.take(), no.clone());
            }
            let one = self.cond(cond);
            all = Some(match all {
                Some(known) => self.push(Inst::Bool(BoolOp::And, known, one)),
                None => one,
            });
        }
        self.go_on_if(all, no);
    }

    pub(super) fn go_on_if(&mut self, cond: Option<Value>, no: (Block, Vec<Value>)) {
        let Some(cond) = cond else { return };
        let next = self.f.add_block();
        self.f.terminate(self.at, branch(cond, (next, vec![]), no));
        self.at = next;
    }

    fn cond(&mut self, cond: &Cond) -> Value {
        let table = |entry, args| Inst::Table { entry, args, pos: None, fail: None };
        match cond {
            Cond::True(v) => self.invariant(*v),
            Cond::Small(v, bits) => {
                let v = self.invariant(*v);
                let (half, span) = (self.int(1 << bits), self.int(1 << (bits + 1)));
                let moved = self.push(Inst::Int(IntOp::Add, v, half));
                self.push(Inst::ULt(moved, span))
            }
            Cond::AtMost(sym, n) => {
                let (v, n) = (self.sym(sym), self.int(*n));
                self.push(Inst::ICmp(Cmp::Le, v, n))
            }
            Cond::AtLeast(sym, n) => {
                let (v, n) = (self.sym(sym), self.int(*n));
                self.push(Inst::ICmp(Cmp::Ge, v, n))
            }
            Cond::Inside { lo, hi, length } => {
                let (lo, hi, length) = (self.sym(lo), self.sym(hi), self.invariant(*length));
                let zero = self.int(0);
                let above = self.push(Inst::ICmp(Cmp::Ge, lo, zero));
                let below = self.push(Inst::ICmp(Cmp::Lt, hi, length));
                self.push(Inst::Bool(BoolOp::And, above, below))
            }
            Cond::Stride { array, axis, bytes } => {
                let stride = self.push(Inst::Field(Field::ArrayStride(*axis), *array));
                let bytes = self.int(*bytes);
                self.push(Inst::ICmp(Cmp::Eq, stride, bytes))
            }
            Cond::FloatBelow(v, k) => self.float_bound(*v, Cmp::Le, *k),
            Cond::FloatAbove(v, k) => self.float_bound(*v, Cmp::Ge, -*k),
            Cond::Positive(v, k) => {
                let v = self.invariant(*v);
                let limit = match self.f.ty(v) {
                    Ty::F32 => Inst::F32Const((2f32.powi(-k)).max(f32::MIN_POSITIVE).to_bits()),
                    _ => Inst::FConst(2f64.powi(-k).to_bits()),
                };
                let limit = self.push(limit);
                self.push(Inst::FCmp(Cmp::Ge, v, limit))
            }
            Cond::UnderIgnored => self.push(table(Entry::NpUnderIgnored, vec![])),
            Cond::Apart(a, b) => self.push(table(Entry::ArraysApart, vec![*a, *b])),
            Cond::Within { array, dtype, k, is_positive, axes } => {
                let element = self.int(dtype.number());
                let k = self.int((*k).into());
                let [(lo0, hi0), (lo1, hi1)] = axes;
                let (lo0, hi0, lo1, hi1) = (self.sym(lo0), self.sym(hi0), self.sym(lo1), self.sym(hi1));
                // Looking at many more elements than the nest computes with would not pay.
                let work = self.recipe.plan.work.clone().unwrap_or(Sym::Const(1));
                let counter = self.copies.value(self.recipe.loops[0].counter);
                let trips = self.push(Inst::Int(IntOp::Sub, self.end, counter));
                let work = self.sym(&work);
                let most = self.push(Inst::Int(IntOp::Mul, trips, work));
                let entry = match (*is_positive, self.in_rounds) {
                    (true, _) => Entry::ArrayAbove,
                    (false, true) => Entry::ArrayWithinShared,
                    (false, false) => Entry::ArrayWithin,
                };
                self.push(table(entry, vec![*array, element, k, lo0, hi0, lo1, hi1, most]))
            }
        }
    }

    /// From here on the outermost counter stays below `end`.
    pub(super) fn runs_to(&mut self, end: Value) {
        self.end = end;
        self.syms.clear();
    }

    fn float_bound(&mut self, v: Value, cmp: Cmp, k: i32) -> Value {
        let v = self.invariant(v);
        let abs = self.push(Inst::FloatUnary(FloatUnary::Abs, v));
        let limit = if self.f.ty(v) == Ty::F32 {
            Inst::F32Const(2f32.powi(k.clamp(-126, 127)).to_bits())
        } else {
            Inst::FConst(2f64.powi(k).to_bits())
        };
        let limit = self.push(limit);
        self.push(Inst::FCmp(cmp, abs, limit))
    }

    fn is_finite(&mut self, v: Value) -> Value {
        let abs = self.push(Inst::FloatUnary(FloatUnary::Abs, v));
        let most = match self.f.ty(v) {
            Ty::F32 => Inst::F32Const(f32::MAX.to_bits()),
            _ => Inst::FConst(f64::MAX.to_bits()),
        };
        let most = self.push(most);
        self.push(Inst::FCmp(Cmp::Le, abs, most))
    }

    /// Reads lengths, strides and addresses once: behind a check that stays in the loop, LLVM would not dare to.
    fn hoist_fields(&mut self) {
        for block in self.recipe.order.clone() {
            for (inst, result) in self.f.blocks[block.index()].insts.clone() {
                if let (Inst::Field(..), Some(v)) = (inst, result) {
                    self.invariant(v);
                }
            }
        }
    }

    /// How far the outermost counter goes between two polls.
    fn strip_length(&mut self) -> Value {
        let step = self.recipe.loops[0].step;
        let strip = if self.recipe.gives_gil { GIVING_STRIP } else { STRIP };
        match self.recipe.plan.work.clone() {
            Some(Sym::Const(n)) => self.int((strip / n.max(1)).max(1) * step),
            Some(work) => {
                let (work, strip, one) = (self.sym(&work), self.int(strip), self.int(1));
                let whole = self.push(Inst::Int(IntOp::FloorDiv, strip, work));
                let n = self.push(Inst::Int(IntOp::Add, whole, one));
                let step = self.int(step);
                self.push(Inst::Int(IntOp::Mul, n, step))
            }
            None => self.int(step),
        }
    }

    /// In a copy that runs without the GIL: the blocks beside the usual path ask CPython. They take it, and give it again on
    /// the way back. (An exit takes it, too.)
    fn take_gil_aside(&mut self, copy: &Copy) {
        let gil = |entry| (Inst::Table { entry, args: vec![], pos: None, fail: None }, None);
        let aside: Vec<Block> = self.recipe.plan.cold.iter().map(|b| copy.blocks[b]).collect();
        let usual: Vec<Block> = self.recipe.order.iter().map(|b| copy.blocks[b]).collect();
        for &block in &aside {
            self.f.blocks[block.index()].insts.insert(0, gil(Entry::GilTake));
            let Some(mut end) = self.f.blocks[block.index()].terminator.take() else { continue };
            let ways = match &mut end {
                Terminator::Jump(to, args) => vec![(to, args)],
                Terminator::Branch { then, els, .. } => {
                    vec![(&mut then.0, &mut then.1), (&mut els.0, &mut els.1)]
                }
                Terminator::Return(_) | Terminator::Exit(_) => vec![],
            };
            for (to, args) in ways {
                if usual.contains(to) {
                    let back = self.f.add_block();
                    self.f.blocks[back.index()].cold = true;
                    self.f.blocks[back.index()].insts.push(gil(Entry::GilGive));
                    self.f.terminate(back, Terminator::Jump(*to, std::mem::take(args)));
                    *to = back;
                }
            }
            self.f.blocks[block.index()].terminator = Some(end);
        }
    }

    /// The nest without the checks that cannot fail, its outermost counter running to `end`.
    pub(super) fn copy_nest(&mut self, at_entry: &BTreeMap<Value, Value>, end: Value) -> Copy {
        let old_header = self.recipe.loops[0].header;
        let cold = self.recipe.plan.cold.clone();
        let order: Vec<Block> = self.recipe.order.iter().chain(&cold).copied().collect();
        let blocks: BTreeMap<Block, Block> = order.iter().map(|b| (*b, like(self.f, *b))).collect();
        for block in &cold {
            self.f.blocks[blocks[block].index()].cold = self.f.blocks[block.index()].cold;
        }
        let after = self.f.add_block();
        self.copies.map = at_entry.clone();
        for (old, new) in &blocks {
            self.copies.bind(self.f, *old, *new);
        }
        for old in order {
            self.at = blocks[&old];
            let data = self.f.blocks[old.index()].clone();
            let header_cond = match &data.terminator {
                Some(Terminator::Branch { cond, .. }) if old == old_header => Some(*cond),
                _ => None,
            };
            for (at, (inst, result)) in data.insts.iter().enumerate() {
                if header_cond.is_some() && *result == header_cond {
                    let counter = self.copies.value(self.recipe.loops[0].counter);
                    let new = self.push(Inst::ICmp(Cmp::Lt, counter, end));
                    self.copies.map.extend(result.map(|old| (old, new)));
                    continue;
                }
                self.copy_inst((old, at), inst, *result);
            }
            if let Some(terminator) = data.terminator {
                self.copy_end(old, terminator, &blocks, after);
            }
        }
        Copy { header: blocks[&old_header], after, blocks }
    }

    fn copy_inst(&mut self, place: (Block, usize), inst: &Inst, result: Option<Value>) {
        let plan = &self.recipe.plan;
        if plan.held.contains(&place) || matches!(inst, Inst::Table { entry: Entry::PollPending, .. }) {
            return;
        }
        let new = match (inst, result) {
            (_, Some(v)) if let Some(same) = plan.same.get(&v) => {
                let same = self.copies.value(*same);
                self.copies.map.insert(v, same);
                return;
            }
            (_, Some(v)) if let Some(n) = plan.constants.get(&v) => Inst::IConst(*n),
            // The entry has it.
            (Inst::Field(..) | Inst::ItemGet(..), Some(v)) if self.copies.map.contains_key(&v) => return,
            (Inst::Checked(op, a, b, _), Some(v)) if plan.unchecked.contains(&v) => {
                let op = match op {
                    CheckedOp::Add => IntOp::Add,
                    CheckedOp::Sub => IntOp::Sub,
                    CheckedOp::Mul => IntOp::Mul,
                };
                Inst::Int(op, *a, *b)
            }
            (Inst::Table { args, .. }, _) if let Some(fast) = plan.fast.get(&place) => {
                Inst::Table { entry: *fast, args: args.clone(), pos: None, fail: None }
            }
            _ => inst.clone(),
        };
        self.copies.inst(self.f, self.at, new, result);
    }

    /// Ends the copy of a block; a branch that the entry has answered goes one way.
    fn copy_end(&mut self, old: Block, end: Terminator, blocks: &BTreeMap<Block, Block>, after: Block) {
        let way = self.recipe.checks.get(&old).filter(|_| !self.recipe.plan.open.contains(&old));
        let end = match (end, way) {
            (Terminator::Branch { then, .. }, Some(true)) => Terminator::Jump(then.0, then.1),
            (Terminator::Branch { els, .. }, Some(false)) => Terminator::Jump(els.0, els.1),
            (end, _) => end,
        };
        let end = self.copies.end(self.f, end, |b| blocks.get(&b).copied().unwrap_or(after));
        self.f.terminate(self.at, end);
    }
}
