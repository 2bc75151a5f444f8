//! Rows of activations, as products read them: 8-bit codes with a step for each 32 values, up to 16 rows side by side.
//!
//! In: rows of `f32`. Out: for each block of 32 values `step = largest / 127` and `code = value · (127 / largest)`, rounded to nearest,
//! ties to even. A block with a value that is not finite has the step NaN, so that what it touches is NaN. A row gets the
//! same codes alone and among others.

#![expect(
    unsafe_code,
    reason = "threads fill disjoint parts; code compiled for a level runs where it is there"
)]

use std::sync::OnceLock;

use super::layout::{BLOCK, LANES};
use super::memory::{Memory, Parts};
use crate::cpu::{Level, level};

/// Rows that are few enough to be multiplied while weights are read; more lie in groups of 16.
pub(crate) const FEW: usize = 4;
/// Values from which on threads are worth it.
const PARALLEL: usize = 1 << 16;

/// Rows of activations, prepared once for all matrices they are multiplied with.
pub struct Rows {
    n_rows: usize,
    n_cols: usize,
    /// Of 32 columns, the last filled with zeros.
    n_blocks: usize,
    /// Rows side by side; the last group is filled with zeros.
    lanes: usize,
    /// `(group, block, lane, 32)`, signed bytes.
    codes: Memory,
    /// `(group, block, lane)`.
    steps: Vec<f32>,
    /// `step · Σ code`, `(group, block, lane)`.
    totals: Vec<f32>,
    /// `Σ code` of each 16 columns, `(group, block, 2, lane)`.
    sums: Vec<i32>,
    /// For zero points 8, 16, 128 `-zero · Σ code`, `(group, block, lane)`; for 32 `(group, block, 2, lane)`.
    biases: [OnceLock<Vec<i32>>; 4],
    /// The rows as they came, `(group, block, lane, 32)`; empty where no matrix wants them.
    values: Vec<f32>,
}

impl Rows {
    /// From rows of `n_cols` values, one behind the other.
    ///
    /// # Panics
    /// When `values` are no whole number of rows.
    pub fn new(values: &[f32], n_cols: usize) -> Self {
        Self::with(values, n_cols, true)
    }

    /// The same for quantised matrices only ([`super::Matrix::is_quantised`]), for half the memory.
    ///
    /// # Panics
    /// As [`Rows::new`].
    pub fn quantised(values: &[f32], n_cols: usize) -> Self {
        Self::with(values, n_cols, false)
    }

    fn with(values: &[f32], n_cols: usize, keeps_values: bool) -> Self {
        assert!(values.len().is_multiple_of(n_cols), "{} values are no rows of {n_cols}", values.len());
        let n_rows = values.len().checked_div(n_cols).unwrap_or(0);
        let lanes = if n_rows <= FEW { n_rows.max(1) } else { LANES };
        let n_blocks = n_cols.div_ceil(BLOCK);
        let n_places = n_rows.div_ceil(lanes) * n_blocks * lanes;
        let mut rows = Self {
            n_rows,
            n_cols,
            n_blocks,
            lanes,
            codes: Memory::scratch(n_places * BLOCK),
            steps: vec![0.0; n_places],
            totals: vec![0.0; n_places],
            sums: vec![0; 2 * n_places],
            biases: Default::default(),
            values: vec![0.0; if keeps_values { n_places * BLOCK } else { 0 }],
        };
        rows.fill(values, keeps_values);
        rows
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.n_rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n_rows == 0
    }

    /// Values of a row.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    fn fill(&mut self, values: &[f32], keeps_values: bool) {
        let (n_rows, n_cols, n_blocks, lanes) = (self.n_rows, self.n_cols, self.n_blocks, self.lanes);
        if n_rows == 0 {
            return;
        }
        let codes = Parts::new(self.codes.bytes_mut());
        let steps = Parts::new(&mut self.steps);
        let totals = Parts::new(&mut self.totals);
        let sums = Parts::new(&mut self.sums);
        let copies = Parts::new(&mut self.values);
        let level = level();
        let fill_group = |g: usize| {
            let n = n_blocks * lanes;
            // SAFETY: each group is filled once, and parts of groups are disjoint.
            let (mut places, copy) = unsafe {
                let places = Places {
                    codes: codes.part(g * n * BLOCK, n * BLOCK),
                    steps: steps.part(g * n, n),
                    totals: totals.part(g * n, n),
                    sums: sums.part(g * n * 2, n * 2),
                };
                (places, if keeps_values { copies.part(g * n * BLOCK, n * BLOCK) } else { &mut [] })
            };
            for lane in 0..lanes.min(n_rows - g * lanes) {
                let row = &values[(g * lanes + lane) * n_cols..][..n_cols];
                places.quantise(level, row, lane, lanes);
                if keeps_values {
                    for (b, from) in row.chunks(BLOCK).enumerate() {
                        copy[(b * lanes + lane) * BLOCK..][..from.len()].copy_from_slice(from);
                    }
                }
            }
        };
        let n_groups = n_rows.div_ceil(lanes);
        if values.len() < PARALLEL {
            (0..n_groups).for_each(fill_group);
        } else {
            overdrive_pool::run(n_groups as i64, &|range| range.for_each(|g| fill_group(g as usize)))
                .expect("bounds follow from the shapes checked above");
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    pub(crate) fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.n_rows.div_ceil(self.lanes)
    }

