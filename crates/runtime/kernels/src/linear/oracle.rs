//! The truth for all kernels: what a product is, written as plainly as possible.
//!
//! In: a packed matrix, prepared rows. Out: for each output one `f32`, summed in ascending order over blocks of 32 columns:
//! `sum = fma(scale · step, Σ (code - zero) · a, sum)`, then, where blocks have minima, `sum = fma(minimum, step · Σ a, sum)`.
//! K formats have the minima of 4 blocks first, then once for all 128 columns
//! `sum = fma(scale · step, Σ factor · (code - zero) · a, sum)`. The sums of codes are exact integers. Weights that are not quantised:
//! `sum = fma(weight, x, sum)`, column for column; but those of BF16 on the level `Amx` are summed as its tiles do it.

use super::layout::{BLOCK, Codes, LANES, Packing, SPAN, Scales};
use super::matrix::Matrix;
use super::pieces::Pieces;
use super::rows::Rows;
use crate::format::Format;

/// Outputs `16 g` to `16 g + 15` of one row.
pub(crate) fn product(matrix: &Matrix, g: usize, rows: &Rows, row: usize) -> [f32; LANES] {
    if matrix.is_quantised() {
        quantised(matrix, matrix.group(g), rows, row)
    } else if let Some(pieces) = rows.pieces().filter(|_| matrix.format() == Format::BF16) {
        tiles(matrix, matrix.group(g), pieces, row)
    } else {
        floats(matrix, matrix.group(g), rows, row)
    }
}

fn quantised(matrix: &Matrix, group: &[u8], rows: &Rows, row: usize) -> [f32; LANES] {
    let span = Packing::of(matrix.format()).map_or(1, |packing| packing.scales.span());
    let coded = rows.coded(span).expect("products ask for rows of the matrix's kind");
    let mut sums = [0.0f32; LANES];
    for first in (0..matrix.n_cols() / BLOCK).step_by(span) {
        let blocks: Vec<Unpacked> = (first..first + span)
            .map(|b| Unpacked::new(matrix.format(), matrix.n_cols(), group, b))
            .collect();
        for (lane, sum) in sums.iter_mut().enumerate() {
            let (mut whole, mut step) = (0, 0.0);
            let mut minima = [0.0; SPAN];
            for (j, block) in blocks.iter().enumerate() {
                let codes;
                (codes, step) = coded.block(row, first + j);
                for (k, code) in codes.iter().enumerate() {
                    let weight = i32::from(block.codes[lane][k]) - i32::from(block.zero);
                    whole += block.factors[k / 16][lane] * weight * i32::from(*code);
                }
                minima[j] = step * codes.iter().copied().map(i32::from).sum::<i32>() as f32;
            }
            let add_minima = |sum: &mut f32| {
                for (block, total) in blocks.iter().zip(minima).filter(|(block, _)| block.has_minima) {
                    *sum = block.minima[lane].mul_add(total, *sum);
                }
            };
            if span > 1 {
                add_minima(sum);
            }
            *sum = (blocks[0].scales[lane] * step).mul_add(whole as f32, *sum);
            if span == 1 {
                add_minima(sum);
            }
        }
    }
    sums
}

fn floats(matrix: &Matrix, group: &[u8], rows: &Rows, row: usize) -> [f32; LANES] {
    let mut sums = [0.0f32; LANES];
    for k in 0..matrix.n_cols() {
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum = float_weight(matrix.format(), group, k, lane).mul_add(rows.value(row, k), *sum);
        }
    }
    sums
}

/// `tdpbf16ps`: even and odd columns of 32 have sums of their own, from 0 on, which are added to each other and then to the sum so
/// far. Each piece of the activations has such a sum; that of the first stands alone where it is no finite number, for an infinite
/// weight times a second piece of 0 is none.
fn tiles(matrix: &Matrix, group: &[u8], pieces: &Pieces, row: usize) -> [f32; LANES] {
    std::array::from_fn(|lane| {
        let [first, second] = std::array::from_fn(|p| {
            let mut sum = 0.0f32;
            for b in 0..matrix.n_cols().div_ceil(BLOCK) {
                let mut halves = [0.0f32; 2];
                for k in b * BLOCK..(b + 1) * BLOCK {
                    let weight = flushed(float_weight(Format::BF16, group, k, lane));
                    let value = flushed(pieces.piece(row, p, k).to_f32());
                    halves[k % 2] = flushed_sum(weight, value, halves[k % 2]);
                }
                sum = flushed(sum + flushed(halves[0] + halves[1]));
            }
            sum
        });
        if first.is_finite() { first + second } else { first }
    })
}

/// Tiles know no subnormal numbers.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

/// `a · b + c`, rounded once, and 0 where it is subnormal when it has been rounded as if the exponent had no end: so what is rounded
/// up to the smallest normal number may be 0.
fn flushed_sum(a: f32, b: f32, c: f32) -> f32 {
    let sum = a.mul_add(b, c);
    // The product of two bfloat16 is exact, and so near to the smallest number the sum is, too.
    let exact = f64::from(a) * f64::from(b) + f64::from(c);
    let is_tiny = exact.abs() < f64::from(f32::MIN_POSITIVE) - 2f64.powi(-151);
    if is_tiny && sum.abs() == f32::MIN_POSITIVE { 0.0f32.copysign(sum) } else { flushed(sum) }
}

