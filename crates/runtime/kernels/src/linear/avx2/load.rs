//! How weights come into vectors of 8 lanes, for each packing.
//!
//! In: addresses of blocks and of scales, which half of the 16 rows. Out: 8 code vectors, scales and minima as `f32`.

#![expect(unsafe_code, reason = "vector instructions and addresses")]

use std::arch::x86_64::{
    __m256, __m256i, _mm_load_si128, _mm_loadl_epi64, _mm256_add_epi8, _mm256_and_si256, _mm256_cmpeq_epi8,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_load_ps,
    _mm256_load_si256, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi32,
    _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi64x, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_xor_ps,
};

use crate::linear::layout::{
    CodesKind, Eight, Five, Four, Half, HalfMin, ScalesKind, Single, SingleMin, Six, SpanHalves, SpanMin,
    Super, SuperHalves,
};

/// How a block's code vectors are loaded, of 8 of its 16 rows.
pub(super) trait LoadCodes: CodesKind {
    /// # Safety
    /// AVX2; a block of the kind, aligned to 32 bytes.
    unsafe fn load(block: *const u8, half: usize) -> [__m256i; 8];
}

/// How a block's scales are loaded, of 8 of its 16 rows.
pub(super) trait LoadScales: ScalesKind {
    /// # Safety
    /// AVX2 and F16C; scales of a cell with more than `b` blocks, aligned to 64 bytes.
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors;
}

/// What stands in front of codes. Parts that a kind does not have are zeros.
#[derive(Clone, Copy)]
pub(super) struct Factors {
    /// Of the block, or of its span.
    pub(super) scale: __m256,
    pub(super) minima: __m256,
    /// Integer factors of the scale, for the first and last 16 columns.
    pub(super) inner: [__m256i; 2],
}

impl Factors {
    /// Without integers.
    #[inline(always)]
    fn plain(scale: __m256, minima: __m256) -> Self {
        // SAFETY: whoever has vectors has AVX2.
        Self { scale, minima, inner: unsafe { [_mm256_setzero_si256(); 2] } }
    }
}

impl LoadCodes for Four {
    #[inline(always)]
    unsafe fn load(block: *const u8, half: usize) -> [__m256i; 8] {
        // SAFETY: as the caller promises; halves fill 4 vectors of 64 bytes.
        unsafe {
            let low = _mm256_set1_epi8(15);
            let mut codes = [_mm256_setzero_si256(); 8];
            for i in 0..4 {
                let both = _mm256_load_si256(block.add(64 * i + 32 * half).cast());
                codes[i] = _mm256_and_si256(both, low);
                codes[i + 4] = _mm256_and_si256(_mm256_srli_epi16::<4>(both), low);
            }
            codes
        }
    }
}

impl LoadCodes for Five {
    #[inline(always)]
    unsafe fn load(block: *const u8, half: usize) -> [__m256i; 8] {
        // SAFETY: as the caller promises; 8 masks of 64 bits lie behind the halves.
        unsafe {
            let mut codes = Four::load(block, half);
            // Byte `j` of the vector takes byte `j / 8` of the mask, and of it bit `j % 8`.
            let bytes =
                _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let bits = _mm256_set1_epi64x(0x8040_2010_0804_0201u64.cast_signed());
            let masks = block.add(256 + 4 * half);
            for (i, code) in codes.iter_mut().enumerate() {
                let mask = _mm256_set1_epi32(masks.add(8 * i).cast::<i32>().read_unaligned());
                let mask = _mm256_and_si256(_mm256_shuffle_epi8(mask, bytes), bits);
                let fifth = _mm256_and_si256(_mm256_cmpeq_epi8(mask, bits), _mm256_set1_epi8(16));
                *code = _mm256_add_epi8(*code, fifth);
            }
            codes
        }
    }
}

