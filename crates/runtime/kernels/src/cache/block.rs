//! Keys and values of 64 positions of one layer.
//!
//! In: rows of `f32`. Out: rows of `f32` as they were stored. Keys lie with the positions side by side, `(head, d, position)`, so
//! that 16 positions are scored at a time and a dot product is summed in one order on each processor; values lie
//! `(head, position, d)`. Scales of 8-bit values lie likewise, one for each 32 of `d`.

use crate::aligned::Aligned;
use crate::cache::{GROUP, KvFormat, KvShape, TILE};
use crate::cpu::Level;
use crate::lanes::{LANES, Lanes, on_each_level};

/// Positions behind the last that was put are whatever they were.
#[derive(Clone)]
pub(crate) enum Block {
    /// Half precision.
    F16 {
        /// `(head, d, TILE)`
        keys: Aligned<u16>,
        /// `(head, TILE, padded d)`
        values: Aligned<u16>,
    },
    /// 8 bits with scales.
    Q8 {
        /// `(head, d, TILE)`
        keys: Aligned<i8>,
        /// `(head, group, TILE)`
        key_scales: Aligned<f32>,
        /// `(head, TILE, padded d)`
        values: Aligned<i8>,
        /// `(head, TILE, group)`
        value_scales: Aligned<f32>,
    },
}

impl Block {
    pub(crate) fn new(shape: KvShape, format: KvFormat) -> Self {
        let [keys, values, scales] = Self::lengths(shape);
        match format {
            KvFormat::F16 => Self::F16 { keys: Aligned::new(keys), values: Aligned::new(values) },
            KvFormat::Q8 => Self::Q8 {
                keys: Aligned::new(keys),
                key_scales: Aligned::new(scales),
                values: Aligned::new(values),
                value_scales: Aligned::new(scales),
            },
        }
    }

    /// Elements: keys, values, scales of each.
    fn lengths(shape: KvShape) -> [usize; 3] {
        [shape.head_dim, shape.padded_dim(), shape.n_groups()].map(|n| n * shape.n_kv_heads * TILE)
    }

    pub(crate) fn n_bytes_of(shape: KvShape, format: KvFormat) -> usize {
        let [keys, values, scales] = Self::lengths(shape);
        match format {
            KvFormat::F16 => 2 * (keys + values),
            KvFormat::Q8 => keys + values + 2 * 4 * scales,
        }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        match self {
            Self::F16 { keys, values } => 2 * (keys.len() + values.len()),
            Self::Q8 { keys, key_scales, values, value_scales } => {
                keys.len() + values.len() + 4 * (key_scales.len() + value_scales.len())
            }
        }
    }

    /// Stores rows at the places `at`, `at + 1`, …: `keys` and `values` are `(positions, kv_heads, head_dim)`.
    pub(crate) fn put(&mut self, level: Level, shape: KvShape, at: usize, keys: &[f32], values: &[f32]) {
        put(level, self, shape, at, keys, values);
    }
}

on_each_level! {
    fn put(block: &mut Block, shape: KvShape, at: usize, keys: &[f32], values: &[f32]) = put_in;
}

#[inline(always)]
fn put_in<L: Lanes>(l: L, block: &mut Block, shape: KvShape, at: usize, keys: &[f32], values: &[f32]) {
    let (dim, padded, n_groups) = (shape.head_dim, shape.padded_dim(), shape.n_groups());
    let rows = keys.chunks_exact(shape.row()).zip(values.chunks_exact(shape.row()));
    for (at, (keys_row, values_row)) in (at..).zip(rows) {
        let heads = keys_row.chunks_exact(dim).zip(values_row.chunks_exact(dim));
        for (head, (key, value)) in heads.enumerate() {
            match block {
                Block::F16 { keys, values } => {
                    let columns = &mut keys[head * dim * TILE..][..dim * TILE];
                    for (i, columns) in columns.chunks_mut(LANES * TILE).enumerate() {
                        let halves = l.to_halves(l.load(&vector(key, i)));
                        for (half, places) in halves.iter().zip(columns.as_chunks_mut::<TILE>().0) {
                            places[at] = *half;
                        }
                    }
                    let row = &mut values[(head * TILE + at) * padded..][..padded];
                    for (i, to) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                        *to = l.to_halves(l.load(&vector(value, i)));
                    }
                }
                Block::Q8 { keys, key_scales, values, value_scales } => {
                    for (g, part) in key.chunks(GROUP).enumerate() {
                        let (scale, codes) = quantize(part);
                        key_scales[(head * n_groups + g) * TILE + at] = scale;
                        let columns = &mut keys[(head * dim + g * GROUP) * TILE..][..part.len() * TILE];
                        for (code, places) in codes.iter().zip(columns.as_chunks_mut::<TILE>().0) {
                            places[at] = *code;
                        }
                    }
                    for (g, part) in value.chunks(GROUP).enumerate() {
                        let (scale, codes) = quantize(part);
                        value_scales[(head * TILE + at) * n_groups + g] = scale;
                        let row = &mut values[(head * TILE + at) * padded + g * GROUP..][..part.len()];
                        row.copy_from_slice(&codes[..part.len()]);
                    }
                }
            }
        }
    }
}

