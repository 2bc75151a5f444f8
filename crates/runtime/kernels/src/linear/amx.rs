//! Products on processors with AMX: the integer part of 16 rows and 16 outputs is one instruction for each block.
//!
//! In: a product and its part. Out: its outputs. K formats take the way of `planes`, BF16 weights that of `brains`; few rows of codes,
//! and F32 and F16, that of AVX-512.

#![expect(unsafe_code, reason = "tile and vector instructions, addresses")]

mod planes;
mod brains;

use std::arch::asm;
use std::arch::x86_64::{
    __m512, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_mul_ps,
    _mm512_set1_ps,
};
use std::mem::MaybeUninit;
use std::ops::Range;

use super::layout::{BLOCK, Codes, LANES, Packing, Scales};
use super::panel::{self, Engine, Side, Target};
use super::pieces::takes_pieces;
use super::{Product, avx512};
use crate::cpu::Level;

/// Computes outputs of groups of the matrix for groups of rows.
///
/// # Safety
/// The processor has AMX and AVX-512, and the system lets us use them; no other thread computes these outputs.
pub(crate) unsafe fn compute(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    let has_pieces = takes_pieces(Level::Amx, product.matrix.format());
    // A tile that is half empty takes as long as a full one.
    let packing = Packing::of(product.matrix.format()).filter(|_| product.rows.len() > LANES);
    // SAFETY: as the caller promises; tiles are released before anything else can want them.
    unsafe {
        if has_pieces {
            brains::compute(product, groups, row_groups);
            asm!("tilerelease", options(nostack, preserves_flags));
        } else if let Some(packing) = packing {
            if packing.scales.span() > 1 {
                Shapes::of::<{ 2 * BLOCK }>().set();
                panel::compute::<planes::Planes>(product, groups, row_groups);
            } else {
                Shapes::of::<BLOCK>().set();
                panel::compute::<Tiles>(product, groups, row_groups);
            }
            asm!("tilerelease", options(nostack, preserves_flags));
        } else {
            avx512::compute(product, groups, row_groups);
        }
    }
}

/// What the tile registers hold, as `ldtilecfg` reads it.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    unused: [u8; 14],
    bytes_of_row: [u16; 16],
    n_rows: [u8; 16],
}

impl Shapes {
    /// All registers take 16 rows of 64 bytes (sums, or codes of 16 rows, or code vectors), except that with `N_COLS` 32 registers 1
    /// and 4 take 32 codes of each row, and 2 and 5 their 8 vectors.
    fn of<const N_COLS: usize>() -> Self {
        let mut shapes =
            Self { palette: 1, start_row: 0, unused: [0; 14], bytes_of_row: [0; 16], n_rows: [0; 16] };
        shapes.bytes_of_row[..8].fill(64);
        shapes.n_rows[..8].fill(16);
        for set in [0, 3] {
            shapes.bytes_of_row[set + 1] = N_COLS as u16;
            shapes.n_rows[set + 2] = (N_COLS / 4) as u8;
        }
        shapes
    }

    /// All registers are full but the first five, which take so many rows: sums, and pieces of activations.
    fn of_pieces(n: usize) -> Self {
        let mut shapes = Self::of::<{ 2 * BLOCK }>();
        shapes.n_rows[..5].fill(n as u8);
        shapes
    }

    /// # Safety
    /// AMX.
    unsafe fn set(&self) {
        // SAFETY: 64 bytes of the form that the instruction takes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const *self, options(nostack, preserves_flags, readonly))
        };
    }
}

/// Sums of products of codes, 16 rows by 16 outputs: what the tile unit stores for the vector unit.
#[repr(C, align(64))]
struct Dots([MaybeUninit<i32>; LANES * LANES]);

struct Tiles;

impl Engine for Tiles {
    unsafe fn unpack(packing: Packing, cells: *const u8, n_blocks: usize, panel: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { avx512::unpack_signed(packing, cells, n_blocks, panel) };
    }

    unsafe fn multiply(
        packing: Packing,
        panel: *const u8,
        n_blocks: usize,
        side: &Side,
        target: &Target,
        is_first: bool,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            match packing.scales.unpacked() {
                Scales::SingleMin => multiply::<true>(panel, n_blocks, side, target, is_first),
                _ => multiply::<false>(panel, n_blocks, side, target, is_first),
            }
        }
    }
}

/// Addresses of what a panel meets.
#[derive(Clone, Copy)]
struct Sides<'a> {
    panel: *const u8,
    rows: &'a Side,
}

