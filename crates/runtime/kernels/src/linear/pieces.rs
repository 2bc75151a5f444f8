//! Activations for the tile instructions of BF16, which take nothing wider: each is a sum of two pieces.
//!
//! In: rows of `f32`. Out: for each value the nearest bfloat16 and the nearest to what is left: 16 bits of mantissa where a single
//! has 24. So a row becomes two, and the product of each has a sum of its own. Infinities and NaN are their first piece; a value too
//! large for the nearest bfloat16 has the largest one, and less than what is left.

#![expect(
    unsafe_code,
    reason = "threads fill disjoint parts; code compiled for a level runs where it is there"
)]

use super::layout::BLOCK;
use super::memory::{Memory, Parts};
use super::rows::each_group;
use crate::cpu::Level;
use crate::format::Format;

/// Pieces of a value.
pub(crate) const PIECES: usize = 2;
/// Bytes of a piece of a block of a row: a row of a tile.
pub(crate) const TILE_ROW: usize = 2 * BLOCK;

/// Whether products with such a matrix are sums in tiles of BF16.
pub(crate) fn takes_pieces(level: Level, format: Format) -> bool {
    level == Level::Amx && format == Format::BF16
}

/// Pieces of all rows, up to 16 side by side.
pub(crate) struct Pieces {
    lanes: usize,
    n_blocks: usize,
    /// Bits of bfloat16, `(group, block, piece, lane, 32)`; the last group and the last block are filled with zeros.
    bits: Memory,
}

impl Pieces {
    pub(super) fn new(level: Level, values: &[f32], n_cols: usize, lanes: usize) -> Self {
        let n_rows = values.len().checked_div(n_cols).unwrap_or(0);
        let (n_groups, n_blocks) = (n_rows.div_ceil(lanes), n_cols.div_ceil(BLOCK));
        let n = n_blocks * PIECES * lanes * TILE_ROW;
        let mut bits = Memory::scratch(n_groups * n);
        let parts = Parts::new(bits.bytes_mut());
        each_group(n_groups, values.len(), |g| {
            // SAFETY: each group is filled once.
            let group = unsafe { parts.part(g * n, n) };
            for lane in 0..lanes.min(n_rows - g * lanes) {
                split(level, &values[(g * lanes + lane) * n_cols..][..n_cols], lane, lanes, group);
            }
        });
        Self { lanes, n_blocks, bits }
    }

    /// Piece `p` of column `k` of a row, which may be one that fills the last block.
    pub(crate) fn piece(&self, row: usize, p: usize, k: usize) -> half::bf16 {
        let block = (row / self.lanes * self.n_blocks + k / BLOCK) * PIECES + p;
        let at = (block * self.lanes + row % self.lanes) * TILE_ROW + k % BLOCK * 2;
        half::bf16::from_le_bytes([self.bits.bytes()[at], self.bits.bytes()[at + 1]])
    }

    /// Address of a group: for each block and piece `lanes` rows of a tile.
    pub(crate) fn group(&self, group: usize) -> *const u8 {
        let n = self.n_blocks * PIECES * self.lanes * TILE_ROW;
        self.bits.bytes().as_ptr().wrapping_add(group * n)
    }
}

