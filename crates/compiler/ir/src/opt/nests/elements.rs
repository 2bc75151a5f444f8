//! What a nest loads from arrays, and what its entry must ask about the elements.
//!
//! In: loads and stores, questions about floats. Out: conditions on strides, overlap, magnitudes; what needs no question
//! then. A power of two is chosen that elements must stay below so that as many results as possible are finite.

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::DType;
use overdrive_base::table::Entry;

use super::affine::Sym;
use super::hot::{Def, Hot};
use super::plan::{Cond, Planner};
use super::ranges::Floats;
use crate::entities::{Block, Value};
use crate::inst::{BoolOp, Cmp, Field, FloatUnary, Inst, IntOp};
use crate::opt::quiet::quiet;

/// Powers of two that elements may be asked to stay below: the less, the more products of them are finite.
const LIMITS: [i32; 7] = [960, 480, 300, 200, 120, 60, 30];

/// An array element that is read or written.
pub(super) struct Access {
    pub(super) array: Value,
    pub(super) dtype: DType,
    /// By axis.
    keys: Vec<Value>,
    strides: Vec<Value>,
}

/// A question about a float's magnitude.
pub(super) struct FloatCheck {
    pub(super) result: Value,
    /// The answer is yes below this power of two.
    pub(super) limit: i32,
    pub(super) asked: Asked,
}

/// By what.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    /// A branch on whether an operation was quiet, in NumPy's words; perhaps on a result below the normal range too.
    Branch { block: Block, scales: bool },
    /// A guard in front of a conversion to an integer.
    Guard { block: Block, at: usize },
    /// A function of `math`, the result of which this is.
    Call { block: Block, at: usize, fast: Entry },
    /// A guard that this is above zero.
    Positive { block: Block, at: usize },
}

impl Planner<'_, '_> {
    /// The whole float of `-2^63 ≤ x < 2^63`, what a conversion is guarded by.
    pub(super) fn converted(&self, cond: Value) -> Option<Value> {
        let bound = |v: Value, cmp: Cmp, limit: f64| match self.hot.inst(v) {
            Some(Inst::FCmp(c, x, y)) if *c == cmp => match self.hot.inst(*y) {
                Some(Inst::FConst(bits)) if *bits == limit.to_bits() => Some(*x),
                _ => None,
            },
            _ => None,
        };
        let Some(Inst::Bool(BoolOp::And, a, b)) = self.hot.inst(cond) else { return None };
        let x = bound(*a, Cmp::Ge, -(2f64.powi(63)))?;
        (bound(*b, Cmp::Lt, 2f64.powi(63))? == x).then_some(x)
    }

    /// The array element at an address.
    pub(super) fn access(&self, dtype: DType, ptr: Value) -> Option<Access> {
        let (mut keys, mut strides, mut at) = (vec![], vec![], ptr);
        while let Some(Inst::PtrAdd(base, bytes)) = self.hot.inst(at) {
            let Some(Inst::Int(IntOp::Mul, key, stride)) = self.hot.inst(*bytes) else { return None };
            keys.push(*key);
            strides.push(*stride);
            at = *base;
        }
        let Some(Inst::Field(Field::ArrayData, array)) = self.hot.inst(at) else { return None };
        keys.reverse();
        strides.reverse();
        let is_axis = |(axis, stride): (usize, &Value)| matches!(self.hot.inst(*stride), Some(Inst::Field(Field::ArrayStride(n), a)) if usize::from(*n) == axis && a == array);
        let is_known = !keys.is_empty()
            && strides.iter().enumerate().all(is_axis)
            && self.hot.def(*array) == Def::Outside
            && strides.iter().all(|v| self.hot.is_invariant(*v));
        is_known.then_some(Access { array: *array, dtype, keys, strides })
    }

    /// Neighbours on the last axis lie side by side; the machine code is made for that.
    pub(super) fn contiguous(&mut self, access: &Access) {
        let Some(stride) = access.strides.last() else { return };
        let axis = (access.strides.len() - 1) as u8;
        let bytes = access.dtype.size();
        let cond = Cond::Stride { array: access.array, axis, bytes };
        if !self.plan.conds.contains(&cond) {
            self.plan.conds.push(cond);
        }
        self.plan.constants.insert(*stride, bytes);
    }