/// While the vector unit scales the sums of one block, the tile unit computes those of the next.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
unsafe fn multiply<const MINIMA: bool>(
    panel: *const u8,
    n_blocks: usize,
    rows: &Side,
    target: &Target,
    is_first: bool,
) {
    let mut dots = [const { Dots([MaybeUninit::uninit(); LANES * LANES]) }; 2];
    let [even, odd]: [*mut i32; 2] = dots.each_mut().map(|dots| dots.0.as_mut_ptr().cast());
    let sides = Sides { panel, rows };
    // What tiles store waits behind earlier stores that miss the caches.
    avx512::ask::<LANES>(target);
    // SAFETY: `n_blocks` blocks are there on both sides, as the caller promises.
    unsafe {
        let mut sums = avx512::load::<LANES>(target, is_first);
        if n_blocks > 0 {
            sides.dot::<0, MINIMA>(0, even);
        }
        let mut b = 0;
        while b + 2 < n_blocks {
            sides.dot::<1, MINIMA>(b + 1, odd);
            sides.scale::<MINIMA>(b, even, &mut sums);
            sides.dot::<0, MINIMA>(b + 2, even);
            sides.scale::<MINIMA>(b + 1, odd, &mut sums);
            b += 2;
        }
        if b + 1 < n_blocks {
            sides.dot::<1, MINIMA>(b + 1, odd);
        }
        if b < n_blocks {
            sides.scale::<MINIMA>(b, even, &mut sums);
        }
        if b + 1 < n_blocks {
            sides.scale::<MINIMA>(b + 1, odd, &mut sums);
        }
        avx512::store(target, &sums);
    }
}

impl Sides<'_> {
    /// Address of a block in the panel.
    #[inline(always)]
    fn block<const MINIMA: bool>(self, b: usize) -> *const u8 {
        self.panel.wrapping_add(b * (if MINIMA { 128 } else { 64 } + Codes::Eight.bytes()))
    }

    /// Sums of products of codes, by the tile registers of a set.
    ///
    /// # Safety
    /// AMX with [`Shapes`] set; the block is there; `out` takes 16 x 16 numbers.
    #[inline(always)]
    unsafe fn dot<const SET: usize, const MINIMA: bool>(self, b: usize, out: *mut i32) {
        let a = self.rows.codes.wrapping_add(b * LANES * BLOCK);
        let w = self.block::<MINIMA>(b).wrapping_add(if MINIMA { 128 } else { 64 });
        // SAFETY: as the caller promises.
        unsafe { tile_dot::<SET>(a, w, out) };
    }

    /// Adds what sums of products stand for.
    ///
    /// # Safety
    /// AVX-512; the block is there; `dots` are its 16 x 16 numbers.
    #[inline(always)]
    unsafe fn scale<const MINIMA: bool>(self, b: usize, dots: *const i32, sums: &mut [__m512; LANES]) {
        let block = self.block::<MINIMA>(b);
        // SAFETY: as the caller promises.
        unsafe {
            let scale = _mm512_load_ps(block.cast());
            for (t, sum) in sums.iter_mut().enumerate() {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*self.rows.steps.add(b * LANES + t)));
                let dots = _mm512_cvtepi32_ps(_mm512_load_si512(dots.add(t * LANES).cast()));
                *sum = _mm512_fmadd_ps(scale, dots, *sum);
            }
            if MINIMA {
                let minima = _mm512_load_ps(block.add(64).cast());
                for (t, sum) in sums.iter_mut().enumerate() {
                    let total = _mm512_set1_ps(*self.rows.totals.add(b * LANES + t));
                    *sum = _mm512_fmadd_ps(minima, total, *sum);
                }
            }
        }
    }
}

/// 16 rows of codes times code vectors.
///
/// # Safety
/// AMX with [`Shapes`] set: 16 rows at `a`, code vectors at `w`, 16 x 16 numbers at `out`.
#[inline(always)]
unsafe fn tile_dot<const SET: usize>(a: *const i8, w: *const u8, out: *mut i32) {
    macro_rules! with {
        ($sum:literal, $a:literal, $w:literal) => {
            // SAFETY: as the caller promises; the compiler itself uses no tile registers.
            unsafe {
                asm!(
                    concat!("tilezero ", $sum),
                    concat!("tileloadd ", $a, ", [{a} + {rows}]"),
                    concat!("tileloadd ", $w, ", [{w} + {vectors}]"),
                    concat!("tdpbssd ", $sum, ", ", $a, ", ", $w),
                    concat!("tilestored [{out} + {vectors}], ", $sum),
                    a = in(reg) a,
                    w = in(reg) w,
                    out = in(reg) out,
                    rows = in(reg) BLOCK,
                    vectors = in(reg) 64usize,
                    options(nostack, preserves_flags),
                );
            }
        };
    }
    if SET == 0 { with!("tmm0", "tmm1", "tmm2") } else { with!("tmm3", "tmm4", "tmm5") }
}