/// Splits one row of a group. The same code for each level, compiled for it.
fn split(level: Level, row: &[f32], lane: usize, lanes: usize, group: &mut [u8]) {
    match level {
        // SAFETY: a level is only chosen where the processor has it.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Amx => unsafe { split_avx512(row, lane, lanes, group) },
        _ => split_row(row, lane, lanes, group),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn split_avx512(row: &[f32], lane: usize, lanes: usize, group: &mut [u8]) {
    split_row(row, lane, lanes, group);
}

#[inline(always)]
fn split_row(row: &[f32], lane: usize, lanes: usize, group: &mut [u8]) {
    let mut padded = [0.0; BLOCK];
    for (values, places) in row.chunks(BLOCK).zip(group.chunks_exact_mut(PIECES * lanes * TILE_ROW)) {
        let values = <&[f32; BLOCK]>::try_from(values).unwrap_or_else(|_| {
            padded[..values.len()].copy_from_slice(values);
            &padded
        });
        let mut pieces = [[0u16; BLOCK]; PIECES];
        for (k, value) in values.iter().enumerate() {
            let [first, second] = pieces_of(*value);
            pieces[0][k] = first;
            pieces[1][k] = second;
        }
        for (piece, places) in pieces.iter().zip(places.chunks_exact_mut(lanes * TILE_ROW)) {
            for (bits, place) in piece.iter().zip(places[lane * TILE_ROW..].as_chunks_mut().0) {
                *place = bits.to_le_bytes();
            }
        }
    }
}

/// Bits of both pieces.
#[inline(always)]
fn pieces_of(value: f32) -> [u16; PIECES] {
    const INFINITY: u32 = f32::INFINITY.to_bits();
    const LARGEST: u32 = 0x7f7f_0000;
    const UPPER: u32 = 0xffff_0000;
    let (bits, sign) = (value.to_bits() & 0x7fff_ffff, value.to_bits() & 0x8000_0000);
    let is_finite = bits < INFINITY;
    // A finite number has finite pieces, whose sum is finite.
    let is_large = is_finite && round(bits) > LARGEST;
    // A NaN does not lose its last bit.
    let nearest = if is_finite { LARGEST.min(round(bits)) } else { bits | u32::from(bits > INFINITY) << 22 };
    let first = (nearest | sign) & UPPER;
    // Exact: what is left has at most 16 bits.
    let rest = (value - f32::from_bits(first)).to_bits();
    let second = if is_large { rest & UPPER } else { round(rest) };
    [(first >> 16) as u16, if is_finite { (second >> 16) as u16 } else { 0 }]
}

/// To 16 bits, to nearest, ties to even, in place.
#[inline(always)]
fn round(bits: u32) -> u32 {
    bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000
}

#[cfg(test)]
mod tests {
    use super::{PIECES, Pieces, pieces_of};
    use crate::cpu::Level;

    fn values_of(value: f32) -> [f32; PIECES] {
        pieces_of(value).map(|bits| half::bf16::from_bits(bits).to_f32())
    }

    #[test]
    fn two_pieces_have_sixteen_bits_of_a_number() {
        let mut state = 1u64;
        for _ in 0..1_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f32::from_bits((state >> 32) as u32);
            let [first, second] = values_of(value);
            if !value.is_finite() {
                assert!(first == value || first.is_nan() && value.is_nan());
                assert_eq!(second, 0.0);
                continue;
            }
            // Half a unit of the sixteenth bit, twice that for the largest. What is left of tiny numbers is no bfloat16 any more.
            let (half, twice) = (2f64.powi(-17), if value.abs() < 3.38e38 { 1.0 } else { 2.0 });
            let bound = (f64::from(value).abs() * half * twice).max(2f64.powi(-134));
            let error = (f64::from(first) + f64::from(second) - f64::from(value)).abs();
            assert!(error <= bound, "{value:e} became {first:e} and {second:e}");
            assert!((first + second).is_finite());
            if value.abs() < 3.38e38 {
                assert_eq!(first.to_bits(), half::bf16::from_f32(value).to_f32().to_bits());
            }
        }
    }

    #[test]
    fn ends_of_the_range_have_pieces() {
        for (value, expected) in [
            (0.0, [0.0, 0.0]),
            (-0.0, [-0.0, 0.0]),
            (1.0, [1.0, 0.0]),
            (1.0 + 2f32.powi(-8), [1.0, 2f32.powi(-8)]),
            (f32::MAX, [3.389_531_4e38, 65_280.0 * 2f32.powi(104)]),
            (f32::MIN, [-3.389_531_4e38, -65_280.0 * 2f32.powi(104)]),
            (f32::INFINITY, [f32::INFINITY, 0.0]),
            (f32::NEG_INFINITY, [f32::NEG_INFINITY, 0.0]),
        ] {
            assert_eq!(values_of(value).map(f32::to_bits), expected.map(f32::to_bits), "{value:e}");
        }
        // NaN whose payload lies in the lower half only.
        assert!(values_of(f32::from_bits(0x7f80_0001))[0].is_nan());
        assert!(values_of(f32::from_bits(0xff80_0001))[0].is_nan());
        assert!(values_of(f32::from_bits(0xffff_ffff))[0].is_nan());
    }

    #[test]
    fn pieces_lie_where_tiles_are_loaded() {
        for (n_rows, lanes, n_cols) in [(1, 1, 7), (3, 3, 64), (20, 16, 33)] {
            let values: Vec<f32> = (0..n_rows * n_cols).map(|i| i as f32 * 1.001).collect();
            let pieces = Pieces::new(Level::Scalar, &values, n_cols, lanes);
            for row in 0..n_rows {
                for k in 0..n_cols.next_multiple_of(32) {
                    let value = if k < n_cols { values[row * n_cols + k] } else { 0.0 };
                    for (p, expected) in pieces_of(value).into_iter().enumerate() {
                        assert_eq!(pieces.piece(row, p, k).to_bits(), expected, "{row} {p} {k}");
                    }
                }
            }
        }
    }
}
