//! Files and calls that are refused, and what the error says.

use std::ops::ControlFlow;

use overdrive_kernels::Format;
use overdrive_llm::gguf::Value;
use overdrive_llm::{Error, Kind, LoadOptions, Model, Part, Want};

use crate::tiny::{Scratch, Shape, Tiny};
use crate::{go_on, load, try_load};

/// The error of a tiny model after a change of its file, which must be of this kind and say all of this.
fn refused(change: impl FnOnce(&mut Tiny), kind: Kind, says: &[&str]) {
    let mut tiny = Tiny::new(Shape::default());
    change(&mut tiny);
    let error = try_load(&tiny).err().expect("it was loaded");
    assert_eq!(error.kind(), kind, "{error}");
    for part in says {
        assert!(error.to_string().contains(part), "{error:?} does not say {part:?}: {error}");
    }
}

/// A tiny model with other metadata.
fn with(key: &str, value: Option<Value>) -> impl FnOnce(&mut Tiny) {
    move |tiny| match value {
        Some(value) => tiny.set(key, value),
        None => tiny.remove(key),
    }
}

fn text(text: &str) -> Option<Value> {
    Some(Value::String(text.as_bytes().to_vec()))
}

#[test]
fn architectures_and_scalings_that_are_not_run() {
    refused(with("general.architecture", text("mamba")), Kind::NotImplemented, &["\"mamba\"", "\"llama\""]);
    refused(with("llama.rope.scaling.type", text("longrope")), Kind::NotImplemented, &["\"longrope\""]);
    refused(with("llama.expert_count", Some(Value::U32(8))), Kind::NotImplemented, &["experts"]);
}

#[test]
fn metadata_that_do_not_fit() {
    let number = |n| Some(Value::U32(n));
    refused(with("llama.block_count", None), Kind::Value, &["llama.block_count"]);
    refused(with("llama.block_count", number(0)), Kind::Value, &["llama.block_count", "0"]);
    refused(with("llama.block_count", text("two")), Kind::Value, &["llama.block_count", "string"]);
    refused(with("llama.attention.head_count_kv", number(3)), Kind::Value, &["head_count_kv", "3", "4"]);
    refused(with("llama.rope.dimension_count", number(34)), Kind::Value, &["rope.dimension_count", "34"]);
    refused(with("llama.rope.dimension_count", number(7)), Kind::Value, &["rope.dimension_count", "7"]);
    refused(with("llama.rope.freq_base", Some(Value::F32(f32::NAN))), Kind::Value, &["freq_base", "NaN"]);
    refused(with("llama.rope.scaling.type", text("linear")), Kind::Value, &["rope.scaling.factor"]);
    refused(with("llama.vocab_size", number(5)), Kind::Value, &["vocab_size", "5", "272"]);
    let epsilon = "llama.attention.layer_norm_rms_epsilon";
    refused(with(epsilon, Some(Value::F32(-1.0))), Kind::Value, &[epsilon, "-1"]);
}

#[test]
fn tensors_that_are_missing_or_have_another_shape() {
    refused(with("llama.block_count", Some(Value::U32(3))), Kind::Value, &["blk.2.attn_norm.weight"]);
    refused(with("llama.block_count", Some(Value::U32(1))), Kind::NotImplemented, &["blk.1.", "no model"]);
    refused(
        with("llama.feed_forward_length", Some(Value::U32(64))),
        Kind::Value,
        &["ffn_gate", "[96, 64]", "[64, 64]"],
    );
    let bias = |tiny: &mut Tiny| {
        tiny.put("blk.0.attn_q.bias", &[128], Format::F32, vec![0; 512]);
    };
    refused(bias, Kind::NotImplemented, &["blk.0.attn_q.bias"]);
}

#[test]
fn files_that_are_no_models() {
    let load = |path: &std::path::Path| Model::load(path, &LoadOptions::default(), &mut |_, _| go_on());
    let missing = load(std::path::Path::new("/nowhere/at/all.gguf")).err().unwrap();
    assert_eq!(missing.kind(), Kind::Os);
    assert!(missing.to_string().contains("/nowhere/at/all.gguf"));
    let bytes = Tiny::new(Shape::default()).bytes();
    for n in [1, 4, 100, bytes.len() / 2, bytes.len() - 1] {
        let error = load(&Scratch::with(&bytes[..n]).0).err().unwrap();
        assert_eq!(error.kind(), Kind::Value, "{n} bytes: {error}");
    }
}

#[test]
fn loading_can_be_stopped_and_tells_how_far_it_is() {
    let file = Tiny::new(Shape::default()).file();
    let mut seen = Vec::new();
    Model::load(&file.0, &LoadOptions::default(), &mut |done, total| {
        seen.push((done, total));
        go_on()
    })
    .unwrap();
    assert!(seen.is_sorted() && seen.len() > 10);
    let (done, total) = *seen.last().unwrap();
    assert!(done == total && seen.iter().all(|(_, other)| *other == total));
    let mut n = 0;
    let stopped = Model::load(&file.0, &LoadOptions::default(), &mut |_, _| {
        n += 1;
        if n == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(n, 5);
}

#[test]
fn options_out_of_range() {
    let file = Tiny::new(Shape::default()).file();
    for n_ctx in [0, usize::MAX] {
        let options = LoadOptions { n_ctx: Some(n_ctx), ..LoadOptions::default() };
        let error = Model::load(&file.0, &options, &mut |_, _| go_on()).err().unwrap();
        assert_eq!(error.kind(), Kind::Value);
        assert!(error.to_string().starts_with("n_ctx: "), "{error}");
    }
}

#[test]
fn tokens_that_are_none_and_contexts_that_are_full() {
    let model = load(&Tiny::new(Shape { n_ctx: 10, ..Shape::default() }));
    let mut sequence = model.sequence();
    let mut forward = |tokens: &[u32]| {
        let mut parts = [Part { sequence: &mut sequence, tokens, logits: Want::Last }];
        model.forward(&mut parts, &mut go_on, None).map(|logits| logits.into_values().len())
    };
    let error = forward(&[1, 272]).unwrap_err();
    assert!(matches!(error, Error::Token { id: 272, n_vocabulary: 272 }), "{error}");
    assert_eq!(forward(&[]).unwrap(), 0);
    assert_eq!(forward(&[1; 10]).unwrap(), 272);
    let error = forward(&[1]).unwrap_err();
    assert!(matches!(error, Error::TooLong { n_tokens: 11, n_ctx: 10 }), "{error}");
    let other = load(&Tiny::new(Shape { seed: 2, is_tied: true, ..Shape::default() }));
    let mut parts = [Part { sequence: &mut sequence, tokens: &[], logits: Want::None }];
    assert!(matches!(other.forward(&mut parts, &mut go_on, None), Err(Error::OtherModel { .. })));
}
