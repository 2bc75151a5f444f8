//! K formats on processors with AMX: a weight is its code times the integer factor of its block, in two planes of signed bytes.
//!
//! In: panels and rows. Out: sums for 16 rows by 16 outputs. `factor (code - zero) = 128 high + low`, so that tiles of 64 columns
//! are full and the vector unit is only wanted once for a span of 128. Instructions of both take turns: neither's queue may fill.

#![expect(unsafe_code, reason = "tile and vector instructions, addresses")]

use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_and_si512, _mm512_cvtepi32_ps,
    _mm512_fmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_mask_blend_epi8, _mm512_mul_ps,
    _mm512_mullo_epi16, _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_slli_epi16, _mm512_slli_epi32, _mm512_srli_epi16, _mm512_store_ps,
    _mm512_store_si512, _mm512_sub_epi16,
};
use std::mem::MaybeUninit;

use crate::linear::avx512::{self, AHEAD, LoadCodes, LoadScales};
use crate::linear::layout::{BLOCK, LANES, Packing, SPAN, with_packing};
use crate::linear::panel::{Engine, Side, Target};

/// Bytes of 128 columns of 16 rows, in one plane.
const PLANE: usize = SPAN * BLOCK * LANES;

/// Bytes of a span in a panel: 16 scales, for each block 16 minima where there are some (f32); then the low plane, the high one.
const fn span_bytes(has_minima: bool) -> usize {
    codes_at(has_minima) + 2 * PLANE
}

const fn codes_at(has_minima: bool) -> usize {
    if has_minima { 64 + 64 * SPAN } else { 64 }
}

pub(super) struct Planes;

impl Engine for Planes {
    // Tiles wait long for their first sums in each run, and less for codes from the second cache.
    const RUN: usize = 64;
    const PANELS: usize = 2;
    const PANEL_BYTES: usize = Self::RUN / SPAN * span_bytes(true);

    unsafe fn unpack(packing: Packing, cells: *const u8, n_blocks: usize, panel: *mut u8) {
        // SAFETY: as the caller promises.
        with_packing!(packing, C, S => unsafe { unpack::<C, S>(packing.zero, cells, n_blocks, panel) });
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
            if packing.scales.has_minima() {
                multiply::<true>(panel, n_blocks, side, target, is_first);
            } else {
                multiply::<false>(panel, n_blocks, side, target, is_first);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
unsafe fn unpack<C: LoadCodes, S: LoadScales>(zero: u8, cells: *const u8, n_blocks: usize, panel: *mut u8) {
    let (has_minima, has_halves) = (const { S::KIND.has_minima() }, const { S::KIND.has_halves() });
    // SAFETY: all addresses lie in the `n_blocks` blocks, as the caller promises.
    unsafe {
        let (mut cell, mut place, mut done) = (cells, panel, 0);
        while done < n_blocks {
            let n = S::KIND.cell().min(n_blocks - done);
            let mut block = cell.add(S::KIND.bytes(n));
            for first in (0..n).step_by(SPAN) {
                _mm512_store_ps(place.cast(), S::load(cell, first).scale);
                let mut low = place.add(codes_at(has_minima));
                for j in 0..SPAN {
                    for line in 0..(C::KIND.bytes() + S::KIND.bytes(8) / 8).div_ceil(64) {
                        _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(AHEAD + 64 * line).cast());
                    }
                    let factors = S::load(cell, first + j);
                    if has_minima {
                        _mm512_store_ps(place.add(64 + 64 * j).cast(), factors.minima);
                    }
                    let inner = factors.inner.map(|inner| twice(inner));
                    for (i, codes) in C::load(block).into_iter().enumerate() {
                        let inner = inner[if has_halves { i / 4 } else { 0 }];
                        let [low_codes, high_codes] = planes(codes, inner, zero);
                        _mm512_store_si512(low.cast(), low_codes);
                        _mm512_store_si512(low.add(PLANE).cast(), high_codes);
                        low = low.add(64);
                    }
                    block = block.add(C::KIND.bytes());
                }
                place = place.add(span_bytes(has_minima));
            }
            cell = block;
            done += n;
        }
    }
}

/// Each number as two of 16 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn twice(numbers: __m512i) -> __m512i {
    let low = _mm512_and_si512(numbers, _mm512_set1_epi32(0xffff));
    _mm512_or_si512(low, _mm512_slli_epi32::<16>(numbers))
}

/// Low and high bytes of `factor (code - zero)`: at most 4096, and its lowest 7 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn planes(codes: __m512i, factors: __m512i, zero: u8) -> [__m512i; 2] {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let even = _mm512_and_si512(codes, _mm512_set1_epi16(0xff));
    let odd = _mm512_srli_epi16::<8>(codes);
    let [even, odd] = [even, odd].map(|codes| {
        let codes = _mm512_sub_epi16(codes, _mm512_set1_epi16(i16::from(zero)));
        _mm512_mullo_epi16(codes, factors)
    });
    let low = _mm512_mask_blend_epi8(ODD, even, _mm512_slli_epi16::<8>(odd));
    let high = _mm512_mask_blend_epi8(ODD, _mm512_srli_epi16::<7>(even), _mm512_slli_epi16::<1>(odd));
    [_mm512_and_si512(low, _mm512_set1_epi8(0x7f)), high]
}

