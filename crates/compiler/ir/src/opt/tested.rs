//! What was tested on every way to a block, where a test is a branch on a truth, or on several of them at once.
//!
//! In: a function and a place in it. Out: whether whoever is there has passed a branch on a certain instruction's truth,
//! as the entries of [`super::nests`] make them.

use std::collections::BTreeMap;

use overdrive_base::table::Entry;

use crate::dominators::{Dominators, successors};
use crate::entities::{Block, Value};
use crate::function::Function;
use crate::inst::{BoolOp, Field, Inst, Terminator};

/// Where the question is asked.
pub(super) struct Place<'a> {
    pub f: &'a Function,
    pub dominators: &'a Dominators,
    pub made_by: &'a BTreeMap<Value, Inst>,
    pub here: Block,
}

impl Place<'_> {
    /// Whether two arrays share no memory.
    pub(super) fn are_apart(&self, a: Value, b: Value) -> bool {
        self.is_tested(|inst| match inst {
            Inst::Table { entry: Entry::ArraysApart, args, .. } => args[..] == [a, b] || args[..] == [b, a],
            _ => false,
        })
    }

    /// Whether NumPy does not report underflow.
    pub(super) fn is_under_ignored(&self) -> bool {
        self.is_tested(|inst| matches!(inst, Inst::Table { entry: Entry::NpUnderIgnored, .. }))
    }

    fn is_tested(&self, is_test: impl Fn(&Inst) -> bool) -> bool {
        let Place { f, dominators, made_by, here } = self;
        dominators.order.iter().any(|block| {
            let Some(Terminator::Branch { cond, then, els }) = &f.blocks[block.index()].terminator else {
                return false;
            };
            // Only the branch leads to its first target, so who comes through that has passed the test.
            let ways_in = dominators.order.iter().filter(|from| {
                f.blocks[from.index()]
                    .terminator
                    .as_ref()
                    .is_some_and(|end| successors(end).contains(&then.0))
            });
            let mut work = vec![*cond];
            let mut is_tested = false;
            while let Some(v) = work.pop() {
                is_tested |= made_by.get(&v).is_some_and(&is_test);
                if let Some(Inst::Bool(BoolOp::And, x, y)) = made_by.get(&v) {
                    work.extend([x, y]);
                }
            }
            is_tested && then.0 != els.0 && ways_in.count() == 1 && dominators.dominates(then.0, *here)
        })
    }
}

/// The array that an address lies in.
pub(super) fn array_of(made_by: &BTreeMap<Value, Inst>, ptr: Value) -> Option<Value> {
    match made_by.get(&ptr)? {
        Inst::PtrAdd(base, _) => array_of(made_by, *base),
        Inst::Field(Field::ArrayData, array) => Some(*array),
        _ => None,
    }
}

/// No effect, no way out, and from the same operands the same result as long as nothing is stored.
pub(super) fn computes(inst: &Inst) -> bool {
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
