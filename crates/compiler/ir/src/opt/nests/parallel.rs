//! Nests whose iterations are independent by the program's word (`prange`) get a parallel loop in front of the copy.
//!
//! In: the usual path and the plan of a nest whose header is marked `free`. Out: a third copy of the nest inside of a
//! loop marked `parallel` ([`crate::parallel`]), each of whose iterations is a *block* of the nest's; or the reason why
//! there is none.
//!
//! A sum (or product) that the nest carries is split: every block adds its own part, from nothing, and the parts are
//! added to the sum in ascending order. For integers, none of which leaves 64 bits, this changes nothing. For floats it is
//! the stated order, which depends on nothing but the number of iterations: the first iteration by itself, then blocks
//! of [`FLOAT_BLOCK`], then by themselves the last ones, of which there are 1 to `FLOAT_BLOCK`. So that no turn of
//! CPython's can come between, such a nest does not poll; one with too many iterations for that runs in order.
//!
//! ```text
//! entry ── (first iteration) ── round ── blocks ⟲ ──┐     no more than a round of blocks at a time
//!                                 │ ↑               │
//!               copy in strips ◀──┘ └── nobody asks ┴── CPython asks ── header of the nest
//! ```

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::Ty;
use overdrive_base::table::Entry;

use super::affine::Sym;
use super::build::{Builder, Copy, branch};
use super::hot::{Def, Hot};
use super::plan::{Cond, MIN_WORK, Plan};
use crate::entities::{Block, Value};
use crate::function::{Function, Iterations};
use crate::inst::{BoolOp, CheckedOp, Cmp, Field, FloatOp, FloatUnary, Inst, IntOp, Terminator};
use crate::loops::Loop;
use crate::opt::copies::{like, push};
use crate::opt::rewrite::replace_uses;

/// Iterations whose float results are added up by themselves. Part of what users are told.
pub(super) const FLOAT_BLOCK: i64 = 16;
/// Most iterations of inner loops in one of the outermost, when floats are summed: a round has more than a block then.
const FLOAT_WORK: i64 = 1 << 17;
/// Most iterations of anything in a loop that sums floats: it runs without a poll, for a second or so.
const FLOAT_ALL: i64 = 1 << 30;
/// Most iterations of the outermost loop in a round that sums floats: each block leaves a part in memory.
const FLOAT_ROUND: i64 = 1 << 19;
/// Iterations in a block, those of inner loops counted: some microseconds.
const BLOCK: i64 = 1 << 12;
/// Iterations between two polls where sums are carried, whose proofs hold for that many.
const SUM_ROUND: i64 = 1 << 22;
/// And where none are: this many, and this many of the outermost loop in any case, for many threads.
const ROUND: i64 = 1 << 24;
const ROUND_AT_LEAST: i64 = 64;
/// So no more than this of anything between two looks at elements: at most 2^22 of inner loops in one of the outermost.
pub(super) const MAX_ROUND_STEPS: i64 = 1 << 29;

/// What the outermost header's parameters are to a parallel run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Counter,
    /// The same in all iterations, or assigned before it is read in each.
    Passed,
    /// Once it is false it stays so; it must be.
    Flag,
    Sum,
    Product,
}

/// How a nest is shared out.
#[derive(Clone)]
pub(super) struct Shared {
    roles: Vec<Role>,
    has_float: bool,
    has_sum: bool,
    /// What the counter begins with, if floats are summed.
    start: Option<Value>,
    /// Sums (by parameter) that are asked behind a round whether they are finite still. What once is not stays so; then
    /// the round is done again in order, with its checks.
    asked_behind: BTreeSet<usize>,
    /// Branches that go the second way once all flags are down.
    closed: Vec<Block>,
}

