//! What is done to rows of activations: norms, rotations, gates, sums.
//!
//! In and out: rows of `f32`. Every level gives the bits of `Scalar`: what happens to one element is the same sequence of
//! operations, and a sum over a row keeps 16 partial sums, the one of `x[i]` is number `i mod 16`. Large inputs are cut by
//! rows and shared with the threads of the pool; a row never knows.

use std::ops::Range;

use crate::cpu::level;
use crate::exp::exp;
use crate::lanes::{LANES, Lanes, on_each_level};
use crate::spread::spread;

/// Elements that one thread does faster than it wakes another.
const FEW: usize = 1 << 15;

/// `out[i] = x[i] / sqrt(mean(x²) + epsilon) · weight[i]`, for each row of `weight.len()` values.
///
/// # Panics
/// When `x` and `out` differ in length or are no whole number of rows.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let n = weight.len();
    assert!(
        x.len() == out.len() && x.len().is_multiple_of(n),
        "{} and {} values in rows of {n}",
        x.len(),
        out.len()
    );
    let level = level();
    spread(out, n, FEW, &|rows: Range<usize>, out: &mut [f32]| {
        let x = &x[rows.start * n..rows.end * n];
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
            rms_norm_row(level, x, weight, epsilon, out);
        }
    });
}

/// `x[i] += y[i]`.
///
/// # Panics
/// When lengths differ.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "sums of arrays of different lengths");
    add_all(level(), x, y);
}

/// `gate[i] = gate[i] / (1 + exp(-gate[i])) · up[i]`.
///
/// # Panics
/// When lengths differ.
pub fn swiglu(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "a gate for each value");
    let level = level();
    // Any cut does: no element knows another.
    spread(gate, LANES * 64, FEW, &|pieces: Range<usize>, gate: &mut [f32]| {
        let up = &up[pieces.start * LANES * 64..][..gate.len()];
        swiglu_all(level, gate, up);
    });
}

/// Rotates neighbours `(x[2i], x[2i+1])` of each head by the angle whose cosine and sine are `table[i]`; values of a head
/// behind the table stay. `x` is `(heads, head_dim)`.
///
/// # Panics
/// When `x` is no whole number of heads or the table longer than half of one.
pub fn rotate(x: &mut [f32], head_dim: usize, table: &[(f32, f32)]) {
    assert!(x.len().is_multiple_of(head_dim), "{} values are no heads of {head_dim}", x.len());
    assert!(table.len() <= head_dim / 2, "{} angles for a head of {head_dim}", table.len());
    rotate_neighbours(level(), x, head_dim, table);
}

on_each_level! {
    fn rms_norm_row(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) = rms_norm_in;
    fn add_all(x: &mut [f32], y: &[f32]) = add_in;
    fn swiglu_all(gate: &mut [f32], up: &[f32]) = swiglu_in;
    fn rotate_neighbours(x: &mut [f32], head_dim: usize, table: &[(f32, f32)]) = rotate_neighbours_in;
}

#[inline(always)]
fn rms_norm_in<L: Lanes>(l: L, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let (vectors, rest) = x.as_chunks::<LANES>();
    let mut squares = l.splat(0.0);
    for x in vectors {
        let x = l.load(x);
        squares = l.fma(x, x, squares);
    }
    let x = l.load(&padded(rest));
    let squares = l.fma(x, x, squares);
    let scale =
        l.splat(1.0 / (l.sum(squares) / (vectors.len() * LANES + rest.len()) as f32 + epsilon).sqrt());
    let (weights, last_weights) = weight.as_chunks::<LANES>();
    let (outs, last_out) = out.as_chunks_mut::<LANES>();
    for ((x, weight), out) in vectors.iter().zip(weights).zip(outs) {
        l.store(l.mul(l.mul(l.load(x), scale), l.load(weight)), out);
    }
    let last = l.to_array(l.mul(l.mul(x, scale), l.load(&padded(last_weights))));
    last_out.copy_from_slice(&last[..last_out.len()]);
}

#[inline(always)]
fn add_in<L: Lanes>(_: L, x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

#[inline(always)]
fn swiglu_in<L: Lanes>(l: L, gate: &mut [f32], up: &[f32]) {
    let (gates, last_gate) = gate.as_chunks_mut::<LANES>();
    let (ups, last_up) = up.as_chunks::<LANES>();
    for (gate, up) in gates.iter_mut().zip(ups) {
        l.store(gated(l, l.load(gate), l.load(up)), gate);
    }
    let last = l.to_array(gated(l, l.load(&padded(last_gate)), l.load(&padded(last_up))));
    last_gate.copy_from_slice(&last[..last_gate.len()]);
}

#[inline(always)]
fn gated<L: Lanes>(l: L, gate: L::V, up: L::V) -> L::V {
    let e = exp(l, l.sub(l.splat(0.0), gate));
    l.mul(l.div(gate, l.add(e, l.splat(1.0))), up)
}

#[inline(always)]
fn rotate_neighbours_in<L: Lanes>(_: L, x: &mut [f32], head_dim: usize, table: &[(f32, f32)]) {
    for head in x.chunks_exact_mut(head_dim) {
        for (pair, &angle) in head.as_chunks_mut::<2>().0.iter_mut().zip(table) {
            let ([a, b], (cos, sin)) = (*pair, angle);
            *pair = [a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos)];
        }
    }
}

/// Up to 16 values, zeros behind.
#[inline(always)]
fn padded(values: &[f32]) -> [f32; LANES] {
    let mut v = [0.0; LANES];
    v[..values.len()].copy_from_slice(values);
    v
}

#[cfg(test)]
mod tests;