    pub(crate) fn has_values(&self) -> bool {
        !self.values.is_empty() || self.n_rows == 0
    }

    /// What the codes of a matrix with this zero point are too large by, made at the first call.
    pub(crate) fn bias(&self, zero: u8) -> &[i32] {
        let (place, halves) = match zero {
            0 => return &[],
            8 => (0, false),
            16 => (1, false),
            128 => (2, false),
            _ => (3, true),
        };
        self.biases[place].get_or_init(|| {
            let zero = i32::from(zero);
            if halves {
                return self.sums.iter().map(|sum| -zero * sum).collect();
            }
            let pairs = self.sums.chunks_exact(2 * self.lanes);
            pairs
                .flat_map(|pair| {
                    let (first, last) = pair.split_at(self.lanes);
                    first.iter().zip(last).map(move |(first, last)| -zero * (first + last))
                })
                .collect()
        })
    }

    /// Codes and step of block `b` of a row.
    pub(crate) fn block(&self, row: usize, b: usize) -> (&[i8; BLOCK], f32) {
        let place = self.place(row, b);
        (&self.code_blocks()[place], self.steps[place])
    }

    /// Column `k` of a row, as it came.
    pub(crate) fn value(&self, row: usize, k: usize) -> f32 {
        self.values[self.place(row, k / BLOCK) * BLOCK + k % BLOCK]
    }

    fn place(&self, row: usize, b: usize) -> usize {
        (row / self.lanes * self.n_blocks + b) * self.lanes + row % self.lanes
    }

    /// All codes, block for block.
    pub(crate) fn code_blocks(&self) -> &[[i8; BLOCK]] {
        self.codes.signed().as_chunks().0
    }

    pub(crate) fn steps(&self) -> &[f32] {
        &self.steps
    }

    pub(crate) fn totals(&self) -> &[f32] {
        &self.totals
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }
}

/// The parts of one group.
struct Places<'a> {
    codes: &'a mut [u8],
    steps: &'a mut [f32],
    totals: &'a mut [f32],
    sums: &'a mut [i32],
}

impl Places<'_> {
    /// The same code for each level, compiled for it.
    fn quantise(&mut self, level: Level, row: &[f32], lane: usize, lanes: usize) {
        match level {
            // SAFETY: a level is only chosen where the processor has it.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Amx => unsafe { self.quantise_avx512(row, lane, lanes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { self.quantise_avx2(row, lane, lanes) },
            _ => self.quantise_row(row, lane, lanes),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn quantise_avx512(&mut self, row: &[f32], lane: usize, lanes: usize) {
        self.quantise_row(row, lane, lanes);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn quantise_avx2(&mut self, row: &[f32], lane: usize, lanes: usize) {
        self.quantise_row(row, lane, lanes);
    }

    #[inline(always)]
    fn quantise_row(&mut self, row: &[f32], lane: usize, lanes: usize) {
        let mut padded = [0.0; BLOCK];
        for (b, block) in row.chunks(BLOCK).enumerate() {
            let block = <&[f32; BLOCK]>::try_from(block).unwrap_or_else(|_| {
                padded[..block.len()].copy_from_slice(block);
                &padded
            });
            let place = b * lanes + lane;
            let codes = &mut self.codes[place * BLOCK..][..BLOCK];
            let (step, first, last) = quantise_block(block, codes);
            self.steps[place] = step;
            self.totals[place] = step * (first + last) as f32;
            self.sums[2 * b * lanes + lane] = first;
            self.sums[(2 * b + 1) * lanes + lane] = last;
        }
    }
}

/// Gives the step and the sums of the first and last 16 codes.
#[inline(always)]
fn quantise_block(block: &[f32; BLOCK], codes: &mut [u8]) -> (f32, i32, i32) {
    // Bits of numbers without sign are ordered as the numbers; infinity and NaN lie above.
    let mut largest = 0;
    for value in block {
        largest = u32::max(largest, value.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    let inverse = 127.0 / largest;
    if !largest.is_finite() || !inverse.is_finite() {
        codes.fill(0);
        // Numbers so small that their inverse is none are as good as zeros.
        return (if largest.is_finite() { 0.0 } else { f32::NAN }, 0, 0);
    }
    let mut rounded = [0i32; BLOCK];
    for (rounded, value) in rounded.iter_mut().zip(block) {
        // Cannot be out of range: at most 127 and a rounding error.
        *rounded = round(value * inverse);
    }
    for (code, rounded) in codes.iter_mut().zip(&rounded) {
        *code = *rounded as u8;
    }
    (largest / 127.0, rounded[..16].iter().sum(), rounded[16..].iter().sum())
}

/// To nearest, ties to even, for numbers up to 2^22: the sum has no bits behind the point.
#[inline(always)]
fn round(value: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}