/// Decides; changes the plan where a parallel nest asks for less.
///
/// # Errors
/// Why the nest runs in order, for people.
pub(super) fn shared(hot: &Hot<'_>, plan: &mut Plan, nest: &Loop) -> Result<Shared, String> {
    let header = hot.loops[0].header;
    let params = &hot.f.blocks[header.index()].params;
    let later = Later::with_flags(hot);
    let mut shared = Shared {
        roles: vec![],
        has_float: false,
        has_sum: false,
        start: None,
        asked_behind: BTreeSet::new(),
        closed: vec![],
    };
    let mut families = vec![];
    for (i, v) in params.iter().enumerate() {
        let role = if *v == hot.loops[0].counter {
            Role::Counter
        } else if later.never.contains(v) {
            Role::Flag
        } else {
            let (role, family) = later
                .role(*v)
                .ok_or("a value goes from one iteration to the next that is neither sum nor product")?;
            families.push((i, family));
            role
        };
        if matches!(role, Role::Sum | Role::Product) {
            shared.has_sum = true;
            shared.has_float |= hot.f.ty(*v) != Ty::I64;
        }
        shared.roles.push(role);
    }
    let mut open = plan.open.clone();
    open.retain(|block| {
        // The first iteration's way is none of the blocks'.
        if !later.blocks.contains(block) {
            return false;
        }
        let check = hot.checks.get(block).filter(|(_, expected)| *expected);
        let asked = check.and_then(|(cond, _)| hot.quiet(*cond));
        let sum = families.iter().find(|(_, family)| asked.is_some_and(|(x, _)| family.contains(&x)));
        shared.asked_behind.extend(sum.map(|(i, _)| *i));
        if sum.is_some()
            && asked.is_some_and(|(_, scales)| scales)
            && !plan.late.contains(&Cond::UnderIgnored)
        {
            plan.late.push(Cond::UnderIgnored);
        }
        sum.is_none()
    });
    cannot_leave(hot, plan, &later.blocks, &open)?;
    shared.closed = later.closed;
    if !shared.asked_behind.is_empty() {
        may_be_done_again(hot, plan)?;
    }
    if shared.has_float {
        let start = first_value(hot.f, nest, header, hot.loops[0].counter);
        shared.start = Some(start.ok_or("where it begins is not known, and it sums floats")?);
        // The order is the stated one however few iterations there are.
        for cond in &mut plan.conds {
            if matches!(cond, Cond::AtLeast(_, MIN_WORK)) {
                *cond = Cond::AtLeast(hot.trips(0).ok_or("how often it runs is not known")?, 1);
            }
        }
    }
    Ok(shared)
}

/// Whether iterations that are done twice store the same: nothing is loaded from what they store into. Has the entry test
/// it.
fn may_be_done_again(hot: &Hot<'_>, plan: &mut Plan) -> Result<(), String> {
    let array_of = |ptr: Value| {
        let mut at = ptr;
        while let Some(Inst::PtrAdd(base, _)) = hot.inst(at) {
            at = *base;
        }
        match hot.inst(at) {
            Some(Inst::Field(Field::ArrayData, array)) if hot.def(*array) == Def::Outside => Some(*array),
            _ => None,
        }
    };
    let unknown = "a sum may leave the finite numbers, and what is stored meanwhile may be read";
    let (mut loaded, mut stored) = (BTreeSet::new(), BTreeSet::new());
    for (inst, _) in hot.order.iter().flat_map(|b| &hot.f.blocks[b.index()].insts) {
        match inst {
            Inst::Load(_, ptr) => loaded.insert(array_of(*ptr).ok_or(unknown)?),
            Inst::Store(_, ptr, _) => stored.insert(array_of(*ptr).ok_or(unknown)?),
            _ => false,
        };
    }
    for into in &stored {
        for from in &loaded {
            if into == from {
                return Err(unknown.into());
            }
            let apart = Cond::Apart(*into, *from);
            if !plan.late.contains(&apart) {
                plan.late.push(apart);
            }
        }
    }
    Ok(())
}