    /// Finds a limit of elements under which as many float operations as possible are quiet.
    pub(super) fn prove_floats(&mut self) -> Option<()> {
        if self.floats.is_empty() {
            return Some(());
        }
        let known: BTreeSet<Value> =
            self.loads.keys().copied().filter(|v| self.indices(*v).is_some()).collect();
        let mut best: Option<(usize, Floats<'_, '_>, Vec<bool>)> = None;
        for k in LIMITS {
            let mut floats = Floats::new(self.hot, &known, k);
            let mut proven = vec![];
            for check in &self.floats {
                proven.push(check.holds(&mut floats));
            }
            let n = proven.iter().filter(|p| **p).count();
            if n > best.as_ref().map_or(0, |b| b.0) && self.stays_below(&mut floats) {
                best = Some((n, floats, proven));
            }
        }
        let (proven, floats) = match best {
            Some((_, floats, proven)) => (proven, Some(floats)),
            None => (vec![false; self.floats.len()], None),
        };
        let (proven, floats) = self.narrow(proven, floats, &known);
        let checks = std::mem::take(&mut self.floats);
        for (check, proven) in checks.iter().zip(proven) {
            match check.asked {
                Asked::Branch { block, .. } if !proven => {
                    self.keep(block)?;
                    self.plan.stays.insert("a result that is not finite".to_owned());
                }
                Asked::Branch { scales, .. } => {
                    if scales && !self.plan.late.contains(&Cond::UnderIgnored) {
                        self.plan.late.push(Cond::UnderIgnored);
                    }
                }
                Asked::Guard { block, at }
                | Asked::Call { block, at, .. }
                | Asked::Positive { block, at }
                    if !proven =>
                {
                    self.unsure.push((block, at));
                }
                Asked::Call { block, at, fast } => {
                    self.plan.fast.insert((block, at), fast);
                }
                Asked::Positive { block, at } => {
                    self.plan.held.insert((block, at));
                }
                Asked::Guard { block, at } => {
                    self.plan.held.insert((block, at));
                    let mut converted = self.hot.converted.borrow_mut();
                    converted.insert(check.result);
                    // What is cut off makes it no larger.
                    if let Some(Inst::FloatUnary(FloatUnary::Trunc, x)) = self.hot.inst(check.result) {
                        converted.insert(*x);
                    }
                    self.hot.forget_ranges();
                }
            }
        }
        if let Some(floats) = &floats {
            self.test_floats(floats);
        }
        self.floats = checks;
        Some(())
    }

    /// Leaves the questions about float results in the copy; `None` if there are others.
    pub(super) fn ask_for_floats(&mut self) -> Option<()> {
        for check in std::mem::take(&mut self.floats) {
            let Asked::Branch { block, scales } = check.asked else { return None };
            self.keep(block)?;
            if scales && !self.plan.late.contains(&Cond::UnderIgnored) {
                self.plan.late.push(Cond::UnderIgnored);
            }
        }
        Some(())
    }

    /// Whether stores keep elements that are loaded again below the limit: into another array, or of such a value. What a
    /// value is made of may be elements of further arrays, whose stores then count too.
    pub(super) fn stays_below(&self, floats: &mut Floats<'_, '_>) -> bool {
        loop {
            let known = (floats.loads.len(), floats.positive.len());
            if !self.stores_fit(floats) {
                return false;
            }
            if known == (floats.loads.len(), floats.positive.len()) {
                return true;
            }
        }
    }

    fn stores_fit(&self, floats: &mut Floats<'_, '_>) -> bool {
        let arrays: BTreeSet<Value> =
            floats.loads.iter().filter_map(|v| self.loads.get(v)).map(|access| access.array).collect();
        if arrays.is_empty() {
            return true;
        }
        self.stores.iter().all(|(array, value, dtype)| match array {
            None => false,
            Some(array) if !arrays.contains(array) => true,
            Some(array) => {
                let (k, is_positive) = self.asked_of(*array, floats);
                matches!(dtype, DType::F64 | DType::F32)
                    && floats.bits(*value).is_some_and(|bits| bits <= k)
                    && (!is_positive || floats.above(*value).is_some_and(|low| low <= k))
            }
        })
    }

    /// The limit of an array's elements, and whether they must be positive.
    fn asked_of(&self, array: Value, floats: &Floats<'_, '_>) -> (i32, bool) {
        let loads = || self.loads.iter().filter(|(_, access)| access.array == array).map(|(v, _)| *v);
        let k = loads().map(|v| floats.limit(v)).min().unwrap_or(floats.k);
        (k, loads().any(|v| floats.positive.contains(&v)))
    }

