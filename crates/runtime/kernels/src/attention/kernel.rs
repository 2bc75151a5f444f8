//! The two products of attention for a block of up to `Lanes::ROWS` rows: queries with a tile of keys, weights with a tile of values.
//!
//! In: tiles as `f32`. Out: sums, each in one order, whatever the number of rows: lanes are positions in the first product and
//! `d` in the second, so no sum runs across lanes. The sums of a block stay in registers while the tile passes by.

#![expect(unsafe_code, reason = "reads without a test in the innermost loops, behind one test for each call")]

use crate::cache::TILE;
use crate::lanes::{LANES, Lanes};

/// `out[r * stride + position] = Σ queries[r][d] · keys[d][position]` for the first `n_vectors` vectors of positions.
#[inline(always)]
pub(crate) fn scores<L: Lanes>(
    l: L,
    n_rows: usize,
    n_vectors: usize,
    queries: &[f32],
    keys: &[[f32; TILE]],
    out: &mut [f32],
    stride: usize,
) {
    let mut at = 0;
    while at < n_vectors {
        let n = L::COLUMNS.min(n_vectors - at);
        let out = &mut out[at * LANES..];
        match n {
            1 => scores_of_rows::<L, 1>(l, n_rows, at, queries, keys, out, stride),
            2 => scores_of_rows::<L, 2>(l, n_rows, at, queries, keys, out, stride),
            3 => scores_of_rows::<L, 3>(l, n_rows, at, queries, keys, out, stride),
            _ => scores_of_rows::<L, 4>(l, n_rows, at, queries, keys, out, stride),
        }
        at += n;
    }
}

#[inline(always)]
fn scores_of_rows<L: Lanes, const C: usize>(
    l: L,
    n_rows: usize,
    at: usize,
    queries: &[f32],
    keys: &[[f32; TILE]],
    out: &mut [f32],
    stride: usize,
) {
    match n_rows {
        1 => scores_of::<L, 1, C>(l, at, queries, keys, out, stride),
        2 => scores_of::<L, 2, C>(l, at, queries, keys, out, stride),
        3 => scores_of::<L, 3, C>(l, at, queries, keys, out, stride),
        4 => scores_of::<L, 4, C>(l, at, queries, keys, out, stride),
        5 => scores_of::<L, 5, C>(l, at, queries, keys, out, stride),
        _ => scores_of::<L, 6, C>(l, at, queries, keys, out, stride),
    }
}

#[inline(always)]
fn scores_of<L: Lanes, const R: usize, const C: usize>(
    l: L,
    at: usize,
    queries: &[f32],
    keys: &[[f32; TILE]],
    out: &mut [f32],
    stride: usize,
) {
    if C > L::COLUMNS || R > L::ROWS {
        return; // never: no code is made for it
    }
    let dim = keys.len();
    assert!((at + C) * LANES <= TILE && queries.len() >= R * dim);
    let mut sums = [[l.splat(0.0); C]; R];
    for (d, keys) in keys.iter().enumerate() {
        let keys = keys.as_chunks::<LANES>().0;
        let mut columns = [l.splat(0.0); C];
        for (c, column) in columns.iter_mut().enumerate() {
            // SAFETY: `at + C` vectors are in a row of the tile.
            *column = l.load(unsafe { keys.get_unchecked(at + c) });
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `d < dim`, and there are `R` rows of `dim` elements.
            let q = l.splat(unsafe { *queries.get_unchecked(r * dim + d) });
            for (sum, column) in sums.iter_mut().zip(&columns) {
                *sum = l.fma(q, *column, *sum);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let out = out[r * stride..][..C * LANES].as_chunks_mut::<LANES>().0;
        for (sum, out) in sums.iter().zip(out) {
            l.store(*sum, out);
        }
    }
}

/// `sums[r * stride + d] += Σ p[r * p_stride + i] · values[i][d]`; `values` is `(positions, dim)`, `dim` whole vectors.
#[expect(clippy::too_many_arguments, reason = "two matrices and their steps")]
#[inline(always)]
pub(crate) fn weigh<L: Lanes>(
    l: L,
    n_rows: usize,
    p: &[f32],
    p_stride: usize,
    values: &[f32],
    dim: usize,
    sums: &mut [f32],
    stride: usize,
) {
    let mut at = 0;
    while at < dim {
        let n = L::COLUMNS.min((dim - at) / LANES);
        match n {
            1 => weigh_rows::<L, 1>(l, n_rows, at, p, p_stride, values, dim, sums, stride),
            2 => weigh_rows::<L, 2>(l, n_rows, at, p, p_stride, values, dim, sums, stride),
            3 => weigh_rows::<L, 3>(l, n_rows, at, p, p_stride, values, dim, sums, stride),
            _ => weigh_rows::<L, 4>(l, n_rows, at, p, p_stride, values, dim, sums, stride),
        }
        at += n * LANES;
    }
}

#[expect(clippy::too_many_arguments, reason = "two matrices and their steps")]
#[inline(always)]
fn weigh_rows<L: Lanes, const C: usize>(
    l: L,
    n_rows: usize,
    at: usize,
    p: &[f32],
    p_stride: usize,
    values: &[f32],
    dim: usize,
    sums: &mut [f32],
    stride: usize,
) {
    match n_rows {
        1 => weigh_of::<L, 1, C>(l, at, p, p_stride, values, dim, sums, stride),
        2 => weigh_of::<L, 2, C>(l, at, p, p_stride, values, dim, sums, stride),
        3 => weigh_of::<L, 3, C>(l, at, p, p_stride, values, dim, sums, stride),
        4 => weigh_of::<L, 4, C>(l, at, p, p_stride, values, dim, sums, stride),
        5 => weigh_of::<L, 5, C>(l, at, p, p_stride, values, dim, sums, stride),
        _ => weigh_of::<L, 6, C>(l, at, p, p_stride, values, dim, sums, stride),
    }
}

#[expect(clippy::too_many_arguments, reason = "two matrices and their steps")]
#[inline(always)]
fn weigh_of<L: Lanes, const R: usize, const C: usize>(
    l: L,
    at: usize,
    p: &[f32],
    p_stride: usize,
    values: &[f32],
    dim: usize,
    all_sums: &mut [f32],
    stride: usize,
) {
    if C > L::COLUMNS || R > L::ROWS {
        return; // never: no code is made for it
    }
    let n = values.len() / dim;
    assert!(p.len() >= (R - 1) * p_stride + n && at + C * LANES <= dim);
    let mut sums = [[l.splat(0.0); C]; R];
    for (r, sums) in sums.iter_mut().enumerate() {
        let from = all_sums[r * stride + at..][..C * LANES].as_chunks::<LANES>().0;
        for (sum, from) in sums.iter_mut().zip(from) {
            *sum = l.load(from);
        }
    }
    for (i, value) in values.chunks_exact(dim).enumerate() {
        let value = value.as_chunks::<LANES>().0;
        let mut columns = [l.splat(0.0); C];
        for (c, column) in columns.iter_mut().enumerate() {
            // SAFETY: `at` is whole vectors, and `at + C * LANES` elements are in a row.
            *column = l.load(unsafe { value.get_unchecked(at / LANES + c) });
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `i < n`, and row `r` has `n` elements.
            let p = l.splat(unsafe { *p.get_unchecked(r * p_stride + i) });
            for (sum, column) in sums.iter_mut().zip(&columns) {
                *sum = l.fma(p, *column, *sum);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        let to = all_sums[r * stride + at..][..C * LANES].as_chunks_mut::<LANES>().0;
        for (sum, to) in sums.iter().zip(to) {
            l.store(*sum, to);
        }
    }
}
