//! Products on processors with AVX2: 16 outputs are two vectors of 8 lanes.
//!
//! In: a product and its part. Out: its outputs. Up to four rows are multiplied while weights are read; more meet unpacked weights,
//! four at a time.

#![expect(unsafe_code, reason = "vector instructions and addresses")]

mod load;
mod dot;

use std::arch::x86_64::{
    __m256, __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_add_epi32, _mm256_cmpgt_epi32, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_maskload_ps, _mm256_maskstore_ps, _mm256_mul_ps, _mm256_mullo_epi32,
    _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_store_ps, _mm256_store_si256, _mm256_xor_si256,
};
use std::marker::PhantomData;
use std::ops::Range;

use super::layout::{
    BLOCK, Codes, CodesKind, Eight, LANES, Packing, Scales, Single, SingleMin, SpanHalves, SpanMin,
    with_packing,
};
use super::panel::{self, Engine, Side, Target};
use super::rows::{self, code_place, code_run};
use super::{Product, floats};
use crate::cpu::has_avx_vnni;
use dot::{Dots, Multiply, Pairs};
use load::{LoadCodes, LoadScales};

/// Bytes of weights that are asked for in advance.
const AHEAD: usize = 2048;

/// Sums of `T` rows: 8 outputs, 8 outputs.
type Sums<const T: usize> = [[__m256; T]; 2];

/// Computes outputs of groups of the matrix for groups of rows.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; no other thread computes these outputs.
pub(crate) unsafe fn compute(product: &Product<'_>, groups: Range<usize>, row_groups: Range<usize>) {
    // SAFETY: as the caller promises; AVX-VNNI is asked for.
    unsafe {
        match (Packing::of(product.matrix.format()), product.rows.lanes()) {
            (None, _) => floats::compute_avx2(product, groups, row_groups),
            (Some(packing), 1..=rows::FEW) if has_avx_vnni() => compute_few::<Dots>(packing, product, groups),
            (Some(packing), 1..=rows::FEW) => compute_few::<Pairs>(packing, product, groups),
            (Some(_), _) if has_avx_vnni() => panel::compute::<Panels<Dots>>(product, groups, row_groups),
            (Some(_), _) => panel::compute::<Panels<Pairs>>(product, groups, row_groups),
        }
    }
}

/// Adds the products of `n_blocks` blocks, whole spans, with `T` rows, of which `STRIDE` lie side by side. Codes are no larger
/// than those of `L`.
///
/// # Safety
/// AVX2 and what `M` needs; so many blocks on both sides.
#[inline(always)]
unsafe fn add<M, C, L, S, const T: usize, const STRIDE: usize, const AHEAD: usize>(
    cells: *const u8,
    n_blocks: usize,
    side: &Side,
    sums: &mut Sums<T>,
) where
    M: Multiply,
    C: LoadCodes,
    L: CodesKind,
    S: LoadScales,
{
    let (has_minima, has_halves) = (const { S::KIND.has_minima() }, const { S::KIND.has_halves() });
    let span = const { S::KIND.span() };
    let is_signed = M::SIGNED_EIGHT && matches!(L::KIND, Codes::Eight);
    // SAFETY: as the caller promises: all addresses lie in the `n_blocks` blocks.
    unsafe {
        let (mut cell, mut done) = (cells, 0);
        while done < n_blocks {
            let n = S::KIND.cell().min(n_blocks - done);
            let mut block = cell.add(S::KIND.bytes(n));
            for first in (0..n).step_by(span) {
                // Sums of a span, while they are integers.
                let mut whole = [[_mm256_setzero_si256(); T]; 2];
                for b in first..first + span {
                    if AHEAD > 0 {
                        for line in 0..(C::KIND.bytes() + S::KIND.bytes(8) / 8).div_ceil(64) {
                            _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(AHEAD + 64 * line).cast());
                        }
                    }
                    let at = (done + b) * STRIDE;
                    let a = side.codes.add(code_place(span, STRIDE, done + b, 0));
                    for (h, sums) in sums.iter_mut().enumerate() {
                        let mut codes = C::load(block, h);
                        if is_signed {
                            codes = codes.map(|code| _mm256_xor_si256(code, _mm256_set1_epi8(-128)));
                        }
                        let factors = S::load(cell, b, h);
                        for part in 0..if has_halves { 2 } else { 1 } {
                            let mut dots: [__m256i; T] = std::array::from_fn(|t| {
                                if has_minima || is_signed {
                                    _mm256_setzero_si256()
                                } else if has_halves {
                                    _mm256_set1_epi32(*side.bias.add(2 * at + part * STRIDE + t))
                                } else {
                                    _mm256_set1_epi32(*side.bias.add(at + t))
                                }
                            });
                            let vectors = if has_halves { 4 * part..4 * part + 4 } else { 0..8 };
                            M::dot(L::KIND, &codes, vectors, (a, code_run(span)), &mut dots);
                            for (whole, dot) in whole[h].iter_mut().zip(dots) {
                                *whole = if span == 1 {
                                    dot
                                } else {
                                    _mm256_add_epi32(*whole, _mm256_mullo_epi32(dot, factors.inner[part]))
                                };
                            }
                        }
                        if span == 1 {
                            scale(factors.scale, side.steps.add(at), &whole[h], sums);
                        }
                        if has_minima {
                            for (t, sum) in sums.iter_mut().enumerate() {
                                let total = _mm256_set1_ps(*side.totals.add(at + t));
                                *sum = _mm256_fmadd_ps(factors.minima, total, *sum);
                            }
                        }
                    }
                    block = block.add(C::KIND.bytes());
                }
                if span > 1 {
                    let steps = side.steps.add((done + first) / span * STRIDE);
                    for (h, sums) in sums.iter_mut().enumerate() {
                        scale(S::load(cell, first, h).scale, steps, &whole[h], sums);
                    }
                }
            }
            cell = block;
            done += n;
        }
    }
}

