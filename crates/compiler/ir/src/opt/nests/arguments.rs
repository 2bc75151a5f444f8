//! Whether functions of `math` in a nest get arguments for which they neither raise nor overflow, so that the copy may
//! call them without CPython's rules, which is what their vector forms need. Only in functions with `fastmath`.
//!
//! In: checks that the common limit of elements did not answer. Out: narrower limits for the arrays and invariants that
//! an argument is made of (`|x| < 2^9` for `exp`), and which of them must be positive (for `log`, `sqrt`, a divisor).

use std::collections::BTreeSet;

use overdrive_base::flavour::{DType, Ty};
use overdrive_base::table::Entry;

use super::elements::{Asked, FloatCheck};
use super::hot::Def;
use super::plan::Planner;
use super::ranges::Floats;
use crate::entities::{Block, Value};
use crate::inst::{Cmp, FloatOp, FloatUnary, Inst};

/// Where nothing else is known.
const LARGEST: i32 = 960;
/// Limits that the sources of one argument are tried with.
const NARROW: [i32; 10] = [200, 120, 60, 30, 20, 12, 9, 6, 4, 0];
/// The same for `pow`: of the base and of the exponent.
const POWERS: [(i32, i32); 5] = [(200, 2), (120, 3), (60, 4), (30, 5), (12, 6)];
/// Below this power of two `exp`, `sinh` and `cosh` are finite.
const EXP_BITS: i32 = 9;
/// A normal number's exponents reach as far, up and down; those of a binary32.
const NORMAL: i32 = 1022;
const NARROW_NORMAL: i32 = 126;

impl<'f> Planner<'_, 'f> {
    /// Notes a check of an argument, if the instruction makes one that can be answered here.
    pub(super) fn argument(&mut self, block: Block, at: usize) -> bool {
        let hot = self.hot;
        if !hot.f.fastmath {
            return false;
        }
        let (inst, result) = &hot.f.blocks[block.index()].insts[at];
        let check = match (inst, result) {
            (Inst::Table { entry, fail: Some(_), .. }, Some(v)) if let Some(fast) = entry.fast() => {
                FloatCheck { result: *v, limit: 0, asked: Asked::Call { block, at, fast } }
            }
            (Inst::Guard(cond, _), _) if let Some(x) = self.positive(*cond) => {
                FloatCheck { result: x, limit: 0, asked: Asked::Positive { block, at } }
            }
            _ => return false,
        };
        self.floats.push(check);
        true
    }

    /// The float that a guard wants not to be negative (`sqrt`) or not to be zero (a divisor).
    fn positive(&self, cond: Value) -> Option<Value> {
        let is_zero =
            |v: Value| matches!(self.hot.inst(v), Some(Inst::FConst(bits)) if f64::from_bits(*bits) == 0.0);
        if self.hot.is_invariant(cond) {
            return None;
        }
        match self.hot.inst(cond)? {
            Inst::FCmp(Cmp::Ne, x, zero) if is_zero(*zero) => Some(*x),
            Inst::Not(negative) => match self.hot.inst(*negative)? {
                Inst::FCmp(Cmp::Lt, x, zero) if is_zero(*zero) => Some(*x),
                _ => None,
            },
            _ => None,
        }
    }

    /// Narrows the limits of what the arguments are made of until as many checks as possible are answered. What was
    /// answered before stays so: every bound falls with the limits it is made of.
    pub(super) fn narrow<'a>(
        &self,
        mut proven: Vec<bool>,
        floats: Option<Floats<'a, 'f>>,
        known: &'a BTreeSet<Value>,
    ) -> (Vec<bool>, Option<Floats<'a, 'f>>)
    where
        Self: 'a,
    {
        if !self.hot.f.fastmath {
            return (proven, floats);
        }
        let mut floats = floats.unwrap_or_else(|| Floats::new(self.hot, known, LARGEST));
        for (i, check) in self.floats.iter().enumerate().filter(|(_, c)| c.is_of_argument()) {
            if proven[i] {
                continue;
            }
            for limits in self.attempts(check) {
                let mut narrower = floats.clone();
                for (v, k) in limits {
                    self.limit_sources(&mut narrower, v, k);
                }
                if check.holds(&mut narrower) && self.stays_below(&mut narrower) {
                    proven[i] = true;
                    floats = narrower;
                    break;
                }
            }
        }
        // Others may hold now too, and only what an answer needs shall be asked.
        let mut needed = floats.fresh();
        for (check, proven) in self.floats.iter().zip(&mut proven) {
            *proven = false;
            let mut with = needed.clone();
            if check.holds(&mut with) && self.stays_below(&mut with) {
                (*proven, needed) = (true, with);
            }
        }
        let any = proven.contains(&true);
        (proven, any.then_some(needed))
    }

    /// What may be tried for a check: values, each with the limit of what it is made of.
    fn attempts(&self, check: &FloatCheck) -> Vec<Vec<(Value, i32)>> {
        match self.hot.inst(check.result) {
            Some(Inst::Table { entry: Entry::MathPow | Entry::FloatPow, args, .. }) if args.len() == 2 => {
                POWERS.iter().map(|(x, y)| vec![(args[0], *x), (args[1], *y)]).collect()
            }
            Some(Inst::Table { args, .. }) => {
                NARROW.iter().map(|k| args.iter().map(|v| (*v, *k)).collect()).collect()
            }
            _ => NARROW.iter().map(|k| vec![(check.result, *k)]).collect(),
        }
    }

    /// Limits everything that a value is computed from.
    fn limit_sources(&self, floats: &mut Floats<'_, '_>, v: Value, k: i32) {
        let mut sources = floats.fresh();
        // Only what is asked matters here.
        let _ = (sources.bits(v), sources.above(v));
        let direct: BTreeSet<Value> = [&sources.leaves, &sources.loads, &sources.positive, &sources.divisors]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        for v in direct {
            let array = self.loads.get(&v).map(|access| access.array);
            let same = self.loads.iter().filter(|(_, access)| Some(access.array) == array).map(|(v, _)| *v);
            for v in same.chain([v]) {
                let known = floats.limit(v);
                floats.lower(v, known.min(k));
            }
        }
    }
}

