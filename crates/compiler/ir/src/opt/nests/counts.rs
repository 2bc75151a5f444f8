//! Integers in arrays: bounds that make sums with them certain to fit.
//!
//! In: loads and stores of 64-bit integers, checks that nothing else could answer. Out: for arrays that are looked at
//! before each strip, how large what is loaded from them may be. `counts[b] += 1` adds little, and a strip does it a
//! limited number of times; so whatever the elements are below before a strip, they stay close to it.

use std::collections::{BTreeMap, BTreeSet};

use overdrive_base::flavour::DType;

use super::affine::Sym;
use super::parallel::MAX_ROUND_STEPS;
use super::plan::{Cond, Planner};
use super::ranges::MAX_STEPS;
use crate::entities::Value;
use crate::function::Iterations;
use crate::inst::{CheckedOp, Inst, IntOp};

/// Powers of two that elements may be asked to stay below: sums of two, sums over iterations, sums of products.
const LIMITS: [u32; 3] = [60, 36, 18];
/// What one iteration may add to an element.
const MAX_ADDED: i64 = 1 << 36;

impl Planner<'_, '_> {
    /// Finds a limit of elements under which as many of the open checks as possible succeed.
    pub(super) fn bound_integers(&mut self) {
        let open: Vec<Value> = self
            .unsure
            .iter()
            .filter_map(|(block, at)| match self.hot.f.blocks[block.index()].insts[*at] {
                (Inst::Checked(..), result) => result,
                _ => None,
            })
            .collect();
        let mut arrays: BTreeMap<Value, i64> = BTreeMap::new();
        for access in self.loads.values().filter(|access| access.dtype == DType::I64) {
            if !arrays.contains_key(&access.array)
                && let Some(added) = self.added_to(access.array)
            {
                arrays.insert(access.array, added);
            }
        }
        if open.is_empty() || arrays.is_empty() {
            return;
        }
        let mut best = (0, 0);
        for k in LIMITS {
            self.assume(&arrays, k);
            let n = open.iter().filter(|v| self.hot.int_range(**v).is_some()).count();
            best = best.max((n, k));
        }
        let (n, k) = best;
        self.hot.counts.borrow_mut().clear();
        self.hot.forget_ranges();
        if n == 0 {
            return;
        }
        self.assume(&arrays, k);
        let arrays: BTreeSet<Value> = arrays.into_keys().collect();
        self.keep_apart(&arrays);
        let mut boxes: BTreeMap<Value, [(Sym, Sym); 2]> = BTreeMap::new();
        let loads: Vec<Value> = self.hot.counts.borrow().keys().copied().collect();
        for v in loads {
            let (Some(access), Some(axes)) = (self.loads.get(&v), self.indices(v)) else { continue };
            self.widen(&mut boxes, access.array, axes);
        }
        for (array, axes) in boxes {
            let k = k as i32;
            self.plan.strip.push(Cond::Within { array, dtype: DType::I64, k, is_positive: false, axes });
        }
    }

    /// Loads from these arrays give integers below 2^k and what was added since.
    fn assume(&self, arrays: &BTreeMap<Value, i64>, k: u32) {
        let loads = self.loads.iter().filter(|(_, access)| access.dtype == DType::I64);
        let known = loads.filter_map(|(v, access)| {
            let most = (1 << k) + arrays.get(&access.array)?;
            self.indices(*v).map(|_| (*v, (-most, most)))
        });
        let known = known.collect();
        *self.hot.counts.borrow_mut() = known;
        self.hot.forget_ranges();
    }

    /// By how much one strip may change an element's magnitude; `None` for an array that may get any value.
    fn added_to(&self, array: Value) -> Option<i64> {
        let mut all: i64 = 0;
        for (stored, value, _) in &self.stores {
            match stored {
                None => return None,
                Some(stored) if *stored != array => continue,
                Some(_) => {}
            }
            let is_load = |v: &Value| self.loads.get(v).is_some_and(|access| access.array == array);
            let (term, other) = match self.hot.inst(*value)? {
                Inst::Checked(CheckedOp::Add, a, b, _) | Inst::Int(IntOp::Add, a, b) => {
                    if is_load(a) {
                        (a, b)
                    } else {
                        (b, a)
                    }
                }
                Inst::Checked(CheckedOp::Sub, a, b, _) | Inst::Int(IntOp::Sub, a, b) => (a, b),
                _ => return None,
            };
            let (lo, hi) = self.hot.int_range(*other).filter(|_| is_load(term))?;
            all = all.checked_add(lo.checked_abs()?.max(hi.checked_abs()?)).filter(|n| *n <= MAX_ADDED)?;
        }
        let is_free = self.hot.f.blocks[self.hot.loops[0].header.index()].iterations == Iterations::Free;
        let steps = if is_free { MAX_ROUND_STEPS } else { MAX_STEPS };
        all.checked_mul(steps).filter(|n| *n <= 1 << 59)
    }
}
