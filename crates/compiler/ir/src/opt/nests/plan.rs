//! Decides what of a nest's checks the entry can make once and for all, and what it must test for that.
//!
//! In: the usual path. Out: the entry's conditions, the checks that fall away, those that stay, the loops whose first
//! iteration differs. `None` where nothing would be gained.

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::{DType, Ty};
use overdrive_base::table::Entry;

use super::affine::Sym;
use super::elements::{Access, Asked, FloatCheck};
use super::hot::Hot;
use super::ranges::CARRIED_BITS;
use crate::dominators::successors;
use crate::entities::{Block, ExitId, Value};
use crate::function::Iterations;
use crate::inst::{Cmp, Inst, IntOp, Terminator};

/// Iterations of inner loops that one iteration of the outermost may have: it runs without a poll.
const MAX_WORK: i64 = 1 << 22;
/// Below this many iterations in all, the entry costs more than it saves.
pub(super) const MIN_WORK: i64 = 64;

/// A test at the entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cond {
    /// An invariant truth.
    True(Value),
    /// |v| < 2^bits
    Small(Value, u32),
    AtMost(Sym, i64),
    AtLeast(Sym, i64),
    /// 0 ≤ lo and hi < length
    Inside {
        lo: Sym,
        hi: Sym,
        length: Value,
    },
    /// The array's stride on an axis.
    Stride {
        array: Value,
        axis: u8,
        bytes: i64,
    },
    /// |v| ≤ 2^k
    FloatBelow(Value, i32),
    /// |v| ≥ 2^-k
    FloatAbove(Value, i32),
    /// NumPy does not report underflow.
    UnderIgnored,
    /// Two arrays share no memory.
    Apart(Value, Value),
    /// v ≥ 2^-k
    Positive(Value, i32),
    /// All elements between the indices, on the first two axes, are below 2^k in magnitude (an integer may be -2^k), and
    /// perhaps at least 2^-k.
    Within {
        array: Value,
        dtype: DType,
        k: i32,
        is_positive: bool,
        axes: [(Sym, Sym); 2],
    },
}

/// What to build.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Cheap ones, in order: each may take those before it for granted.
    pub conds: Vec<Cond>,
    /// Those that read memory.
    pub late: Vec<Cond>,
    /// Of what the outermost loop carries: tested again before each strip.
    pub carried: Vec<Cond>,
    /// Of the elements that a strip loads: tested before it, which also brings them into the cache.
    pub strip: Vec<Cond>,
    /// Functions of `math` whose arguments are fine, by place: their entries without CPython's rules.
    pub fast: BTreeMap<(Block, usize), Entry>,
    /// Of the outermost loop's header: what must be finite behind a strip. Then only a first iteration that is peeled
    /// off has its elements looked at.
    pub finite_behind: Vec<Value>,
    /// Guards that hold, by place.
    pub held: BTreeSet<(Block, usize)>,
    /// Why one may leave from the copy: what the entry could not answer.
    pub stays: BTreeSet<String>,
    /// Values that equal another.
    pub same: BTreeMap<Value, Value>,
    /// Expressions that must not overflow, beside those of the conditions.
    pub bounds: Vec<Sym>,
    /// Checked operations that stay in range.
    pub unchecked: BTreeSet<Value>,
    /// Values (strides) that are a constant.
    pub constants: BTreeMap<Value, i64>,
    /// Branches whose usual way is not certain.
    pub open: BTreeSet<Block>,
    /// The cold blocks that these lead to, each before those it dominates.
    pub cold: Vec<Block>,
    /// For each loop, its header's parameters that are true in the first iteration at most.
    pub flags: BTreeMap<usize, Vec<usize>>,
    /// Iterations of inner loops in one of the outermost.
    pub work: Option<Sym>,
}

/// A plan in the making.
pub(super) struct Planner<'a, 'f> {
    pub(super) hot: &'a Hot<'f>,
    pub(super) plan: Plan,
    pub(super) loads: BTreeMap<Value, Access>,
    /// Array (if known), stored value, type.
    pub(super) stores: Vec<(Option<Value>, Value, DType)>,
    pub(super) floats: Vec<FloatCheck>,
    /// Checks that depend on more than was known when they were looked at.
    pub(super) unsure: Vec<(Block, usize)>,
}

/// How it is known that NumPy has nothing to say about float results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Results {
    /// From a look at the elements, where that tells.
    Foreseen,
    /// Each is asked for, and the copy leaves where one is not finite.
    Asked,
}

