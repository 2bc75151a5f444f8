//! What the options promise, on logits small enough to count.

use super::{Sampler, Sampling, SamplingError, log_probs};

const NOT: f32 = f32::NEG_INFINITY;

fn one(logits: &[f32], options: Sampling) -> Result<u32, SamplingError> {
    Sampler::new(options)?.sample(logits, &[])
}

fn drawn(logits: &[f32], options: &Sampling, seeds: std::ops::Range<u64>) -> Vec<u32> {
    let mut ids: Vec<u32> = seeds
        .map(|seed| one(logits, Sampling { seed: Some(seed), ..options.clone() }).expect("sound logits"))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[test]
fn temperature_zero_takes_the_lowest_of_the_largest() {
    assert_eq!(one(&[1.0, 3.0, 3.0, NOT], Sampling::greedy()), Ok(1));
    assert_eq!(one(&[NOT, NOT, -5.0], Sampling::greedy()), Ok(2));
}

#[test]
fn filters_that_are_off_leave_everything_possible() {
    let logits = [1.0, 3.0, 3.0, NOT];
    assert_eq!(drawn(&logits, &Sampling::default(), 0..400), [0, 1, 2]);
    assert_eq!(drawn(&logits, &Sampling { top_k: 1, ..Sampling::default() }, 0..50), [1]);
    assert_eq!(drawn(&logits, &Sampling { top_k: 2, ..Sampling::default() }, 0..50), [1, 2]);
}

#[test]
fn top_p_keeps_the_shortest_head_that_reaches_it() {
    let logits = [0.5f32, 0.3, 0.15, 0.05].map(f32::ln);
    let with = |top_p| drawn(&logits, &Sampling { top_p, ..Sampling::default() }, 0..600);
    assert_eq!(with(0.0), [0]);
    assert_eq!(with(0.49), [0]);
    assert_eq!(with(0.6), [0, 1]);
    assert_eq!(with(0.9), [0, 1, 2]);
    assert_eq!(with(1.0), [0, 1, 2, 3]);
}

#[test]
fn top_p_looks_at_more_than_its_first_selection() {
    // 1,000 equal tokens: the head of half the weight is the 500 lowest ids, more than one selection brings.
    let ids = drawn(&[0.0; 1000], &Sampling { top_p: 0.5, ..Sampling::default() }, 0..4000);
    assert!(ids.len() > 450 && ids.iter().all(|&id| id < 500), "{} up to {:?}", ids.len(), ids.last());
}

#[test]
fn min_p_is_a_part_of_the_most_probable() {
    let logits = [0.5f32, 0.3, 0.15, 0.05].map(f32::ln);
    let with = |min_p| drawn(&logits, &Sampling { min_p, ..Sampling::default() }, 0..600);
    assert_eq!(with(0.5), [0, 1]);
    assert_eq!(with(0.2), [0, 1, 2]);
    assert_eq!(with(1.0), [0]);
}

#[test]
fn a_filter_that_filters_nothing_changes_no_draw() {
    let logits: Vec<f32> =
        (0..5000u32).map(|id| (id.wrapping_mul(2_654_435_761) >> 20) as f32 / 512.0).collect();
    for seed in 0..50 {
        let plain = Sampling { seed: Some(seed), ..Sampling::default() };
        let chosen = one(&logits, plain.clone());
        assert_eq!(chosen, one(&logits, Sampling { top_k: 5000, ..plain.clone() }));
        assert_eq!(chosen, one(&logits, Sampling { min_p: 1e-300, ..plain.clone() }));
        assert_eq!(chosen, one(&logits, Sampling { repetition_penalty: 1.3, ..plain }), "no token was seen");
    }
}

#[test]
fn frequencies_are_the_probabilities() {
    let probabilities = [0.5f32, 0.3, 0.15, 0.05];
    let mut sampler = Sampler::new(Sampling { seed: Some(3), ..Sampling::default() }).expect("sound options");
    let mut counts = [0usize; 4];
    let n = 40_000;
    for _ in 0..n {
        counts[sampler.sample(&probabilities.map(f32::ln), &[]).expect("sound logits") as usize] += 1;
    }
    for (count, probability) in counts.into_iter().zip(probabilities) {
        // Five standard deviations.
        let spread = 5.0 * (f64::from(probability) * f64::from(1.0 - probability) / f64::from(n)).sqrt();
        assert!((count as f64 / f64::from(n) - f64::from(probability)).abs() < spread, "{counts:?}");
    }
}

#[test]
fn a_seed_repeats_and_these_are_its_tokens() {
    let logits: Vec<f32> = (0..100).map(|id| (id % 7) as f32 * 0.3).collect();
    let mut sampler =
        Sampler::new(Sampling { seed: Some(42), ..Sampling::default() }).expect("sound options");
    let ids: Vec<u32> = (0..8).map(|_| sampler.sample(&logits, &[]).expect("sound logits")).collect();
    assert_eq!(ids, RECORDED);
}

/// Recorded once; another machine has to draw the same.
const RECORDED: [u32; 8] = [74, 17, 27, 34, 5, 87, 22, 80];

#[test]
fn the_penalty_counts_each_token_of_the_window_once() {
    let options =
        Sampling { repetition_penalty: 2.0, repetition_window: 3, temperature: 0.0, ..Sampling::default() };
    let mut sampler = Sampler::new(options).expect("sound options");
    let logits = [4.0f32, 3.0, 1.9, -1.0];
    assert_eq!(sampler.sample(&logits, &[]), Ok(0));
    assert_eq!(sampler.sample(&logits, &[0, 0, 0]), Ok(1));
    assert_eq!(sampler.sample(&logits, &[0, 1, 1]), Ok(0));
    assert_eq!(sampler.sample(&logits, &[0, 3, 3, 3]), Ok(0), "0 has left the window");
    assert_eq!(sampler.sample(&logits, &[9999, 0]), Ok(1), "a token outside of the vocabulary is none of it");
    let mut negative =
        Sampler::new(Sampling { repetition_penalty: 2.0, ..Sampling::greedy() }).expect("sound");
    assert_eq!(negative.sample(&[-1.0f32, -1.5], &[0]), Ok(1));
}

#[test]
fn extreme_temperatures_draw_what_they_mean() {
    let logits = [1.0f32, 3.0, 2.0];
    let with = |temperature| drawn(&logits, &Sampling { temperature, ..Sampling::default() }, 0..300);
    assert_eq!(with(1e-310), [1]);
    assert_eq!(with(1e-3), [1]);
    assert_eq!(with(1e300), [0, 1, 2]);
    assert_eq!(drawn(&[f32::MAX, f32::MIN], &Sampling::default(), 0..20), [0]);
}

#[test]
fn what_names_no_token_is_refused() {
    let nan = f32::NAN;
    let is_refused = |logits: &[f32]| {
        [Sampling::default(), Sampling::greedy()].into_iter().all(|options| one(logits, options).is_err())
    };
    for bad in [&[nan, nan][..], &[1.0, nan], &[NOT, NOT], &[], &[0.0, f32::INFINITY]] {
        assert!(is_refused(bad), "{bad:?}");
    }
    let error = one(&[1.0, nan, 2.0], Sampling::default()).expect_err("a NaN");
    assert_eq!(error.to_string(), "logit 1 is NaN; 1 of 3 logits are NaN or +inf");
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let plain = Sampling::default;
    for (options, name) in [
        (Sampling { temperature: -0.1, ..plain() }, "temperature"),
        (Sampling { temperature: f64::NAN, ..plain() }, "temperature"),
        (Sampling { temperature: f64::INFINITY, ..plain() }, "temperature"),
        (Sampling { top_p: 1.5, ..plain() }, "top_p"),
        (Sampling { top_p: f64::NAN, ..plain() }, "top_p"),
        (Sampling { min_p: -0.5, ..plain() }, "min_p"),
        (Sampling { repetition_penalty: 0.0, ..plain() }, "repetition_penalty"),
    ] {
        match Sampler::new(options).map(|_| ()) {
            Err(SamplingError::Option { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn log_probabilities_are_those_of_the_model() {
    let logits = [0.5f32, 0.25, 0.125, 0.125].map(|p| p.ln() + 7.0);
    let found = log_probs(&logits, 1, 3).expect("sound logits");
    assert!((found.chosen - 0.25f32.ln()).abs() < 1e-6);
    assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 2]);
    assert!((found.top[0].1 - 0.5f32.ln()).abs() < 1e-6);
    assert_eq!(log_probs(&[0.0f32, NOT], 1, 9).expect("sound logits").chosen, f32::NEG_INFINITY);
    assert_eq!(log_probs(&[0.0f32], 1, 0), Err(SamplingError::Token { id: 1, n_logits: 1 }));
}
