//! From rows of blocks, as files hold them, to groups of 16 rows side by side.
//!
//! In: up to 16 rows of bytes. Out: one group, whose bytes were zero. Four codes are moved at a time, as a word of 32 bits.

use super::layout::{BLOCK, Codes, LANES, Packing, Scales};
use crate::format::{Format, scale_and_minimum};

/// `rows` are the bytes of rows of `n_cols` values; fewer than 16 in the last group.
pub(crate) fn repack(format: Format, n_cols: usize, rows: &[&[u8]], group: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Ok(rows) = rows.try_into() {
        return super::quads::repack(format, n_cols, rows, group);
    }
    repack_plainly(format, n_cols, rows, group);
}

/// The definition.
pub(super) fn repack_plainly(format: Format, n_cols: usize, rows: &[&[u8]], group: &mut [u8]) {
    match format {
        // Two columns of BF16 are moved as one.
        Format::F32 | Format::BF16 => interleave::<4>(rows, group),
        Format::F16 => interleave::<2>(rows, group),
        Format::Q4_0 => {
            blocks::<18, 1>(format, n_cols, rows, group, |source, _| small(source, false, None, 2))
        }
        Format::Q4_1 => {
            blocks::<20, 1>(format, n_cols, rows, group, |source, _| small(source, true, None, 4))
        }
        Format::Q5_0 => {
            blocks::<22, 1>(format, n_cols, rows, group, |source, _| small(source, false, Some(2), 6))
        }
        Format::Q5_1 => {
            blocks::<24, 1>(format, n_cols, rows, group, |source, _| small(source, true, Some(4), 8))
        }
        Format::Q8_0 => blocks::<34, 1>(format, n_cols, rows, group, |source, _| eight(source)),
        Format::Q4K => blocks::<144, 8>(format, n_cols, rows, group, four_k),
        Format::Q5K => blocks::<176, 8>(format, n_cols, rows, group, five_k),
        Format::Q6K => blocks::<210, 8>(format, n_cols, rows, group, six_k),
    }
}

/// `SIZE` bytes of each of 16 rows, then the next; what a row has less than that at its end is zeros.
pub(super) fn interleave<const SIZE: usize>(rows: &[&[u8]], group: &mut [u8]) {
    for (r, row) in rows.iter().enumerate() {
        let places = group.chunks_exact_mut(LANES * SIZE);
        for (value, column) in row.chunks(SIZE).zip(places) {
            column[r * SIZE..][..value.len()].copy_from_slice(value);
        }
    }
}

/// What 32 columns of one row become. Unused parts stay zero.
#[derive(Clone, Copy, Default)]
struct Block {
    /// Of the format's own block (f16): scale, minimum.
    outer: [[u8; 2]; 2],
    /// Factors of these, of the block.
    inner: [u8; 2],
    /// Bytes of the row in the first 4 (halves) or all 8 vectors.
    words: [u32; 8],
    /// Fifth bits, the first column lowest.
    fifth: u32,
    /// Bytes of the row in the planes of fifth and sixth bits.
    planes: [u32; 2],
}

/// Brings each block of each row to its place; `split` makes one block of `SIZE` bytes the `N` of ours.
#[inline(always)]
fn blocks<const SIZE: usize, const N: usize>(
    format: Format,
    n_cols: usize,
    rows: &[&[u8]],
    group: &mut [u8],
    split: impl Fn(&[u8; SIZE], usize) -> Block,
) {
    let Some(packing) = Packing::of(format) else { return };
    let n_blocks = n_cols / BLOCK;
    let cell_blocks = packing.scales.cell();
    for first in (0..n_blocks).step_by(cell_blocks) {
        let n = cell_blocks.min(n_blocks - first);
        let cell = &mut group[packing.cell_start(first)..][..packing.cell_bytes(n)];
        let (scales, codes) = cell.split_at_mut(packing.scales.bytes(n));
        for (r, row) in rows.iter().enumerate() {
            let sources = row[first / N * SIZE..].as_chunks::<SIZE>().0;
            for (i, source) in sources.iter().enumerate().take(n / N) {
                for j in 0..N {
                    let block = split(source, j);
                    let b = i * N + j;
                    put_scales(packing.scales, &block, r, b, scales);
                    let codes = &mut codes[b * packing.codes.bytes()..][..packing.codes.bytes()];
                    put_codes(packing.codes, &block, r, codes);
                }
            }
        }
    }
}

/// Row `r` of block `b` of a cell.
#[inline(always)]
fn put_scales(kind: Scales, block: &Block, r: usize, b: usize, scales: &mut [u8]) {
    match kind {
        Scales::Half => scales[b * 32 + r * 2..][..2].copy_from_slice(&block.outer[0]),
        Scales::HalfMin => {
            scales[b * 64 + r * 2..][..2].copy_from_slice(&block.outer[0]);
            scales[b * 64 + 32 + r * 2..][..2].copy_from_slice(&block.outer[1]);
        }
        Scales::Super | Scales::SuperHalves => {
            if b == 0 {
                scales[r * 2..][..2].copy_from_slice(&block.outer[0]);
                scales[32 + r * 2..][..2].copy_from_slice(&block.outer[1]);
            }
            scales[64 + b * 32 + r] = block.inner[0];
            scales[64 + b * 32 + 16 + r] = block.inner[1];
        }
        Scales::Single | Scales::SingleMin | Scales::SpanMin | Scales::SpanHalves => {
            unreachable!("no format is packed with unpacked scales")
        }
    }
}

