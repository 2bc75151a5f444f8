//! Products on processors with AVX-512 and VNNI: 16 outputs are the 16 lanes of a vector.
//!
//! In: a product and its part. Out: its outputs. Up to four rows are multiplied while weights are read; more meet unpacked weights,
//! eight at a time.

#![expect(unsafe_code, reason = "vector instructions and addresses")]

mod load;

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_add_ps,
    _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_mul_ps, _mm512_mullo_epi32, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_store_si512, _mm512_sub_epi8,
};
use std::ops::Range;

use super::layout::{
    BLOCK, Eight, LANES, Packing, Scales, Single, SingleMin, SpanHalves, SpanMin, with_packing,
};
use super::panel::{self, Engine, Side, Target};
use super::rows::{self, code_place, code_run};
use super::{Product, floats};
pub(super) use load::{LoadCodes, LoadScales};

/// Bytes of weights that are asked for in advance.
pub(super) const AHEAD: usize = 2048;

/// Computes outputs of groups of the matrix for groups of rows.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL and VNNI; no other thread computes these outputs.
pub(crate) unsafe fn compute(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: as the caller promises.
    unsafe {
        match (Packing::of(product.matrix.format()), product.rows.lanes()) {
            (None, _) => floats::compute_avx512(product, groups, row_groups),
            (Some(packing), 1..=rows::FEW) => compute_few(packing, product, groups),
            (Some(_), _) => panel::compute::<Panels>(product, groups, row_groups),
        }
    }
}

/// Adds the products of `n_blocks` blocks, whole spans, with `T` rows, of which `STRIDE` lie side by side.
///
/// # Safety
/// AVX-512 and VNNI; so many blocks on both sides.
#[inline(always)]
unsafe fn add<C: LoadCodes, S: LoadScales, const T: usize, const STRIDE: usize, const AHEAD: usize>(
    cells: *const u8,
    n_blocks: usize,
    side: &Side,
    sums: &mut [__m512; T],
) {
    let (has_minima, has_halves) = (const { S::KIND.has_minima() }, const { S::KIND.has_halves() });
    let span = const { S::KIND.span() };
    // SAFETY: as the caller promises: all addresses lie in the `n_blocks` blocks.
    unsafe {
        let (mut cell, mut done) = (cells, 0);
        while done < n_blocks {
            let n = S::KIND.cell().min(n_blocks - done);
            let mut block = cell.add(S::KIND.bytes(n));
            for first in (0..n).step_by(span) {
                // Sums of a span, while they are integers.
                let mut whole = [_mm512_setzero_si512(); T];
                // With at most 5 bits of weights and 6 of factors, sums of two blocks are exact as f32, too, below 2^24: adding two
                // of them rounds as the integer would be rounded, and products of f32 are faster.
                let (mut exact, mut pair) = ([_mm512_setzero_ps(); T], [_mm512_setzero_ps(); T]);
                for b in first..first + span {
                    if AHEAD > 0 {
                        for line in 0..(C::KIND.bytes() + S::KIND.bytes(8) / 8).div_ceil(64) {
                            _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(AHEAD + 64 * line).cast());
                        }
                    }
                    let codes = C::load(block);
                    let factors = S::load(cell, b);
                    let at = (done + b) * STRIDE;
                    let a = side.codes.add(code_place(span, STRIDE, done + b, 0));
                    for half in 0..if has_halves { 2 } else { 1 } {
                        let mut dots: [__m512i; T] = std::array::from_fn(|t| {
                            if has_minima {
                                _mm512_setzero_si512()
                            } else if has_halves {
                                _mm512_set1_epi32(*side.bias.add(2 * at + half * STRIDE + t))
                            } else {
                                _mm512_set1_epi32(*side.bias.add(at + t))
                            }
                        });
                        for i in if has_halves { 4 * half..4 * half + 4 } else { 0..8 } {
                            for (t, dot) in dots.iter_mut().enumerate() {
                                let four = a.add(t * code_run(span) + 4 * i).cast::<i32>().read_unaligned();
                                *dot = _mm512_dpbusd_epi32(*dot, codes[i], _mm512_set1_epi32(four));
                            }
                        }
                        for (t, dot) in dots.into_iter().enumerate() {
                            if span == 1 {
                                whole[t] = dot;
                            } else if has_minima {
                                let factor = _mm512_cvtepi32_ps(factors.inner[half]);
                                pair[t] = _mm512_fmadd_ps(factor, _mm512_cvtepi32_ps(dot), pair[t]);
                            } else {
                                let dot = _mm512_mullo_epi32(dot, factors.inner[half]);
                                whole[t] = _mm512_add_epi32(whole[t], dot);
                            }
                        }
                    }
                    if span > 1 && has_minima && (b - first) % 2 == 1 {
                        for (exact, pair) in exact.iter_mut().zip(&mut pair) {
                            *exact = _mm512_add_ps(*exact, *pair);
                            *pair = _mm512_setzero_ps();
                        }
                    }
                    if span == 1 {
                        let whole = whole.map(|whole| _mm512_cvtepi32_ps(whole));
                        scale(factors.scale, side.steps.add(at), &whole, sums);
                    }
                    if has_minima {
                        for (t, sum) in sums.iter_mut().enumerate() {
                            let total = _mm512_set1_ps(*side.totals.add(at + t));
                            *sum = _mm512_fmadd_ps(factors.minima, total, *sum);
                        }
                    }
                    block = block.add(C::KIND.bytes());
                }
                if span > 1 {
                    let steps = side.steps.add((done + first) / span * STRIDE);
                    let whole = if has_minima { exact } else { whole.map(|whole| _mm512_cvtepi32_ps(whole)) };
                    scale(S::load(cell, first).scale, steps, &whole, sums);
                }
            }
            cell = block;
            done += n;
        }
    }
}

