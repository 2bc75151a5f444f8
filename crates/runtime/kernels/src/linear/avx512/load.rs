//! How weights come into vectors of 16 lanes, for each packing.
//!
//! In: addresses of blocks and of scales. Out: 8 code vectors, scales and minima as `f32`.

#![expect(unsafe_code, reason = "vector instructions and addresses")]

use std::arch::x86_64::{
    __m512, __m512i, _mm_loadu_si128, _mm256_load_si256, _mm512_and_si512, _mm512_cvtepi8_epi32,
    _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvtph_ps, _mm512_load_ps, _mm512_load_si512,
    _mm512_mask_add_epi8, _mm512_mul_ps, _mm512_or_si512, _mm512_set1_epi8, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi16, _mm512_srli_epi16, _mm512_xor_ps,
};

use crate::linear::layout::{
    CodesKind, Eight, Five, Four, Half, HalfMin, ScalesKind, Single, SingleMin, Six, SpanHalves, SpanMin,
    Super, SuperHalves,
};

/// How a block's code vectors are loaded.
pub(in crate::linear) trait LoadCodes: CodesKind {
    /// # Safety
    /// AVX-512; a block of the kind, aligned to 64 bytes.
    unsafe fn load(block: *const u8) -> [__m512i; 8];
}

/// How a block's scales are loaded.
pub(in crate::linear) trait LoadScales: ScalesKind {
    /// # Safety
    /// AVX-512; scales of a cell with more than `b` blocks, aligned to 64 bytes.
    unsafe fn load(cell: *const u8, b: usize) -> Factors;
}

/// What stands in front of codes. Parts that a kind does not have are zeros.
#[derive(Clone, Copy)]
pub(in crate::linear) struct Factors {
    /// Of the block, or of its span.
    pub(in crate::linear) scale: __m512,
    pub(in crate::linear) minima: __m512,
    /// Integer factors of the scale, for the first and last 16 columns.
    pub(in crate::linear) inner: [__m512i; 2],
}

impl Factors {
    /// Without integers.
    #[inline(always)]
    fn plain(scale: __m512, minima: __m512) -> Self {
        // SAFETY: whoever has vectors has AVX-512.
        Self { scale, minima, inner: unsafe { [_mm512_setzero_si512(); 2] } }
    }
}

impl LoadCodes for Four {
    #[inline(always)]
    unsafe fn load(block: *const u8) -> [__m512i; 8] {
        // SAFETY: as the caller promises; halves fill 4 vectors.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let mut codes = [_mm512_setzero_si512(); 8];
            for i in 0..4 {
                let both = _mm512_load_si512(block.add(64 * i).cast());
                codes[i] = _mm512_and_si512(both, low);
                codes[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
            }
            codes
        }
    }
}

impl LoadCodes for Five {
    #[inline(always)]
    unsafe fn load(block: *const u8) -> [__m512i; 8] {
        // SAFETY: as the caller promises; 8 masks lie behind the halves.
        unsafe {
            let mut codes = Four::load(block);
            let masks = block.add(256).cast::<u64>();
            for (i, code) in codes.iter_mut().enumerate() {
                *code = _mm512_mask_add_epi8(*code, masks.add(i).read(), *code, _mm512_set1_epi8(16));
            }
            codes
        }
    }
}

impl LoadCodes for Six {
    #[inline(always)]
    unsafe fn load(block: *const u8) -> [__m512i; 8] {
        // SAFETY: as the caller promises; two planes lie behind the halves.
        unsafe {
            let mut codes = Four::load(block);
            let high = _mm512_set1_epi8(0x30);
            for p in 0..2 {
                let plane = _mm512_load_si512(block.add(256 + 64 * p).cast());
                let shifted = [
                    _mm512_slli_epi16::<4>(plane),
                    _mm512_slli_epi16::<2>(plane),
                    plane,
                    _mm512_srli_epi16::<2>(plane),
                ];
                for f in 0..4 {
                    let code = &mut codes[4 * p + f];
                    *code = _mm512_or_si512(*code, _mm512_and_si512(shifted[f], high));
                }
            }
            codes
        }
    }
}

