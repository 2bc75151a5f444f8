//! Bounds of index expressions over all iterations of a nest, as expressions that its entry can compute.
//!
//! In: a value of the nest. Out: an interval whose ends are computed from counters' first values, loop bounds and other
//! invariants. Every end has fewer than 63 bits provided that each leaf has no more than `LEAF_BITS`, which the entry
//! tests, so computing the ends (and the value itself) cannot overflow.

use super::hot::{Def, Hot};
use crate::entities::Value;
use crate::inst::{CheckedOp, Inst, IntOp};

/// Magnitude that the entry tests every leaf for, as a power of two.
pub(super) const LEAF_BITS: u32 = 31;
/// Largest magnitude of an end of an interval.
const MAX_BITS: u32 = 62;

/// An integer that the entry can compute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sym {
    Const(i64),
    /// Invariant in the nest, or the outermost counter's present value.
    Leaf(Value),
    /// What the outermost counter stays below: the loop's bound, or the end of a strip.
    End,
    Add(Box<Sym>, Box<Sym>),
    Sub(Box<Sym>, Box<Sym>),
    Mul(Box<Sym>, Box<Sym>),
    Min(Box<Sym>, Box<Sym>),
    Max(Box<Sym>, Box<Sym>),
}

impl Sym {
    pub(super) fn add(self, other: Sym) -> Sym {
        match (self, other) {
            (Sym::Const(a), Sym::Const(b)) => Sym::Const(a.wrapping_add(b)),
            (a, Sym::Const(0)) => a,
            (a, b) => Sym::Add(a.into(), b.into()),
        }
    }

    pub(super) fn sub(self, other: Sym) -> Sym {
        match (self, other) {
            (Sym::Const(a), Sym::Const(b)) => Sym::Const(a.wrapping_sub(b)),
            (a, Sym::Const(0)) => a,
            (a, b) => Sym::Sub(a.into(), b.into()),
        }
    }

    pub(super) fn mul(self, other: Sym) -> Sym {
        match (self, other) {
            (Sym::Const(a), Sym::Const(b)) => Sym::Const(a.wrapping_mul(b)),
            (a, Sym::Const(1)) | (Sym::Const(1), a) => a,
            (a, b) => Sym::Mul(a.into(), b.into()),
        }
    }

    pub(super) fn min(self, other: Sym) -> Sym {
        match (self, other) {
            (Sym::Const(a), Sym::Const(b)) => Sym::Const(a.min(b)),
            (a, b) if a == b => a,
            (a, b) => Sym::Min(a.into(), b.into()),
        }
    }

    pub(super) fn max(self, other: Sym) -> Sym {
        match (self, other) {
            (Sym::Const(a), Sym::Const(b)) => Sym::Const(a.max(b)),
            (a, b) if a == b => a,
            (a, b) => Sym::Max(a.into(), b.into()),
        }
    }

    /// Whether it depends on how far the outermost loop goes.
    pub(super) fn mentions_end(&self) -> bool {
        match self {
            Sym::Const(_) | Sym::Leaf(_) => false,
            Sym::End => true,
            Sym::Add(a, b) | Sym::Sub(a, b) | Sym::Mul(a, b) | Sym::Min(a, b) | Sym::Max(a, b) => {
                a.mentions_end() || b.mentions_end()
            }
        }
    }

    /// Calls `f` on every leaf.
    pub(super) fn each_leaf(&self, f: &mut dyn FnMut(Value)) {
        match self {
            Sym::Const(_) | Sym::End => {}
            Sym::Leaf(v) => f(*v),
            Sym::Add(a, b) | Sym::Sub(a, b) | Sym::Mul(a, b) | Sym::Min(a, b) | Sym::Max(a, b) => {
                a.each_leaf(f);
                b.each_leaf(f);
            }
        }
    }
}

/// Both ends belong to it. When a loop runs no iteration the ends may be the wrong way round; nothing uses them then.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval {
    pub lo: Sym,
    pub hi: Sym,
    /// Both ends and all that is between them are below 2^bits in magnitude.
    pub(super) bits: u32,
}

impl Interval {
    fn new(lo: Sym, hi: Sym, bits: u32) -> Option<Interval> {
        (bits <= MAX_BITS).then_some(Interval { lo, hi, bits })
    }

    /// Whether these could be indices of an array, as far as constants say.
    pub(super) fn may_be_places(&self) -> bool {
        let (lo, hi) = (&self.lo, &self.hi);
        !matches!(lo, Sym::Const(n) if *n < 0) && !matches!(hi, Sym::Const(n) if *n >= 1 << LEAF_BITS)
    }

    pub(super) fn union(self, other: Interval) -> Interval {
        let bits = self.bits.max(other.bits);
        Interval { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi), bits }
    }
}