/// Adds what integers stand for.
///
/// # Safety
/// AVX2 and FMA; a step for each row.
#[inline(always)]
unsafe fn scale<const T: usize>(
    scale: __m256,
    steps: *const f32,
    dots: &[__m256i; T],
    sums: &mut [__m256; T],
) {
    for (t, (sum, dot)) in sums.iter_mut().zip(dots).enumerate() {
        // SAFETY: as the caller promises.
        let step = unsafe { _mm256_set1_ps(*steps.add(t)) };
        // SAFETY: as the caller promises.
        *sum = unsafe { _mm256_fmadd_ps(_mm256_mul_ps(scale, step), _mm256_cvtepi32_ps(*dot), *sum) };
    }
}

unsafe fn compute_few<M: Multiply>(packing: Packing, product: &Product<'_>, groups: Range<usize>) {
    // SAFETY: as the caller promises.
    with_packing!(packing, C, S => unsafe {
        match product.rows.lanes() {
            1 => M::few::<C, S, 1>(product, groups),
            2 => M::few::<C, S, 2>(product, groups),
            3 => M::few::<C, S, 3>(product, groups),
            _ => M::few::<C, S, 4>(product, groups),
        }
    });
}

/// All `T` rows.
///
/// # Safety
/// As `compute`, and what `M` needs.
#[inline(always)]
unsafe fn few<M: Multiply, C: LoadCodes, S: LoadScales, const T: usize>(
    product: &Product<'_>,
    groups: Range<usize>,
) {
    let n_blocks = product.matrix.n_cols() / BLOCK;
    for g in groups {
        // SAFETY: the group has this packing and so many blocks, and so have the rows.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); T]; 2];
            let cells = product.matrix.group(g).as_ptr();
            add::<M, C, C, S, T, T, AHEAD>(cells, n_blocks, &product.side(0, 0), &mut sums);
            store(&product.target(g, 0), &sums);
        }
    }
}

/// All bits set in the lanes of half `h` that are outputs.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn mask(n_lanes: usize, h: usize) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n_lanes as i32 - 8 * h as i32), lanes)
    }
}

/// # Safety
/// AVX2; outputs that only we use.
#[inline(always)]
unsafe fn store<const T: usize>(target: &Target, sums: &Sums<T>) {
    for (h, sums) in sums.iter().enumerate() {
        // SAFETY: as the caller promises; nothing is stored where the mask has no bits.
        unsafe {
            let mask = mask(target.n_lanes, h);
            for (t, sum) in sums.iter().enumerate().take(target.n_rows) {
                _mm256_maskstore_ps(target.start.wrapping_add(t * target.stride + 8 * h), mask, *sum);
            }
        }
    }
}