    pub(super) fn test_floats(&mut self, floats: &Floats<'_, '_>) {
        let header = self.hot.loops[0].header;
        for v in &floats.leaves {
            let is_carried = self.hot.def(*v) == Def::Param(header);
            let into = if is_carried { &mut self.plan.carried } else { &mut self.plan.conds };
            into.push(Cond::FloatBelow(*v, floats.limit(*v)));
        }
        for v in &floats.divisors {
            self.plan.conds.push(Cond::FloatAbove(*v, floats.limit(*v)));
        }
        for v in floats.positive.iter().filter(|v| self.hot.is_invariant(**v)) {
            self.plan.conds.push(Cond::Positive(*v, floats.limit(*v)));
        }
        let mut boxes: BTreeMap<Value, [(Sym, Sym); 2]> = BTreeMap::new();
        let mut dtypes = BTreeMap::new();
        for v in &floats.loads {
            let (Some(access), Some(axes)) = (self.loads.get(v), self.indices(*v)) else { continue };
            dtypes.insert(access.array, access.dtype);
            self.widen(&mut boxes, access.array, axes);
        }
        self.keep_apart(&boxes.keys().copied().collect());
        for (array, axes) in boxes {
            let Some(dtype) = dtypes.get(&array).copied() else { continue };
            let (k, is_positive) = self.asked_of(array, floats);
            let moves = axes.iter().any(|(lo, hi)| lo.mentions_end() || hi.mentions_end());
            let into = if moves { &mut self.plan.strip } else { &mut self.plan.late };
            into.push(Cond::Within { array, dtype, k, is_positive, axes });
        }
    }

    /// What is stored into other arrays shall leave these as they are.
    pub(super) fn keep_apart(&mut self, arrays: &BTreeSet<Value>) {
        for stored in self.stores.iter().filter_map(|(array, _, _)| *array) {
            for array in arrays.iter().filter(|array| **array != stored) {
                let cond = Cond::Apart(stored, *array);
                if !self.plan.late.contains(&cond) {
                    self.plan.late.push(cond);
                }
            }
        }
    }

    /// Bounds of a load's indices on its first two axes: those of the array where nothing else is known.
    pub(super) fn indices(&self, load: Value) -> Option<[(Sym, Sym); 2]> {
        let access = self.loads.get(&load)?;
        let mut axes = [(Sym::Const(0), Sym::Const(0)), (Sym::Const(0), Sym::Const(0))];
        for (at, (axis, key)) in axes.iter_mut().zip(&access.keys).enumerate() {
            let known = self.plan.same.get(key).copied();
            // Only of an index that was unwrapped is the interval that of a place in the array.
            *axis = match self.hot.interval(known.unwrap_or(*key)) {
                Some(interval) if interval.may_be_places() => (interval.lo, interval.hi),
                _ => (Sym::Const(0), Sym::Leaf(self.length(access.array, at)?).sub(Sym::Const(1))),
            };
        }
        Some(axes)
    }

    /// Length of an axis of an array, as far as the nest asks for it.
    fn length(&self, array: Value, axis: usize) -> Option<Value> {
        let insts = self.hot.order.iter().flat_map(|b| &self.hot.f.blocks[b.index()].insts);
        let is_length = |inst: &Inst| matches!(inst, Inst::Field(Field::ArrayDim(n), a) if usize::from(*n) == axis && *a == array);
        insts
            .filter(|(inst, _)| is_length(inst))
            .find_map(|(_, result)| result.filter(|v| self.hot.is_invariant(*v)))
    }

    /// Makes the box of an array large enough for these too.
    pub(super) fn widen(
        &self,
        boxes: &mut BTreeMap<Value, [(Sym, Sym); 2]>,
        array: Value,
        axes: [(Sym, Sym); 2],
    ) {
        let Some(known) = boxes.get_mut(&array) else {
            boxes.insert(array, axes);
            return;
        };
        for (known, new) in known.iter_mut().zip(axes) {
            *known = (known.0.clone().min(new.0), known.1.clone().max(new.1));
        }
    }
}

impl Hot<'_> {
    /// What the front end tests behind float operations of NumPy's types: whose result, and whether underflow counts.
    pub(super) fn quiet(&self, cond: Value) -> Option<(Value, bool)> {
        quiet(|v| self.inst(v), cond).map(|asked| (asked.result, asked.scales))
    }
}
