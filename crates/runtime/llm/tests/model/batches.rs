//! What a token gets depends on nothing but the tokens before it: bit for bit, however they are cut and whoever else is there.

use std::ops::ControlFlow;

use overdrive_kernels::Format;
use overdrive_llm::{Error, Model, OpProfile, Operator, Part, Sequence, Want};

use crate::tiny::{Shape, Tiny};
use crate::{all_logits, go_on, load, tokens};

fn model(shape: Shape) -> Model {
    load(&Tiny::new(shape))
}

/// Rows that the pieces of a text give, one piece after the other.
fn in_pieces(model: &Model, sequence: &mut Sequence, tokens: &[u32], n: usize) -> Vec<f32> {
    tokens.chunks(n).flat_map(|piece| all_logits(model, sequence, piece)).collect()
}

#[test]
fn pieces_do_not_matter() {
    for format in [Format::F32, Format::Q4_1, Format::Q8_0] {
        for window in [None, Some(20)] {
            let model = model(Shape { format, window, ..Shape::default() });
            let tokens = tokens(3, 150, model.config().n_vocabulary);
            let at_once = all_logits(&model, &mut model.sequence(), &tokens);
            for n in [1, 7, 64, 100] {
                assert!(in_pieces(&model, &mut model.sequence(), &tokens, n) == at_once, "{format:?} by {n}");
            }
        }
    }
}

#[test]
fn prompts_longer_than_a_piece() {
    let model = model(Shape { n_layers: 1, n_ctx: 1200, format: Format::Q4_0, ..Shape::default() });
    let tokens = tokens(3, 1100, model.config().n_vocabulary);
    let mut sequence = model.sequence();
    let at_once = all_logits(&model, &mut sequence, &tokens);
    assert_eq!(sequence.tokens(), tokens);
    assert!(in_pieces(&model, &mut model.sequence(), &tokens, 300) == at_once);
    let mut parts = [Part { sequence: &mut model.sequence(), tokens: &tokens, logits: Want::Last }];
    let last = model.forward(&mut parts, &mut go_on, None).unwrap();
    assert!(last.part(0) == &at_once[at_once.len() - model.config().n_vocabulary..]);
}

#[test]
fn neighbours_do_not_matter() {
    for format in [Format::F16, Format::Q5_1] {
        let model = model(Shape { format, n_ctx: 1024, ..Shape::default() });
        let n_vocabulary = model.config().n_vocabulary;
        let lengths = [1, 40, 3, 600, 17];
        let wants = [Want::Last, Want::All, Want::None, Want::Last, Want::All];
        let texts: Vec<Vec<u32>> = (0..5).map(|i| tokens(i as u64, lengths[i], n_vocabulary)).collect();
        let mut sequences: Vec<Sequence> = texts.iter().map(|_| model.sequence()).collect();
        // Twice, so that the second time all begin somewhere else.
        for _ in 0..2 {
            let mut alone: Vec<Sequence> = sequences.clone();
            let parts = sequences.iter_mut().zip(&texts).zip(wants);
            let mut parts: Vec<Part<'_>> = parts
                .map(|((sequence, tokens), logits)| Part { sequence, tokens: &tokens[..], logits })
                .collect();
            if !parts[3].sequence.is_empty() {
                parts[3].tokens = &texts[3][..5];
            }
            let together = model.forward(&mut parts, &mut go_on, None).unwrap();
            for (i, sequence) in alone.iter_mut().enumerate() {
                let mut single = [Part { sequence, tokens: parts[i].tokens, logits: wants[i] }];
                let single = model.forward(&mut single, &mut go_on, None).unwrap();
                assert!(single.part(0) == together.part(i), "{format:?}, part {i}");
            }
        }
    }
}

#[test]
fn copies_go_on_separately() {
    let model = model(Shape::default());
    let n_vocabulary = model.config().n_vocabulary;
    let (prompt, a, b) =
        (tokens(1, 70, n_vocabulary), tokens(2, 30, n_vocabulary), tokens(3, 30, n_vocabulary));
    let mut first = model.sequence();
    all_logits(&model, &mut first, &prompt);
    let mut second = first.clone();
    let (of_a, of_b) = (all_logits(&model, &mut first, &a), all_logits(&model, &mut second, &b));
    for (text, logits) in [(a, of_a), (b, of_b)] {
        let mut fresh = model.sequence();
        all_logits(&model, &mut fresh, &prompt);
        assert!(all_logits(&model, &mut fresh, &text) == logits);
    }
}

