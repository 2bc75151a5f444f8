//! Norms, rotations, gates: near their formulas, and the same on every level.

use super::{FEW, add_all, rms_norm, rms_norm_row, rotate, rotate_neighbours, swiglu, swiglu_all};
use crate::cpu::Level;
use crate::lanes::levels;
use crate::random::normal;

const LENGTHS: [usize; 9] = [1, 2, 15, 16, 17, 64, 576, 1001, 4096];

/// `NaN`s are equal, whatever they carry.
fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
}

fn with_strange(n: usize, seed: u64) -> Vec<f32> {
    let mut x = normal(n, seed);
    for (i, strange) in
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-41, -0.0, f32::MAX].into_iter().enumerate()
    {
        if n > 20 {
            x[i * 3 + 1] = strange;
        }
    }
    x
}

#[test]
fn every_level_gives_the_bits_of_scalar() {
    for n in LENGTHS {
        for strange in [false, true] {
            let x = if strange { with_strange(n, 1) } else { normal(n, 1) };
            let (y, mut norm, mut sum, mut gate) = (normal(n, 2), vec![0.0; n], x.clone(), x.clone());
            rms_norm_row(Level::Scalar, &x, &y, 1e-5, &mut norm);
            add_all(Level::Scalar, &mut sum, &y);
            swiglu_all(Level::Scalar, &mut gate, &y);
            for level in levels() {
                let (mut a, mut b, mut c) = (vec![0.0; n], x.clone(), x.clone());
                rms_norm_row(level, &x, &y, 1e-5, &mut a);
                add_all(level, &mut b, &y);
                swiglu_all(level, &mut c, &y);
                assert!(same(&a, &norm) && same(&b, &sum) && same(&c, &gate), "{level:?} {n} {strange}");
            }
        }
    }
    for (dim, n_angles) in [(64, 32), (64, 16), (128, 64), (80, 40), (6, 3), (2, 1), (5, 2)] {
        let (x, table) = (normal(9 * dim, 3), angles(n_angles));
        let mut turned = x.clone();
        rotate_neighbours(Level::Scalar, &mut turned, dim, &table);
        for level in levels() {
            let mut other = x.clone();
            rotate_neighbours(level, &mut other, dim, &table);
            assert!(same(&other, &turned), "{level:?} {dim}");
        }
    }
}

#[test]
fn a_norm_is_what_its_formula_says() {
    for n in LENGTHS {
        let (x, weight) = (normal(3 * n, 4), normal(n, 5));
        let mut out = vec![0.0; 3 * n];
        rms_norm(&x, &weight, 1e-5, &mut out);
        for (x, out) in x.chunks_exact(n).zip(out.chunks_exact(n)) {
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n as f64;
            for ((x, weight), out) in x.iter().zip(&weight).zip(out) {
                let truth = f64::from(*x) * f64::from(*weight) / (mean + f64::from(1e-5f32)).sqrt();
                assert!((f64::from(*out) - truth).abs() <= 1e-6 * truth.abs(), "{n}: {out} for {truth}");
            }
        }
    }
}

#[test]
fn a_gate_is_what_its_formula_says() {
    let gate: Vec<f32> = (0..2001).map(|i| (i as f32 - 1000.0) * 0.087).collect();
    let up = normal(gate.len(), 6);
    let mut out = gate.clone();
    swiglu(&mut out, &up);
    for ((gate, up), out) in gate.iter().zip(&up).zip(&out) {
        let truth = f64::from(*gate) / (1.0 + (-f64::from(*gate)).exp()) * f64::from(*up);
        assert!((f64::from(*out) - truth).abs() <= 1e-6 * truth.abs() + 1e-38, "{gate}: {out} for {truth}");
    }
    let mut far = [-1e30, 1e30, f32::NAN];
    swiglu(&mut far, &[1.0; 3]);
    assert_eq!(far[..2], [0.0, 1e30]);
    assert!(far[2].is_nan());
}

fn angles(n: usize) -> Vec<(f32, f32)> {
    (0..n).map(|i| 0.7 * (i as f32 + 1.0)).map(|angle| (angle.cos(), angle.sin())).collect()
}

#[test]
fn rotations_turn_their_pairs_and_leave_the_rest() {
    let table = angles(3);
    let x = normal(2 * 8, 7);
    let mut turned = x.clone();
    rotate(&mut turned, 8, &table);
    for (x, turned) in x.chunks_exact(8).zip(turned.chunks_exact(8)) {
        for (i, (cos, sin)) in table.iter().enumerate() {
            let (a, b) = (2 * i, 2 * i + 1);
            assert!((turned[a] - (x[a] * cos - x[b] * sin)).abs() < 1e-6);
            assert!((turned[b] - (x[a] * sin + x[b] * cos)).abs() < 1e-6);
        }
        assert_eq!(x[6..], turned[6..]);
    }
}

#[test]
fn many_rows_on_several_threads_are_the_rows_alone() {
    let n = 576;
    let n_rows = 2 * FEW / n;
    let (x, weight) = (normal(n * n_rows, 8), normal(n, 9));
    let (mut norm, mut gate) = (vec![0.0; x.len()], x.clone());
    rms_norm(&x, &weight, 1e-5, &mut norm);
    swiglu(&mut gate, &norm);
    for (r, x) in x.chunks_exact(n).enumerate() {
        let (mut alone, mut gate_alone) = (vec![0.0; n], x.to_vec());
        rms_norm(x, &weight, 1e-5, &mut alone);
        swiglu(&mut gate_alone, &alone);
        assert!(same(&alone, &norm[r * n..][..n]) && same(&gate_alone, &gate[r * n..][..n]), "row {r}");
    }
}
