//! The same order as `repack` brings rows into, four rows at a time in vectors that each x86-64 processor has.
//!
//! In: 16 rows of bytes. Out: one group, the bytes that `repack_plainly` would give. Four words of four rows are four words of
//! each of four code vectors, so a transposition of 4 x 4 words brings codes to their places. Memory is as fast to be filled that
//! way as it is to be written.

#![expect(unsafe_code, reason = "loads and stores of whole vectors")]

use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_and_si128, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
    _mm_slli_epi16, _mm_srli_epi16, _mm_storeu_si128, _mm_unpackhi_epi8, _mm_unpackhi_epi16,
    _mm_unpackhi_epi32, _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16, _mm_unpacklo_epi32,
    _mm_unpacklo_epi64, _mm_xor_si128,
};

use super::layout::{BLOCK, LANES, Packing};
use super::repack::interleave;
use crate::format::Format;

/// Brings 16 rows of `n_cols` values to their places.
pub(super) fn repack(format: Format, n_cols: usize, rows: &[&[u8]; LANES], group: &mut [u8]) {
    let Some(packing) = Packing::of(format) else {
        return match format {
            Format::F16 => pairs(rows, group),
            _ => singles(rows, group),
        };
    };
    let cells = Cells { packing, n_blocks: n_cols / BLOCK, rows, group };
    match format {
        Format::F32 | Format::F16 | Format::BF16 => unreachable!("these have no packing"),
        Format::Q4_0 => cells.fill::<18, 1>(|from, to| to.small::<18, 1, 2>(from, None)),
        Format::Q4_1 => cells.fill::<20, 1>(|from, to| to.small::<20, 2, 4>(from, None)),
        Format::Q5_0 => cells.fill::<22, 1>(|from, to| to.small::<22, 1, 6>(from, Some(2))),
        Format::Q5_1 => cells.fill::<24, 1>(|from, to| to.small::<24, 2, 8>(from, Some(4))),
        Format::Q8_0 => cells.fill::<34, 1>(|from, to| to.eight(from)),
        Format::Q4K => cells.fill::<144, 8>(|from, to| to.four_k(from)),
        Format::Q5K => cells.fill::<176, 8>(|from, to| to.five_k(from)),
        Format::Q6K => cells.fill::<210, 8>(|from, to| to.six_k(from)),
    }
}

/// 4 bytes, a column or two: 4 times that of 4 rows at a time.
fn singles(rows: &[&[u8]; LANES], group: &mut [u8]) {
    let (wholes, rest) = (rows.map(|row| row.as_chunks::<16>().0), rows.map(|row| row.as_chunks::<16>().1));
    let n = wholes[0].len();
    let (group, last) = group.split_at_mut(n * 4 * 64);
    for (i, columns) in group.chunks_exact_mut(4 * 64).enumerate() {
        for quad in 0..4 {
            let row = |r: usize| load(&wholes[4 * quad + r][i], 0);
            for (c, vector) in transpose([row(0), row(1), row(2), row(3)]).into_iter().enumerate() {
                store(columns, 64 * c + 16 * quad, vector);
            }
        }
    }
    interleave::<4>(&rest, last);
}

/// Values of 2 bytes: 8 columns of 8 rows at a time.
fn pairs(rows: &[&[u8]; LANES], group: &mut [u8]) {
    let (wholes, rest) = (rows.map(|row| row.as_chunks::<16>().0), rows.map(|row| row.as_chunks::<16>().1));
    let n = wholes[0].len();
    let (group, last) = group.split_at_mut(n * 8 * 32);
    for (i, columns) in group.chunks_exact_mut(8 * 32).enumerate() {
        for half in 0..2 {
            // Words of two rows' values, each two columns; then as words.
            let two = |r: usize| {
                let (a, b) = (load(&wholes[8 * half + r][i], 0), load(&wholes[8 * half + r + 1][i], 0));
                [values_low(a, b), values_high(a, b)]
            };
            let [ab, cd, ef, gh] = [two(0), two(2), two(4), two(6)];
            for part in 0..2 {
                let four = transpose([ab[part], cd[part], ef[part], gh[part]]);
                for (c, vector) in four.into_iter().enumerate() {
                    store(columns, 32 * (4 * part + c) + 16 * half, vector);
                }
            }
        }
    }
    interleave::<2>(&rest, last);
}

/// A group and what it is filled from.
struct Cells<'a> {
    packing: Packing,
    n_blocks: usize,
    rows: &'a [&'a [u8]; LANES],
    group: &'a mut [u8],
}