#[test]
fn a_common_prefix_is_kept() {
    let model = model(Shape::default());
    let n_vocabulary = model.config().n_vocabulary;
    let mut text = tokens(1, 100, n_vocabulary);
    let mut sequence = model.sequence();
    let before = all_logits(&model, &mut sequence, &text);
    assert_eq!(sequence.keep_common_prefix(&text[..60]), 60);
    assert!(all_logits(&model, &mut sequence, &text[60..]) == before[60 * n_vocabulary..]);
    text[80] = (text[80] + 1) % n_vocabulary as u32;
    assert_eq!(sequence.keep_common_prefix(&text), 80);
    assert_eq!(sequence.len(), 80);
    assert!(all_logits(&model, &mut sequence, &text[80..]) != before[80 * n_vocabulary..]);
}

#[test]
fn stopped_between_pieces() {
    let model = model(Shape { n_layers: 1, n_ctx: 1200, ..Shape::default() });
    let text = tokens(3, 1100, model.config().n_vocabulary);
    let at_once = all_logits(&model, &mut model.sequence(), &text);
    let mut sequence = model.sequence();
    let mut n_asked = 0;
    let mut check = || {
        n_asked += 1;
        if n_asked == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut parts = [Part { sequence: &mut sequence, tokens: &text, logits: Want::All }];
    assert!(matches!(model.forward(&mut parts, &mut check, None), Err(Error::Interrupted)));
    assert_eq!(sequence.tokens(), &text[..256]);
    let rest = all_logits(&model, &mut sequence, &text[256..]);
    assert!(rest == at_once[256 * model.config().n_vocabulary..]);
}

#[test]
fn a_profile_has_all_operators_and_changes_nothing() {
    let model = model(Shape::default());
    let text = tokens(3, 50, model.config().n_vocabulary);
    let mut profile = OpProfile::new();
    let mut parts = [Part { sequence: &mut model.sequence(), tokens: &text, logits: Want::All }];
    let logits = model.forward(&mut parts, &mut go_on, Some(&mut profile)).unwrap();
    assert!(logits.into_values() == all_logits(&model, &mut model.sequence(), &text));
    for (operator, cost) in profile.costs().filter(|(operator, _)| *operator != Operator::Sample) {
        assert!(cost.n_calls > 0 && !cost.time.is_zero(), "{operator:?}: {cost:?}");
    }
    let head = profile.cost(Operator::Head);
    let config = model.config();
    assert_eq!(head.n_operations as usize, 2 * 50 * config.n_embed * config.n_vocabulary);
}

#[test]
fn threads_do_not_matter() {
    let model = model(Shape { format: Format::Q4_1, ..Shape::default() });
    let text = tokens(3, 150, model.config().n_vocabulary);
    let expected = all_logits(&model, &mut model.sequence(), &text);
    for n in [1, 2, 3] {
        overdrive_pool::set_threads(n).unwrap();
        assert!(all_logits(&model, &mut model.sequence(), &text) == expected, "{n} threads");
    }
    // And several that use the model at once.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                assert!(all_logits(&model, &mut model.sequence(), &text) == expected);
            });
        }
    });
}

#[test]
fn stopped_between_layers() {
    let model = model(Shape { n_layers: 3, ..Shape::default() });
    let text = tokens(3, 100, model.config().n_vocabulary);
    let expected = all_logits(&model, &mut model.sequence(), &text);
    let mut sequence = model.sequence();
    for stops_at in [1, 2, 3] {
        let mut n_asked = 0;
        let mut check = || {
            n_asked += 1;
            if n_asked == stops_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut parts = [Part { sequence: &mut sequence, tokens: &text, logits: Want::All }];
        assert!(matches!(model.forward(&mut parts, &mut check, None), Err(Error::Interrupted)));
        assert!(sequence.is_empty());
    }
    assert!(all_logits(&model, &mut sequence, &text) == expected);
}
