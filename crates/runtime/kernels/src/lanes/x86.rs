//! Sixteen numbers in the vectors of x86-64: two of AVX2, or one of AVX-512.
//!
//! In: arrays of 16. Out: the bits of `Plain`. Values of these types are made only where the instructions are.

#![expect(
    unsafe_code,
    reason = "vector instructions, behind a value that proves that the processor has them"
)]

use std::arch::x86_64 as x86;

use super::{LANES, Lanes};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// F, BW, DQ and VL of AVX-512, which bring what `Avx2` has.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Lanes 0 to 7 and 8 to 15.
type Pair = (x86::__m256, x86::__m256);

impl Lanes for Avx2 {
    type V = Pair;
    const ROWS: usize = 6;
    const COLUMNS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_set1_ps(x), x86::_mm256_set1_ps(x)) }
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Pair {
        let from = from.as_ptr();
        // SAFETY: `self` proves the instructions, `from` has 16 elements.
        unsafe { (x86::_mm256_loadu_ps(from), x86::_mm256_loadu_ps(from.add(8))) }
    }
    #[inline(always)]
    fn store(self, v: Pair, to: &mut [f32; LANES]) {
        let to = to.as_mut_ptr();
        // SAFETY: `self` proves the instructions, `to` has 16 elements.
        unsafe {
            x86::_mm256_storeu_ps(to, v.0);
            x86::_mm256_storeu_ps(to.add(8), v.1);
        }
    }
    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_add_ps(a.0, b.0), x86::_mm256_add_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_sub_ps(a.0, b.0), x86::_mm256_sub_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_mul_ps(a.0, b.0), x86::_mm256_mul_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn div(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_div_ps(a.0, b.0), x86::_mm256_div_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn fma(self, a: Pair, b: Pair, c: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_fmadd_ps(a.0, b.0, c.0), x86::_mm256_fmadd_ps(a.1, b.1, c.1)) }
    }
    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe { (x86::_mm256_max_ps(a.0, b.0), x86::_mm256_max_ps(a.1, b.1)) }
    }
    #[inline(always)]
    fn less(self, a: Pair, b: Pair, yes: Pair, no: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let low = x86::_mm256_cmp_ps::<{ x86::_CMP_LT_OQ }>(a.0, b.0);
            let high = x86::_mm256_cmp_ps::<{ x86::_CMP_LT_OQ }>(a.1, b.1);
            (x86::_mm256_blendv_ps(no.0, yes.0, low), x86::_mm256_blendv_ps(no.1, yes.1, high))
        }
    }
    #[inline(always)]
    fn power(self, t: Pair) -> Pair {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let bias = x86::_mm256_set1_epi32(127);
            let low = x86::_mm256_add_epi32(x86::_mm256_castps_si256(t.0), bias);
            let high = x86::_mm256_add_epi32(x86::_mm256_castps_si256(t.1), bias);
            (
                x86::_mm256_castsi256_ps(x86::_mm256_slli_epi32::<23>(low)),
                x86::_mm256_castsi256_ps(x86::_mm256_slli_epi32::<23>(high)),
            )
        }
    }
    #[inline(always)]
    fn widen_halves(self, from: &[u16; LANES]) -> Pair {
        let from: *const x86::__m128i = from.as_ptr().cast();
        // SAFETY: `self` proves the instructions, `from` has 32 bytes.
        unsafe {
            (
                x86::_mm256_cvtph_ps(x86::_mm_loadu_si128(from)),
                x86::_mm256_cvtph_ps(x86::_mm_loadu_si128(from.add(1))),
            )
        }
    }
    #[inline(always)]
    fn widen_brains(self, from: &[u32; LANES]) -> [Pair; 2] {
        let from: *const x86::__m256i = from.as_ptr().cast();
        // SAFETY: `self` proves the instructions, `from` has 64 bytes.
        unsafe {
            let both = [x86::_mm256_loadu_si256(from), x86::_mm256_loadu_si256(from.add(1))];
            let upper = x86::_mm256_set1_epi32(0xFFFF_0000_u32.cast_signed());
            let [a, b] = both.map(|v| x86::_mm256_castsi256_ps(x86::_mm256_slli_epi32::<16>(v)));
            let [c, d] = both.map(|v| x86::_mm256_castsi256_ps(x86::_mm256_and_si256(v, upper)));
            [(a, b), (c, d)]
        }
    }
    #[inline(always)]
    fn to_halves(self, v: Pair) -> [u16; LANES] {
        let mut halves = [0; LANES];
        let to: *mut x86::__m128i = halves.as_mut_ptr().cast();
        // SAFETY: `self` proves the instructions, `to` has 32 bytes.
        unsafe {
            x86::_mm_storeu_si128(to, x86::_mm256_cvtps_ph::<{ x86::_MM_FROUND_TO_NEAREST_INT }>(v.0));
            x86::_mm_storeu_si128(to.add(1), x86::_mm256_cvtps_ph::<{ x86::_MM_FROUND_TO_NEAREST_INT }>(v.1));
        }
        halves
    }
    #[inline(always)]
    fn widen_bytes(self, from: &[i8; LANES]) -> Pair {
        let from: *const i8 = from.as_ptr();
        // SAFETY: `self` proves the instructions, `from` has 16 bytes, each load reads eight.
        unsafe {
            let low = x86::_mm_loadl_epi64(from.cast());
            let high = x86::_mm_loadl_epi64(from.add(8).cast());
            (
                x86::_mm256_cvtepi32_ps(x86::_mm256_cvtepi8_epi32(low)),
                x86::_mm256_cvtepi32_ps(x86::_mm256_cvtepi8_epi32(high)),
            )
        }
    }
}