/// Adds what sums of codes stand for.
///
/// # Safety
/// AVX-512; a step for each row.
#[inline(always)]
unsafe fn scale<const T: usize>(
    scale: __m512,
    steps: *const f32,
    dots: &[__m512; T],
    sums: &mut [__m512; T],
) {
    for (t, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
        // SAFETY: as the caller promises.
        let step = unsafe { _mm512_set1_ps(*steps.add(t)) };
        // SAFETY: as the caller promises.
        *sum = unsafe { _mm512_fmadd_ps(_mm512_mul_ps(scale, step), *dot, *sum) };
    }
}

unsafe fn compute_few(packing: Packing, product: &Product<'_>, groups: Range<usize>) {
    // SAFETY: as the caller promises.
    with_packing!(packing, C, S => unsafe {
        match product.rows.lanes() {
            1 => few::<C, S, 1>(product, groups),
            2 => few::<C, S, 2>(product, groups),
            3 => few::<C, S, 3>(product, groups),
            _ => few::<C, S, 4>(product, groups),
        }
    });
}

/// All `T` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
unsafe fn few<C: LoadCodes, S: LoadScales, const T: usize>(product: &Product<'_>, groups: Range<usize>) {
    let n_blocks = product.matrix.n_cols() / BLOCK;
    for g in groups {
        let mut sums = [_mm512_setzero_ps(); T];
        // SAFETY: the group has this packing and so many blocks, and so have the rows.
        unsafe {
            let cells = product.matrix.group(g).as_ptr();
            add::<C, S, T, T, AHEAD>(cells, n_blocks, &product.side(0, 0), &mut sums);
            store(&product.target(g, 0), &sums);
        }
    }
}

pub(super) fn mask(n_lanes: usize) -> u16 {
    u16::MAX >> (LANES - n_lanes)
}

/// # Safety
/// AVX-512; outputs that only we use.
#[inline(always)]
pub(super) unsafe fn store<const T: usize>(target: &Target, sums: &[__m512; T]) {
    let mask = mask(target.n_lanes);
    // A number of turns that is known, so that sums stay in registers.
    for (t, sum) in sums.iter().enumerate() {
        if t < target.n_rows {
            // SAFETY: as the caller promises.
            unsafe { _mm512_mask_storeu_ps(target.start.add(t * target.stride), mask, *sum) };
        }
    }
}

/// Asks for the outputs of `T` rows: they are stored soon. Sixteen are seldom one line: memory of `f32` begins where it may.
#[inline(always)]
pub(super) fn ask<const T: usize>(target: &Target) {
    for t in 0..T {
        let row = target.start.wrapping_add(t * target.stride);
        for end in [row, row.wrapping_add(LANES - 1)] {
            // SAFETY: any address may be asked for.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(end.cast()) };
        }
    }
}

/// # Safety
/// AVX-512; outputs that only we use.
#[inline(always)]
pub(super) unsafe fn load<const T: usize>(target: &Target, is_first: bool) -> [__m512; T] {
    let mask = mask(target.n_lanes);
    std::array::from_fn(|t| {
        // SAFETY: as the caller promises.
        unsafe {
            if is_first || t >= target.n_rows {
                _mm512_setzero_ps()
            } else {
                _mm512_maskz_loadu_ps(mask, target.start.add(t * target.stride))
            }
        }
    })
}

