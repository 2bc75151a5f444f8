//! Dot products of bytes, with AVX-VNNI and without.
//!
//! In: unsigned code vectors of weights, signed codes of rows. Out: exact sums in 32 bits.

#![expect(unsafe_code, reason = "vector instructions and addresses")]

use std::arch::x86_64::{
    __m256i, _mm256_abs_epi8, _mm256_add_epi16, _mm256_add_epi32, _mm256_dpbusd_avx_epi32, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_sign_epi8,
};
use std::ops::Range;

use super::load::{LoadCodes, LoadScales};
use super::{few, many};
use crate::linear::Product;
use crate::linear::layout::{Codes, CodesKind};
use crate::linear::panel::{Side, Target};

/// How dot products of bytes are made.
pub(super) trait Multiply {
    /// Whether codes of 8 bits must come as signed ones, without their zero point.
    const SIGNED_EIGHT: bool;
    /// Adds products of code vectors and codes of rows. Compiled for the level of the caller.
    ///
    /// # Safety
    /// AVX2 and what the way needs; codes of `T` rows at `a`, so many bytes apart.
    unsafe fn dot<const T: usize>(
        kind: Codes,
        codes: &[__m256i; 8],
        vectors: Range<usize>,
        a: (*const i8, usize),
        dots: &mut [__m256i; T],
    );

    /// [`few`], compiled for the way.
    ///
    /// # Safety
    /// The processor has it; see there.
    unsafe fn few<C: LoadCodes, S: LoadScales, const T: usize>(product: &Product<'_>, groups: Range<usize>);

    /// [`many`], compiled for the way.
    ///
    /// # Safety
    /// The processor has it; see there.
    unsafe fn many<L: CodesKind, S: LoadScales>(
        panel: *const u8,
        n_blocks: usize,
        side: &Side,
        target: &Target,
        is_first: bool,
    );
}

/// With AVX-VNNI.
pub(super) struct Dots;
/// With AVX2 alone.
pub(super) struct Pairs;

impl Multiply for Dots {
    const SIGNED_EIGHT: bool = false;
    #[inline(always)]
    unsafe fn dot<const T: usize>(
        _: Codes,
        codes: &[__m256i; 8],
        vectors: Range<usize>,
        a: (*const i8, usize),
        dots: &mut [__m256i; T],
    ) {
        for i in vectors {
            for (t, dot) in dots.iter_mut().enumerate() {
                // SAFETY: as the caller promises.
                unsafe { *dot = _mm256_dpbusd_avx_epi32(*dot, codes[i], four(a, t, i)) };
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    unsafe fn few<C: LoadCodes, S: LoadScales, const T: usize>(product: &Product<'_>, groups: Range<usize>) {
        // SAFETY: as the caller promises.
        unsafe { few::<Self, C, S, T>(product, groups) };
    }

    #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
    unsafe fn many<L: CodesKind, S: LoadScales>(
        panel: *const u8,
        n_blocks: usize,
        side: &Side,
        target: &Target,
        is_first: bool,
    ) {
        // SAFETY: as the caller promises.
        unsafe { many::<Self, L, S>(panel, n_blocks, side, target, is_first) };
    }
}

impl Multiply for Pairs {
    const SIGNED_EIGHT: bool = true;
    #[inline(always)]
    unsafe fn dot<const T: usize>(
        kind: Codes,
        codes: &[__m256i; 8],
        vectors: Range<usize>,
        a: (*const i8, usize),
        dots: &mut [__m256i; T],
    ) {
        // Vectors whose products, two by two, fit 16 bits when they are added: 2 · 127 · (largest code) for each. Signed codes
        // are at most 128.
        let at_once = match kind {
            Codes::Four => 8,
            Codes::Five => 4,
            Codes::Six => 2,
            Codes::Eight => 1,
        };
        // SAFETY: as the caller promises.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            for first in vectors.clone().step_by(at_once) {
                let mut pairs = [_mm256_setzero_si256(); T];
                let last = vectors.end.min(first + at_once);
                for (i, code) in codes.iter().enumerate().take(last).skip(first) {
                    for (t, pairs) in pairs.iter_mut().enumerate() {
                        let a = four(a, t, i);
                        let products = if kind == Codes::Eight {
                            _mm256_maddubs_epi16(_mm256_abs_epi8(*code), _mm256_sign_epi8(a, *code))
                        } else {
                            _mm256_maddubs_epi16(*code, a)
                        };
                        *pairs = _mm256_add_epi16(*pairs, products);
                    }
                }
                for (dot, pairs) in dots.iter_mut().zip(pairs) {
                    *dot = _mm256_add_epi32(*dot, _mm256_madd_epi16(pairs, ones));
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn few<C: LoadCodes, S: LoadScales, const T: usize>(product: &Product<'_>, groups: Range<usize>) {
        // SAFETY: as the caller promises.
        unsafe { few::<Self, C, S, T>(product, groups) };
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn many<L: CodesKind, S: LoadScales>(
        panel: *const u8,
        n_blocks: usize,
        side: &Side,
        target: &Target,
        is_first: bool,
    ) {
        // SAFETY: as the caller promises.
        unsafe { many::<Self, L, S>(panel, n_blocks, side, target, is_first) };
    }
}

/// Codes `4 i` to `4 i + 3` of row `t`, in each lane.
///
/// # Safety
/// AVX2; the codes are there.
#[inline(always)]
unsafe fn four((a, stride): (*const i8, usize), t: usize, i: usize) -> __m256i {
    // SAFETY: as the caller promises.
    unsafe { _mm256_set1_epi32(a.add(t * stride + 4 * i).cast::<i32>().read_unaligned()) }
}
