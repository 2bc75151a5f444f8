//! The exponential of 16 numbers, the same bits on each processor.
//!
//! In: any numbers. Out: within 1.5 units in the last place of the true value wherever that is a normal number. By Cody and
//! Waite: `x = n·ln 2 + r`, |r| ≤ ln 2 / 2; `exp(r) = 1 + r + r²·q(r)` with a polynomial `q` of degree 4 that interpolates
//! at Chebyshev's points (relative error 1.1e-8, a fifth of half a unit); then the exponent is raised by `n`.

use crate::lanes::Lanes;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 is the sum of these.
const LN2_HIGH: f32 = std::f32::consts::LN_2;
const LN2_LOW: f32 = -1.904_654_2e-9;
/// Adding it rounds to a whole number, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The powers of `q`, lowest first.
const Q: [f32; 5] = [0.5, 0.166_665_76, 0.041_666_556, 0.008_363_179, 0.001_392_618_4];
/// Below, the result is 0: it would not be a normal number.
const LOWEST: f32 = -87.336_54;
/// Above, it is infinite. (It would be a number up to 88.72; nobody here asks for those.)
const HIGHEST: f32 = 88.37;

/// 0 gives exactly 1; no number gives no number.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(l: L, x: L::V) -> L::V {
    let t = l.fma(x, l.splat(LOG2_E), l.splat(ROUND));
    let n = l.sub(t, l.splat(ROUND));
    let r = l.fma(n, l.splat(-LN2_HIGH), x);
    let r = l.fma(n, l.splat(-LN2_LOW), r);
    let q = l.fma(l.splat(Q[4]), r, l.splat(Q[3]));
    let q = l.fma(q, r, l.splat(Q[2]));
    let q = l.fma(q, r, l.splat(Q[1]));
    let q = l.fma(q, r, l.splat(Q[0]));
    let y = l.add(l.fma(l.mul(r, r), q, r), l.splat(1.0));
    let y = l.mul(y, l.power(t));
    let y = l.less(x, l.splat(LOWEST), l.splat(0.0), y);
    l.less(l.splat(HIGHEST), x, l.splat(f32::INFINITY), y)
}

/// Of one number.
#[inline(always)]
pub(crate) fn exp_one<L: Lanes>(l: L, x: f32) -> f32 {
    l.to_array(exp(l, l.splat(x)))[0]
}

#[cfg(test)]
mod tests {
    use super::exp;
    use crate::lanes::{LANES, Lanes, levels, on_each_level};

    on_each_level! { fn exp_all(x: &[f32], out: &mut [f32]) = kernel; }

    #[inline(always)]
    fn kernel<L: Lanes>(l: L, x: &[f32], out: &mut [f32]) {
        for (x, out) in x.as_chunks::<LANES>().0.iter().zip(out.as_chunks_mut::<LANES>().0) {
            l.store(exp(l, l.load(x)), out);
        }
    }

    fn inputs() -> Vec<f32> {
        let mut x: Vec<f32> = (0..400_000).map(|i| (i as f32 - 200_000.0) * (88.3 / 200_000.0)).collect();
        x.extend([
            0.0,
            -0.0,
            1e-30,
            -1e-8,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            88.5,
            -87.4,
            -1e30,
            1e30,
        ]);
        x.resize(x.len().next_multiple_of(LANES), 0.0);
        x
    }

    #[test]
    fn is_within_one_and_a_half_units_of_the_true_value() {
        let x = inputs();
        let mut y = vec![0.0; x.len()];
        exp_all(crate::cpu::Level::Scalar, &x, &mut y);
        let mut worst = 0.0f64;
        for (x, y) in x.iter().zip(&y).filter(|(x, _)| (-87.3..88.37).contains(*x)) {
            let truth = f64::from(*x).exp();
            let unit = 2f64.powi(truth.log2().floor() as i32 - 23);
            worst = worst.max((f64::from(*y) - truth).abs() / unit);
        }
        assert!(worst < 1.5, "{worst} units");
        let of = |wanted: f32| y[x.iter().position(|x| x.to_bits() == wanted.to_bits()).unwrap()];
        assert_eq!((of(0.0), of(-0.0)), (1.0, 1.0));
        assert!(of(f32::NAN).is_nan());
        assert_eq!((of(f32::INFINITY), of(88.5), of(1e30)), (f32::INFINITY, f32::INFINITY, f32::INFINITY));
        assert_eq!((of(f32::NEG_INFINITY), of(-87.4), of(-1e30)), (0.0, 0.0, 0.0));
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        let x = inputs();
        let mut truth = vec![0.0; x.len()];
        exp_all(crate::cpu::Level::Scalar, &x, &mut truth);
        for level in levels() {
            let mut y = vec![0.0; x.len()];
            exp_all(level, &x, &mut y);
            let differs = y
                .iter()
                .zip(&truth)
                .position(|(a, b)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
            assert_eq!(differs, None, "{level:?}");
        }
    }
}