/// Sums of products with the low and the high plane, 16 rows by 16 outputs each: what the tile unit stores for the vector unit.
#[repr(C, align(64))]
struct Dots([MaybeUninit<i32>; 2 * LANES * LANES]);

/// Addresses of what a panel meets.
#[derive(Clone, Copy)]
struct Sides<'a> {
    panel: *const u8,
    rows: &'a Side,
    /// Of spans with even and odd numbers.
    dots: [*mut i32; 2],
}

/// While the vector unit scales the sums of one span, the tile unit stores those of the next and computes those behind.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
unsafe fn multiply<const MINIMA: bool>(
    panel: *const u8,
    n_blocks: usize,
    rows: &Side,
    target: &Target,
    is_first: bool,
) {
    let mut dots = [const { Dots([MaybeUninit::uninit(); 2 * LANES * LANES]) }; 2];
    let dots: [*mut i32; 2] = dots.each_mut().map(|dots| dots.0.as_mut_ptr().cast());
    let sides = Sides { panel, rows, dots };
    // Cells are two spans.
    let n_spans = n_blocks / SPAN;
    avx512::ask::<LANES>(target);
    // SAFETY: `n_blocks` blocks are there on both sides, as the caller promises.
    unsafe {
        let mut sums = avx512::load::<LANES>(target, is_first);
        if n_spans > 0 {
            sides.step::<0, MINIMA, true, false, false>(0, &mut sums);
            sides.step::<1, MINIMA, true, true, false>(1, &mut sums);
            for s in (2..n_spans).step_by(2) {
                sides.step::<0, MINIMA, true, true, true>(s, &mut sums);
                sides.step::<1, MINIMA, true, true, true>(s + 1, &mut sums);
            }
            sides.step::<0, MINIMA, false, true, true>(n_spans, &mut sums);
            sides.step::<1, MINIMA, false, false, true>(n_spans + 1, &mut sums);
        }
        avx512::store(target, &sums);
    }
}

impl Sides<'_> {
    /// Address of a span in the panel.
    #[inline(always)]
    fn span<const MINIMA: bool>(self, s: usize) -> *const u8 {
        self.panel.wrapping_add(s * span_bytes(MINIMA))
    }

    /// Computes sums of span `s` in the tile registers of a set, stores those of the span before from the other set, and scales
    /// those of the span before that, in turns.
    ///
    /// # Safety
    /// AVX-512, AMX with full tiles; the spans are there.
    #[inline(always)]
    unsafe fn step<
        const SET: usize,
        const MINIMA: bool,
        const DOT: bool,
        const STORE: bool,
        const SCALE: bool,
    >(
        self,
        s: usize,
        sums: &mut [__m512; LANES],
    ) {
        let a = self.rows.codes.wrapping_add(s * PLANE);
        let w = self.span::<MINIMA>(s).wrapping_add(codes_at(MINIMA));
        // SAFETY: as the caller promises.
        unsafe {
            if DOT {
                first_low::<SET>(a, w);
            }
            if SCALE {
                self.scale::<MINIMA, 0>(s - 2, self.dots[SET], sums);
            }
            if DOT {
                high::<SET>(w.wrapping_add(PLANE));
            }
            if STORE {
                store_low::<SET>(self.dots[1 - SET]);
            }
            if SCALE {
                self.scale::<MINIMA, 4>(s - 2, self.dots[SET], sums);
            }
            if DOT {
                low::<SET>(a.wrapping_add(PLANE / 2), w.wrapping_add(PLANE / 2));
            }
            if SCALE {
                self.scale::<MINIMA, 8>(s - 2, self.dots[SET], sums);
            }
            if DOT {
                high::<SET>(w.wrapping_add(PLANE + PLANE / 2));
            }
            if STORE {
                store_high::<SET>(self.dots[1 - SET].add(LANES * LANES));
            }
            if SCALE {
                self.scale::<MINIMA, 12>(s - 2, self.dots[SET], sums);
            }
        }
    }

    /// Adds what sums of products stand for, of 4 rows.
    ///
    /// # Safety
    /// AVX-512; the span is there; `dots` are its 2 x 16 x 16 numbers.
    #[inline(always)]
    unsafe fn scale<const MINIMA: bool, const FIRST: usize>(
        self,
        s: usize,
        dots: *const i32,
        sums: &mut [__m512; LANES],
    ) {
        let span = self.span::<MINIMA>(s);
        // SAFETY: as the caller promises.
        unsafe {
            if MINIMA {
                for j in 0..SPAN {
                    let minima = _mm512_load_ps(span.add(64 + 64 * j).cast());
                    for (t, sum) in (FIRST..).zip(&mut sums[FIRST..FIRST + 4]) {
                        let total = _mm512_set1_ps(*self.rows.totals.add((s * SPAN + j) * LANES + t));
                        *sum = _mm512_fmadd_ps(minima, total, *sum);
                    }
                }
            }
            let scale = _mm512_load_ps(span.cast());
            for (t, sum) in (FIRST..).zip(&mut sums[FIRST..FIRST + 4]) {
                let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*self.rows.steps.add(s * LANES + t)));
                let low = _mm512_load_si512(dots.add(t * LANES).cast());
                let high = _mm512_load_si512(dots.add((LANES + t) * LANES).cast());
                let dots = _mm512_add_epi32(_mm512_slli_epi32::<7>(high), low);
                *sum = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots), *sum);
            }
        }
    }
}