impl Cells<'_> {
    /// `put` brings a block of `SIZE` bytes of each of four rows to its place, which is `N` of our blocks.
    #[inline(always)]
    fn fill<const SIZE: usize, const N: usize>(self, put: impl Fn([&[u8; SIZE]; 4], &mut Place<'_>)) {
        let (packing, cell_blocks) = (self.packing, self.packing.scales.cell());
        for first in (0..self.n_blocks).step_by(cell_blocks) {
            let n = cell_blocks.min(self.n_blocks - first);
            let cell = &mut self.group[packing.cell_start(first)..][..packing.cell_bytes(n)];
            let (scales, codes) = cell.split_at_mut(packing.scales.bytes(n));
            let (first, n) = (first / N, n / N);
            for quad in 0..4 {
                let of_row = |r: usize| &self.rows[4 * quad + r].as_chunks::<SIZE>().0[first..first + n];
                let [r0, r1, r2, r3] = [of_row(0), of_row(1), of_row(2), of_row(3)];
                let codes = codes.chunks_exact_mut(N * packing.codes.bytes());
                for (i, codes) in codes.enumerate().take(n) {
                    put([&r0[i], &r1[i], &r2[i], &r3[i]], &mut Place { quad, block: i, scales, codes });
                }
            }
        }
    }
}

/// Where a block of four rows goes.
struct Place<'a> {
    /// Rows `4 quad` to `4 quad + 3` of the group.
    quad: usize,
    /// Number of the block in its cell; 0 where a cell is one block of the format.
    block: usize,
    /// Of the whole cell.
    scales: &'a mut [u8],
    /// Of what the block becomes.
    codes: &'a mut [u8],
}

impl Place<'_> {
    /// Blocks of 32 values: `HALVES` of scale and minimum in front, halves of codes from `CODES` on, perhaps fifth bits.
    #[inline(always)]
    fn small<const SIZE: usize, const HALVES: usize, const CODES: usize>(
        &mut self,
        from: [&[u8; SIZE]; 4],
        fifth: Option<usize>,
    ) {
        for i in 0..HALVES {
            self.halves(from, 2 * i, (self.block * HALVES + i) * 32);
        }
        self.vectors(0, from.map(|row| load(row, CODES)));
        if let Some(at) = fifth {
            self.fifth(256, from.map(|row| word(row, at)));
        }
    }

    /// 32 signed bytes.
    #[inline(always)]
    fn eight(&mut self, from: [&[u8; 34]; 4]) {
        self.halves(from, 0, self.block * 32);
        let sign = splat(0x80);
        for i in 0..2 {
            self.vectors(256 * i, from.map(|row| xor(load(row, 2 + 16 * i), sign)));
        }
    }

    #[inline(always)]
    fn four_k(&mut self, from: [&[u8; 144]; 4]) {
        self.super_scales(from);
        for i in 0..4 {
            let [even, odd] = shared_halves(from, 16 + 32 * i);
            self.vectors(512 * i, even);
            self.vectors(512 * i + 256, odd);
        }
    }

    #[inline(always)]
    fn five_k(&mut self, from: [&[u8; 176]; 4]) {
        self.super_scales(from);
        for i in 0..4 {
            let [even, odd] = shared_halves(from, 48 + 32 * i);
            self.vectors(640 * i, even);
            self.vectors(640 * i + 320, odd);
        }
        // The fifth bits of group `i` are bit `i` of 32 bytes: brought to the sign of each byte, from the last group down.
        let mut bits = from.map(|row| [load(row, 16), load(row, 32)]);
        for i in (0..8).rev() {
            let fifth = bits.map(|[low, high]| signs(low) | signs(high) << 16);
            self.fifth(320 * i + 256, fifth);
            bits = bits.map(|both| both.map(double));
        }
    }

    #[inline(always)]
    fn six_k(&mut self, from: [&[u8; 210]; 4]) {
        self.halves(from, 208, 0);
        // Factors of 16 half blocks, byte by byte: the four rows side by side.
        let [a, b, c, d] = from.map(|row| load(row, 192));
        let (ac, bd) = ([bytes_low(a, c), bytes_high(a, c)], [bytes_low(b, d), bytes_high(b, d)]);
        let [low, high] = [0, 1].map(|i| [bytes_low(ac[i], bd[i]), bytes_high(ac[i], bd[i])]);
        for (i, four) in low.into_iter().chain(high).enumerate() {
            for (j, word) in words(four).into_iter().enumerate() {
                self.scales[64 + 64 * i + 16 * j + 4 * self.quad..][..4].copy_from_slice(&word);
            }
        }
        for part in 0..2 {
            // Runs 0 and 2 of 32 columns share bytes, and 1 and 3.
            let [first, third] = shared_halves(from, 64 * part);
            let [second, fourth] = shared_halves(from, 64 * part + 32);
            for (run, codes) in [first, second, third, fourth].into_iter().enumerate() {
                self.vectors(384 * (4 * part + run), codes);
            }
            for plane in 0..2 {
                // Pairs of bits of four code vectors; run `i` has pair `i` of each byte.
                let high = transpose(from.map(|row| load(row, 128 + 32 * part + 16 * plane)));
                for (run, bits) in pairs_transposed(high).into_iter().enumerate() {
                    let at = 384 * (4 * part + run) + 256 + 64 * plane + 16 * self.quad;
                    store(self.codes, at, bits);
                }
            }
        }
    }

    /// The half at byte `from_at` of each row, to 16 of the rows side by side from `to` on.
    #[inline(always)]
    fn halves<const SIZE: usize>(&mut self, from: [&[u8; SIZE]; 4], from_at: usize, to: usize) {
        let out = &mut self.scales[to + 8 * self.quad..][..8];
        for (row, out) in from.into_iter().zip(out.chunks_exact_mut(2)) {
            out.copy_from_slice(&row[from_at..from_at + 2]);
        }
    }

    /// Scales and minima of `Q4_K` and `Q5_K`: two halves, then 12 bytes with eight numbers of 6 bits of each.
    #[inline(always)]
    fn super_scales<const SIZE: usize>(&mut self, from: [&[u8; SIZE]; 4]) {
        self.halves(from, 0, 0);
        self.halves(from, 2, 32);
        const SIX: u32 = 0x3f3f_3f3f;
        const FOUR: u32 = 0x0f0f_0f0f;
        const TWO: u32 = 0x3030_3030;
        let rows = from.map(|row| {
            let (a, b, c) = (word(row, 4), word(row, 8), word(row, 12));
            let last = [c & FOUR | a >> 2 & TWO, c >> 4 & FOUR | b >> 2 & TWO];
            [a & SIX, b & SIX, last[0], last[1]].map(u32::to_le_bytes)
        });
        for i in 0..8 {
            for kind in 0..2 {
                let four = rows.map(|row| row[i / 4 * 2 + kind][i % 4]);
                self.scales[64 + 32 * i + 16 * kind + 4 * self.quad..][..4].copy_from_slice(&four);
            }
        }
    }

    /// Four words of each row, to four code vectors from `at` on.
    #[inline(always)]
    fn vectors(&mut self, at: usize, rows: [__m128i; 4]) {
        for (i, vector) in transpose(rows).into_iter().enumerate() {
            store(self.codes, at + 64 * i + 16 * self.quad, vector);
        }
    }

    /// Fifth bits of 32 columns of each row, to 8 masks from `at` on, in which each row has 4 bits.
    #[inline(always)]
    fn fifth(&mut self, at: usize, rows: [u32; 4]) {
        // The 8 halves of bytes become bytes, then two rows share each.
        let apart = rows.map(|bits| {
            let bits = u64::from(bits);
            let bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
            let bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
            (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f
        });
        let pairs = [apart[0] | apart[1] << 4, apart[2] | apart[3] << 4].map(u64::to_le_bytes);
        for (i, mask) in self.codes[at..at + 64].chunks_exact_mut(8).enumerate() {
            mask[2 * self.quad..][..2].copy_from_slice(&[pairs[0][i], pairs[1][i]]);
        }
    }
}

