//! Products with weights that are not quantised: one fused multiply-add for each column, in ascending order.
//!
//! In: a product and its part. Out: its outputs. Written once over `Lanes`, and compiled for AVX2 and AVX-512. Several groups of
//! 16 outputs are summed at once, because each sum waits for its last addition.

#![expect(unsafe_code, reason = "addresses, and code that is compiled for the instructions of a level")]

use std::ops::Range;

use super::Product;
use super::layout::{BLOCK, LANES};
use super::rows::FEW;
use crate::format::Format;
use crate::lanes::{Avx2, Avx512, Lanes};

/// Computes outputs of groups of the matrix for groups of rows.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; no other thread computes these outputs.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn compute_avx2(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: the features of this function; the rest as the caller promises.
    unsafe { of_format(Avx2::new(), product, groups, row_groups) };
}

/// The same.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL; no other thread computes these outputs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")]
pub(super) unsafe fn compute_avx512(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: the features of this function; the rest as the caller promises.
    unsafe { of_format(Avx512::new(), product, groups, row_groups) };
}

/// # Safety
/// No other thread computes these outputs. So in all that follows.
#[inline(always)]
unsafe fn of_format<L: Lanes>(l: L, product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: as the caller promises.
    unsafe {
        match product.matrix.format() {
            Format::F16 => of_rows::<L, Halves>(l, product, groups, row_groups),
            Format::BF16 => of_rows::<L, Brains>(l, product, groups, row_groups),
            _ => of_rows::<L, Singles>(l, product, groups, row_groups),
        }
    }
}

/// How columns of 16 rows are loaded.
trait Load {
    /// Columns `k` and `k + 1`, `k` even.
    ///
    /// # Safety
    /// A group that has them, aligned to 64 bytes.
    unsafe fn two<L: Lanes>(l: L, group: *const u8, k: usize) -> [L::V; 2];

    /// Column `k`, the last of an odd number.
    ///
    /// # Safety
    /// As above.
    unsafe fn last<L: Lanes>(l: L, group: *const u8, k: usize) -> L::V;
}

struct Singles;
struct Halves;
struct Brains;

impl Load for Singles {
    #[inline(always)]
    unsafe fn two<L: Lanes>(l: L, group: *const u8, k: usize) -> [L::V; 2] {
        // SAFETY: as the caller promises.
        unsafe { [Self::last(l, group, k), Self::last(l, group, k + 1)] }
    }

    #[inline(always)]
    unsafe fn last<L: Lanes>(l: L, group: *const u8, k: usize) -> L::V {
        // SAFETY: as the caller promises.
        l.load(unsafe { &*group.cast::<[f32; LANES]>().add(k) })
    }
}

impl Load for Halves {
    #[inline(always)]
    unsafe fn two<L: Lanes>(l: L, group: *const u8, k: usize) -> [L::V; 2] {
        // SAFETY: as the caller promises.
        unsafe { [Self::last(l, group, k), Self::last(l, group, k + 1)] }
    }

    #[inline(always)]
    unsafe fn last<L: Lanes>(l: L, group: *const u8, k: usize) -> L::V {
        // SAFETY: as the caller promises.
        l.widen_halves(unsafe { &*group.cast::<[u16; LANES]>().add(k) })
    }
}

impl Load for Brains {
    #[inline(always)]
    unsafe fn two<L: Lanes>(l: L, group: *const u8, k: usize) -> [L::V; 2] {
        // SAFETY: as the caller promises.
        l.widen_brains(unsafe { &*group.cast::<[u32; LANES]>().add(k / 2) })
    }

    #[inline(always)]
    unsafe fn last<L: Lanes>(l: L, group: *const u8, k: usize) -> L::V {
        // SAFETY: as the caller promises; zeros fill the block.
        unsafe { Self::two(l, group, k)[0] }
    }
}

/// As many groups and rows at a time as there are registers for sums.
#[inline(always)]
unsafe fn of_rows<L: Lanes, W: Load>(
    l: L,
    product: &Product<'_>,
    groups: Range<usize>,
    row_groups: Range<usize>,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match (L::COLUMNS > 1, product.rows.lanes()) {
            (true, 1) => cut::<L, W, 8, 1>(l, product, groups, row_groups),
            (true, 2) => cut::<L, W, 4, 2>(l, product, groups, row_groups),
            (true, 3..=FEW) => cut::<L, W, 4, FEW>(l, product, groups, row_groups),
            (true, _) => cut::<L, W, 2, 8>(l, product, groups, row_groups),
            (false, 1) => cut::<L, W, 4, 1>(l, product, groups, row_groups),
            (false, 2) => cut::<L, W, 2, 2>(l, product, groups, row_groups),
            (false, _) => cut::<L, W, 1, 4>(l, product, groups, row_groups),
        }
    }
}

/// `G` groups and `T` rows at a time.
#[inline(always)]
unsafe fn cut<L: Lanes, W: Load, const G: usize, const T: usize>(
    l: L,
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
                        sum::<L, W, G, T>(l, product, g, row_group, first);
                    } else {
                        sum::<L, W, 1, T>(l, product, g, row_group, first);
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
/// `G` groups from `g` on, and the group of rows.
#[inline(always)]
unsafe fn sum<L: Lanes, W: Load, const G: usize, const T: usize>(
    l: L,
    product: &Product<'_>,
    g: usize,
    row_group: usize,
    first: usize,
) {
    let lanes = product.rows.lanes();
    let n_cols = product.matrix.n_cols();
    let start = row_group * product.rows.n_blocks() * lanes;
    let columns: [*const u8; G] = std::array::from_fn(|i| product.matrix.group(g + i).as_ptr());
    let mut sums = [[l.splat(0.0); T]; G];
    // SAFETY: columns lie inside their group, values inside the rows; outputs are ours.
    unsafe {
        for b in 0..product.rows.n_blocks() {
            let values: [*const f32; T] = std::array::from_fn(|t| {
                let place = start + b * lanes + (first + t).min(lanes - 1);
                product.rows.values().as_ptr().add(place * BLOCK)
            });
            let n = BLOCK.min(n_cols - b * BLOCK);
            for k in (0..n - n % 2).step_by(2) {
                for (columns, sums) in columns.iter().zip(&mut sums) {
                    let [even, odd] = W::two(l, *columns, b * BLOCK + k);
                    for (values, sum) in values.iter().zip(sums) {
                        *sum = l.fma(even, l.splat(*values.add(k)), *sum);
                        *sum = l.fma(odd, l.splat(*values.add(k + 1)), *sum);
                    }
                }
            }
            if n % 2 == 1 {
                for (columns, sums) in columns.iter().zip(&mut sums) {
                    let last = W::last(l, *columns, b * BLOCK + n - 1);
                    for (values, sum) in values.iter().zip(sums) {
                        *sum = l.fma(last, l.splat(*values.add(n - 1)), *sum);
                    }
                }
            }
        }
        for (i, sums) in sums.into_iter().enumerate() {
            let target = product.target(g + i, row_group).row(first);
            for (t, sum) in sums.into_iter().enumerate().take(target.n_rows) {
                let out = target.start.add(t * target.stride);
                out.copy_from_nonoverlapping(l.to_array(sum).as_ptr(), target.n_lanes);
            }
        }
    }
}
