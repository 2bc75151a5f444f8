//! Functions of the module `math` on machine floats, bit for bit as `mathmodule.c` computes them in CPython 3.11 to 3.13.
//!
//! Each has CPython's own special cases around the C library's function. An entry declines when CPython would raise
//! ValueError or OverflowError, so CPython makes the message.
#![expect(unsafe_code, reason = "entries of the object table: called by machine code, write their result")]

use super::libm::{self, errno, set_errno};
use super::numbers::{give, is_odd_integer};

/// `is_error`: with this result, is what the C library left in errno an exception? (An underflow is not.)
fn is_error(result: f64) -> bool {
    match errno() {
        0 => false,
        libc::ERANGE => result.abs() >= 1.5,
        _ => true,
    }
}

/// `math_1`: a NaN out of a number, or an infinity out of a finite number, is an exception.
fn checked(x: f64, f: fn(f64) -> f64) -> Option<f64> {
    set_errno(0);
    let r = f(x);
    let raises = (r.is_nan() && !x.is_nan())
        || (r.is_infinite() && x.is_finite())
        || (r.is_finite() && errno() != 0 && is_error(r));
    (!raises).then_some(r)
}

/// `math_1a`: only errno tells (erf, erfc).
fn by_errno(x: f64, f: fn(f64) -> f64) -> Option<f64> {
    set_errno(0);
    let r = f(x);
    (errno() == 0 || !is_error(r)).then_some(r)
}

/// `m_log` and its kin: the C function is asked about positive finite numbers only.
fn logarithm(x: f64, f: fn(f64) -> f64) -> Option<f64> {
    if x.is_finite() {
        (x > 0.0).then(|| f(x))
    } else if x.is_nan() || x > 0.0 {
        Some(x)
    } else {
        None
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $entry:ident = $rule:ident($function:path);)*) => { $(
        $(#[$doc])*
        pub(super) unsafe extern "C" fn $entry(x: f64, result: *mut f64) -> u8 {
            // SAFETY: the table's contract.
            unsafe { give(result, $rule(x, $function)) }
        }
    )* };
}

unary! {
    exp = checked(libm::exp);
    expm1 = checked(libm::expm1);
    log = logarithm(libm::log);
    log2 = logarithm(libm::log2);
    log10 = logarithm(libm::log10);
    log1p = checked(log1p_keeping_zero);
    sin = checked(libm::sin);
    cos = checked(libm::cos);
    tan = checked(libm::tan);
    asin = checked(libm::asin);
    acos = checked(libm::acos);
    atan = checked(libm::atan);
    sinh = checked(libm::sinh);
    cosh = checked(libm::cosh);
    tanh = checked(libm::tanh);
    erf = by_errno(libm::erf);
    erfc = by_errno(libm::erfc);
}

/// `m_log1p`: some C libraries lose the sign of zero.
fn log1p_keeping_zero(x: f64) -> f64 {
    if x == 0.0 { x } else { libm::log1p(x) }
}

pub(super) unsafe extern "C" fn atan2(y: f64, x: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, atan2_of(y, x)) }
}

pub(super) unsafe extern "C" fn fmod(x: f64, y: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, fmod_of(x, y)) }
}

pub(super) unsafe extern "C" fn pow(x: f64, y: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, pow_of(x, y)) }
}

pub(super) unsafe extern "C" fn hypot(x: f64, y: f64, result: *mut f64) -> u8 {
    // SAFETY: the table's contract.
    unsafe { give(result, Some(hypot_of(x.abs(), y.abs()))) }
}

/// `m_atan2` under `math_2`.
fn atan2_of(y: f64, x: f64) -> Option<f64> {
    use std::f64::consts::PI;
    if x.is_nan() || y.is_nan() {
        return Some(f64::NAN);
    }
    if y.is_infinite() {
        let angle = match (x.is_infinite(), x.is_sign_positive()) {
            (true, true) => 0.25 * PI,
            (true, false) => 0.75 * PI,
            (false, _) => 0.5 * PI,
        };
        return Some(angle.copysign(y));
    }
    if x.is_infinite() || y == 0.0 {
        return Some(if x.is_sign_positive() { 0.0_f64 } else { PI }.copysign(y));
    }
    set_errno(0);
    let r = libm::atan2(y, x);
    (errno() == 0 || !is_error(r)).then_some(r)
}

fn fmod_of(x: f64, y: f64) -> Option<f64> {
    if y.is_infinite() && x.is_finite() {
        return Some(x);
    }
    set_errno(0);
    let r = libm::fmod(x, y);
    if r.is_nan() {
        return (x.is_nan() || y.is_nan()).then_some(r);
    }
    (errno() == 0 || !is_error(r)).then_some(r)
}