impl Hot<'_> {
    /// Bounds of an integer over the whole nest, from the outermost counter's present value on.
    pub(super) fn interval(&self, v: Value) -> Option<Interval> {
        self.interval_within(v, 12)
    }

    fn interval_within(&self, v: Value, depth: u32) -> Option<Interval> {
        let depth = depth.checked_sub(1)?;
        if let Some(n) = self.constant(v) {
            return Interval::new(Sym::Const(n), Sym::Const(n), 64 - n.unsigned_abs().leading_zeros());
        }
        if self.is_invariant(v) {
            return Interval::new(Sym::Leaf(v), Sym::Leaf(v), LEAF_BITS);
        }
        let operands =
            |a: Value, b: Value| Some((self.interval_within(a, depth)?, self.interval_within(b, depth)?));
        match (self.def(v), self.inst(v)) {
            (Def::Param(header), _) => {
                let l = self.loop_of_header(header).filter(|l| self.loops[*l].counter == v)?;
                let bound = self.interval_within(self.loops[l].bound, depth)?;
                let first = if l == 0 {
                    Interval::new(Sym::Leaf(v), Sym::Leaf(v), LEAF_BITS)?
                } else {
                    self.first_values(l, depth)?
                };
                let bits = bound.bits.max(first.bits) + 1;
                let end = if l == 0 { Sym::End } else { bound.hi };
                Interval::new(first.lo, end.sub(Sym::Const(1)), bits)
            }
            (_, Some(Inst::Int(IntOp::Add, a, b) | Inst::Checked(CheckedOp::Add, a, b, _))) => {
                let (a, b) = operands(*a, *b)?;
                Interval::new(a.lo.add(b.lo), a.hi.add(b.hi), a.bits.max(b.bits) + 1)
            }
            (_, Some(Inst::Int(IntOp::Sub, a, b) | Inst::Checked(CheckedOp::Sub, a, b, _))) => {
                let (a, b) = operands(*a, *b)?;
                Interval::new(a.lo.sub(b.hi), a.hi.sub(b.lo), a.bits.max(b.bits) + 1)
            }
            (_, Some(Inst::Int(IntOp::Mul, a, b) | Inst::Checked(CheckedOp::Mul, a, b, _))) => {
                let (a, b) = operands(*a, *b)?;
                product(a, b)
            }
            _ => {
                let (lo, hi) = self.int_range(v)?;
                let bits = 64 - lo.unsigned_abs().max(hi.unsigned_abs()).leading_zeros();
                Interval::new(Sym::Const(lo), Sym::Const(hi), bits)
            }
        }
    }

    /// What an inner loop's counter may begin with.
    fn first_values(&self, l: usize, depth: u32) -> Option<Interval> {
        let inner = &self.loops[l];
        let outside = self.incoming(inner.counter).iter().filter(|(from, _)| !inner.blocks.contains(from));
        let mut all: Option<Interval> = None;
        for (_, v) in outside {
            let one = self.interval_within(*v, depth)?;
            all = Some(match all {
                Some(known) => known.union(one),
                None => one,
            });
        }
        all
    }

    /// At most how often a loop's body runs each time (of the outermost: from now on). May be negative for none.
    pub(super) fn trips(&self, l: usize) -> Option<Sym> {
        let bound = self.interval(self.loops[l].bound)?;
        let first = if l == 0 { Sym::Leaf(self.loops[0].counter) } else { self.first_values(l, 12)?.lo };
        Some(bound.hi.sub(first))
    }

    /// At least how often an inner loop's body runs each time (not counting steps above one).
    pub(super) fn trips_at_least(&self, l: usize) -> Option<Sym> {
        let bound = self.interval(self.loops[l].bound)?;
        Some(bound.lo.sub(self.first_values(l, 12)?.hi))
    }
}

fn product(a: Interval, b: Interval) -> Option<Interval> {
    let bits = a.bits + b.bits;
    match (&a.lo, &b.lo) {
        (Sym::Const(n), _) if a.lo == a.hi => scaled(b, *n, bits),
        (_, Sym::Const(n)) if b.lo == b.hi => scaled(a, *n, bits),
        _ if a.lo == a.hi && b.lo == b.hi => {
            let both = a.lo.mul(b.lo);
            Interval::new(both.clone(), both, bits)
        }
        _ => {
            let ends = [
                a.lo.clone().mul(b.lo.clone()),
                a.lo.mul(b.hi.clone()),
                a.hi.clone().mul(b.lo),
                a.hi.mul(b.hi),
            ];
            let lo = ends.iter().cloned().reduce(Sym::min)?;
            let hi = ends.into_iter().reduce(Sym::max)?;
            Interval::new(lo, hi, bits)
        }
    }
}

fn scaled(x: Interval, n: i64, bits: u32) -> Option<Interval> {
    let (lo, hi) = (x.lo.mul(Sym::Const(n)), x.hi.mul(Sym::Const(n)));
    if n < 0 { Interval::new(hi, lo, bits) } else { Interval::new(lo, hi, bits) }
}
