//! What the number instructions mean, as plain functions: used by the interpreter and by constant folding, so that the
//! two can't disagree.
//!
//! A function that has a precondition gives `None` when it does not hold.

use crate::inst::{BoolOp, CheckedOp, Cmp, FloatOp, FloatUnary, IntOp};

/// `None`: the shift count or the divisor breaks the operation's precondition.
pub fn int(op: IntOp, a: i64, b: i64) -> Option<i64> {
    Some(match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        IntOp::Shl => a.wrapping_shl(shift_count(b)?),
        IntOp::Shr => a.wrapping_shr(shift_count(b)?),
        IntOp::FloorDiv => {
            let q = a.checked_div(b)?;
            if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
        }
        IntOp::FloorMod => {
            let r = a.checked_rem(b)?;
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
    })
}

fn shift_count(b: i64) -> Option<u32> {
    u32::try_from(b).ok().filter(|b| *b < 64)
}

/// `None`: the result leaves 64 bits.
pub fn checked(op: CheckedOp, a: i64, b: i64) -> Option<i64> {
    match op {
        CheckedOp::Add => a.checked_add(b),
        CheckedOp::Sub => a.checked_sub(b),
        CheckedOp::Mul => a.checked_mul(b),
    }
}

/// On integers and on floats: with NaN all but `Ne` are false.
pub fn compare<T: PartialOrd>(cmp: Cmp, a: T, b: T) -> bool {
    match cmp {
        Cmp::Lt => a < b,
        Cmp::Le => a <= b,
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Gt => a > b,
        Cmp::Ge => a >= b,
    }
}

pub fn bool(op: BoolOp, a: bool, b: bool) -> bool {
    match op {
        BoolOp::And => a & b,
        BoolOp::Or => a | b,
        BoolOp::Xor => a ^ b,
    }
}

macro_rules! floats {
    ($binary:ident, $unary:ident, $ty:ident) => {
        pub fn $binary(op: FloatOp, a: $ty, b: $ty) -> $ty {
            match op {
                FloatOp::Add => a + b,
                FloatOp::Sub => a - b,
                FloatOp::Mul => a * b,
                FloatOp::Div => a / b,
                FloatOp::CopySign => a.copysign(b),
            }
        }

        pub fn $unary(op: FloatUnary, a: $ty) -> $ty {
            match op {
                FloatUnary::Neg => -a,
                FloatUnary::Abs => a.abs(),
                FloatUnary::Sqrt => a.sqrt(),
                FloatUnary::Floor => a.floor(),
                FloatUnary::Ceil => a.ceil(),
                FloatUnary::Trunc => a.trunc(),
            }
        }
    };
}

floats!(f64_binary, f64_unary, f64);
floats!(f32_binary, f32_unary, f32);

/// Toward zero; `None` outside 64 bits and for NaN.
pub fn float_to_int(x: f64) -> Option<i64> {
    let t = x.trunc();
    (-9223372036854775808.0..9223372036854775808.0).contains(&t).then_some(t as i64)
}

/// An integer against a float, exactly.
pub fn compare_int_float(cmp: Cmp, a: i64, b: f64) -> bool {
    if b.is_nan() {
        return cmp == Cmp::Ne;
    }
    let order = match float_to_int(b) {
        // Equal whole parts: the fraction decides. Its sign is b's, and it is exact.
        Some(whole) => (a.cmp(&whole)).then(0.0f64.total_cmp(&((b - b.trunc()) + 0.0))),
        None if b > 0.0 => std::cmp::Ordering::Less,
        None => std::cmp::Ordering::Greater,
    };
    compare(cmp, order, std::cmp::Ordering::Equal)
}
