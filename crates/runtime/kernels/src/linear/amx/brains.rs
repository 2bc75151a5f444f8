//! BF16 weights on processors with AMX: products of both pieces of the activations are sums in tile registers.
//!
//! In: a product and its part. Out: its outputs. Many rows: tiles of the first and of the second pieces of 16 rows meet two groups
//! of the matrix. Few rows: both pieces of all of them are one tile, which meets four groups; each waits for weights, and four are
//! read faster than two. Each row of a tile is summed on its own, so both ways give the same bits.

#![expect(unsafe_code, reason = "tile and vector instructions, addresses")]

use std::arch::asm;
use std::arch::x86_64::{
    _CMP_LT_OQ, _MM_HINT_T0, _mm_prefetch, _mm512_abs_ps, _mm512_cmp_ps_mask, _mm512_load_ps,
    _mm512_mask_add_ps, _mm512_mask_storeu_ps, _mm512_set1_ps,
};
use std::mem::MaybeUninit;
use std::ops::Range;

use super::Shapes;
use crate::linear::Product;
use crate::linear::avx512::{ask, mask};
use crate::linear::layout::{BLOCK, LANES};
use crate::linear::panel::Target;
use crate::linear::pieces::{PIECES, TILE_ROW};
use crate::linear::rows::FEW;

/// Bytes of 32 columns of a group: 16 rows of a tile.
const TILE: usize = LANES * TILE_ROW;
/// Bytes of a group that are asked for in advance.
const AHEAD: usize = 16 * TILE;

/// Numbers of four tile registers.
#[repr(C, align(64))]
struct Sums([MaybeUninit<f32>; 4 * LANES * LANES]);

/// Computes outputs of groups of the matrix for groups of rows.
///
/// # Safety
/// The processor has AMX and AVX-512; the matrix is of BF16; no other thread computes these outputs.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn compute(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: as the caller promises.
    unsafe {
        if product.rows.lanes() <= FEW {
            few(product, groups);
        } else {
            many(product, groups, row_groups);
        }
    }
}

/// Groups of the matrix that are read at once.
struct Weights<const G: usize> {
    groups: [*const u8; G],
    /// Bytes of a group.
    len: usize,
}

impl<const G: usize> Weights<G> {
    /// From `g` on. Where fewer are left, the last one stands for the others, too.
    fn new(product: &Product<'_>, g: usize, end: usize) -> Self {
        let groups = std::array::from_fn(|i| product.matrix.group((g + i).min(end - 1)).as_ptr());
        Self { groups, len: product.rows.n_blocks() * TILE }
    }

    /// Their tiles of block `b`.
    #[inline(always)]
    fn tiles(&self, b: usize) -> [*const u8; G] {
        self.groups.map(|group| group.wrapping_add(b * TILE))
    }

    /// Asks for what will be read when some more blocks have been: of these groups, then of those that follow.
    #[inline(always)]
    fn ask(&self, b: usize) {
        let at = b * TILE + AHEAD;
        let at = if at < self.len { at } else { at + (G - 1) * self.len };
        for group in self.groups {
            ask_for(group.wrapping_add(at), TILE);
        }
    }
}

#[inline(always)]
fn ask_for(start: *const u8, n_bytes: usize) {
    for line in (0..n_bytes).step_by(64) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line).cast()) };
    }
}

/// All rows; four groups at a time.
///
/// # Safety
/// As `compute`, at most 4 rows.
#[inline(always)]
unsafe fn few(product: &Product<'_>, groups: Range<usize>) {
    let lanes = product.rows.lanes();
    let rows = product.pieces().group(0);
    let mut sums = Sums([MaybeUninit::uninit(); 4 * LANES * LANES]);
    let sums: *mut f32 = sums.0.as_mut_ptr().cast();
    // SAFETY: AMX; all addresses lie in the blocks of the groups and of the rows, as the caller promises; outputs are ours.
    unsafe {
        Shapes::of_pieces(PIECES * lanes).set();
        for g in groups.clone().step_by(4) {
            let weights = Weights::<4>::new(product, g, groups.end);
            begin();
            for b in 0..product.rows.n_blocks() {
                weights.ask(b);
                one_by_four(rows.add(b * PIECES * lanes * TILE_ROW), weights.tiles(b));
            }
            end(sums);
            for (i, g) in (g..groups.end.min(g + 4)).enumerate() {
                let first = sums.add(i * LANES * LANES);
                store(&product.target(g, 0), first, first.add(lanes * LANES));
            }
        }
    }
}