/// Whether all checks fall away in a copy of `blocks` in which the branches at `open` ones stay.
fn cannot_leave(hot: &Hot<'_>, plan: &Plan, blocks: &[Block], open: &BTreeSet<Block>) -> Result<(), String> {
    let mut stays = BTreeSet::new();
    for block in blocks {
        for (at, (inst, result)) in hot.f.blocks[block.index()].insts.iter().enumerate() {
            let is_gone =
                plan.held.contains(&(*block, at)) || result.is_some_and(|v| plan.unchecked.contains(&v));
            if let Some(exit) = inst.exit().filter(|_| !is_gone) {
                stays.insert(hot.f.exits[exit.index()].reason.clone());
            }
        }
    }
    if !open.is_empty() {
        stays.extend(plan.stays.iter().cloned());
    }
    if !stays.is_empty() {
        let stays: Vec<&str> = stays.iter().map(String::as_str).collect();
        return Err(format!("tests that stay in it: {}", stays.join(", ")));
    }
    // The ways beside these branches ask NumPy, or leave.
    if !open.is_empty() {
        return Err("results that NumPy may report (overflow, underflow) are not excluded before it".into());
    }
    Ok(())
}

/// The nest behind its first iteration, without the checks.
struct Later<'a, 'f> {
    hot: &'a Hot<'f>,
    /// What comes in over the edges that may be taken.
    incoming: BTreeMap<Value, Vec<Value>>,
    blocks: Vec<Block>,
    /// Those that go their second way only.
    closed: Vec<Block>,
    /// Truths that are false.
    never: BTreeSet<Value>,
    /// Values that something is done with.
    needed: BTreeSet<Value>,
    /// Of these, what decides or is stored.
    used: BTreeSet<Value>,
}

impl<'a, 'f> Later<'a, 'f> {
    /// With all flags down that stay down: a value that began as another type than it has by now, say.
    fn with_flags(hot: &'a Hot<'f>) -> Later<'a, 'f> {
        let params = &hot.f.blocks[hot.loops[0].header.index()].params;
        let is_around = |from: &Block| hot.loops[0].blocks.contains(from);
        let changes = |v: &Value| hot.incoming(*v).iter().any(|(from, x)| is_around(from) && x != v);
        let mut flags: BTreeSet<Value> =
            params.iter().copied().filter(|v| hot.f.ty(*v) == Ty::I1 && changes(v)).collect();
        loop {
            let later = Later::new(hot, flags.clone());
            let rises = |v: &&Value| {
                let back = later.incoming.get(*v).map_or(&[][..], Vec::as_slice);
                !back.iter().all(|x| later.is_never(*x))
            };
            let Some(rising) = flags.iter().find(rises).copied() else { return later };
            flags.remove(&rising);
        }
    }

    fn is_never(&self, v: Value) -> bool {
        self.never.contains(&v) || matches!(self.hot.inst(v), Some(Inst::BConst(false)))
    }

    fn new(hot: &'a Hot<'f>, flags: BTreeSet<Value>) -> Later<'a, 'f> {
        let mut later = Later {
            hot,
            incoming: BTreeMap::new(),
            blocks: vec![],
            closed: vec![],
            needed: BTreeSet::new(),
            used: BTreeSet::new(),
            never: flags,
        };
        // What is false closes ways, and what would have come over them is false no more.
        loop {
            later.walk();
            let before = later.never.len();
            for v in later.blocks[1..].iter().flat_map(|b| &hot.f.blocks[b.index()].params) {
                let comes_in = later.incoming.get(v).map_or(&[][..], Vec::as_slice);
                if hot.f.ty(*v) == Ty::I1 && comes_in.iter().all(|x| x == v || later.is_never(*x)) {
                    later.never.insert(*v);
                }
            }
            if later.never.len() == before {
                break;
            }
        }
        later.find_needed();
        later
    }