/// The plan for a nest.
pub(super) fn plan(hot: &Hot<'_>, results: Results) -> Option<Plan> {
    let mut p = Planner {
        hot,
        plan: Plan::default(),
        loads: BTreeMap::new(),
        stores: vec![],
        floats: vec![],
        unsure: vec![],
    };
    p.work()?;
    p.find_flags()?;
    for block in &hot.order {
        for at in 0..hot.f.blocks[block.index()].insts.len() {
            p.inst(*block, at)?;
        }
        p.branch(*block)?;
    }
    match results {
        Results::Foreseen => p.prove_floats()?,
        Results::Asked => p.ask_for_floats()?,
    }
    p.bound_integers();
    p.look_again();
    let is_free = hot.f.blocks[hot.loops[0].header.index()].iterations == Iterations::Free;
    if !is_free {
        // Parallel runs ask about sums in their own way.
        p.plan.finite_behind = p.telling_sums().unwrap_or_default();
    }
    if hot.loops.len() > 1 || results == Results::Asked {
        // Outer iterations may then run side by side, or inner ones in batches.
        let loaded = p.loads.values().map(|access| access.array).collect();
        p.keep_apart(&loaded);
    }
    p.plan.cold.sort_by_key(|block| hot.rank(*block));
    let is_better =
        is_free || !p.plan.held.is_empty() || !p.plan.unchecked.is_empty() || !p.floats.is_empty();
    for v in hot.sums.borrow().iter() {
        p.plan.carried.push(Cond::Small(*v, CARRIED_BITS));
    }
    p.plan.bounds.append(&mut hot.leaned_on.borrow_mut());
    p.test_leaves();
    is_better.then_some(p.plan)
}

impl Plan {
    /// Whether elements are looked at.
    pub(super) fn looks(&self) -> bool {
        self.late.iter().chain(&self.strip).any(|cond| matches!(cond, Cond::Within { .. }))
    }