/// Groups of 16 rows; two groups of the matrix at a time.
///
/// # Safety
/// As `compute`, rows in groups of 16.
#[inline(always)]
unsafe fn many(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    let mut sums = Sums([MaybeUninit::uninit(); 4 * LANES * LANES]);
    let sums: *mut f32 = sums.0.as_mut_ptr().cast();
    // SAFETY: as in `few`.
    unsafe {
        Shapes::of::<{ 2 * BLOCK }>().set();
        for g in groups.clone().step_by(2) {
            let weights = Weights::<2>::new(product, g, groups.end);
            for row_group in row_groups.clone() {
                let rows = product.pieces().group(row_group);
                // What tiles store waits behind earlier stores that miss the caches.
                for g in g..groups.end.min(g + 2) {
                    ask::<LANES>(&product.target(g, row_group));
                }
                begin();
                for b in 0..product.rows.n_blocks() {
                    let pieces = rows.add(b * PIECES * TILE);
                    if row_group == row_groups.start {
                        weights.ask(b);
                    }
                    two_by_two([pieces, pieces.add(TILE)], weights.tiles(b));
                }
                end(sums);
                for (i, g) in (g..groups.end.min(g + 2)).enumerate() {
                    let first = sums.add(i * PIECES * LANES * LANES);
                    store(&product.target(g, row_group), first, first.add(LANES * LANES));
                }
            }
        }
    }
}

/// Sums begin with 0.
///
/// # Safety
/// AMX with [`Shapes`] set. So in all that follows; the compiler itself uses no tile registers.
#[inline(always)]
unsafe fn begin() {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nostack, preserves_flags, nomem)
        );
    }
}

/// Adds a tile of pieces times four tiles of weights.
///
/// # Safety
/// The tiles are there.
#[inline(always)]
unsafe fn one_by_four(rows: *const u8, [a, b, c, d]: [*const u8; 4]) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "tileloadd tmm4, [{rows} + {row}]",
            "tileloadd tmm5, [{a} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm5",
            "tileloadd tmm6, [{b} + {row}]",
            "tdpbf16ps tmm1, tmm4, tmm6",
            "tileloadd tmm7, [{c} + {row}]",
            "tdpbf16ps tmm2, tmm4, tmm7",
            "tileloadd tmm5, [{d} + {row}]",
            "tdpbf16ps tmm3, tmm4, tmm5",
            rows = in(reg) rows,
            a = in(reg) a,
            b = in(reg) b,
            c = in(reg) c,
            d = in(reg) d,
            row = in(reg) TILE_ROW,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Adds tiles of first and of second pieces times two tiles of weights.
///
/// # Safety
/// The tiles are there.
#[inline(always)]
unsafe fn two_by_two([first, second]: [*const u8; 2], [a, b]: [*const u8; 2]) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "tileloadd tmm4, [{first} + {row}]",
            "tileloadd tmm6, [{a} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{second} + {row}]",
            "tdpbf16ps tmm1, tmm5, tmm6",
            "tileloadd tmm7, [{b} + {row}]",
            "tdpbf16ps tmm2, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            first = in(reg) first,
            second = in(reg) second,
            a = in(reg) a,
            b = in(reg) b,
            row = in(reg) TILE_ROW,
            options(nostack, preserves_flags, readonly)
        );
    }
}

/// Stores the sums, 16 rows for each register.
///
/// # Safety
/// Room for them.
#[inline(always)]
unsafe fn end(sums: *mut f32) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "tilestored [{sums} + {row}], tmm0",
            "tilestored [{sums} + {row} + 1024], tmm1",
            "tilestored [{sums} + {row} + 2048], tmm2",
            "tilestored [{sums} + {row} + 3072], tmm3",
            sums = in(reg) sums,
            row = in(reg) TILE_ROW,
            options(nostack, preserves_flags)
        );
    }
}

/// Adds both sums of each output, where the first is finite.
///
/// # Safety
/// AVX-512; sums of each row; outputs that only we use.
#[inline(always)]
unsafe fn store(target: &Target, first: *const f32, second: *const f32) {
    let mask = mask(target.n_lanes);
    // SAFETY: as the caller promises.
    unsafe {
        let infinity = _mm512_set1_ps(f32::INFINITY);
        for t in 0..target.n_rows {
            let first = _mm512_load_ps(first.add(t * LANES));
            let second = _mm512_load_ps(second.add(t * LANES));
            let is_finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(first), infinity);
            let sum = _mm512_mask_add_ps(first, is_finite, first, second);
            _mm512_mask_storeu_ps(target.start.add(t * target.stride), mask, sum);
        }
    }
}