/// Row `r` of a block.
#[inline(always)]
fn put_codes(kind: Codes, block: &Block, r: usize, codes: &mut [u8]) {
    let (vectors, rest) = codes.split_at_mut(if kind == Codes::Eight { 512 } else { 256 });
    for (vector, word) in vectors.chunks_exact_mut(64).zip(block.words) {
        vector[4 * r..][..4].copy_from_slice(&word.to_le_bytes());
    }
    match kind {
        Codes::Four | Codes::Eight => {}
        Codes::Five => {
            for (i, mask) in rest.chunks_exact_mut(8).enumerate() {
                // Two rows share a byte.
                mask[r / 2] |= ((block.fifth >> (4 * i) & 15) as u8) << (r % 2 * 4);
            }
        }
        Codes::Six => {
            for (plane, word) in rest.chunks_exact_mut(64).zip(block.planes) {
                plane[4 * r..][..4].copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// Word `i` behind byte `at`.
#[inline(always)]
fn word(bytes: &[u8], at: usize, i: usize) -> u32 {
    u32::from_le_bytes([
        bytes[at + 4 * i],
        bytes[at + 4 * i + 1],
        bytes[at + 4 * i + 2],
        bytes[at + 4 * i + 3],
    ])
}

#[inline(always)]
fn pair(bytes: &[u8], at: usize) -> [u8; 2] {
    [bytes[at], bytes[at + 1]]
}

/// Formats of 32 values whose halves lie as ours do, in front of them the scale, then the minimum where there is one; then fifth
/// bits.
#[inline(always)]
fn small<const SIZE: usize>(
    source: &[u8; SIZE],
    has_minimum: bool,
    fifth: Option<usize>,
    codes: usize,
) -> Block {
    let mut block = Block { outer: [pair(source, 0), [0; 2]], ..Block::default() };
    if has_minimum {
        block.outer[1] = pair(source, 2);
    }
    if let Some(at) = fifth {
        block.fifth = word(source, at, 0);
    }
    for i in 0..4 {
        block.words[i] = word(source, codes, i);
    }
    block
}

/// 32 signed bytes.
#[inline(always)]
fn eight(source: &[u8; 34]) -> Block {
    let words = std::array::from_fn(|i| word(source, 2, i) ^ 0x8080_8080);
    Block { outer: [pair(source, 0), [0; 2]], words, ..Block::default() }
}

const LOW: u32 = 0x0f0f_0f0f;

/// Words of group `i`, whose codes lie from `at` on: two groups share 32 bytes.
#[inline(always)]
fn shared_halves(source: &[u8], at: usize, i: usize) -> [u32; 8] {
    let shift = i % 2 * 4;
    let mut words = [0; 8];
    for (v, out) in words.iter_mut().enumerate().take(4) {
        let (first, last) = (word(source, at, v) >> shift & LOW, word(source, at, v + 4) >> shift & LOW);
        *out = first | last << 4;
    }
    words
}

/// Group `i` of a block.
#[inline(always)]
fn four_k(source: &[u8; 144], i: usize) -> Block {
    let (scale, minimum) = scale_and_minimum(&source[4..16], i);
    let words = shared_halves(source, 16 + i / 2 * 32, i);
    Block { outer: [pair(source, 0), pair(source, 2)], inner: [scale, minimum], words, ..Block::default() }
}

/// As `four_k`; between scales and codes lie 32 bytes with the fifth bits of group `i` at bit `i`.
#[inline(always)]
fn five_k(source: &[u8; 176], i: usize) -> Block {
    let (scale, minimum) = scale_and_minimum(&source[4..16], i);
    let words = shared_halves(source, 48 + i / 2 * 32, i);
    let mut fifth = 0;
    for v in 0..8 {
        // The product brings bit 8 j to bit 24 + j, for j from 0 to 3.
        let bits = word(source, 16, v) >> i & 0x0101_0101;
        fifth |= (bits.wrapping_mul(0x0102_0408) >> 24 & 15) << (4 * v);
    }
    Block {
        outer: [pair(source, 0), pair(source, 2)],
        inner: [scale, minimum],
        words,
        fifth,
        ..Block::default()
    }
}

/// Group `i` of a block of two parts of 128, in each four runs of 32 that share bytes.
#[inline(always)]
fn six_k(source: &[u8; 210], i: usize) -> Block {
    let (part, run) = (i / 4, i % 4);
    let low = |w| word(source, part * 64 + run % 2 * 32, w) >> (run / 2 * 4) & LOW;
    let high = |w| word(source, 128 + part * 32, w) >> (run * 2) & 0x0303_0303;
    let mut words = [0; 8];
    for (v, out) in words.iter_mut().enumerate().take(4) {
        *out = low(v) | low(v + 4) << 4;
    }
    let planes =
        [0, 4].map(|first| high(first) | high(first + 1) << 2 | high(first + 2) << 4 | high(first + 3) << 6);
    let inner = [source[192 + 2 * i], source[193 + 2 * i]];
    Block { outer: [pair(source, 208), [0; 2]], inner, words, planes, ..Block::default() }
}
