//! The model against a reference in double precision, and against itself in other batches; what it refuses.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod tiny;
mod reference;
mod logits;
mod batches;
mod refusals;
mod generations;
mod prompt_caches;

use std::ops::ControlFlow;

use overdrive_llm::{Error, LoadOptions, Model, Part, Sequence, Want};

use tiny::{Random, Tiny};

/// Never stops.
fn go_on() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn load(tiny: &Tiny) -> Model {
    try_load(tiny).unwrap()
}

fn try_load(tiny: &Tiny) -> Result<Model, Error> {
    Model::load(&tiny.file().0, &LoadOptions::default(), &mut |_, _| go_on())
}

fn tokens(seed: u64, n: usize, n_vocabulary: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..n).map(|_| random.below(n_vocabulary) as u32).collect()
}

/// All rows that these tokens give behind what the sequence has.
fn all_logits(model: &Model, sequence: &mut Sequence, tokens: &[u32]) -> Vec<f32> {
    let mut parts = [Part { sequence, tokens, logits: Want::All }];
    model.forward(&mut parts, &mut go_on, None).unwrap().into_values()
}
