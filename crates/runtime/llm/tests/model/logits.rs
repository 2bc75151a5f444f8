//! Logits of tiny models against the reference, one test for each thing that changes them.

use overdrive_kernels::{Format, KvFormat};
use overdrive_llm::{LoadOptions, Model};

use crate::tiny::{Scaling, Shape, Tiny};
use crate::{all_logits, go_on, load, reference, tokens};

/// Weights as they are, keys and values in half precision.
const CLOSE: f64 = 2e-3;
/// Activations in 8 bits.
const QUANTISED: f64 = 5e-2;

/// Distance of all logits from the reference's, relative to their size.
fn distance(logits: &[f32], reference: &[Vec<f64>]) -> f64 {
    let reference = reference.iter().flatten();
    let square: f64 = logits.iter().zip(reference.clone()).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum();
    (square / reference.map(|b| b * b).sum::<f64>()).sqrt()
}

fn check(shape: Shape, bound: f64) {
    let tiny = Tiny::new(shape);
    let tokens = tokens(7, 90, tiny.shape.n_vocabulary);
    let model = load(&tiny);
    let logits = all_logits(&model, &mut model.sequence(), &tokens);
    let reference = reference::logits(&tiny, &tokens);
    assert_eq!(logits.len(), reference.iter().map(Vec::len).sum::<usize>());
    let distance = distance(&logits, &reference);
    assert!(distance < bound, "{:?}: {distance} from the reference", tiny.shape);
}

#[test]
fn grouped_queries_and_an_untied_head() {
    check(Shape::default(), CLOSE);
}

#[test]
fn a_head_of_keys_for_each_of_queries() {
    check(Shape { n_kv_heads: 4, ..Shape::default() }, CLOSE);
}

#[test]
fn one_head_of_keys_for_all() {
    check(Shape { n_kv_heads: 1, ..Shape::default() }, CLOSE);
}

#[test]
fn a_tied_head() {
    check(Shape { is_tied: true, ..Shape::default() }, CLOSE);
    check(Shape { is_tied: true, format: Format::Q8_0, ..Shape::default() }, QUANTISED);
}

#[test]
fn a_sliding_window() {
    check(Shape { window: Some(11), ..Shape::default() }, CLOSE);
    check(Shape { window: Some(1), ..Shape::default() }, CLOSE);
    check(Shape { window: Some(64), ..Shape::default() }, CLOSE);
}

#[test]
fn part_of_a_head_is_rotated() {
    check(Shape { n_rope: 16, ..Shape::default() }, CLOSE);
}

#[test]
fn positions_are_stretched() {
    check(Shape { scaling: Scaling::Linear(4.0), ..Shape::default() }, CLOSE);
    check(Shape { scaling: Scaling::Yarn(4.0, 64), ..Shape::default() }, CLOSE);
    check(Shape { scaling: Scaling::Divisors, ..Shape::default() }, CLOSE);
}

/// The bound above tells the variants apart.
#[test]
fn the_reference_changes_with_each_of_them() {
    let plain = Tiny::new(Shape::default());
    let tokens = tokens(7, 90, plain.shape.n_vocabulary);
    let model = load(&plain);
    let logits = all_logits(&model, &mut model.sequence(), &tokens);
    let others = [
        Shape { window: Some(64), ..Shape::default() },
        Shape { scaling: Scaling::Linear(4.0), ..Shape::default() },
        Shape { scaling: Scaling::Yarn(4.0, 64), ..Shape::default() },
        Shape { n_rope: 16, ..Shape::default() },
    ];
    for shape in others {
        let mut other = Tiny::new(Shape::default());
        other.shape = shape;
        let distance = distance(&logits, &reference::logits(&other, &tokens));
        assert!(distance > 10.0 * CLOSE, "{:?}: only {distance}", other.shape);
    }
}

#[test]
fn every_format_of_weights() {
    for format in Format::ALL {
        let bound = if format.block_values() == 1 { CLOSE } else { QUANTISED };
        check(Shape { format, n_embed: 256, head_dim: 64, n_rope: 64, n_ff: 512, ..Shape::default() }, bound);
    }
}

#[test]
fn keys_and_values_of_eight_bits() {
    let tiny = Tiny::new(Shape::default());
    let tokens = tokens(7, 90, tiny.shape.n_vocabulary);
    let options = LoadOptions { kv: KvFormat::Q8, ..LoadOptions::default() };
    let model = Model::load(&tiny.file().0, &options, &mut |_, _| go_on()).unwrap();
    let logits = all_logits(&model, &mut model.sequence(), &tokens);
    let distance = distance(&logits, &reference::logits(&tiny, &tokens));
    assert!(distance < QUANTISED, "{distance} from the reference");
}