/// Vector `i` of a row, zeros behind its end.
#[inline(always)]
fn vector(row: &[f32], i: usize) -> [f32; LANES] {
    let (whole, rest) = row.as_chunks::<LANES>();
    match whole.get(i) {
        Some(vector) => *vector,
        None => {
            let mut vector = [0.0; LANES];
            vector[..rest.len()].copy_from_slice(rest);
            vector
        }
    }
}

/// At most 32 values as `scale · code`, the largest as ±127. Where one is not finite, the scale is no number.
#[inline(always)]
fn quantize(values: &[f32]) -> (f32, [i8; GROUP]) {
    // Adding it rounds to a whole number, to nearest, ties to even, whose low byte is the code.
    const ROUND: f32 = 12_582_912.0;
    let own: [f32; GROUP] = values.try_into().unwrap_or_else(|_| {
        let mut own = [0.0; GROUP];
        own[..values.len()].copy_from_slice(values);
        own
    });
    let mut codes = [0; GROUP];
    // Without signs, bits are ordered as the numbers are.
    let largest = own.iter().fold(0, |largest, x| (x.to_bits() & 0x7FFF_FFFF).max(largest));
    if largest >= f32::INFINITY.to_bits() {
        return (f32::NAN, codes);
    }
    let scale = f32::from_bits(largest) / 127.0;
    // The smallest numbers have no quotients: a group of them is 0.
    if scale < f32::MIN_POSITIVE {
        return (0.0, codes);
    }
    for (code, x) in codes.iter_mut().zip(&own) {
        // At most 127 by magnitude: |x| ≤ largest.
        *code = (x / scale + ROUND).to_bits() as i8;
    }
    (scale, codes)
}

impl Block {
    /// Keys of one head as `f32`: `(d, TILE)`.
    #[inline(always)]
    pub(crate) fn widen_keys<L: Lanes>(&self, l: L, shape: KvShape, head: usize, out: &mut [f32]) {
        let dim = shape.head_dim;
        let out = out[..dim * TILE].as_chunks_mut::<TILE>().0;
        match self {
            Self::F16 { keys, .. } => {
                let keys = keys[head * dim * TILE..][..dim * TILE].as_chunks::<TILE>().0;
                for (from, to) in keys.iter().zip(out) {
                    for (from, to) in vectors(from).iter().zip(to.as_chunks_mut::<LANES>().0) {
                        l.store(l.widen_halves(from), to);
                    }
                }
            }
            Self::Q8 { keys, key_scales, .. } => {
                let keys = keys[head * dim * TILE..][..dim * TILE].as_chunks::<TILE>().0;
                let scales = key_scales[head * shape.n_groups() * TILE..].as_chunks::<TILE>().0;
                for ((keys, out), scales) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)).zip(scales) {
                    for (i, scale) in vectors(scales).iter().enumerate() {
                        let scale = l.load(scale);
                        for (from, to) in keys.iter().zip(out.iter_mut()) {
                            let to = &mut to.as_chunks_mut::<LANES>().0[i];
                            l.store(l.mul(l.widen_bytes(&vectors(from)[i]), scale), to);
                        }
                    }
                }
            }
        }
    }

    /// Values of one head at the places from `from` to `to` as `f32`: `(TILE, padded d)`, other rows are left.
    #[inline(always)]
    pub(crate) fn widen_values<L: Lanes>(
        &self,
        l: L,
        shape: KvShape,
        head: usize,
        from: usize,
        to: usize,
        out: &mut [f32],
    ) {
        let padded = shape.padded_dim();
        let out = out[from * padded..to * padded].as_chunks_mut::<LANES>().0;
        match self {
            Self::F16 { values, .. } => {
                let values = &values[(head * TILE + from) * padded..(head * TILE + to) * padded];
                for (from, to) in values.as_chunks::<LANES>().0.iter().zip(out) {
                    l.store(l.widen_halves(from), to);
                }
            }
            Self::Q8 { values, value_scales, .. } => {
                let n_groups = shape.n_groups();
                let values = &values[(head * TILE + from) * padded..(head * TILE + to) * padded];
                let scales = &value_scales[(head * TILE + from) * n_groups..(head * TILE + to) * n_groups];
                let rows = values.chunks_exact(padded).zip(out.chunks_exact_mut(padded / LANES));
                for ((from, to), scales) in rows.zip(scales.chunks_exact(n_groups)) {
                    let groups = from.chunks(GROUP).zip(to.chunks_mut(GROUP / LANES));
                    for ((from, to), scale) in groups.zip(scales) {
                        for (from, to) in from.as_chunks::<LANES>().0.iter().zip(to) {
                            l.store(l.mul(l.widen_bytes(from), l.splat(*scale)), to);
                        }
                    }
                }
            }
        }
    }
}

/// A row of a tile as vectors.
#[inline(always)]
fn vectors<T>(row: &[T; TILE]) -> &[[T; LANES]] {
    row.as_chunks::<LANES>().0
}
