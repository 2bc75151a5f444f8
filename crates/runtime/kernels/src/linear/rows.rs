//! Rows of activations, as products read them: 8-bit codes with a step for each 32 values, or each 128 where the weights are of
//! a K format; up to 16 rows side by side.
//!
//! In: rows of `f32`, and what formats they will meet. Out: for each block or span of values `step = largest / 127` and
//! `code = value · (127 / largest)`, rounded to nearest, ties to even. With a value that is not finite the step is NaN, so that what
//! it touches is NaN. A row gets the same codes alone and among others.

#![expect(
    unsafe_code,
    reason = "threads fill disjoint parts; code compiled for a level runs where it is there"
)]

use std::sync::OnceLock;

use super::layout::{BLOCK, LANES, Packing, SPAN};
use super::memory::{Memory, Parts};
use super::pieces::{Pieces, takes_pieces};
use crate::cpu::{Level, level};
use crate::format::Format;

/// Rows that are few enough to be multiplied while weights are read; more lie in groups of 16.
pub(crate) const FEW: usize = 4;
/// Values from which on threads are worth it.
const PARALLEL: usize = 1 << 16;

/// Rows of activations, prepared once for all matrices they are multiplied with.
pub struct Rows {
    n_rows: usize,
    n_cols: usize,
    /// Rows side by side; the last group is filled with zeros.
    lanes: usize,
    /// With a step for each block; where a matrix wants that.
    fine: Option<Coded>,
    /// With a step for each span.
    coarse: Option<Coded>,
    /// The rows as they came, `(group, block, lane, 32)`.
    values: Option<Vec<f32>>,
    /// The rows as tiles of BF16 take them.
    pieces: Option<Pieces>,
    /// Of the kernels that multiply them.
    level: Level,
}

/// All rows as codes.
pub(crate) struct Coded {
    /// Blocks with one step: 1 or [`SPAN`].
    span: usize,
    lanes: usize,
    /// Whole spans, the last filled with zeros.
    n_blocks: usize,
    /// Signed bytes, `(group, block, lane, 32)`; of spans `(group, pair of blocks, lane, 64)`, as tiles take them.
    codes: Memory,
    /// `(group, span, lane)`.
    steps: Vec<f32>,
    /// `step · Σ code`, `(group, block, lane)`.
    totals: Vec<f32>,
    /// `Σ code` of each 16 columns, `(group, block, 2, lane)`.
    sums: Vec<i32>,
    /// For zero points 8, 16, 128 `-zero · Σ code`, `(group, block, lane)`; for 32 `(group, block, 2, lane)`.
    biases: [OnceLock<Vec<i32>>; 4],
}

impl Rows {
    /// From rows of `n_cols` values, one behind the other, for products with matrices of these formats, on the level that is
    /// [`level`] now.
    ///
    /// # Panics
    /// When `values` are no whole number of rows.
    pub fn prepare(values: &[f32], n_cols: usize, formats: impl IntoIterator<Item = Format>) -> Self {
        Self::prepare_at(level(), values, n_cols, formats)
    }

