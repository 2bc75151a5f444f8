//! e to the power of x, with the same bits on every machine.
//!
//! The mathematics library of the system may differ in the last bit from machine to machine, and with it which token a
//! seed draws. This form uses only additions, multiplications and one scaling by a power of two, which IEEE 754 defines.

/// e^x for x ≤ 0, within two units in the last place; 0 below -708, where numbers begin to lose bits.
pub(crate) fn exp(x: f64) -> f64 {
    // ln 2 in two parts: the first has zeros at its end, so that its product with a small whole number is exact.
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if x < -708.0 {
        return 0.0;
    }
    let n = (x * std::f64::consts::LOG2_E).round();
    let rest = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    // Taylor's series; |rest| ≤ ln 2 / 2, where the next term is below 2^-58.
    let mut sum = 1.0 / 6_227_020_800.0;
    for factorial in FACTORIALS {
        sum = sum * rest + 1.0 / factorial;
    }
    // 2^n, by writing its exponent; n is in -1022..=0.
    f64::from_bits(((1023 + n as i64) as u64) << 52) * sum
}

/// 12! down to 0!.
const FACTORIALS: [f64; 13] = [
    479_001_600.0,
    39_916_800.0,
    3_628_800.0,
    362_880.0,
    40_320.0,
    5_040.0,
    720.0,
    120.0,
    24.0,
    6.0,
    2.0,
    1.0,
    1.0,
];

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn it_is_within_two_units_of_the_library() {
        let mut x = 0.0;
        while x > -700.0 {
            let (ours, theirs) = (exp(x), f64::exp(x));
            let units = ours.to_bits().abs_diff(theirs.to_bits());
            assert!(units <= 2, "exp({x}) = {ours:e}, not {theirs:e}");
            x -= 0.001_234_5;
        }
    }

    #[test]
    fn the_ends_are_exact() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert!(exp(-708.0) > 0.0);
    }
}