impl FloatCheck {
    fn is_of_argument(&self) -> bool {
        matches!(self.asked, Asked::Call { .. } | Asked::Positive { .. })
    }

    /// Whether the answer is yes under these limits.
    pub(super) fn holds(&self, floats: &mut Floats<'_, '_>) -> bool {
        match self.asked {
            Asked::Call { .. } => floats.bits(self.result).is_some(),
            Asked::Positive { .. } => {
                floats.above(self.result).is_some() && floats.bits(self.result).is_some()
            }
            Asked::Branch { .. } | Asked::Guard { .. } => {
                floats.bits(self.result).is_some_and(|bits| bits <= self.limit)
            }
        }
    }
}

impl Floats<'_, '_> {
    /// The limit of an element or an invariant.
    pub(super) fn limit(&self, v: Value) -> i32 {
        self.own.get(&v).copied().unwrap_or(self.k)
    }

    /// The same limits, nothing asked yet.
    fn fresh(&self) -> Self {
        let mut floats = Floats::new(self.hot, self.known, self.k);
        floats.own = self.own.clone();
        floats
    }

    /// v ≥ 2^-result, which is a normal number.
    pub(super) fn above(&mut self, v: Value) -> Option<i32> {
        self.above_within(v, 40)
    }

    pub(super) fn above_within(&mut self, v: Value, depth: u32) -> Option<i32> {
        let is_narrow = self.hot.f.ty(v) == Ty::F32;
        let is_loaded = matches!(self.hot.inst(v), Some(Inst::Load(DType::F32, _)));
        let low = self.any_above(v, depth)?;
        match is_narrow {
            // What was looked at is normal.
            true if is_loaded || self.hot.is_invariant(v) => Some(low.min(NARROW_NORMAL)),
            true => (low <= NARROW_NORMAL).then_some(low),
            false => (low <= NORMAL).then_some(low),
        }
    }