impl LoadCodes for Six {
    #[inline(always)]
    unsafe fn load(block: *const u8, half: usize) -> [__m256i; 8] {
        // SAFETY: as the caller promises; two planes of 64 bytes lie behind the halves.
        unsafe {
            let mut codes = Four::load(block, half);
            let high = _mm256_set1_epi8(0x30);
            for p in 0..2 {
                let plane = _mm256_load_si256(block.add(256 + 64 * p + 32 * half).cast());
                let shifted = [
                    _mm256_slli_epi16::<4>(plane),
                    _mm256_slli_epi16::<2>(plane),
                    plane,
                    _mm256_srli_epi16::<2>(plane),
                ];
                for f in 0..4 {
                    let code = &mut codes[4 * p + f];
                    *code = _mm256_or_si256(*code, _mm256_and_si256(shifted[f], high));
                }
            }
            codes
        }
    }
}

impl LoadCodes for Eight {
    #[inline(always)]
    unsafe fn load(block: *const u8, half: usize) -> [__m256i; 8] {
        // SAFETY: as the caller promises; 8 vectors of 64 bytes.
        unsafe { std::array::from_fn(|i| _mm256_load_si256(block.add(64 * i + 32 * half).cast())) }
    }
}

/// 8 halves as singles.
///
/// # Safety
/// F16C; 16 bytes, aligned to 16.
#[inline(always)]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: as the caller promises.
    unsafe { _mm256_cvtph_ps(_mm_load_si128(at.cast())) }
}

impl LoadScales for Half {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors {
        // SAFETY: as the caller promises; 32 bytes for each block.
        unsafe { Factors::plain(halves(cell.add(32 * b + 16 * half)), _mm256_setzero_ps()) }
    }
}

impl LoadScales for HalfMin {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for each block.
        unsafe {
            let scale = halves(cell.add(64 * b + 16 * half));
            Factors::plain(scale, halves(cell.add(64 * b + 32 + 16 * half)))
        }
    }
}

impl LoadScales for Super {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for the cell, 32 for each block.
        unsafe {
            let inner =
                |at: usize| _mm256_cvtepu8_epi32(_mm_loadl_epi64(cell.add(at + 32 * b + 8 * half).cast()));
            let minima = _mm256_mul_ps(halves(cell.add(32 + 16 * half)), _mm256_cvtepi32_ps(inner(80)));
            let minima = _mm256_xor_ps(minima, _mm256_set1_ps(-0.0));
            Factors { scale: halves(cell.add(16 * half)), minima, inner: [inner(64); 2] }
        }
    }
}

impl LoadScales for SuperHalves {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for the cell, 32 for each block.
        unsafe {
            let inner = [64, 80]
                .map(|at| _mm256_cvtepi8_epi32(_mm_loadl_epi64(cell.add(at + 32 * b + 8 * half).cast())));
            Factors { scale: halves(cell.add(16 * half)), minima: _mm256_setzero_ps(), inner }
        }
    }
}

impl LoadScales for Single {
    #[inline(always)]
    unsafe fn load(cell: *const u8, _: usize, half: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes.
        unsafe { Factors::plain(_mm256_load_ps(cell.add(32 * half).cast()), _mm256_setzero_ps()) }
    }
}

impl LoadScales for SingleMin {
    #[inline(always)]
    unsafe fn load(cell: *const u8, _: usize, half: usize) -> Factors {
        // SAFETY: as the caller promises; 128 bytes.
        unsafe {
            let scale = _mm256_load_ps(cell.add(32 * half).cast());
            Factors::plain(scale, _mm256_load_ps(cell.add(64 + 32 * half).cast()))
        }
    }
}

impl LoadScales for SpanMin {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors {
        let cell = cell.wrapping_add(32 * half);
        // SAFETY: as the caller promises; 64 bytes for the cell, 128 for each block.
        unsafe {
            let inner = _mm256_load_si256(cell.add(64 + 128 * b).cast());
            let minima = _mm256_load_ps(cell.add(128 + 128 * b).cast());
            Factors { scale: _mm256_load_ps(cell.cast()), minima, inner: [inner; 2] }
        }
    }
}

impl LoadScales for SpanHalves {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize, half: usize) -> Factors {
        let cell = cell.wrapping_add(32 * half);
        // SAFETY: as the caller promises; 64 bytes for the cell, 128 for each block.
        unsafe {
            let inner = [64, 128].map(|at| _mm256_load_si256(cell.add(at + 128 * b).cast()));
            Factors { scale: _mm256_load_ps(cell.cast()), minima: _mm256_setzero_ps(), inner }
        }
    }
}