    /// The same for a level that the processor has.
    pub(crate) fn prepare_at(
        level: Level,
        values: &[f32],
        n_cols: usize,
        formats: impl IntoIterator<Item = Format>,
    ) -> Self {
        assert!(values.len().is_multiple_of(n_cols), "{} values are no rows of {n_cols}", values.len());
        let n_rows = values.len().checked_div(n_cols).unwrap_or(0);
        let lanes = if n_rows <= FEW { n_rows.max(1) } else { LANES };
        let mut rows =
            Self { n_rows, n_cols, lanes, fine: None, coarse: None, values: None, pieces: None, level };
        for format in formats {
            if rows.suit(format) {
                continue;
            }
            match Packing::of(format).map(|packing| packing.scales.span()) {
                None if takes_pieces(level, format) => {
                    rows.pieces = Some(Pieces::new(level, values, n_cols, lanes));
                }
                None => rows.values = Some(rows.side_by_side(values)),
                Some(1) => rows.fine = Some(Coded::new::<1>(level, values, n_cols, lanes)),
                Some(_) => rows.coarse = Some(Coded::new::<SPAN>(level, values, n_cols, lanes)),
            }
        }
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

    /// Whether they were prepared for matrices of this format.
    pub fn suit(&self, format: Format) -> bool {
        match Packing::of(format) {
            None if takes_pieces(self.level, format) => self.pieces.is_some(),
            None => self.values.is_some(),
            Some(packing) => self.coded(packing.scales.span()).is_some(),
        }
    }

    /// Of the kernels that they were prepared for.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// What tiles of BF16 take; none where no such matrix was named, or on another level.
    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        self.pieces.as_ref()
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    /// Blocks of values.
    pub(crate) fn n_blocks(&self) -> usize {
        self.n_cols.div_ceil(BLOCK)
    }

    pub(crate) fn n_groups(&self) -> usize {
        self.n_rows.div_ceil(self.lanes)
    }

    /// Codes with one step for so many blocks, where rows were prepared for them.
    pub(crate) fn coded(&self, span: usize) -> Option<&Coded> {
        if span == 1 { self.fine.as_ref() } else { self.coarse.as_ref() }
    }

    /// Column `k` of a row, as it came.
    pub(crate) fn value(&self, row: usize, k: usize) -> f32 {
        let place = (row / self.lanes * self.n_blocks() + k / BLOCK) * self.lanes + row % self.lanes;
        self.values()[place * BLOCK + k % BLOCK]
    }

    /// `(group, block, lane, 32)`
    pub(crate) fn values(&self) -> &[f32] {
        self.values.as_deref().unwrap_or_default()
    }

    fn side_by_side(&self, values: &[f32]) -> Vec<f32> {
        let (n_blocks, lanes) = (self.n_blocks(), self.lanes);
        let n = n_blocks * lanes * BLOCK;
        let mut copies = vec![0.0; self.n_groups() * n];
        let parts = Parts::new(&mut copies);
        each_group(self.n_groups(), values.len(), |g| {
            // SAFETY: each group is filled once.
            let copy = unsafe { parts.part(g * n, n) };
            let rows = values[g * lanes * self.n_cols..].chunks_exact(self.n_cols.max(1));
            for (lane, row) in rows.take(lanes).enumerate() {
                for (b, from) in row.chunks(BLOCK).enumerate() {
                    copy[(b * lanes + lane) * BLOCK..][..from.len()].copy_from_slice(from);
                }
            }
        });
        copies
    }
}

/// On the pool where values are many.
pub(super) fn each_group(n_groups: usize, n_values: usize, fill: impl Fn(usize) + Sync) {
    if n_values < PARALLEL {
        (0..n_groups).for_each(fill);
    } else {
        overdrive_pool::run(n_groups as i64, &|range| range.for_each(|g| fill(g as usize)))
            .expect("bounds follow from the shapes checked above");
    }
}

impl Coded {
    fn new<const SPAN: usize>(level: Level, values: &[f32], n_cols: usize, lanes: usize) -> Self {
        let n_rows = values.len().checked_div(n_cols).unwrap_or(0);
        let n_groups = n_rows.div_ceil(lanes);
        let n_blocks = n_cols.div_ceil(SPAN * BLOCK) * SPAN;
        let n_places = n_groups * n_blocks * lanes;
        let mut coded = Self {
            span: SPAN,
            lanes,
            n_blocks,
            codes: Memory::scratch(n_places * BLOCK),
            steps: vec![0.0; n_places / SPAN],
            totals: vec![0.0; n_places],
            sums: vec![0; 2 * n_places],
            biases: Default::default(),
        };
        let codes = Parts::new(coded.codes.bytes_mut());
        let steps = Parts::new(&mut coded.steps);
        let totals = Parts::new(&mut coded.totals);
        let sums = Parts::new(&mut coded.sums);
        each_group(n_groups, values.len(), |g| {
            let n = n_blocks * lanes;
            // SAFETY: each group is filled once, and parts of groups are disjoint.
            let mut places = unsafe {
                Places::<SPAN> {
                    codes: codes.part(g * n * BLOCK, n * BLOCK),
                    steps: steps.part(g * n / SPAN, n / SPAN),
                    totals: totals.part(g * n, n),
                    sums: sums.part(g * n * 2, n * 2),
                }
            };
            for lane in 0..lanes.min(n_rows - g * lanes) {
                let row = &values[(g * lanes + lane) * n_cols..][..n_cols];
                places.quantise(level, row, lane, lanes);
            }
        });
        coded
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
        let (group, lane) = (row / self.lanes, row % self.lanes);
        let first = group * self.n_blocks;
        let at = first * self.lanes * BLOCK + code_place(self.span, self.lanes, b, lane);
        let codes = self.codes.signed()[at..].first_chunk().expect("each block has its codes");
        (codes, self.steps[(first + b) / self.span * self.lanes + lane])
    }

