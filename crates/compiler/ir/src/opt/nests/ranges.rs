//! Ranges of numbers in a nest that follow from their types alone: of integers both ends, of floats a power of two that
//! their magnitude stays below.
//!
//! Sums over iterations are bounded by how often anything can be added before the entry's tests are made again
//! (`MAX_STEPS`). Float bounds take for granted that array elements and invariants are below 2^k, which the entry tests.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use overdrive_base::flavour::{DType, Ty};

use super::hot::{Def, Hot};
use crate::entities::Value;
use crate::inst::{CheckedOp, FloatOp, FloatUnary, Inst, IntOp};

/// More iterations of anything than one strip of the outermost loop makes.
pub(super) const MAX_STEPS: i64 = 1 << 23;
/// As a power of two, with room for a few sums in one iteration.
const SUM_BITS: i32 = 23 + 4;
/// What the entry tests integers for that the outermost loop carries.
pub(super) const CARRIED_BITS: u32 = 60;

/// Magnitude of what is added to a sum, as a power of two, when bounds say it: `MAX_STEPS` times that leaves room.
const ADDED_BITS: u32 = 38;

/// Bounds of floats under one assumption.
#[derive(Clone)]
pub(super) struct Floats<'a, 'f> {
    pub hot: &'a Hot<'f>,
    /// Loads whose addresses are known, so that the entry can look at all of their elements.
    pub known: &'a BTreeSet<Value>,
    /// Elements and invariants are below 2^k in magnitude.
    pub k: i32,
    /// Loads (all of an array) and invariants with a k of their own.
    pub own: BTreeMap<Value, i32>,
    /// Invariants and loads of elements that must be at least 2^-k.
    pub positive: BTreeSet<Value>,
    /// Invariants (and values that the outermost loop carries) that must be below 2^k.
    pub leaves: BTreeSet<Value>,
    /// Invariant divisors, which must be above 2^-k too.
    pub divisors: BTreeSet<Value>,
    /// Loads of elements that must be below 2^k.
    pub loads: BTreeSet<Value>,
    /// What was found, and with how many steps left.
    answers: BTreeMap<Value, (u32, Option<i32>)>,
}