    /// Follows the edges that may be taken.
    fn walk(&mut self) {
        let hot = self.hot;
        self.blocks.clear();
        self.closed.clear();
        self.incoming.clear();
        self.used.clear();
        let mut reached = BTreeSet::from([hot.loops[0].header]);
        // In reverse postorder a block comes behind those that lead to it, but for ways back.
        for block in &hot.order {
            if !reached.contains(block) {
                continue;
            }
            self.blocks.push(*block);
            let data = &hot.f.blocks[block.index()];
            let edges = hot.usual_edges(*block);
            let question = match &data.terminator {
                Some(Terminator::Branch { cond, .. }) if edges.len() == 2 => Some(*cond),
                _ => None,
            };
            let never = question.is_some_and(|v| self.is_never(v));
            self.used.extend(question.filter(|_| !never));
            self.closed.extend(never.then_some(*block));
            for (to, args) in edges.into_iter().skip(usize::from(never)) {
                if !hot.blocks.contains(&to) {
                    continue;
                }
                reached.insert(to);
                for (param, arg) in hot.f.blocks[to.index()].params.iter().zip(args) {
                    self.incoming.entry(*param).or_default().push(*arg);
                }
            }
            for (inst, _) in &data.insts {
                if let Inst::Store(_, ptr, v) = inst {
                    self.used.extend([*ptr, *v]);
                }
            }
        }
    }

    fn find_needed(&mut self) {
        let header = &self.hot.f.blocks[self.hot.loops[0].header.index()];
        let mut work: Vec<Value> = self.used.iter().copied().collect();
        work.extend(header.params.iter().flat_map(|v| self.incoming.get(v)).flatten());
        while let Some(v) = work.pop() {
            if !self.needed.insert(v) {
                continue;
            }
            match self.hot.def(v) {
                Def::Outside => {}
                Def::Param(_) => work.extend(self.incoming.get(&v).into_iter().flatten()),
                Def::Inst(..) => work.extend(self.hot.inst(v).map_or(vec![], Inst::operands)),
            }
        }
    }

    /// What a value that the outermost loop carries is, and everything that depends on it. `None`: more than can be split.
    fn role(&self, param: Value) -> Option<(Role, BTreeSet<Value>)> {
        let header = self.hot.loops[0].header;
        let back = self.incoming.get(&param).map_or(&[][..], Vec::as_slice);
        if back.iter().all(|v| *v == param) {
            return Some((Role::Passed, BTreeSet::new()));
        }
        let mut family = BTreeSet::from([param]);
        let mut combines: Vec<(bool, Ty)> = vec![];
        loop {
            let before = family.len();
            for block in &self.blocks {
                let data = &self.hot.f.blocks[block.index()];
                for v in data.params.iter().filter(|v| **v != param && self.needed.contains(v)) {
                    let comes_in = self.incoming.get(v).map_or(&[][..], Vec::as_slice);
                    if comes_in.iter().any(|x| family.contains(x)) {
                        if *block == header {
                            return None;
                        }
                        family.insert(*v);
                    }
                }
                for (inst, result) in &data.insts {
                    let read = inst.operands().iter().filter(|v| family.contains(v)).count();
                    let Some(v) = result.filter(|v| read > 0 && self.needed.contains(v)) else { continue };
                    let is_product = combines_with(inst, |v| family.contains(&v)).filter(|_| read == 1)?;
                    combines.push((is_product, self.hot.f.ty(v)));
                    family.insert(v);
                }
            }
            if family.len() == before {
                break;
            }
        }
        if family.iter().any(|v| self.used.contains(v)) {
            return None;
        }
        if family.len() == 1 {
            // Nobody reads it before it is assigned. (Were it handed back to itself on some way only, it would be read
            // behind the loop: what the last iterations assign is not all there is to it.)
            return (!back.contains(&param)).then_some((Role::Passed, BTreeSet::new()));
        }
        // Where ways meet, all of them bring the sum: none begins it anew.
        let is_joined = |v: &Value| {
            !matches!(self.hot.def(*v), Def::Param(_))
                || self.incoming.get(v).is_none_or(|comes_in| comes_in.iter().all(|x| family.contains(x)))
        };
        let first = combines.first().copied().filter(|(_, ty)| *ty == self.hot.f.ty(param));
        let (is_product, _) = first.filter(|first| combines.iter().all(|other| other == first))?;
        let role = if is_product { Role::Product } else { Role::Sum };
        family.iter().all(is_joined).then_some((role, family))
    }
}

