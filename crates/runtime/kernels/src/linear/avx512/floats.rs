//! Products with weights that are not quantised, on processors with AVX-512: one fused multiply-add for each column.
//!
//! In: a product and its part. Out: its outputs. Several groups of 16 outputs are summed at once, because each sum waits for
//! its last addition.

#![expect(unsafe_code, reason = "vector instructions and addresses")]

use std::arch::x86_64::{
    __m512, _mm256_loadu_si256, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32,
};
use std::ops::Range;

use super::store;
use crate::format::Format;
use crate::linear::Product;
use crate::linear::layout::BLOCK;
use crate::linear::rows::FEW;

/// Computes outputs of groups of the matrix for groups of rows.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL; no other thread computes these outputs.
pub(super) unsafe fn compute(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: as the caller promises.
    unsafe {
        match product.matrix.format() {
            Format::F16 => each::<Halves>(product, groups, row_groups),
            Format::BF16 => each::<Brains>(product, groups, row_groups),
            _ => each::<Singles>(product, groups, row_groups),
        }
    }
}

/// How one column of 16 rows is loaded.
trait Load {
    const BYTES: usize;
    /// # Safety
    /// AVX-512; so many bytes.
    unsafe fn load(column: *const u8) -> __m512;
}

struct Singles;
struct Halves;
struct Brains;

impl Load for Singles {
    const BYTES: usize = 64;
    #[inline(always)]
    unsafe fn load(column: *const u8) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_loadu_ps(column.cast()) }
    }
}

impl Load for Halves {
    const BYTES: usize = 32;
    #[inline(always)]
    unsafe fn load(column: *const u8) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(column.cast())) }
    }
}

impl Load for Brains {
    const BYTES: usize = 32;
    #[inline(always)]
    unsafe fn load(column: *const u8) -> __m512 {
        // SAFETY: as the caller promises.
        unsafe {
            let upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256(column.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(upper))
        }
    }
}

/// # Safety
/// As `compute`; the matrix holds what `W` loads.
unsafe fn each<W: Load>(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: as the caller promises.
    unsafe {
        match product.rows.lanes() {
            1 => cut::<W, 8, 1>(product, groups, row_groups),
            2 => cut::<W, 4, 2>(product, groups, row_groups),
            3..=FEW => cut::<W, 4, FEW>(product, groups, row_groups),
            _ => cut::<W, 2, 8>(product, groups, row_groups),
        }
    }
}

/// `G` groups and `T` rows at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")]
unsafe fn cut<W: Load, const G: usize, const T: usize>(
    product: &Product<'_>,
    groups: Range<usize>,
    row_groups: Range<usize>,
) {
    let mut g = groups.start;
    while g < groups.end {
        let at_once = if groups.end - g >= G { G } else { 1 };
        for row_group in row_groups.clone() {
            for first in (0..product.target(g, row_group).n_rows).step_by(T) {
                // SAFETY: the groups and rows are there.
                unsafe {
                    if at_once == G {
                        sum::<W, G, T>(product, g, row_group, first);
                    } else {
                        sum::<W, 1, T>(product, g, row_group, first);
                    }
                }
            }
        }
        g += at_once;
    }
}

/// Rows from `first` on of a group. Places behind the last row are computed from the last and not stored.
///
/// # Safety
/// AVX-512; `G` groups from `g` on, and the group of rows.
#[inline(always)]
unsafe fn sum<W: Load, const G: usize, const T: usize>(
    product: &Product<'_>,
    g: usize,
    row_group: usize,
    first: usize,
) {
    let lanes = product.rows.lanes();
    let n_cols = product.matrix.n_cols();
    let start = row_group * product.rows.n_blocks() * lanes;
    // SAFETY: columns lie inside their group, values inside the rows.
    unsafe {
        let columns: [*const u8; G] = std::array::from_fn(|i| product.matrix.group(g + i).as_ptr());
        let mut sums = [[_mm512_setzero_ps(); T]; G];
        for b in 0..product.rows.n_blocks() {
            let values: [*const f32; T] = std::array::from_fn(|t| {
                let place = start + b * lanes + (first + t).min(lanes - 1);
                product.rows.values().as_ptr().add(place * BLOCK)
            });
            for k in 0..BLOCK.min(n_cols - b * BLOCK) {
                let weights: [__m512; G] =
                    std::array::from_fn(|i| W::load(columns[i].add((b * BLOCK + k) * W::BYTES)));
                for t in 0..T {
                    let value = _mm512_set1_ps(*values[t].add(k));
                    for i in 0..G {
                        sums[i][t] = _mm512_fmadd_ps(weights[i], value, sums[i][t]);
                    }
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            store(&product.target(g + i, row_group).row(first), sums);
        }
    }
}