/// Column `k` of row `lane` of a group that is not quantised.
pub(crate) fn float_weight(format: Format, group: &[u8], k: usize, lane: usize) -> f32 {
    let at = k * LANES + lane;
    let two = |at: usize| [group[2 * at], group[2 * at + 1]];
    match format {
        Format::F32 => {
            f32::from_le_bytes([group[4 * at], group[4 * at + 1], group[4 * at + 2], group[4 * at + 3]])
        }
        Format::F16 => half::f16::from_le_bytes(two(at)).to_f32(),
        _ => half::bf16::from_le_bytes(two((k / 2 * LANES + lane) * 2 + k % 2)).to_f32(),
    }
}

/// One block of 16 rows.
pub(crate) struct Unpacked {
    /// `(row, column)`.
    codes: [[u8; BLOCK]; LANES],
    scales: [f32; LANES],
    /// Of the scale, for the first and the last 16 columns; 1 in formats that have none.
    factors: [[i32; LANES]; 2],
    minima: [f32; LANES],
    zero: u8,
    has_minima: bool,
}

impl Unpacked {
    /// Block `b` of a group.
    pub(crate) fn new(format: Format, n_cols: usize, group: &[u8], b: usize) -> Self {
        let packing = Packing::of(format).expect("asked only of quantised matrices");
        let n_cell = packing.scales.cell();
        let (first, within) = (b / n_cell * n_cell, b % n_cell);
        let n_blocks = n_cell.min(n_cols / BLOCK - first);
        let cell = &group[packing.cell_start(b)..][..packing.cell_bytes(n_blocks)];
        let (scales, codes) = cell.split_at(packing.scales.bytes(n_blocks));
        let codes = &codes[within * packing.codes.bytes()..][..packing.codes.bytes()];
        let mut block = Self {
            codes: [[0; BLOCK]; LANES],
            scales: [0.0; LANES],
            factors: [[1; LANES]; 2],
            minima: [0.0; LANES],
            zero: packing.zero,
            has_minima: packing.scales.has_minima(),
        };
        for lane in 0..LANES {
            for k in 0..BLOCK {
                block.codes[lane][k] = code(packing.codes, codes, lane, k);
            }
            let (scale, [first, last], minimum) = factors(packing.scales, scales, lane, within);
            block.scales[lane] = scale;
            block.factors[0][lane] = first;
            block.factors[1][lane] = last;
            block.minima[lane] = minimum;
        }
        block
    }

    /// The weights of one row.
    pub(crate) fn decode(&self, lane: usize, out: &mut [f32]) {
        for (k, out) in out.iter_mut().enumerate() {
            let code = f32::from(self.codes[lane][k]) - f32::from(self.zero);
            // Products of a half and a small integer are exact.
            let scaled = self.scales[lane] * self.factors[k / 16][lane] as f32 * code;
            *out = if self.has_minima { scaled + self.minima[lane] } else { scaled };
        }
    }
}

/// Column `k` of a row of a block.
fn code(kind: Codes, codes: &[u8], lane: usize, k: usize) -> u8 {
    let (vector, byte) = (k / 4, lane * 4 + k % 4);
    if kind == Codes::Eight {
        return codes[vector * 64 + byte];
    }
    let low = codes[vector % 4 * 64 + byte] >> (vector / 4 * 4) & 15;
    let high = match kind {
        Codes::Four | Codes::Eight => 0,
        Codes::Five => codes[256 + vector * 8 + byte / 8] >> (byte % 8) & 1,
        Codes::Six => codes[256 + vector / 4 * 64 + byte] >> (vector % 4 * 2) & 3,
    };
    low | high << 4
}

/// Scale, its factors for the first and last 16 columns, minimum. Products of a half and a small integer are exact.
fn factors(kind: Scales, scales: &[u8], lane: usize, b: usize) -> (f32, [i32; 2], f32) {
    let half = |at: usize| half::f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32();
    let inner = |at: usize| scales[64 + b * 32 + at + lane];
    match kind {
        Scales::Half => (half(b * 32 + lane * 2), [1; 2], 0.0),
        Scales::HalfMin => (half(b * 64 + lane * 2), [1; 2], half(b * 64 + 32 + lane * 2)),
        Scales::Super => {
            let minimum = -(half(32 + lane * 2) * f32::from(inner(16)));
            (half(lane * 2), [i32::from(inner(0)); 2], minimum)
        }
        Scales::SuperHalves => {
            let factors = [0, 16].map(|at| i32::from(inner(at).cast_signed()));
            (half(lane * 2), factors, 0.0)
        }
        Scales::Single | Scales::SingleMin | Scales::SpanMin | Scales::SpanHalves => {
            unreachable!("no format is packed with unpacked scales")
        }
    }
}