/// Whether an operation adds to (or subtracts from) one of a family: `Some(false)`; whether it multiplies: `Some(true)`.
fn combines_with(inst: &Inst, is_family: impl Fn(Value) -> bool) -> Option<bool> {
    match inst {
        Inst::Int(IntOp::Add, ..) | Inst::Checked(CheckedOp::Add, ..) | Inst::Float(FloatOp::Add, ..) => {
            Some(false)
        }
        Inst::Int(IntOp::Sub, a, _)
        | Inst::Checked(CheckedOp::Sub, a, _, _)
        | Inst::Float(FloatOp::Sub, a, _)
            if is_family(*a) =>
        {
            Some(false)
        }
        Inst::Int(IntOp::Mul, ..) | Inst::Checked(CheckedOp::Mul, ..) | Inst::Float(FloatOp::Mul, ..) => {
            Some(true)
        }
        _ => None,
    }
}

/// What the counter begins with, when one way only leads to the nest.
fn first_value(f: &Function, nest: &Loop, header: Block, counter: Value) -> Option<Value> {
    let at = f.blocks[header.index()].params.iter().position(|v| *v == counter)?;
    let mut found = vec![];
    for (b, data) in f.blocks.iter().enumerate() {
        if nest.blocks.contains(&Block(b as u32)) {
            continue;
        }
        match &data.terminator {
            Some(Terminator::Jump(to, args)) if *to == header => found.push(*args.get(at)?),
            Some(Terminator::Branch { then, els, .. }) => {
                found.extend(
                    [then, els].into_iter().filter(|(to, _)| *to == header).map(|(_, args)| args[at]),
                );
            }
            _ => {}
        }
    }
    match found[..] {
        [v] => Some(v),
        _ => None,
    }
}

