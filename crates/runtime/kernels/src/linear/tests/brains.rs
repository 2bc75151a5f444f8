//! BF16 weights where tiles multiply them: their sum is the oracle's for the level, what it is near to, and what its ends are.
//!
//! On machines without such tiles the tests of bits compare the other levels, and those of values do nothing.

use super::{Random, check, product};
use crate::cpu::{Level, most_level, set_level};
use crate::format::Format;
use crate::linear::pieces::takes_pieces;
use crate::linear::{Matrix, Rows};

/// Bits of a bfloat16 with an exponent out of a range.
fn brain(random: &mut Random, exponents: std::ops::RangeInclusive<u64>) -> u16 {
    let n = exponents.end() - exponents.start() + 1;
    let bits = random.next() >> 20;
    let mantissa = if bits & 3 == 0 { 0 } else { bits >> 2 & 0x7f };
    ((bits >> 40 & 1) << 15 | (exponents.start() + (bits >> 9) % n) << 7 | mantissa) as u16
}

fn bytes(brains: &[u16]) -> Vec<u8> {
    brains.iter().flat_map(|bits| bits.to_le_bytes()).collect()
}

/// The product of one row with one row of weights, on a level.
fn one(level: Level, weights: &[f32], values: &[f32]) -> f32 {
    let weights: Vec<u16> = weights.iter().map(|weight| half::bf16::from_f32(*weight).to_bits()).collect();
    let matrix = Matrix::new(Format::BF16, 1, weights.len(), &bytes(&weights)).unwrap();
    product(&matrix, &Rows::prepare_at(level, values, values.len(), [Format::BF16]))[0]
}

fn has_tiles() -> bool {
    takes_pieces(most_level(), Format::BF16)
}

#[test]
fn sums_are_the_oracles_at_all_sizes() {
    let mut random = Random(11);
    // Exponents of weights and of activations: any; products near the smallest normal number; subnormal weights; products near the
    // largest number; sums of very different sizes; subnormal activations.
    let sizes = [
        (0..=254, 0..=254),
        (60..=68, 58..=66),
        (0..=3, 120..=132),
        (184..=192, 185..=193),
        (100..=150, 100..=150),
        (120..=135, 0..=12),
    ];
    for (weights, values) in sizes {
        for (n, n_cols) in (1..=40).zip([1, 31, 33, 64, 100, 7, 160].into_iter().cycle()) {
            let mut brains: Vec<u16> =
                (0..19 * n_cols).map(|_| brain(&mut random, weights.clone())).collect();
            let mut row: Vec<f32> = (0..n * n_cols)
                .map(|_| {
                    let low = (random.next() >> 48) as u32;
                    f32::from_bits(u32::from(brain(&mut random, values.clone())) << 16 | low)
                })
                .collect();
            check(Format::BF16, 19, n_cols, &bytes(&brains), &row);
            // Neighbours that cancel each other, nearly or altogether, in one half of a tile's sum or between both.
            for i in 1..brains.len() {
                if random.next().is_multiple_of(3) {
                    brains[i] = brains[i.saturating_sub(1 + i % 2)] ^ 0x8000 ^ (random.next() % 2) as u16;
                }
            }
            for i in 1..row.len() {
                if random.next().is_multiple_of(3) {
                    row[i] = row[i.saturating_sub(1 + i % 2)];
                }
            }
            check(Format::BF16, 19, n_cols, &bytes(&brains), &row);
        }
    }
}

#[test]
fn sums_are_the_oracles_with_what_is_no_number() {
    let mut random = Random(12);
    let special = [0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x0000, 0x8000, 0x0001, 0x807f, 0x7f7f, 0xff7f, 0x0080];
    for n in [1, 2, 3, 4, 5, 16, 17, 40] {
        for rarity in [2, 40] {
            let mut some = |ordinary: std::ops::RangeInclusive<u64>| {
                let i = random.next();
                if i.is_multiple_of(rarity) {
                    special[(random.next() % special.len() as u64) as usize]
                } else {
                    brain(&mut random, ordinary)
                }
            };
            let brains: Vec<u16> = (0..33 * 70).map(|_| some(120..=130)).collect();
            let row: Vec<f32> =
                (0..n * 70).map(|_| f32::from_bits(u32::from(some(120..=130)) << 16 | 0x1234)).collect();
            check(Format::BF16, 33, 70, &bytes(&brains), &row);
        }
    }
}