/// Of 32 bytes from `at` on of each row, the low halves and the high halves, each with the first 16 below the last 16.
#[inline(always)]
fn shared_halves<const SIZE: usize>(from: [&[u8; SIZE]; 4], at: usize) -> [[__m128i; 4]; 2] {
    let (low, high) = (splat(0x0f), splat(0xf0));
    let (mut even, mut odd) = ([low; 4], [low; 4]);
    for (r, row) in from.into_iter().enumerate() {
        let (first, last) = (load(row, at), load(row, at + 16));
        even[r] = or(and(first, low), and(up4(last), high));
        odd[r] = or(and(down4(first), low), and(last, high));
    }
    [even, odd]
}

/// Of 4 vectors of bytes, each with 4 pairs of bits: vector `i` gets pair `i` of each, that of vector `j` as its pair `j`.
#[inline(always)]
fn pairs_transposed([a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
    let (low, high) = (splat(0x33), splat(0xcc));
    // First pairs in place of halves of two pairs, then pairs.
    let (ab_low, ab_high) = (splat(0x0f), splat(0xf0));
    let halves =
        |x, y| [or(and(x, ab_low), and(up4(y), ab_high)), or(and(down4(x), ab_low), and(y, ab_high))];
    let ([ac_low, ac_high], [bd_low, bd_high]) = (halves(a, c), halves(b, d));
    let pairs = |x, y| [or(and(x, low), and(up2(y), high)), or(and(down2(x), low), and(y, high))];
    let ([p0, p1], [p2, p3]) = (pairs(ac_low, bd_low), pairs(ac_high, bd_high));
    [p0, p1, p2, p3]
}

/// Word `i` of row `r` becomes word `r` of vector `i`.
#[inline(always)]
fn transpose([a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
    let (ab, cd) = ([words_low(a, b), words_high(a, b)], [words_low(c, d), words_high(c, d)]);
    [pairs_low(ab[0], cd[0]), pairs_high(ab[0], cd[0]), pairs_low(ab[1], cd[1]), pairs_high(ab[1], cd[1])]
}

macro_rules! instructions {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $call:expr;)*) => {$(
        $(#[$meta])*
        #[inline(always)]
        fn $name($($arg: $type),*) -> $result {
            // SAFETY: each x86-64 processor has them.
            unsafe { $call }
        }
    )*};
}

instructions! {
    fn and(a: __m128i, b: __m128i) -> __m128i = _mm_and_si128(a, b);
    fn or(a: __m128i, b: __m128i) -> __m128i = _mm_or_si128(a, b);
    fn xor(a: __m128i, b: __m128i) -> __m128i = _mm_xor_si128(a, b);
    /// Each byte up by 4 bits; what comes from the byte below is to be masked. So in the next three.
    fn up4(a: __m128i) -> __m128i = _mm_slli_epi16::<4>(a);
    fn up2(a: __m128i) -> __m128i = _mm_slli_epi16::<2>(a);
    fn down4(a: __m128i) -> __m128i = _mm_srli_epi16::<4>(a);
    fn down2(a: __m128i) -> __m128i = _mm_srli_epi16::<2>(a);
    /// Each byte up by 1 bit.
    fn double(a: __m128i) -> __m128i = _mm_add_epi8(a, a);
    /// The highest bit of each byte.
    fn signs(a: __m128i) -> u32 = _mm_movemask_epi8(a).cast_unsigned();
    fn splat(byte: u8) -> __m128i = _mm_set1_epi8(byte.cast_signed());
    /// Values of 2 bytes of the lower halves, in turn.
    fn values_low(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi16(a, b);
    /// Those of the upper halves.
    fn values_high(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi16(a, b);
    /// The bytes of the lower halves, in turn.
    fn bytes_low(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi8(a, b);
    /// The bytes of the upper halves, in turn.
    fn bytes_high(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi8(a, b);
    fn words_low(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi32(a, b);
    fn words_high(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi32(a, b);
    fn pairs_low(a: __m128i, b: __m128i) -> __m128i = _mm_unpacklo_epi64(a, b);
    fn pairs_high(a: __m128i, b: __m128i) -> __m128i = _mm_unpackhi_epi64(a, b);
}

#[inline(always)]
fn words(a: __m128i) -> [[u8; 4]; 4] {
    let mut bytes = [0; 16];
    store(&mut bytes, 0, a);
    let (words, _) = bytes.as_chunks::<4>();
    [words[0], words[1], words[2], words[3]]
}

#[inline(always)]
fn word<const SIZE: usize>(from: &[u8; SIZE], at: usize) -> u32 {
    u32::from_le_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]])
}

/// 16 bytes from `at` on.
#[inline(always)]
fn load<const SIZE: usize>(from: &[u8; SIZE], at: usize) -> __m128i {
    let bytes = &from[at..at + 16];
    // SAFETY: 16 bytes, at any address.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// 16 bytes to `at` and behind it.
#[inline(always)]
fn store(to: &mut [u8], at: usize, vector: __m128i) {
    let bytes = &mut to[at..at + 16];
    // SAFETY: 16 bytes, at any address.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) };
}

#[cfg(test)]
mod tests {
    use super::repack;
    use crate::format::Format;
    use crate::linear::layout::{LANES, group_bytes};
    use crate::linear::repack::repack_plainly;

    #[test]
    fn vectors_give_the_bytes_of_the_definition() {
        for format in Format::ALL {
            for n_cols in [1, 3, 8, 17, 32, 96, 256, 288, 512, 2304] {
                let Some(row_bytes) = format.row_bytes(n_cols) else { continue };
                let mut state = 1u64;
                let bytes: Vec<u8> = std::iter::repeat_with(|| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .take(row_bytes * LANES)
                .collect();
                let rows: [&[u8]; LANES] = std::array::from_fn(|r| &bytes[r * row_bytes..][..row_bytes]);
                let [mut found, mut expected] = [0, 1].map(|_| vec![0; group_bytes(format, n_cols).unwrap()]);
                repack(format, n_cols, &rows, &mut found);
                repack_plainly(format, n_cols, &rows, &mut expected);
                assert!(found == expected, "{} of {n_cols} columns", format.name());
            }
        }
    }
}
