//! The truth for all kernels: what a product is, written as plainly as possible.
//!
//! In: a packed matrix, prepared rows. Out: for each output one `f32`, summed over blocks of 32 columns in ascending order:
//! `sum = fma(scale · step, Σ (code - zero) · a, sum)`, then, where blocks have minima, `sum = fma(minimum, step · Σ a, sum)`. The sums
//! of codes are exact integers. Weights that are not quantised: `sum = fma(weight, x, sum)`, column for column.

use super::layout::{BLOCK, Codes, LANES, Packing, Scales};
use super::matrix::Matrix;
use super::rows::Rows;
use crate::format::Format;

/// Outputs `16 g` to `16 g + 15` of one row.
pub(crate) fn product(matrix: &Matrix, g: usize, rows: &Rows, row: usize) -> [f32; LANES] {
    if matrix.is_quantised() {
        quantised(matrix, matrix.group(g), rows, row)
    } else {
        floats(matrix, matrix.group(g), rows, row)
    }
}

fn quantised(matrix: &Matrix, group: &[u8], rows: &Rows, row: usize) -> [f32; LANES] {
    let mut sums = [0.0f32; LANES];
    for b in 0..matrix.n_cols() / BLOCK {
        let block = Unpacked::new(matrix.format(), matrix.n_cols(), group, b);
        let (codes, step) = rows.block(row, b);
        for (lane, sum) in sums.iter_mut().enumerate() {
            // Where a block has one scale, its halves are summed before they are scaled.
            let n_columns = if block.has_halves { BLOCK / 2 } else { BLOCK };
            for first in (0..BLOCK).step_by(n_columns) {
                let dot: i32 = (first..first + n_columns)
                    .map(|k| (i32::from(block.codes[lane][k]) - i32::from(block.zero)) * i32::from(codes[k]))
                    .sum();
                *sum = (block.scales[first / 16][lane] * step).mul_add(dot as f32, *sum);
            }
            if block.has_minima {
                let total: i32 = codes.iter().copied().map(i32::from).sum();
                *sum = block.minima[lane].mul_add(step * total as f32, *sum);
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

/// Column `k` of row `lane` of a group that is not quantised.
pub(crate) fn float_weight(format: Format, group: &[u8], k: usize, lane: usize) -> f32 {
    let at = k * LANES + lane;
    if format == Format::F32 {
        f32::from_le_bytes([group[4 * at], group[4 * at + 1], group[4 * at + 2], group[4 * at + 3]])
    } else {
        let two = [group[2 * at], group[2 * at + 1]];
        if format == Format::F16 {
            half::f16::from_le_bytes(two).to_f32()
        } else {
            half::bf16::from_le_bytes(two).to_f32()
        }
    }
}

/// One block of 16 rows.
pub(crate) struct Unpacked {
    /// `(row, column)`.
    codes: [[u8; BLOCK]; LANES],
    /// Of the first and the last 16 columns; equal where `has_halves` is not set.
    scales: [[f32; LANES]; 2],
    minima: [f32; LANES],
    zero: u8,
    has_halves: bool,
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
            scales: [[0.0; LANES]; 2],
            minima: [0.0; LANES],
            zero: packing.zero,
            has_halves: packing.scales.has_halves(),
            has_minima: packing.scales.has_minima(),
        };
        for lane in 0..LANES {
            for k in 0..BLOCK {
                block.codes[lane][k] = code(packing.codes, codes, lane, k);
            }
            let [first, last, minimum] = factors(packing.scales, scales, lane, within);
            block.scales[0][lane] = first;
            block.scales[1][lane] = last;
            block.minima[lane] = minimum;
        }
        block
    }

    /// The weights of one row.
    pub(crate) fn decode(&self, lane: usize, out: &mut [f32]) {
        for (k, out) in out.iter_mut().enumerate() {
            let code = f32::from(self.codes[lane][k]) - f32::from(self.zero);
            let scaled = self.scales[k / 16][lane] * code;
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

/// Scales of the first and last 16 columns, minimum. Products of a half and a small integer are exact.
fn factors(kind: Scales, scales: &[u8], lane: usize, b: usize) -> [f32; 3] {
    let half = |at: usize| half::f16::from_le_bytes([scales[at], scales[at + 1]]).to_f32();
    let inner = |at: usize| scales[64 + b * 32 + at + lane];
    match kind {
        Scales::Half => [half(b * 32 + lane * 2), half(b * 32 + lane * 2), 0.0],
        Scales::HalfMin => {
            let scale = half(b * 64 + lane * 2);
            [scale, scale, half(b * 64 + 32 + lane * 2)]
        }
        Scales::Super => {
            let scale = half(lane * 2) * f32::from(inner(0));
            [scale, scale, -(half(32 + lane * 2) * f32::from(inner(16)))]
        }
        Scales::SuperHalves => {
            let scale = half(lane * 2);
            [scale * f32::from(inner(0).cast_signed()), scale * f32::from(inner(16).cast_signed()), 0.0]
        }
        Scales::Single | Scales::SingleMin | Scales::SingleHalves => {
            unreachable!("no format is packed with unpacked scales")
        }
    }
}