/// `math.pow`, which treats infinities and NaN itself.
fn pow_of(x: f64, y: f64) -> Option<f64> {
    if x.is_finite() && y.is_finite() {
        set_errno(0);
        let r = libm::pow(x, y);
        return (r.is_finite() && (errno() == 0 || !is_error(r))).then_some(r);
    }
    Some(if x.is_nan() {
        if y == 0.0 { 1.0 } else { x }
    } else if y.is_nan() {
        if x == 1.0 { 1.0 } else { y }
    } else if x.is_infinite() {
        let odd = y.is_finite() && is_odd_integer(y);
        if y > 0.0 {
            if odd { x } else { x.abs() }
        } else if y == 0.0 {
            1.0
        } else if odd {
            0.0_f64.copysign(x)
        } else {
            0.0
        }
    } else if x.abs() == 1.0 {
        1.0
    } else if y > 0.0 && x.abs() > 1.0 {
        y
    } else if y < 0.0 && x.abs() < 1.0 {
        -y
    } else {
        0.0
    })
}

/// `math.hypot` of two magnitudes: CPython's `vector_norm`, which is more exact than the C library's function.
/// Overflow gives infinity, not an exception.
fn hypot_of(x: f64, y: f64) -> f64 {
    // The larger one as CPython finds it: starting from 0, NaN never wins.
    let largest = [x, y].into_iter().fold(0.0, |max, v| if v > max { v } else { max });
    if largest.is_infinite() {
        return largest;
    }
    if x.is_nan() || y.is_nan() {
        return f64::NAN;
    }
    if largest == 0.0 {
        return largest;
    }
    let exponent = frexp_exponent(largest);
    if exponent < -1023 {
        return hypot_of_subnormals(x, y, largest);
    }
    let scale = power_of_two(-exponent);
    let mut sum = Compensated { sum: 1.0, of_products: 0.0, of_sums: 0.0 };
    sum.add(square(x * scale));
    sum.add(square(y * scale));
    let h = (sum.sum - 1.0 + (sum.of_products + sum.of_sums)).sqrt();
    let (high, low) = square(h);
    sum.add((-high, -low));
    let excess = sum.sum - 1.0 + (sum.of_products + sum.of_sums);
    (h + excess / (2.0 * h)) / scale
}

/// Where the scale 2^−exponent would overflow, 3.11 divides by the largest and sums less exactly.
#[cfg(not(Py_3_12))]
fn hypot_of_subnormals(x: f64, y: f64, largest: f64) -> f64 {
    let (mut sum, mut fraction) = (1.0, 0.0);
    for v in [x, y] {
        let ratio = v / largest;
        let square = ratio * ratio;
        let before = sum;
        sum += square;
        fraction += (before - sum) + square;
    }
    largest * (sum - 1.0 + fraction).sqrt()
}

/// Where the scale 2^−exponent would overflow, the numbers are made normal first.
#[cfg(Py_3_12)]
fn hypot_of_subnormals(x: f64, y: f64, _largest: f64) -> f64 {
    f64::MIN_POSITIVE * hypot_of(x / f64::MIN_POSITIVE, y / f64::MIN_POSITIVE)
}

/// Neumaier's sum starting from 1, which is at least as large as every addend.
struct Compensated {
    sum: f64,
    of_products: f64,
    of_sums: f64,
}

impl Compensated {
    fn add(&mut self, (high, low): (f64, f64)) {
        let sum = self.sum + high;
        self.of_sums += (self.sum - sum) + high;
        self.sum = sum;
        self.of_products += low;
    }
}

/// x² as an unevaluated sum. CPython 3.11 splits by Veltkamp and Dekker; later versions use a fused multiply-add.
#[cfg(not(Py_3_12))]
fn square(x: f64) -> (f64, f64) {
    let t = x * 134_217_729.0; // 2²⁷ + 1
    let high = t - (t - x);
    let low = x - high;
    let p = high * high;
    let q = high * low + low * high;
    let z = p + q;
    (z, p - z + q + low * low)
}

/// As above.
#[cfg(Py_3_12)]
fn square(x: f64) -> (f64, f64) {
    let z = x * x;
    (z, x.mul_add(x, -z))
}

/// e with 2^(e−1) ≤ x < 2^e, for a positive finite x.
fn frexp_exponent(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52) as i32;
    if biased == 0 { -1073 + (63 - x.to_bits().leading_zeros() as i32) } else { biased - 1022 }
}

/// 2^e for −1074 ≤ e ≤ 1023.
fn power_of_two(e: i32) -> f64 {
    if e >= -1022 { f64::from_bits(((e + 1023) as u64) << 52) } else { f64::from_bits(1 << (e + 1074)) }
}
