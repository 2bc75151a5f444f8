//! Rules of numbers that are longer than an instruction, on machine values, bit for bit as `longobject.c` and
//! `floatobject.c` have them.
//!
//! An entry that declines (returns 0) has done nothing: CPython then executes the operation and raises, or gives a
//! value of another kind (a big int, a complex).
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, write their result")]

use super::libm::{self, set_errno};

/// Writes the result of an entry that decided.
///
/// # Safety
/// The table's contract: `result` is writable.
#[inline]
pub(super) unsafe fn give<T>(result: *mut T, value: Option<T>) -> u8 {
    match value {
        Some(value) => {
            // SAFETY: the caller's contract.
            unsafe { result.write(value) };
            1
        }
        None => 0,
    }
}

pub(super) unsafe extern "C" fn int_true_div(a: i64, b: i64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, true_div(a, b)) }
}

pub(super) unsafe extern "C" fn int_pow(a: i64, b: i64, result: *mut i64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, pow_i64(a, b)) }
}

pub(super) unsafe extern "C" fn float_floor_div(a: f64, b: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, floor_div(a, b)) }
}

pub(super) unsafe extern "C" fn float_mod(a: f64, b: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, modulo(a, b)) }
}

pub(super) unsafe extern "C" fn float_pow(a: f64, b: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, pow_f64(a, b)) }
}

pub(super) unsafe extern "C" fn float_round(a: f64, result: *mut i64) -> u8 {
    let rounded = a.round_ties_even();
    // 2⁶³ as a float is exact; NaN fails both comparisons.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
    // SAFETY: the table's contract.
    unsafe { give(result, fits.then_some(rounded as i64)) }
}

pub(super) unsafe extern "C" fn int_float_compare(op: i64, a: i64, b: f64) -> u8 {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = if b.is_nan() {
        None
    } else if b >= 9_223_372_036_854_775_808.0 {
        Some(Less)
    } else if b < -9_223_372_036_854_775_808.0 {
        Some(Greater)
    } else {
        let whole = b.trunc();
        // A difference of whole parts decides; else the sign of the fraction does.
        Some(a.cmp(&(whole as i64)).then_with(|| 0.0_f64.partial_cmp(&(b - whole)).unwrap_or(Equal)))
    };
    u8::from(match (op, order) {
        (3, None) => true,
        (_, None) => false,
        (0, Some(order)) => order == Less,
        (1, Some(order)) => order != Greater,
        (2, Some(order)) => order == Equal,
        (3, Some(order)) => order != Equal,
        (4, Some(order)) => order == Greater,
        (5, Some(order)) => order != Less,
        _ => false,
    })
}

/// The float nearest to a / b, ties to even; a zero takes the sign of both operands' signs, as `0 / -5` does.
fn true_div(a: i64, b: i64) -> Option<f64> {
    const EXACT: u64 = 1 << 53;
    if b == 0 {
        return None;
    }
    let (ua, ub) = (a.unsigned_abs(), b.unsigned_abs());
    if ua <= EXACT && ub <= EXACT {
        return Some(a as f64 / b as f64);
    }
    // a, shifted to 127 bits, over b leaves at least 63 bits of quotient: more than 53 and a guard, so that the
    // remainder is one sticky bit and the conversion rounds once.
    let shift = ua.leading_zeros() + 63;
    if ua == 0 {
        return Some(if b < 0 { -0.0 } else { 0.0 });
    }
    let dividend = u128::from(ua) << shift;
    let quotient = dividend / u128::from(ub);
    let sticky = u128::from(!dividend.is_multiple_of(u128::from(ub)));
    let scale = f64::from_bits((1023 - u64::from(shift)) << 52);
    let magnitude = (quotient | sticky) as f64 * scale;
    Some(if (a < 0) != (b < 0) { -magnitude } else { magnitude })
}

fn pow_i64(a: i64, b: i64) -> Option<i64> {
    let mut exponent = u64::try_from(b).ok()?;
    let (mut result, mut base) = (1_i64, a);
    loop {
        if exponent & 1 == 1 {
            result = result.checked_mul(base)?;
        }
        exponent >>= 1;
        if exponent == 0 {
            return Some(result);
        }
        // The highest bit of the exponent is still to come, so this square is part of the result: if it leaves 64
        // bits, so does the result.
        base = base.checked_mul(base)?;
    }
}

/// `float_floor_div`.
fn floor_div(a: f64, b: f64) -> Option<f64> {
    if b == 0.0 {
        return None;
    }
    let remainder = libm::fmod(a, b);
    let mut quotient = (a - remainder) / b;
    if remainder != 0.0 && (b < 0.0) != (remainder < 0.0) {
        quotient -= 1.0;
    }
    Some(if quotient != 0.0 {
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    } else {
        0.0_f64.copysign(a / b)
    })
}

/// `float_rem`.
fn modulo(a: f64, b: f64) -> Option<f64> {
    if b == 0.0 {
        return None;
    }
    let remainder = libm::fmod(a, b);
    Some(if remainder == 0.0 {
        0.0_f64.copysign(b)
    } else if (b < 0.0) != (remainder < 0.0) {
        remainder + b
    } else {
        remainder
    })
}

pub(super) fn is_odd_integer(x: f64) -> bool {
    libm::fmod(x.abs(), 2.0) == 1.0
}

/// `float_pow`.
fn pow_f64(a: f64, b: f64) -> Option<f64> {
    if b == 0.0 {
        return Some(1.0);
    }
    if a.is_nan() {
        return Some(a);
    }
    if b.is_nan() {
        return Some(if a == 1.0 { 1.0 } else { b });
    }
    if b.is_infinite() {
        let a = a.abs();
        return Some(if a == 1.0 {
            1.0
        } else if (b > 0.0) == (a > 1.0) {
            b.abs()
        } else {
            0.0
        });
    }
    if a.is_infinite() {
        let odd = is_odd_integer(b);
        return Some(match (b > 0.0, odd) {
            (true, true) => a,
            (true, false) => a.abs(),
            (false, true) => 0.0_f64.copysign(a),
            (false, false) => 0.0,
        });
    }
    if a == 0.0 {
        return if b < 0.0 {
            None
        } else if is_odd_integer(b) {
            Some(a)
        } else {
            Some(0.0)
        };
    }
    let mut base = a;
    let mut negate = false;
    if a < 0.0 {
        if b != b.floor() {
            return None;
        }
        base = -a;
        negate = is_odd_integer(b);
    }
    if base == 1.0 {
        return Some(if negate { -1.0 } else { 1.0 });
    }
    set_errno(0);
    let power = libm::pow(base, b);
    // `_Py_ADJUST_ERANGE1`: an infinite result is an error, an underflow to zero is not; any other error is.
    if power.is_infinite() || (libm::errno() != 0 && power != 0.0) {
        return None;
    }
    Some(if negate { -power } else { power })
}
