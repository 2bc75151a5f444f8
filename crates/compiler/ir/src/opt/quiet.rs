//! What the front end asks behind float operations of NumPy's types: whether NumPy would have nothing to report.
//!
//! In: a condition. Out: whose result it is about, if it is `|x| ≤ max`, or that `and not |x| < min` where a result may
//! fall below the normal range. And which operations hand on that a number is not finite.

use crate::entities::Value;
use crate::inst::{BoolOp, Cmp, FloatOp, FloatUnary, Inst};

/// A question about a float operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quiet {
    /// The operation's result.
    pub result: Value,
    /// Whether it is finite: the first part of the condition.
    pub is_finite: Value,
    /// Whether there is a second part.
    pub scales: bool,
}

/// The question that a condition asks.
pub(super) fn quiet<'a>(inst_of: impl Fn(Value) -> Option<&'a Inst>, cond: Value) -> Option<Quiet> {
    let bound = |v: Value, cmp: Cmp, f64_bits: f64, f32_bits: f32| -> Option<Value> {
        let Some(Inst::FCmp(c, abs, limit)) = inst_of(v) else { return None };
        let Some(Inst::FloatUnary(FloatUnary::Abs, x)) = inst_of(*abs) else { return None };
        let is_limit = match inst_of(*limit) {
            Some(Inst::FConst(bits)) => *bits == f64_bits.to_bits(),
            Some(Inst::F32Const(bits)) => *bits == f32_bits.to_bits(),
            _ => false,
        };
        (*c == cmp && is_limit).then_some(*x)
    };
    let finite = |v| bound(v, Cmp::Le, f64::MAX, f32::MAX);
    if let Some(result) = finite(cond) {
        return Some(Quiet { result, is_finite: cond, scales: false });
    }
    let Some(Inst::Bool(BoolOp::And, a, b)) = inst_of(cond) else { return None };
    let Some(Inst::Not(tiny)) = inst_of(*b) else { return None };
    let result = finite(*a)?;
    let is_same = bound(*tiny, Cmp::Lt, f64::MIN_POSITIVE, f32::MIN_POSITIVE)? == result;
    is_same.then_some(Quiet { result, is_finite: *a, scales: true })
}

/// Whether an operation gives no finite number when an operand of those that `is_reached` names is not finite.
pub(super) fn hands_on(inst: &Inst, is_reached: impl Fn(Value) -> bool) -> bool {
    match inst {
        Inst::Float(FloatOp::Add | FloatOp::Sub | FloatOp::Mul, a, b) => is_reached(*a) || is_reached(*b),
        Inst::FloatUnary(FloatUnary::Neg | FloatUnary::Abs, a) | Inst::F32ToF64(a) => is_reached(*a),
        _ => false,
    }
}