    fn any_above(&mut self, v: Value, depth: u32) -> Option<i32> {
        let depth = depth.checked_sub(1)?;
        let hot = self.hot;
        if let Some(Inst::FConst(bits)) = hot.inst(v) {
            let x = f64::from_bits(*bits);
            return (x.is_normal() && x > 0.0).then(|| -(x.log2().floor() as i32) + 1);
        }
        if hot.is_invariant(v) {
            self.positive.insert(v);
            return Some(self.limit(v));
        }
        if let Def::Param(block) = hot.def(v) {
            if hot.loop_of_header(block).is_some() {
                return None;
            }
            return hot
                .incoming(v)
                .iter()
                .try_fold(i32::MIN, |least, (_, arg)| Some(least.max(self.above_within(*arg, depth)?)));
        }
        Some(match hot.inst(v)? {
            Inst::Load(DType::F64 | DType::F32, _) if self.known.contains(&v) => {
                self.loads.insert(v);
                self.positive.insert(v);
                self.limit(v)
            }
            Inst::F32ToF64(x) => self.above_within(*x, depth)?,
            Inst::Float(FloatOp::Add, a, b) => {
                self.above_within(*a, depth)?.min(self.above_within(*b, depth)?)
            }
            Inst::Float(FloatOp::Mul, a, b) => {
                self.above_within(*a, depth)? + self.above_within(*b, depth)?
            }
            Inst::Float(FloatOp::Div, a, b) => {
                self.above_within(*b, depth)?;
                self.above_within(*a, depth)? + self.bits_within(*b, depth)?
            }
            Inst::FloatUnary(FloatUnary::Sqrt, x) => self.above_within(*x, depth)?.max(0).div_euclid(2) + 1,
            Inst::FloatUnary(FloatUnary::Abs, x) => self.above_within(*x, depth)?,
            Inst::Table { entry: Entry::MathExp, args, .. } => {
                exponential(self.bits_within(args[0], depth)?)?
            }
            Inst::Table { entry: Entry::MathCosh, args, .. } => {
                exponential(self.bits_within(args[0], depth)?)?;
                1
            }
            Inst::Table { entry: Entry::MathPow | Entry::FloatPow, args, .. } => self.power(args, depth)?,
            _ => return None,
        })
    }

    /// |result| < 2^… of a function of `math`, whose arguments are such that it is a number and no exception.
    pub(super) fn function_bits(&mut self, entry: Entry, args: &[Value], depth: u32) -> Option<i32> {
        let x = *args.first()?;
        Some(match entry {
            Entry::MathExp | Entry::MathExpm1 | Entry::MathSinh | Entry::MathCosh => {
                exponential(self.bits_within(x, depth)?)?
            }
            // Of normal numbers: |log2 x| ≤ 1023.
            Entry::MathLog | Entry::MathLog2 | Entry::MathLog10 => {
                self.above_within(x, depth)?;
                self.finite(x, depth)?;
                11
            }
            Entry::MathLog1p => {
                if self.finite(x, depth)? > 0 {
                    self.above_within(x, depth)?;
                }
                11
            }
            // A number with 53 bits is never closer than 2^-64 to a pole.
            Entry::MathTan => {
                self.finite(x, depth)?;
                65
            }
            Entry::MathSin | Entry::MathCos | Entry::MathTanh | Entry::MathErf => {
                self.finite(x, depth)?;
                1
            }
            Entry::MathErfc | Entry::MathAtan => {
                self.finite(x, depth)?;
                2
            }
            Entry::MathAsin | Entry::MathAcos => {
                self.bits_within(x, depth).filter(|bits| *bits <= 0)?;
                2
            }
            Entry::MathAtan2 => {
                self.finite(x, depth)?;
                self.finite(*args.get(1)?, depth)?;
                2
            }
            Entry::MathHypot => {
                let most = self.finite(x, depth)?.max(self.finite(*args.get(1)?, depth)?) + 1;
                (most <= NORMAL).then_some(most)?
            }
            Entry::MathPow | Entry::FloatPow => self.power(args, depth)?,
            _ => return None,
        })
    }

    fn finite(&mut self, v: Value, depth: u32) -> Option<i32> {
        self.bits_within(v, depth).filter(|bits| *bits <= 1023)
    }

    /// x**y of a positive x is between 2^-result and 2^result.
    fn power(&mut self, args: &[Value], depth: u32) -> Option<i32> {
        let [x, y] = *args else { return None };
        let span = self.above_within(x, depth)?.max(self.finite(x, depth)?).max(1);
        let y = self.bits_within(y, depth)?.max(0);
        let most = span.checked_mul(1i32.checked_shl(u32::try_from(y).ok()?).filter(|n| *n > 0)?)? + 1;
        (most <= NORMAL).then_some(most)
    }
}

/// e^x of |x| < 2^bits is between 2^-result and 2^result.
fn exponential(bits: i32) -> Option<i32> {
    (bits <= EXP_BITS).then(|| ((1 << bits.max(0)) * 3 + 1) / 2 + 1)
}