/// # Safety
/// AVX2; outputs that only we use.
#[inline(always)]
unsafe fn load<const T: usize>(target: &Target, is_first: bool) -> Sums<T> {
    std::array::from_fn(|h| {
        std::array::from_fn(|t| {
            // SAFETY: as the caller promises; nothing is loaded where the mask has no bits.
            unsafe {
                if is_first || t >= target.n_rows {
                    _mm256_setzero_ps()
                } else {
                    let start = target.start.wrapping_add(t * target.stride + 8 * h);
                    _mm256_maskload_ps(start, mask(target.n_lanes, h))
                }
            }
        })
    })
}

struct Panels<M>(PhantomData<M>);

impl<M: Multiply> Engine for Panels<M> {
    unsafe fn unpack(packing: Packing, cells: *const u8, n_blocks: usize, panel: *mut u8) {
        // SAFETY: as the caller promises.
        with_packing!(packing, C, S => unsafe { unpack::<C, S>(cells, n_blocks, panel) });
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
        with_packing!(packing, L, _S => unsafe {
            match packing.scales.unpacked() {
                Scales::SingleMin => M::many::<L, SingleMin>(panel, n_blocks, side, target, is_first),
                Scales::SpanMin => M::many::<L, SpanMin>(panel, n_blocks, side, target, is_first),
                Scales::SpanHalves => M::many::<L, SpanHalves>(panel, n_blocks, side, target, is_first),
                _ => M::many::<L, Single>(panel, n_blocks, side, target, is_first),
            }
        });
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unpack<C: LoadCodes, S: LoadScales>(cells: *const u8, n_blocks: usize, panel: *mut u8) {
    let span = const { S::KIND.span() };
    // SAFETY: all addresses lie in the `n_blocks` blocks, as the caller promises.
    unsafe {
        let (mut cell, mut place, mut done) = (cells, panel, 0);
        while done < n_blocks {
            let n = S::KIND.cell().min(n_blocks - done);
            let mut block = cell.add(S::KIND.bytes(n));
            for first in (0..n).step_by(span) {
                let unpacked = const { S::KIND.unpacked() };
                let codes = place.add(unpacked.bytes(span));
                let mut scales = place;
                if span > 1 {
                    for h in 0..2 {
                        _mm256_store_ps(scales.add(32 * h).cast(), S::load(cell, first, h).scale);
                    }
                    scales = scales.add(64);
                }
                for j in 0..span {
                    let has_second = unpacked.has_minima() || unpacked.has_halves();
                    for h in 0..2 {
                        let factors = S::load(cell, first + j, h);
                        if span > 1 {
                            _mm256_store_si256(scales.add(32 * h).cast(), factors.inner[0]);
                        } else {
                            _mm256_store_ps(scales.add(32 * h).cast(), factors.scale);
                        }
                        if unpacked.has_minima() {
                            _mm256_store_ps(scales.add(64 + 32 * h).cast(), factors.minima);
                        } else if unpacked.has_halves() {
                            _mm256_store_si256(scales.add(64 + 32 * h).cast(), factors.inner[1]);
                        }
                        for (i, code) in C::load(block, h).into_iter().enumerate() {
                            let at = j * Codes::Eight.bytes() + 64 * i + 32 * h;
                            _mm256_store_si256(codes.add(at).cast(), code);
                        }
                    }
                    scales = scales.add(if has_second { 128 } else { 64 });
                    block = block.add(C::KIND.bytes());
                }
                place = codes.add(span * Codes::Eight.bytes());
            }
            cell = block;
            done += n;
        }
    }
}

/// Up to 16 rows of a group of 16, four at a time.
///
/// # Safety
/// As [`Engine::multiply`], and what `M` needs.
#[inline(always)]
unsafe fn many<M: Multiply, L: CodesKind, S: LoadScales>(
    panel: *const u8,
    n_blocks: usize,
    side: &Side,
    target: &Target,
    is_first: bool,
) {
    // SAFETY: as the caller promises; the rows that fill a group up are there, too.
    unsafe {
        for t in (0..target.n_rows).step_by(4) {
            let (side, target) = (&side.lane(t), &target.row(t));
            let mut sums = load::<4>(target, is_first);
            add::<M, Eight, L, S, 4, LANES, 0>(panel, n_blocks, side, &mut sums);
            store(target, &sums);
        }
    }
}