impl LoadCodes for Eight {
    #[inline(always)]
    unsafe fn load(block: *const u8) -> [__m512i; 8] {
        // SAFETY: as the caller promises; 8 vectors.
        unsafe { std::array::from_fn(|i| _mm512_load_si512(block.add(64 * i).cast())) }
    }
}

impl LoadScales for Half {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize) -> Factors {
        // SAFETY: as the caller promises; 32 bytes for each block.
        unsafe {
            let scale = _mm512_cvtph_ps(_mm256_load_si256(cell.add(32 * b).cast()));
            Factors::plain(scale, _mm512_setzero_ps())
        }
    }
}

impl LoadScales for HalfMin {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for each block.
        unsafe {
            let scale = _mm512_cvtph_ps(_mm256_load_si256(cell.add(64 * b).cast()));
            let minima = _mm512_cvtph_ps(_mm256_load_si256(cell.add(64 * b + 32).cast()));
            Factors::plain(scale, minima)
        }
    }
}

impl LoadScales for Super {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for the cell, 32 for each block.
        unsafe {
            let outer = _mm512_cvtph_ps(_mm256_load_si256(cell.cast()));
            let outer_minima = _mm512_cvtph_ps(_mm256_load_si256(cell.add(32).cast()));
            let inner = _mm512_cvtepu8_epi32(_mm_loadu_si128(cell.add(64 + 32 * b).cast()));
            let inner_minima = _mm512_cvtepu8_epi32(_mm_loadu_si128(cell.add(80 + 32 * b).cast()));
            let minima = _mm512_mul_ps(outer_minima, _mm512_cvtepi32_ps(inner_minima));
            let minima = _mm512_xor_ps(minima, _mm512_set1_ps(-0.0));
            Factors { scale: outer, minima, inner: [inner; 2] }
        }
    }
}

impl LoadScales for SuperHalves {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for the cell, 32 for each block.
        unsafe {
            let outer = _mm512_cvtph_ps(_mm256_load_si256(cell.cast()));
            let first = _mm512_cvtepi8_epi32(_mm_loadu_si128(cell.add(64 + 32 * b).cast()));
            let last = _mm512_cvtepi8_epi32(_mm_loadu_si128(cell.add(80 + 32 * b).cast()));
            Factors { scale: outer, minima: _mm512_setzero_ps(), inner: [first, last] }
        }
    }
}

impl LoadScales for Single {
    #[inline(always)]
    unsafe fn load(cell: *const u8, _: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes.
        unsafe { Factors::plain(_mm512_load_ps(cell.cast()), _mm512_setzero_ps()) }
    }
}

impl LoadScales for SingleMin {
    #[inline(always)]
    unsafe fn load(cell: *const u8, _: usize) -> Factors {
        // SAFETY: as the caller promises; 128 bytes.
        unsafe { Factors::plain(_mm512_load_ps(cell.cast()), _mm512_load_ps(cell.add(64).cast())) }
    }
}

impl LoadScales for SpanMin {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for the cell, 128 for each block.
        unsafe {
            let inner = _mm512_load_si512(cell.add(64 + 128 * b).cast());
            Factors {
                scale: _mm512_load_ps(cell.cast()),
                minima: _mm512_load_ps(cell.add(128 + 128 * b).cast()),
                inner: [inner; 2],
            }
        }
    }
}

impl LoadScales for SpanHalves {
    #[inline(always)]
    unsafe fn load(cell: *const u8, b: usize) -> Factors {
        // SAFETY: as the caller promises; 64 bytes for the cell, 128 for each block.
        unsafe {
            let inner = [64, 128].map(|at| _mm512_load_si512(cell.add(at + 128 * b).cast()));
            Factors { scale: _mm512_load_ps(cell.cast()), minima: _mm512_setzero_ps(), inner }
        }
    }
}