    /// Whether questions stay in the copy.
    pub(super) fn asks(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Planner<'_, '_> {
    fn work(&mut self) -> Option<()> {
        let mut work = vec![Sym::Const(1); self.hot.loops.len()];
        for l in (1..work.len()).rev() {
            let trips = self.hot.trips(l)?.max(Sym::Const(0));
            let all = trips.mul(work[l].clone());
            let outer = self.hot.loops[l].parent?;
            self.plan.conds.push(Cond::AtMost(all.clone(), MAX_WORK));
            work[outer] = work[outer].clone().add(all);
        }
        let all = work.swap_remove(0);
        self.plan.conds.push(Cond::AtMost(all.clone(), MAX_WORK));
        let trips = self.hot.trips(0)?;
        // So there is one at least, which may be peeled off.
        self.plan.conds.push(Cond::AtLeast(trips.mul(all.clone()), MIN_WORK));
        self.plan.work = Some(all);
        Some(())
    }

    /// Parameters that tell a loop's first iteration from the others (a value changes its type there).
    fn find_flags(&mut self) -> Option<()> {
        for (l, counted) in self.hot.loops.iter().enumerate() {
            let params = &self.hot.f.blocks[counted.header.index()].params;
            let is_flag = |v: &Value| {
                let around: Vec<_> =
                    self.hot.incoming(*v).iter().filter(|(from, _)| counted.blocks.contains(from)).collect();
                self.hot.f.ty(*v) == Ty::I1
                    && !around.is_empty()
                    && around.iter().all(|(_, v)| matches!(self.hot.inst(*v), Some(Inst::BConst(false))))
            };
            let flags: Vec<usize> = (0..params.len()).filter(|i| is_flag(&params[*i])).collect();
            if flags.is_empty() {
                continue;
            }
            if l > 0 {
                self.plan.conds.push(Cond::AtLeast(self.hot.trips_at_least(l)?, 1));
            }
            self.plan.flags.insert(l, flags);
        }
        // Every peeled loop is there twice, with all that is in it.
        (self.plan.flags.len() <= 3).then_some(())
    }

    fn inst(&mut self, block: Block, at: usize) -> Option<()> {
        let (inst, result) = &self.hot.f.blocks[block.index()].insts[at];
        match inst {
            _ if self.argument(block, at) => {}
            Inst::Guard(cond, _) if let Some(result) = self.converted(*cond) => {
                // Magnitudes below 2^62 are integers of 64 bits.
                self.floats.push(FloatCheck { result, limit: 62, asked: Asked::Guard { block, at } });
            }
            Inst::Guard(..) | Inst::Checked(..) if self.is_certain(block, at) => {}
            Inst::Guard(..) | Inst::Checked(..) => self.unsure.push((block, at)),
            Inst::Table { entry: Entry::PollPending, .. } => {
                let (cond, _) = self.hot.checks.get(&block)?;
                if Some(*cond) != *result {
                    return None;
                }
            }
            Inst::Load(dtype, ptr) => {
                if let Some(access) = self.access(*dtype, *ptr) {
                    self.contiguous(&access);
                    self.loads.insert((*result)?, access);
                }
            }
            Inst::Store(dtype, ptr, value) => {
                let access = self.access(*dtype, *ptr);
                if let Some(access) = &access {
                    self.contiguous(access);
                }
                self.stores.push((access.map(|a| a.array), *value, *dtype));
            }
            _ => {}
        }
        Some(())
    }

    /// Whether a check always succeeds under conditions that the entry tests; notes that.
    fn is_certain(&mut self, block: Block, at: usize) -> bool {
        match &self.hot.f.blocks[block.index()].insts[at] {
            (Inst::Guard(cond, _), _) if self.holds(*cond) => self.plan.held.insert((block, at)),
            (Inst::Checked(..), Some(v)) if self.hot.int_range(*v).is_some() || self.take_interval(*v) => {
                self.plan.unchecked.insert(*v)
            }
            _ => false,
        }
    }

    /// At checks that could not be answered before ranges of converted floats were known.
    fn look_again(&mut self) {
        for (block, at) in std::mem::take(&mut self.unsure) {
            if !self.is_certain(block, at)
                && let Some(exit) = self.hot.f.blocks[block.index()].insts[at].0.exit()
            {
                self.stays(exit);
            }
        }
    }

    pub(super) fn stays(&mut self, exit: ExitId) {
        self.plan.stays.insert(self.hot.f.exits[exit.index()].reason.clone());
    }

    /// Whether the value has bounds that the entry can compute; notes them.
    fn take_interval(&mut self, v: Value) -> bool {
        let Some(interval) = self.hot.interval(v) else { return false };
        self.plan.bounds.extend([interval.lo, interval.hi]);
        true
    }

    /// Whether a guard's condition holds under conditions that the entry tests; notes these.
    fn holds(&mut self, cond: Value) -> bool {
        let hot = self.hot;
        if hot.is_invariant(cond) {
            self.plan.conds.insert(0, Cond::True(cond));
            return true;
        }
        match hot.inst(cond) {
            Some(Inst::ULt(a, b)) => self.below(*a, *b),
            Some(Inst::ICmp(cmp, a, b)) => {
                let (Some((a0, a1)), Some((b0, b1))) = (hot.int_range(*a), hot.int_range(*b)) else {
                    return false;
                };
                match cmp {
                    Cmp::Lt => a1 < b0,
                    Cmp::Le => a1 <= b0,
                    Cmp::Gt => a0 > b1,
                    Cmp::Ge => a0 >= b1,
                    Cmp::Ne => a1 < b0 || b1 < a0,
                    Cmp::Eq => false,
                }
            }
            _ => false,
        }
    }

    /// `a` below `b` as unsigned numbers.
    fn below(&mut self, a: Value, b: Value) -> bool {
        let hot = self.hot;
        if let (Some((a0, a1)), Some((b0, _))) = (hot.int_range(a), hot.int_range(b))
            && a0 >= 0
            && a1 < b0
        {
            return true;
        }
        if let Some(x) = self.centred(a, b) {
            let Some(interval) = hot.interval(x) else { return false };
            self.plan.bounds.extend([interval.lo, interval.hi]);
            return true;
        }
        let key = self.unwrapped(a, b).unwrap_or(a);
        let Some(interval) = hot.interval(key) else { return false };
        if !hot.is_invariant(b) {
            // Of a length that changes nothing is known, but that no index counts from the end.
            if key != a && interval.may_be_places() {
                self.plan.conds.push(Cond::AtLeast(interval.lo.clone(), 0));
                self.plan.bounds.extend([interval.lo, interval.hi]);
                self.plan.same.insert(a, key);
            }
            return false;
        }
        // What is known of the index is no place in any array: the test in the loop is better than one that always fails.
        if !interval.may_be_places() {
            return false;
        }
        self.plan.conds.push(Cond::Inside { lo: interval.lo, hi: interval.hi, length: b });
        if key != a {
            self.plan.same.insert(a, key);
        }
        true
    }

    /// `x` of `x + 2^62 < 2^63` (unsigned): a bound that a counter may have. Everything with an interval is one.
    fn centred(&self, a: Value, b: Value) -> Option<Value> {
        let Some(Inst::Int(IntOp::Add, x, offset)) = self.hot.inst(a) else { return None };
        let is_centred =
            self.hot.constant(*offset) == Some(1 << 62) && self.hot.constant(b) == Some(i64::MIN);
        is_centred.then_some(*x)
    }

    /// The index that negative ones count from the end of: `i < 0 ? i + length : i`.
    fn unwrapped(&self, v: Value, length: Value) -> Option<Value> {
        let Some(Inst::Select(negative, below, i)) = self.hot.inst(v) else { return None };
        let Some(Inst::ICmp(Cmp::Lt, x, zero)) = self.hot.inst(*negative) else { return None };
        let Some(Inst::Int(IntOp::Add, y, n)) = self.hot.inst(*below) else { return None };
        (x == i && y == i && *n == length && self.hot.constant(*zero) == Some(0)).then_some(*i)
    }

    /// The branch at the end of a block, when one of its ways is cold.
    fn branch(&mut self, block: Block) -> Option<()> {
        let Some((cond, expected)) = self.hot.checks.get(&block).copied() else { return Some(()) };
        if matches!(self.hot.inst(cond), Some(Inst::Table { entry: Entry::PollPending, .. })) {
            return Some(());
        }
        if expected && let Some((result, scales)) = self.hot.quiet(cond) {
            let limit = if self.hot.f.ty(result) == Ty::F32 { 127 } else { 1023 };
            self.floats.push(FloatCheck { result, limit, asked: Asked::Branch { block, scales } });
            return Some(());
        }
        if expected && self.holds(cond) {
            return Some(());
        }
        self.keep(block)
    }

    /// Keeps both ways of a branch: the copy gets the cold blocks too. `None` if these do more than ask and come back.
    pub(super) fn keep(&mut self, block: Block) -> Option<()> {
        let f = self.hot.f;
        self.plan.open.insert(block);
        let mut work: Vec<Block> = f.blocks[block.index()].terminator.as_ref().map_or(vec![], successors);
        let mut found = vec![];
        while let Some(at) = work.pop() {
            if self.hot.blocks.contains(&at) || self.plan.cold.contains(&at) || found.contains(&at) {
                continue;
            }
            let data = &f.blocks[at.index()];
            let is_plain = |inst: &Inst| match inst {
                Inst::Table { entry, .. } => *entry == Entry::NpUnderIgnored,
                Inst::Store(..) | Inst::Checked(..) | Inst::Load(..) => false,
                inst => super::hot::is_usual(inst),
            };
            if !self.hot.is_aside(at) || !data.insts.iter().all(|(inst, _)| is_plain(inst)) {
                return None;
            }
            match &data.terminator {
                // Values that come back this way would escape what is derived from the usual one.
                Some(Terminator::Jump(_, args)) if !args.is_empty() => return None,
                Some(Terminator::Branch { then, els, .. }) if !then.1.is_empty() || !els.1.is_empty() => {
                    return None;
                }
                Some(Terminator::Return(_)) | None => return None,
                Some(end) => work.extend(successors(end)),
            }
            found.push(at);
        }
        self.plan.cold.extend(found);
        Some(())
    }

    /// Everything that bounds are computed from must be small, or computing them could overflow.
    fn test_leaves(&mut self) {
        let mut leaves = BTreeSet::new();
        let mut take = |sym: &Sym| {
            sym.each_leaf(&mut |v| {
                leaves.insert(v);
            });
        };
        for cond in self.plan.conds.iter().chain(&self.plan.late).chain(&self.plan.strip) {
            match cond {
                Cond::AtMost(sym, _) | Cond::AtLeast(sym, _) => take(sym),
                Cond::Inside { lo, hi, .. } => [lo, hi].into_iter().for_each(&mut take),
                Cond::Within { axes, .. } => axes.iter().flat_map(|(a, b)| [a, b]).for_each(&mut take),
                _ => {}
            }
        }
        self.plan.bounds.iter().for_each(&mut take);
        let small = leaves.into_iter().map(|v| Cond::Small(v, super::affine::LEAF_BITS));
        // Truths come first: they say what the objects are that lengths are read of.
        let truths = self.plan.conds.iter().take_while(|c| matches!(c, Cond::True(_))).count();
        self.plan.conds.splice(truths..truths, small);
    }
}