    /// Addresses of what lies at a block of a group, a whole number of spans: codes, steps, totals; the place of its sums.
    pub(crate) fn place(&self, group: usize, block: usize) -> (*const i8, *const f32, *const f32, usize) {
        let place = (group * self.n_blocks + block) * self.lanes;
        (
            self.codes.signed().as_ptr().wrapping_add(place * BLOCK),
            self.steps.as_ptr().wrapping_add(place / self.span),
            self.totals.as_ptr().wrapping_add(place),
            place,
        )
    }
}

/// Where in a group the codes of a block of a row lie.
#[inline(always)]
pub(crate) const fn code_place(span: usize, lanes: usize, block: usize, lane: usize) -> usize {
    let side_by_side = code_run(span) / BLOCK;
    (block / side_by_side * lanes + lane) * code_run(span) + block % side_by_side * BLOCK
}

/// Bytes of codes of a row that lie together.
pub(crate) const fn code_run(span: usize) -> usize {
    if span == 1 { BLOCK } else { 2 * BLOCK }
}

/// The parts of one group.
struct Places<'a, const SPAN: usize> {
    codes: &'a mut [u8],
    steps: &'a mut [f32],
    totals: &'a mut [f32],
    sums: &'a mut [i32],
}

impl<const SPAN: usize> Places<'_, SPAN> {
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
        let mut padded = [[0.0; BLOCK]; SPAN];
        for (s, span) in row.chunks(SPAN * BLOCK).enumerate() {
            let blocks = <&[[f32; BLOCK]; SPAN]>::try_from(span.as_chunks().0).unwrap_or_else(|_| {
                padded.as_flattened_mut()[..span.len()].copy_from_slice(span);
                &padded
            });
            let (step, inverse) = step(blocks);
            self.steps[s * lanes + lane] = step;
            for (j, block) in blocks.iter().enumerate() {
                let b = s * SPAN + j;
                let codes = &mut self.codes[code_place(SPAN, lanes, b, lane)..][..BLOCK];
                let (first, last) = quantise_block(block, inverse, codes);
                self.totals[b * lanes + lane] = step * (first + last) as f32;
                self.sums[2 * b * lanes + lane] = first;
                self.sums[(2 * b + 1) * lanes + lane] = last;
            }
        }
    }
}

/// The step of some blocks, and what values are multiplied by; none where they count as zeros.
#[inline(always)]
fn step(blocks: &[[f32; BLOCK]]) -> (f32, Option<f32>) {
    // Bits of numbers without sign are ordered as the numbers; infinity and NaN lie above.
    let mut largest = 0;
    for value in blocks.as_flattened() {
        largest = u32::max(largest, value.to_bits() & 0x7fff_ffff);
    }
    let largest = f32::from_bits(largest);
    let inverse = 127.0 / largest;
    match (largest.is_finite(), inverse.is_finite()) {
        (true, true) => (largest / 127.0, Some(inverse)),
        // Numbers so small that their inverse is none are as good as zeros.
        (true, false) => (0.0, None),
        (false, _) => (f32::NAN, None),
    }
}

/// Gives the sums of the first and last 16 codes.
#[inline(always)]
fn quantise_block(block: &[f32; BLOCK], inverse: Option<f32>, codes: &mut [u8]) -> (i32, i32) {
    let Some(inverse) = inverse else {
        codes.fill(0);
        return (0, 0);
    };
    let mut rounded = [0i32; BLOCK];
    for (rounded, value) in rounded.iter_mut().zip(block) {
        // Cannot be out of range: at most 127 and a rounding error.
        *rounded = round(value * inverse);
    }
    for (code, rounded) in codes.iter_mut().zip(&rounded) {
        *code = *rounded as u8;
    }
    (rounded[..16].iter().sum(), rounded[16..].iter().sum())
}

/// To nearest, ties to even, for numbers up to 2^22: the sum has no bits behind the point.
#[inline(always)]
fn round(value: f32) -> i32 {
    const SHIFT: f32 = 12_582_912.0;
    (value + SHIFT).to_bits() as i32 - SHIFT.to_bits() as i32
}