impl Builder<'_> {
    /// At the end of the entry: whether the parallel loop may run, apart from what strips ask.
    pub(super) fn may_share(&mut self, shared: &Shared) -> Option<Value> {
        let start = shared.start?;
        let counter = self.copies.value(self.recipe.loops[0].counter);
        let is_first = self.push(Inst::ICmp(Cmp::Eq, counter, start));
        let trips = self.push(Inst::Int(IntOp::Sub, self.end, counter));
        let work = self.work();
        let all = self.push(Inst::Int(IntOp::Mul, trips, work));
        let mut may = is_first;
        for (v, most) in [(work, FLOAT_WORK), (all, FLOAT_ALL)] {
            let most = self.int(most);
            let fits = self.push(Inst::ICmp(Cmp::Le, v, most));
            may = self.push(Inst::Bool(BoolOp::And, may, fits));
        }
        Some(may)
    }

    /// In a copy that is entered with all flags down they are down.
    fn lower_flags(&mut self, shared: &Shared, copy: &Copy) {
        for block in shared.closed.iter().map(|block| copy.blocks[block]) {
            if let Some(Terminator::Branch { els, .. }) = self.f.blocks[block.index()].terminator.clone() {
                self.f.terminate(block, Terminator::Jump(els.0, els.1));
            }
        }
        let header = copy.header;
        let params = self.params(header);
        let of_flags = shared.roles.iter().zip(params).filter(|(role, _)| **role == Role::Flag);
        let flags: BTreeSet<Value> = of_flags.map(|(_, v)| v).collect();
        let never = push(self.f, header, Inst::BConst(false));
        // In front of everything else in the header.
        if let Some(last) = self.f.blocks[header.index()].insts.pop() {
            self.f.blocks[header.index()].insts.insert(0, last);
        }
        replace_uses(self.f, |v| if flags.contains(&v) { never } else { v });
    }

    fn work(&mut self) -> Value {
        let work = self.recipe.plan.work.clone().unwrap_or(Sym::Const(1));
        self.sym(&work)
    }

    /// Counter's steps in a block, and blocks in a round.
    fn shares(&mut self, shared: &Shared) -> (Value, Value) {
        let step = self.recipe.loops[0].step;
        let work = self.work();
        let mut iterations = |all: i64, more: i64| {
            let (all, more) = (self.int(all), self.int(more));
            let whole = self.push(Inst::Int(IntOp::FloorDiv, all, work));
            self.push(Inst::Int(IntOp::Add, whole, more))
        };
        if shared.has_float {
            let round = iterations(SUM_ROUND, 1);
            let (most, block) = (self.int(FLOAT_ROUND), self.int(FLOAT_BLOCK));
            let is_less = self.push(Inst::ICmp(Cmp::Lt, round, most));
            let round = self.push(Inst::Select(is_less, round, most));
            let blocks = self.push(Inst::Int(IntOp::FloorDiv, round, block));
            return (self.int(FLOAT_BLOCK * step), blocks);
        }
        let block = iterations(BLOCK, 1);
        let round = if shared.has_sum { iterations(SUM_ROUND, 1) } else { iterations(ROUND, ROUND_AT_LEAST) };
        let blocks = self.push(Inst::Int(IntOp::FloorDiv, round, block));
        let step = self.int(step);
        (self.push(Inst::Int(IntOp::Mul, block, step)), blocks)
    }

    /// Builds rounds; gives their first block, which takes the header's arguments, and the copy inside of them. What is
    /// left of the iterations goes to `strip`.
    pub(super) fn rounds(
        &mut self,
        shared: &Shared,
        (header, strip, bound): (Block, Block, Value),
        at_entry: &BTreeMap<Value, Value>,
        (carried, elements): (&[Cond], &[Cond]),
    ) -> (Block, Copy) {
        let round = like(self.f, header);
        self.at = round;
        self.copies.map = at_entry.clone();
        self.copies.bind(self.f, header, round);
        self.runs_to(bound);
        let args = self.params(round);
        self.branch_on(carried, (header, args.clone()));
        for (role, flag) in shared.roles.iter().zip(&args) {
            if *role == Role::Flag {
                let is_down = self.push(Inst::Not(*flag));
                self.go_on_if(Some(is_down), (strip, args.clone()));
            }
        }
        let (stride, most) = self.shares(shared);
        let counter = self.copies.value(self.recipe.loops[0].counter);
        let (zero, one) = (self.int(0), self.int(1));
        // One iteration at least is left: it leaves what is read behind the loop.
        let left = self.push(Inst::Int(IntOp::Sub, bound, counter));
        let left = self.push(Inst::Int(IntOp::Sub, left, one));
        let whole = self.push(Inst::Int(IntOp::FloorDiv, left, stride));
        let is_less = self.push(Inst::ICmp(Cmp::Lt, whole, most));
        let n = self.push(Inst::Select(is_less, whole, most));
        let is_some = self.push(Inst::ICmp(Cmp::Gt, n, zero));
        let next = self.f.add_block();
        self.f.terminate(self.at, branch(is_some, (next, vec![]), (strip, args.clone())));
        self.at = next;
        let span = self.push(Inst::Int(IntOp::Mul, n, stride));
        let end = self.push(Inst::Int(IntOp::Add, counter, span));
        self.runs_to(end);
        self.in_rounds = true;
        self.branch_on(elements, (header, args.clone()));
        self.in_rounds = false;

        let blocks = self.f.add_block();
        let number = self.f.add_param(blocks, Ty::I64);
        let mut sums = vec![];
        let mut first = vec![counter];
        for (role, v) in shared.roles.iter().zip(&args) {
            let is_sum = matches!(role, Role::Sum | Role::Product);
            let ty = self.f.ty(*v);
            sums.push(is_sum.then(|| self.f.add_param(blocks, ty)));
            first.extend(is_sum.then_some(*v));
        }
        self.f.terminate(self.at, Terminator::Jump(blocks, first));
        self.f.blocks[blocks.index()].iterations = Iterations::Parallel;
        self.at = blocks;
        let goes_on = self.push(Inst::ICmp(Cmp::Lt, number, end));
        let (block, behind) = (self.f.add_block(), self.f.add_block());
        self.f.terminate(blocks, branch(goes_on, (block, vec![]), (behind, vec![])));

        self.at = block;
        let block_end = self.push(Inst::Int(IntOp::Add, number, stride));
        let mut begin = vec![];
        for (role, v) in shared.roles.iter().zip(&args) {
            let ty = self.f.ty(*v);
            begin.push(match (role, ty) {
                (Role::Counter, _) => number,
                (Role::Passed, _) => *v,
                (Role::Flag, _) => self.push(Inst::BConst(false)),
                // Of floats the negative zero: added to anything it leaves all bits.
                (Role::Sum, Ty::F64) => self.push(Inst::FConst((-0.0f64).to_bits())),
                (Role::Sum, Ty::F32) => self.push(Inst::F32Const((-0.0f32).to_bits())),
                (Role::Sum, _) => self.int(0),
                (Role::Product, Ty::F64) => self.push(Inst::FConst(1.0f64.to_bits())),
                (Role::Product, Ty::F32) => self.push(Inst::F32Const(1.0f32.to_bits())),
                (Role::Product, _) => self.int(1),
            });
        }
        let at_block = self.at;
        // What leaves is asked for behind the round.
        let (open, cold) =
            (std::mem::take(&mut self.recipe.plan.open), std::mem::take(&mut self.recipe.plan.cold));
        let copy = self.copy_nest(at_entry, block_end);
        (self.recipe.plan.open, self.recipe.plan.cold) = (open, cold);
        self.lower_flags(shared, &copy);
        self.f.terminate(at_block, Terminator::Jump(copy.header, begin));
        self.at = copy.after;
        let parts = self.params(copy.header);
        let mut next = vec![block_end];
        for ((role, sum), part) in shared.roles.iter().zip(&sums).zip(parts) {
            let Some(sum) = *sum else { continue };
            let is_int = self.f.ty(sum) == Ty::I64;
            next.push(self.push(match (role, is_int) {
                (Role::Product, true) => Inst::Int(IntOp::Mul, sum, part),
                (Role::Product, false) => Inst::Float(FloatOp::Mul, sum, part),
                (_, true) => Inst::Int(IntOp::Add, sum, part),
                (_, false) => Inst::Float(FloatOp::Add, sum, part),
            }));
        }
        self.f.terminate(copy.after, Terminator::Jump(blocks, next));

        self.at = behind;
        for i in &shared.asked_behind {
            let Some(sum) = sums[*i] else { continue };
            let abs = self.push(Inst::FloatUnary(FloatUnary::Abs, sum));
            let most = match self.f.ty(sum) {
                Ty::F32 => Inst::F32Const(f32::MAX.to_bits()),
                _ => Inst::FConst(f64::MAX.to_bits()),
            };
            let most = self.push(most);
            let is_finite = self.push(Inst::FCmp(Cmp::Le, abs, most));
            self.go_on_if(Some(is_finite), (header, args.clone()));
        }
        let mut on = vec![];
        for ((role, v), sum) in shared.roles.iter().zip(&args).zip(&sums) {
            on.push(match role {
                Role::Counter => end,
                Role::Flag => self.push(Inst::BConst(false)),
                Role::Passed => *v,
                Role::Sum | Role::Product => sum.unwrap_or(*v),
            });
        }
        if shared.has_float {
            self.f.terminate(self.at, Terminator::Jump(round, on));
        } else {
            let asked =
                self.push(Inst::Table { entry: Entry::PollPending, args: vec![], pos: None, fail: None });
            self.f.terminate(self.at, branch(asked, (header, on.clone()), (round, on)));
        }
        (round, copy)
    }
}