struct Panels;

impl Engine for Panels {
    unsafe fn unpack(packing: Packing, cells: *const u8, n_blocks: usize, panel: *mut u8) {
        // SAFETY: as the caller promises.
        with_packing!(packing, C, S => unsafe { unpack::<C, S>(0, cells, n_blocks, panel) });
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
                Scales::SingleMin => multiply::<SingleMin>(panel, n_blocks, side, target, is_first),
                Scales::SpanMin => multiply::<SpanMin>(panel, n_blocks, side, target, is_first),
                Scales::SpanHalves => multiply::<SpanHalves>(panel, n_blocks, side, target, is_first),
                _ => multiply::<Single>(panel, n_blocks, side, target, is_first),
            }
        }
    }
}

/// Blocks of any packing, with `zero` taken from the codes.
///
/// # Safety
/// AVX-512; so many blocks on both sides.
pub(super) unsafe fn unpack_signed(packing: Packing, cells: *const u8, n_blocks: usize, panel: *mut u8) {
    // SAFETY: as the caller promises.
    with_packing!(packing, C, S => unsafe { unpack::<C, S>(packing.zero, cells, n_blocks, panel) });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
unsafe fn unpack<C: LoadCodes, S: LoadScales>(zero: u8, cells: *const u8, n_blocks: usize, panel: *mut u8) {
    let zeros = _mm512_set1_epi8(zero.cast_signed());
    let span = const { S::KIND.span() };
    // SAFETY: all addresses lie in the `n_blocks` blocks, as the caller promises.
    unsafe {
        let (mut cell, mut place, mut done) = (cells, panel, 0);
        while done < n_blocks {
            let n = S::KIND.cell().min(n_blocks - done);
            let mut block = cell.add(S::KIND.bytes(n));
            for first in (0..n).step_by(span) {
                let mut scales = place.cast::<__m512>();
                place = place.add(S::KIND.unpacked().bytes(span));
                if span > 1 {
                    scales.write(S::load(cell, first).scale);
                    scales = scales.add(1);
                }
                for b in first..first + span {
                    for line in 0..(C::KIND.bytes() + S::KIND.bytes(8) / 8).div_ceil(64) {
                        _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(AHEAD + 64 * line).cast());
                    }
                    let factors = S::load(cell, b);
                    if span > 1 {
                        scales.cast::<__m512i>().write(factors.inner[0]);
                    } else {
                        scales.write(factors.scale);
                    }
                    scales = scales.add(1);
                    if S::KIND.has_minima() {
                        scales.write(factors.minima);
                        scales = scales.add(1);
                    } else if S::KIND.has_halves() {
                        scales.cast::<__m512i>().write(factors.inner[1]);
                        scales = scales.add(1);
                    }
                    for code in C::load(block) {
                        _mm512_store_si512(place.cast(), _mm512_sub_epi8(code, zeros));
                        place = place.add(64);
                    }
                    block = block.add(C::KIND.bytes());
                }
            }
            cell = block;
            done += n;
        }
    }
}

/// Up to 16 rows of a group of 16, eight at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")]
unsafe fn multiply<S: LoadScales>(
    panel: *const u8,
    n_blocks: usize,
    side: &Side,
    target: &Target,
    is_first: bool,
) {
    // SAFETY: as the caller promises; the rows that fill a group up are there, too.
    unsafe {
        for t in (0..target.n_rows).step_by(8) {
            let (side, target) = (&side.lane(t), &target.row(t));
            match target.n_rows {
                1 => some::<S, 1>(panel, n_blocks, side, target, is_first),
                2 => some::<S, 2>(panel, n_blocks, side, target, is_first),
                3..=4 => some::<S, 4>(panel, n_blocks, side, target, is_first),
                _ => some::<S, 8>(panel, n_blocks, side, target, is_first),
            }
        }
    }
}

/// # Safety
/// As `multiply`.
#[inline(always)]
unsafe fn some<S: LoadScales, const T: usize>(
    panel: *const u8,
    n_blocks: usize,
    side: &Side,
    target: &Target,
    is_first: bool,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = load::<T>(target, is_first);
        add::<Eight, S, T, LANES, 0>(panel, n_blocks, side, &mut sums);
        store(target, &sums);
    }
}