impl Lanes for Avx512 {
    type V = x86::__m512;
    const ROWS: usize = 6;
    const COLUMNS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        // SAFETY: `self` proves the instructions, `from` has 16 elements.
        unsafe { x86::_mm512_loadu_ps(from.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        // SAFETY: `self` proves the instructions, `to` has 16 elements.
        unsafe { x86::_mm512_storeu_ps(to.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe { x86::_mm512_mask_blend_ps(x86::_mm512_cmp_ps_mask::<{ x86::_CMP_LT_OQ }>(a, b), no, yes) }
    }
    #[inline(always)]
    fn power(self, t: Self::V) -> Self::V {
        // SAFETY: `self` proves the instructions.
        unsafe {
            let biased = x86::_mm512_add_epi32(x86::_mm512_castps_si512(t), x86::_mm512_set1_epi32(127));
            x86::_mm512_castsi512_ps(x86::_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    fn widen_halves(self, from: &[u16; LANES]) -> Self::V {
        // SAFETY: `self` proves the instructions, `from` has 32 bytes.
        unsafe { x86::_mm512_cvtph_ps(x86::_mm256_loadu_si256(from.as_ptr().cast())) }
    }
    #[inline(always)]
    fn widen_brains(self, from: &[u32; LANES]) -> [Self::V; 2] {
        // SAFETY: `self` proves the instructions, `from` has 64 bytes.
        unsafe {
            let both = x86::_mm512_loadu_si512(from.as_ptr().cast());
            let upper = x86::_mm512_set1_epi32(0xFFFF_0000_u32.cast_signed());
            [
                x86::_mm512_castsi512_ps(x86::_mm512_slli_epi32::<16>(both)),
                x86::_mm512_castsi512_ps(x86::_mm512_and_si512(both, upper)),
            ]
        }
    }
    #[inline(always)]
    fn to_halves(self, v: Self::V) -> [u16; LANES] {
        let mut halves = [0; LANES];
        // SAFETY: `self` proves the instructions, `halves` has 32 bytes.
        unsafe {
            let v = x86::_mm512_cvtps_ph::<{ x86::_MM_FROUND_TO_NEAREST_INT }>(v);
            x86::_mm256_storeu_si256(halves.as_mut_ptr().cast(), v);
        }
        halves
    }
    #[inline(always)]
    fn widen_bytes(self, from: &[i8; LANES]) -> Self::V {
        // SAFETY: `self` proves the instructions, `from` has 16 bytes.
        unsafe {
            let bytes = x86::_mm_loadu_si128(from.as_ptr().cast());
            x86::_mm512_cvtepi32_ps(x86::_mm512_cvtepi8_epi32(bytes))
        }
    }
}