#[test]
fn sums_in_tiles_have_sixteen_bits_of_each_activation() {
    if !has_tiles() {
        return;
    }
    let mut random = Random(13);
    for n_cols in [32, 576, 2048] {
        let brains: Vec<u16> = (0..n_cols).map(|_| half::bf16::from_f32(random.number()).to_bits()).collect();
        let values: Vec<f32> = (0..5 * n_cols).map(|_| random.number() * 4.0).collect();
        let matrix = Matrix::new(Format::BF16, 1, n_cols, &bytes(&brains)).unwrap();
        let found = product(&matrix, &Rows::prepare_at(Level::Amx, &values, n_cols, [Format::BF16]));
        for (found, row) in found.iter().zip(values.chunks_exact(n_cols)) {
            let terms = brains
                .iter()
                .zip(row)
                .map(|(bits, value)| half::bf16::from_bits(*bits).to_f64() * f64::from(*value));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            // Half a unit of the sixteenth bit, and what sums lose: 16 columns, a sum of two, and each 32 columns.
            let lost = (18.0 + n_cols as f64 / 32.0) * 2f64.powi(-24);
            let error = (f64::from(*found) - sum).abs();
            assert!(error <= size * (2f64.powi(-17) + lost), "{found} is not {sum}, of terms of {size}");
        }
    }
}

#[test]
fn infinite_numbers_stay_what_they_are() {
    for level in super::levels() {
        let infinity = f32::INFINITY;
        // The second piece of 1.5 is 0.
        assert_eq!(one(level, &[infinity, 1.0], &[1.5, 2.0]), infinity);
        assert_eq!(one(level, &[-infinity, 1.0], &[1.001, 2.0]), -infinity);
        assert_eq!(one(level, &[3.0, 1.0], &[-infinity, 2.0]), -infinity);
        assert!(one(level, &[infinity, 1.0], &[0.0, 2.0]).is_nan());
        assert!(one(level, &[0.0, 1.0], &[infinity, 2.0]).is_nan());
        assert!(one(level, &[1.0, 1.0], &[infinity, -infinity]).is_nan());
        assert!(one(level, &[1.0, 1.0], &[f32::NAN, 1.0]).is_nan());
        assert!(one(level, &[f32::NAN, 1.0], &[1.0, 1.0]).is_nan());
        assert_eq!(one(level, &[2.0, 0.0], &[f32::MAX, 1.0]), infinity);
        // Nearer to the largest number than 16 bits are.
        let largest = one(level, &[1.0, 0.0], &[f32::MAX, 1.0]);
        assert!(largest <= f32::MAX && largest >= f32::MAX * (1.0 - 2f32.powi(-16)), "{largest:e}");
        assert_eq!(one(level, &[-1.0, 0.0], &[f32::MAX, 1.0]), -largest);
    }
}

#[test]
fn tiles_take_subnormal_numbers_for_zeros() {
    for level in super::levels() {
        let tiny = f32::MIN_POSITIVE;
        let or_zero = |value: f32| if takes_pieces(level, Format::BF16) { 0.0 } else { value };
        assert_eq!(one(level, &[tiny / 2.0], &[2.0]), or_zero(tiny));
        assert_eq!(one(level, &[2.0], &[tiny / 2.0]), or_zero(tiny));
        assert_eq!(one(level, &[2f32.powi(-64)], &[2f32.powi(-63)]), or_zero(tiny / 2.0));
        assert_eq!(one(level, &[2f32.powi(-63)], &[2f32.powi(-63)]), tiny);
        // What is rounded up to the smallest normal number is 0, too, if it would not be with an exponent more.
        for (part, expected) in [(0.25, tiny), (0.75, or_zero(tiny))] {
            let values = [2f32.powi(-63), 0.0, 2f32.powi(-75)];
            let weights = [2f32.powi(-63), 0.0, -part * 2f32.powi(-75)];
            assert_eq!(one(level, &weights, &values), expected, "{part} of 2^-150 less");
        }
    }
}

#[test]
fn rows_keep_the_level_they_were_prepared_for() {
    let mut random = Random(14);
    let brains: Vec<u16> = (0..40 * 64).map(|_| brain(&mut random, 120..=130)).collect();
    let values: Vec<f32> = (0..6 * 64).map(|_| random.number()).collect();
    let matrix = Matrix::new(Format::BF16, 40, 64, &bytes(&brains)).unwrap();
    for level in super::levels() {
        set_level(level).unwrap();
        let rows = Rows::prepare(&values, 64, [Format::BF16]);
        let expected = product(&matrix, &rows);
        for other in super::levels() {
            set_level(other).unwrap();
            assert_eq!(product(&matrix, &rows), expected, "{level:?}, then {other:?}");
        }
    }
    set_level(most_level()).unwrap();
}
