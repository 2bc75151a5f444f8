//! The number entries of the mock table, with CPython's rules; `None` declines.
//!
//! Results are those of the machine's own libm through `std`, as the bridge's are; entries that `std` has no function for
//! (erf, erfc) are left out.

use overdrive_base::fast::FUNCTIONS;
use overdrive_base::table::Entry;

use crate::interpret::arith;

/// Correctly rounded quotient of integers.
pub(super) fn int_true_div(a: i64, b: i64) -> Option<f64> {
    let (n, d) = (u128::from(a.unsigned_abs()), u128::from(b.unsigned_abs()));
    if d == 0 {
        return None;
    }
    // 55 significant bits and a sticky one: the conversion then rounds once, to nearest even.
    let bits = |x: u128| 128 - x.leading_zeros();
    let shift = (55 + bits(d)).saturating_sub(bits(n));
    let (q, r) = ((n << shift) / d, (n << shift) % d);
    let x = (q | u128::from(r != 0)) as f64 * (-f64::from(shift)).exp2();
    Some(if (a < 0) != (b < 0) { -x } else { x })
}

/// Power in 64 bits.
pub(super) fn int_pow(a: i64, b: i64) -> Option<i64> {
    match (a, u32::try_from(b)) {
        (_, Ok(b)) => a.checked_pow(b),
        // Exponents beyond 32 bits matter for three bases only.
        (0 | 1, Err(_)) if b > 0 => Some(a),
        (-1, Err(_)) if b > 0 => Some(if b % 2 == 0 { 1 } else { -1 }),
        _ => None,
    }
}

/// CPython's `float_divmod`: (floor quotient, remainder).
pub(super) fn float_divmod(a: f64, b: f64) -> Option<(f64, f64)> {
    if b == 0.0 {
        return None;
    }
    let mut m = a % b;
    let mut div = (a - m) / b;
    if m == 0.0 {
        m = 0.0f64.copysign(b);
    } else if (b < 0.0) != (m < 0.0) {
        m += b;
        div -= 1.0;
    }
    let floor = if div == 0.0 {
        0.0f64.copysign(a / b)
    } else {
        let floor = div.floor();
        if div - floor > 0.5 { floor + 1.0 } else { floor }
    };
    Some((floor, m))
}

/// Half to even, as an int.
pub(super) fn float_round(x: f64) -> Option<i64> {
    arith::float_to_int(x.round_ties_even())
}

/// One-argument functions of `math`.
pub(super) fn math1(entry: Entry, x: f64) -> Option<f64> {
    let (entry, is_fast) = exact(entry);
    let y = match entry {
        Entry::MathExp => x.exp(),
        Entry::MathExpm1 => x.exp_m1(),
        Entry::MathLog => x.ln(),
        Entry::MathLog2 => x.log2(),
        Entry::MathLog10 => x.log10(),
        Entry::MathLog1p => x.ln_1p(),
        Entry::MathSin => x.sin(),
        Entry::MathCos => x.cos(),
        Entry::MathTan => x.tan(),
        Entry::MathAsin => x.asin(),
        Entry::MathAcos => x.acos(),
        Entry::MathAtan => x.atan(),
        Entry::MathSinh => x.sinh(),
        Entry::MathCosh => x.cosh(),
        Entry::MathTanh => x.tanh(),
        _ => return None,
    };
    if is_fast { Some(y) } else { in_domain(y, &[x]) }
}

/// Two-argument functions.
pub(super) fn math2(entry: Entry, x: f64, y: f64) -> Option<f64> {
    let (entry, is_fast) = exact(entry);
    let z = match entry {
        Entry::MathAtan2 => x.atan2(y),
        Entry::MathFmod => x % y,
        Entry::MathPow | Entry::FloatPow => x.powf(y),
        Entry::MathHypot => x.hypot(y),
        _ => return None,
    };
    if is_fast { Some(z) } else { in_domain(z, &[x, y]) }
}

/// The function behind an entry, and whether it goes without CPython's rules.
fn exact(entry: Entry) -> (Entry, bool) {
    FUNCTIONS.iter().find(|f| f.fast == entry).map_or((entry, false), |f| (f.exact, true))
}

/// Declines where CPython raises: NaN out of no NaN, infinity out of finite numbers.
fn in_domain(y: f64, args: &[f64]) -> Option<f64> {
    let raises = y.is_nan() && !args.iter().any(|x| x.is_nan())
        || y.is_infinite() && args.iter().all(|x| x.is_finite());
    (!raises).then_some(y)
}