/// Tile instructions, with the registers of one set or of the other. Set 0 sums in `tmm0` (low) and `tmm1` (high), set 1 in `tmm2`
/// and `tmm3`; both take their operands through `tmm4` to `tmm6`. The compiler itself uses no tile registers.
macro_rules! tiles {
    ($set:expr, [$($zero:literal),*], [$($one:literal),*], $($operand:ident),+) => {
        if $set == 0 {
            asm!($($zero,)* $($operand = in(reg) $operand,)+ row = in(reg) 64usize, options(nostack, preserves_flags))
        } else {
            asm!($($one,)* $($operand = in(reg) $operand,)+ row = in(reg) 64usize, options(nostack, preserves_flags))
        }
    };
}

/// Begins the sums of a set with 16 rows of 64 codes times the low plane.
///
/// # Safety
/// AMX with full tiles; a tile at each address.
#[inline(always)]
unsafe fn first_low<const SET: usize>(a: *const i8, w: *const u8) {
    // SAFETY: as the caller promises.
    unsafe {
        tiles!(
            SET,
            [
                "tilezero tmm0",
                "tilezero tmm1",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm5, [{w} + {row}]",
                "tdpbssd tmm0, tmm4, tmm5"
            ],
            [
                "tilezero tmm2",
                "tilezero tmm3",
                "tileloadd tmm4, [{a} + {row}]",
                "tileloadd tmm5, [{w} + {row}]",
                "tdpbssd tmm2, tmm4, tmm5"
            ],
            a,
            w
        );
    }
}

/// Adds the next 64 codes times the low plane.
///
/// # Safety
/// AMX with full tiles; a tile at each address.
#[inline(always)]
unsafe fn low<const SET: usize>(a: *const i8, w: *const u8) {
    // SAFETY: as the caller promises.
    unsafe {
        tiles!(
            SET,
            ["tileloadd tmm4, [{a} + {row}]", "tileloadd tmm5, [{w} + {row}]", "tdpbssd tmm0, tmm4, tmm5"],
            ["tileloadd tmm4, [{a} + {row}]", "tileloadd tmm5, [{w} + {row}]", "tdpbssd tmm2, tmm4, tmm5"],
            a,
            w
        );
    }
}

/// Adds the same codes times the high plane.
///
/// # Safety
/// AMX with full tiles; a tile at the address.
#[inline(always)]
unsafe fn high<const SET: usize>(w: *const u8) {
    // SAFETY: as the caller promises.
    unsafe {
        tiles!(
            SET,
            ["tileloadd tmm6, [{w} + {row}]", "tdpbssd tmm1, tmm4, tmm6"],
            ["tileloadd tmm6, [{w} + {row}]", "tdpbssd tmm3, tmm4, tmm6"],
            w
        );
    }
}

/// Stores the low sums of the other set.
///
/// # Safety
/// AMX with full tiles; room for 16 x 16 numbers.
#[inline(always)]
unsafe fn store_low<const SET: usize>(out: *mut i32) {
    // SAFETY: as the caller promises.
    unsafe { tiles!(SET, ["tilestored [{out} + {row}], tmm2"], ["tilestored [{out} + {row}], tmm0"], out) };
}

/// Stores the high sums of the other set.
///
/// # Safety
/// AMX with full tiles; room for 16 x 16 numbers.
#[inline(always)]
unsafe fn store_high<const SET: usize>(out: *mut i32) {
    // SAFETY: as the caller promises.
    unsafe { tiles!(SET, ["tilestored [{out} + {row}], tmm3"], ["tilestored [{out} + {row}], tmm1"], out) };
}