impl<'a, 'f> Floats<'a, 'f> {
    pub(super) fn new(hot: &'a Hot<'f>, known: &'a BTreeSet<Value>, k: i32) -> Floats<'a, 'f> {
        Floats {
            hot,
            known,
            k,
            own: BTreeMap::new(),
            positive: BTreeSet::new(),
            leaves: BTreeSet::new(),
            divisors: BTreeSet::new(),
            loads: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    /// From now on a load or invariant is taken to be below 2^k.
    pub(super) fn lower(&mut self, v: Value, k: i32) {
        self.own.insert(v, k);
        self.answers.clear();
    }

    /// |v| < 2^result, and v is no NaN.
    pub(super) fn bits(&mut self, v: Value) -> Option<i32> {
        self.bits_within(v, 40)
    }

    /// A binary32 that may come near its largest is not bounded: it may have become an infinity.
    pub(super) fn bits_within(&mut self, v: Value, depth: u32) -> Option<i32> {
        if let Some((at, bits)) = self.answers.get(&v).copied()
            && (bits.is_some() || depth <= at)
        {
            return bits;
        }
        let bits = self.bits_anew(v, depth);
        self.answers.insert(v, (depth, bits));
        bits
    }

    fn bits_anew(&mut self, v: Value, depth: u32) -> Option<i32> {
        let is_narrow = self.hot.f.ty(v) == Ty::F32;
        let is_loaded = matches!(self.hot.inst(v), Some(Inst::Load(DType::F32, _)));
        let bits = self.any_bits(v, depth)?;
        match is_narrow {
            // Elements were looked at: they are finite.
            true if is_loaded => Some(bits.min(128)),
            true => (bits <= 127).then_some(bits),
            false => Some(bits),
        }
    }

    fn any_bits(&mut self, v: Value, depth: u32) -> Option<i32> {
        let depth = depth.checked_sub(1)?;
        let hot = self.hot;
        match hot.inst(v) {
            Some(Inst::FConst(bits)) => return float_const(f64::from_bits(*bits)),
            Some(Inst::F32Const(bits)) => return float_const(f64::from(f32::from_bits(*bits))),
            _ => {}
        }
        if hot.is_invariant(v) {
            self.leaves.insert(v);
            return Some(self.limit(v));
        }
        if let Def::Param(block) = hot.def(v) {
            if hot.loop_of_header(block).is_some() {
                return self.carried(v, depth);
            }
            return hot
                .incoming(v)
                .iter()
                .try_fold(i32::MIN, |most, (_, arg)| Some(most.max(self.bits_within(*arg, depth)?)));
        }
        Some(match hot.inst(v)? {
            Inst::Load(DType::F64 | DType::F32, _) if self.known.contains(&v) => {
                self.loads.insert(v);
                self.limit(v)
            }
            Inst::IntToFloat(_) => 64,
            Inst::Float(op, a, b) => match op {
                FloatOp::Add | FloatOp::Sub => {
                    self.bits_within(*a, depth)?.max(self.bits_within(*b, depth)?) + 1
                }
                FloatOp::Mul => self.bits_within(*a, depth)?.saturating_add(self.bits_within(*b, depth)?),
                FloatOp::Div => {
                    let above = match hot.inst(*b) {
                        Some(Inst::FConst(bits)) => {
                            let x = f64::from_bits(*bits).abs();
                            if x.is_normal() { x.log2().floor() as i32 } else { return None }
                        }
                        _ if hot.is_invariant(*b) && hot.f.ty(*b) == Ty::F64 => {
                            self.divisors.insert(*b);
                            -self.limit(*b)
                        }
                        _ if hot.f.fastmath && hot.f.ty(*b) == Ty::F64 => -self.above_within(*b, depth)?,
                        _ => return None,
                    };
                    self.bits_within(*a, depth)?.saturating_sub(above) + 1
                }
                FloatOp::CopySign => self.bits_within(*a, depth)?,
            },
            Inst::FloatUnary(FloatUnary::Neg | FloatUnary::Abs, a) | Inst::F32ToF64(a) => {
                self.bits_within(*a, depth)?
            }
            Inst::FloatUnary(FloatUnary::Sqrt, a) if hot.f.fastmath => {
                self.above_within(*a, depth)?;
                self.bits_within(*a, depth)?.max(0) / 2 + 1
            }
            Inst::Table { entry, args, .. } if hot.f.fastmath => self.function_bits(*entry, args, depth)?,
            Inst::FloatUnary(FloatUnary::Floor | FloatUnary::Ceil | FloatUnary::Trunc, a) => {
                self.bits_within(*a, depth)?.max(0) + 1
            }
            Inst::F64ToF32(a) => self.bits_within(*a, depth)?.max(0) + 1,
            Inst::Select(_, a, b) => self.bits_within(*a, depth)?.max(self.bits_within(*b, depth)?),
            _ => return None,
        })
    }

    /// A value that a loop carries around: what it begins with, and all that is ever added.
    fn carried(&mut self, param: Value, depth: u32) -> Option<i32> {
        let hot = self.hot;
        let family = hot.dependents(param);
        let (mut seen, mut most, mut begin) = (BTreeSet::new(), i32::MIN, i32::MIN);
        let mut work = vec![param];
        let mut grows = false;
        while let Some(v) = work.pop() {
            if !seen.insert(v) {
                continue;
            }
            let mut either = |x: Value, this: &mut Self, work: &mut Vec<Value>| -> Option<()> {
                if family.contains(&x) {
                    work.push(x);
                } else {
                    most = most.max(this.bits_within(x, depth)?);
                }
                Some(())
            };
            match (hot.def(v), hot.inst(v)) {
                (Def::Param(block), _) => {
                    if block == hot.loops[0].header {
                        self.leaves.insert(v);
                        begin = self.limit(v);
                    }
                    for (_, x) in hot.incoming(v) {
                        either(*x, self, &mut work)?;
                    }
                }
                (_, Some(Inst::Float(FloatOp::Add | FloatOp::Sub, a, b))) => {
                    grows = true;
                    either(*a, self, &mut work)?;
                    either(*b, self, &mut work)?;
                }
                (_, Some(Inst::Select(_, a, b))) => {
                    either(*a, self, &mut work)?;
                    either(*b, self, &mut work)?;
                }
                (_, Some(Inst::FloatUnary(FloatUnary::Neg | FloatUnary::Abs, a))) => {
                    either(*a, self, &mut work)?;
                }
                _ => return None,
            }
        }
        // Only a sum with one carried operand is bounded by the number of sums: x + x doubles.
        let doubles = seen.iter().any(|v| match hot.inst(*v) {
            Some(Inst::Float(FloatOp::Add | FloatOp::Sub, a, b)) => family.contains(a) && family.contains(b),
            _ => false,
        });
        if doubles {
            return None;
        }
        Some(most.max(begin).max(0) + if grows { SUM_BITS } else { 0 })
    }
}

fn float_const(x: f64) -> Option<i32> {
    if x == 0.0 {
        return Some(-1074);
    }
    x.is_finite().then(|| x.abs().log2().floor() as i32 + 1)
}

impl Hot<'_> {
    /// Everything on the usual path whose value depends on a parameter's, through operands and arguments (not through
    /// branches).
    pub(super) fn dependents(&self, param: Value) -> Rc<BTreeSet<Value>> {
        if let Some(known) = self.families.borrow().get(&param) {
            return Rc::clone(known);
        }
        let mut out = BTreeSet::from([param]);
        loop {
            let before = out.len();
            for block in &self.order {
                let data = &self.f.blocks[block.index()];
                for v in &data.params {
                    if self.incoming(*v).iter().any(|(_, arg)| out.contains(arg)) {
                        out.insert(*v);
                    }
                }
                for (inst, result) in &data.insts {
                    if let Some(v) = result
                        && inst.operands().iter().any(|x| out.contains(x))
                    {
                        out.insert(*v);
                    }
                }
            }
            if out.len() == before {
                break;
            }
        }
        let out = Rc::new(out);
        self.families.borrow_mut().insert(param, Rc::clone(&out));
        out
    }

    /// Both ends of an integer, as far as types and constants say.
    pub(super) fn int_range(&self, v: Value) -> Option<(i64, i64)> {
        self.int_range_within(v, 24)
    }

    /// Where ways part and meet many times over, the same value is asked for along each: answers are kept.
    fn int_range_within(&self, v: Value, depth: u32) -> Option<(i64, i64)> {
        if let Some((at, range)) = self.ranges.borrow().get(&v).copied()
            && (range.is_some() || depth <= at)
        {
            return range;
        }
        let range = self.int_range_anew(v, depth);
        self.ranges.borrow_mut().insert(v, (depth, range));
        range
    }

    /// To be called when more is known.
    pub(super) fn forget_ranges(&self) {
        self.ranges.borrow_mut().clear();
    }

    fn int_range_anew(&self, v: Value, depth: u32) -> Option<(i64, i64)> {
        let depth = depth.checked_sub(1)?;
        let both = |a: Value, b: Value| {
            let ((a0, a1), (b0, b1)) = (self.int_range_within(a, depth)?, self.int_range_within(b, depth)?);
            Some((i128::from(a0), i128::from(a1), i128::from(b0), i128::from(b1)))
        };
        // A sum that a loop carries, and what it adds.
        let carried_and_added = |a: Value, b: Value| {
            let is_carried = match self.def(a) {
                Def::Param(block) => self.loop_of_header(block).is_some(),
                _ => matches!(
                    self.inst(a),
                    Some(
                        Inst::Checked(CheckedOp::Add | CheckedOp::Sub, ..)
                            | Inst::Int(IntOp::Add | IntOp::Sub, ..)
                    )
                ),
            };
            let ((a0, a1), (b0, b1)) =
                (self.int_range_within(a, depth).filter(|_| is_carried)?, self.added_range(b, depth)?);
            Some((i128::from(a0), i128::from(a1), i128::from(b0), i128::from(b1)))
        };
        let narrow = |(lo, hi): (i128, i128)| Some((i64::try_from(lo).ok()?, i64::try_from(hi).ok()?));
        if let Some(n) = self.constant(v) {
            return Some((n, n));
        }
        if let Def::Param(block) = self.def(v) {
            return match self.loop_of_header(block) {
                Some(l) if self.loops[l].counter == v => self.counter_range(l, depth),
                Some(_) => self.sum_range(v, depth),
                None => self.incoming(v).iter().try_fold((i64::MAX, i64::MIN), |(lo, hi), (_, arg)| {
                    let (a, b) = self.int_range_within(*arg, depth)?;
                    Some((lo.min(a), hi.max(b)))
                }),
            };
        }
        match self.inst(v)? {
            Inst::Load(DType::I64, _) => self.counts.borrow().get(&v).copied(),
            Inst::Load(DType::U8, _) => Some((0, 255)),
            Inst::Load(DType::I32, _) => Some((i32::MIN.into(), i32::MAX.into())),
            Inst::BoolToInt(_) => Some((0, 1)),
            Inst::FloatToInt(x) if self.converted.borrow().contains(x) => Some((-(1 << 62), 1 << 62)),
            Inst::Int(IntOp::Add, a, b) | Inst::Checked(CheckedOp::Add, a, b, _) => {
                let (a0, a1, b0, b1) = both(*a, *b).or_else(|| carried_and_added(*a, *b))?;
                narrow((a0 + b0, a1 + b1))
            }
            Inst::Int(IntOp::Sub, a, b) | Inst::Checked(CheckedOp::Sub, a, b, _) => {
                let (a0, a1, b0, b1) = both(*a, *b).or_else(|| carried_and_added(*a, *b))?;
                narrow((a0 - b1, a1 - b0))
            }
            Inst::Int(IntOp::Mul, a, b) | Inst::Checked(CheckedOp::Mul, a, b, _) => {
                let (a0, a1, b0, b1) = both(*a, *b)?;
                let ends = [a0 * b0, a0 * b1, a1 * b0, a1 * b1];
                narrow((*ends.iter().min()?, *ends.iter().max()?))
            }
            Inst::Int(IntOp::FloorDiv, a, b) => {
                let n = self.constant(*b).filter(|n| *n > 0)?;
                let (lo, hi) = self.int_range_within(*a, depth)?;
                Some((lo.div_euclid(n), hi.div_euclid(n)))
            }
            Inst::Int(IntOp::FloorMod, _, b) => {
                let n = self.constant(*b).filter(|n| *n > 0)?;
                Some((0, n - 1))
            }
            Inst::Int(IntOp::And, a, b) => {
                let n = self.constant(*b).or_else(|| self.constant(*a)).filter(|n| *n >= 0)?;
                Some((0, n))
            }
            Inst::Int(IntOp::Shr, a, b) => {
                let n = self.constant(*b)?;
                let (lo, hi) = self.int_range_within(*a, depth)?;
                Some((lo >> n, hi >> n))
            }
            Inst::Select(_, a, b) => {
                let (a0, a1, b0, b1) = both(*a, *b)?;
                narrow((a0.min(b0), a1.max(b1)))
            }
            _ => None,
        }
    }

    fn counter_range(&self, l: usize, depth: u32) -> Option<(i64, i64)> {
        let counted = &self.loops[l];
        let outside =
            self.incoming(counted.counter).iter().filter(|(from, _)| !counted.blocks.contains(from));
        let mut lo = if l == 0 { None } else { Some(i64::MAX) };
        for (_, first) in outside {
            lo = Some(lo?.min(self.int_range_within(*first, depth)?.0));
        }
        let hi = self.int_range_within(counted.bound, depth)?.1;
        Some((lo?, hi.checked_sub(1)?))
    }

    /// How often a loop runs each time, if that is a constant.
    pub(super) fn constant_trips(&self, l: usize) -> Option<i64> {
        let counted = &self.loops[l];
        let mut outside =
            self.incoming(counted.counter).iter().filter(|(from, _)| !counted.blocks.contains(from));
        let first = self.constant(outside.next()?.1)?;
        if l == 0 || outside.next().is_some() {
            return None;
        }
        let span = self.constant(counted.bound)?.checked_sub(first)?.max(0);
        Some((span + counted.step - 1) / counted.step)
    }

    /// An integer that loops carry around and only add to: what it begins with, and all that is added.
    fn sum_range(&self, param: Value, depth: u32) -> Option<(i64, i64)> {
        let family = self.dependents(param);
        let (mut seen, mut work) = (BTreeSet::new(), vec![param]);
        let mut first: Option<(i64, i64)> = None;
        let mut added: Vec<(Value, (i64, i64))> = vec![];
        while let Some(v) = work.pop() {
            if !seen.insert(v) {
                continue;
            }
            let mut begin = |range: (i64, i64)| {
                first = Some(first.map_or(range, |(lo, hi)| (lo.min(range.0), hi.max(range.1))));
            };
            match (self.def(v), self.inst(v)) {
                (Def::Param(block), _) => {
                    if block == self.loops[0].header {
                        self.sums.borrow_mut().insert(v);
                        begin((-(1 << CARRIED_BITS), 1 << CARRIED_BITS));
                    }
                    for (_, x) in self.incoming(v) {
                        if family.contains(x) {
                            work.push(*x);
                        } else {
                            begin(self.int_range_within(*x, depth)?);
                        }
                    }
                }
                (_, Some(Inst::Int(IntOp::Add, a, b) | Inst::Checked(CheckedOp::Add, a, b, _))) => {
                    let (carried, other) = if family.contains(a) { (a, b) } else { (b, a) };
                    if family.contains(other) {
                        return None;
                    }
                    added.push((v, self.added_range(*other, depth)?));
                    work.push(*carried);
                }
                (_, Some(Inst::Int(IntOp::Sub, a, b) | Inst::Checked(CheckedOp::Sub, a, b, _))) => {
                    if !family.contains(a) || family.contains(b) {
                        return None;
                    }
                    let (lo, hi) = self.added_range(*b, depth)?;
                    added.push((v, (hi.checked_neg()?, lo.checked_neg()?)));
                    work.push(*a);
                }
                (_, Some(Inst::Select(_, a, b))) => {
                    for x in [a, b] {
                        if family.contains(x) {
                            work.push(*x);
                        } else {
                            begin(self.int_range_within(*x, depth)?);
                        }
                    }
                }
                // Bounded whatever it is made of.
                (_, Some(Inst::Int(IntOp::FloorMod | IntOp::And, ..) | Inst::BoolToInt(_))) => {
                    begin(self.int_range_within(v, depth)?);
                }
                _ => return None,
            }
        }
        let (mut lo, mut hi) = first.map(|(lo, hi)| (i128::from(lo), i128::from(hi)))?;
        for (v, (a, b)) in added {
            let times = i128::from(self.times_added(v, &seen));
            lo += times * i128::from(a.min(0));
            hi += times * i128::from(b.max(0));
        }
        Some((i64::try_from(lo).ok()?, i64::try_from(hi).ok()?))
    }

    /// What is added to a sum: from its type, or from bounds that the entry tests.
    fn added_range(&self, v: Value, depth: u32) -> Option<(i64, i64)> {
        if let Some(range) = self.int_range_within(v, depth) {
            return Some(range);
        }
        let interval = self.interval(v).filter(|interval| interval.bits <= ADDED_BITS)?;
        self.leaned_on.borrow_mut().extend([interval.lo, interval.hi]);
        Some((-(1 << interval.bits), 1 << interval.bits))
    }

    /// At most how often a value is computed while the carried values in `family` live on.
    fn times_added(&self, v: Value, family: &BTreeSet<Value>) -> i64 {
        let Def::Inst(block, _) = self.def(v) else { return MAX_STEPS };
        let carries = |l: usize| {
            let params = &self.f.blocks[self.loops[l].header.index()].params;
            params.iter().any(|p| family.contains(p))
        };
        let around = (0..self.loops.len()).filter(|l| self.loops[*l].blocks.contains(&block) && carries(*l));
        let mut times: i64 = 1;
        for l in around {
            match self.constant_trips(l).and_then(|n| times.checked_mul(n.max(1))) {
                Some(n) if n <= MAX_STEPS => times = n,
                _ => return MAX_STEPS,
            }
        }
        times
    }
}
