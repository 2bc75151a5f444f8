//! Text that continues prompts: one or several at a time, token by token.
//!
//! In: a model, sequences, prompts, options. Out: events, one for each token. Several prompts go through the model together
//! and end when each has its own reason to. Must not know: who reads the events.

mod stream;

use std::sync::Arc;

use crate::error::Error;
use crate::model::{Check, Logits, Model, Part, Want};
use crate::profile::{Meter, OpProfile, Operator};
use crate::sampling::Sampling;
use crate::sequence::Sequence;
use stream::Stream;

/// What happens when a text has more tokens than the context holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The generation ends with [`Finish::Length`]; a longer prompt is an error.
    #[default]
    Stop,
    /// Behind the first `keep` tokens, the older half of the others is forgotten; the newer half is computed again.
    Shift {
        /// Tokens at the begin that are never forgotten.
        keep: usize,
    },
}

/// Why a generation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// One of the stop strings appeared; it is not part of the text.
    Stop,
    /// The model said so.
    EndOfText,
    /// As many tokens as were asked for, or as the context holds.
    Length,
    /// [`Generation::cancel`].
    Interrupted,
}

/// What one token gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    /// Which of the prompts it continues.
    pub prompt: usize,
    /// The token; none where a generation ends without one.
    pub token: Option<u32>,
    /// Text that is certain now. May be empty: the begin of a character, or of a stop string, waits for the next token.
    pub text: String,
    /// Natural logarithm of the token's probability, before any option changed it; if asked for.
    pub log_prob: Option<f32>,
    /// The most probable tokens with theirs, the best first; if asked for.
    pub top: Vec<(u32, f32)>,
    /// Set in the last event of a prompt.
    pub finish: Option<Finish>,
}

/// How text is generated.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens for each prompt; as many as the context holds where none (with `Shift`: without end).
    pub max_tokens: Option<usize>,
    /// Texts that end the generation.
    pub stop: Vec<String>,
    /// Tokens that end it, besides the model's own.
    pub stop_tokens: Vec<u32>,
    /// Log-probabilities of the token, and of so many best ones.
    pub log_probs: Option<usize>,
    /// Do not end where the model says so.
    pub ignore_end: bool,
    /// What happens at the end of the context.
    pub overflow: Overflow,
}

/// A generation under way. It holds its model and its sequences.
pub struct Generation {
    model: Arc<Model>,
    streams: Vec<Stream>,
    /// Kept for its memory.
    logits: Logits,
}

impl Generation {
    /// Prepares to continue each sequence by its prompt, and then by new tokens. A prompt's tokens are the whole text: what
    /// the sequence has in common with them is not computed again, what else it has is forgotten. With a seed, each
    /// prompt draws what it would draw alone.
    ///
    /// # Errors
    /// `Argument` for an empty prompt or options out of range, `Token`, `TooLong`, `OtherModel`.
    pub fn new(
        model: Arc<Model>,
        prompts: Vec<(Sequence, Vec<u32>)>,
        options: GenerateOptions,
    ) -> Result<Self, Error> {
        let mut generation = Self { model, streams: Vec::new(), logits: Logits::default() };
        for (sequence, tokens) in prompts {
            generation.push(sequence, tokens, options.clone())?;
        }
        Ok(generation)
    }

    /// Adds a prompt, which joins at the next step, and returns its number.
    ///
    /// # Errors
    /// Those of `new`.
    pub fn push(
        &mut self,
        sequence: Sequence,
        tokens: Vec<u32>,
        options: GenerateOptions,
    ) -> Result<usize, Error> {
        self.streams.push(Stream::new(&self.model, sequence, tokens, options)?);
        Ok(self.streams.len() - 1)
    }

    /// The next token of each prompt that has not ended; nothing when all have. The first call computes the prompts.
    ///
    /// # Errors
    /// `Interrupted` when `check` says so: the next call goes on where this one stopped. `Sampling` when the model gives what
    /// are no logits. Those of `Model::forward`.
    pub fn step(
        &mut self,
        check: &mut Check<'_>,
        mut profile: Option<&mut OpProfile>,
    ) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        let mut parts = Vec::new();
        let mut asking = Vec::new();
        for (prompt, stream) in self.streams.iter_mut().enumerate() {
            if stream.is_done() {
                continue;
            }
            if let Some(event) = stream.end_without_token() {
                events.push(Event { prompt, ..event });
                continue;
            }
            let (sequence, tokens) = stream.ahead();
            parts.push(Part { sequence, tokens, logits: Want::Last });
            asking.push(prompt);
        }
        if parts.is_empty() {
            return Ok(events);
        }
        self.model.forward_into(&mut parts, check, profile.as_deref_mut(), &mut self.logits)?;
        drop(parts);
        let n_values = asking.len() * self.logits.n_vocabulary();
        Meter(profile).time(Operator::Sample, 0, n_values, || {
            for (row, prompt) in asking.into_iter().enumerate() {
                let event = self.streams[prompt].choose(&self.model, self.logits.last(row))?;
                events.push(Event { prompt, ..event });
            }
            Ok(events)
        })
    }

    /// Whether all prompts have ended.
    pub fn is_done(&self) -> bool {
        self.streams.iter().all(Stream::is_done)
    }

    /// Ends a prompt; gives its last event if it had not ended before.
    ///
    /// # Panics
    /// When there is no such prompt.
    pub fn cancel(&mut self, prompt: usize) -> Option<Event> {
        let stream = &mut self.streams[prompt];
        if stream.is_done() {
            return None;
        }
        Some(Event { prompt, ..stream.end(Finish::Interrupted) })
    }

    /// The text of a prompt so far: its tokens and those that were chosen, without what a shift has forgotten.
    ///
    /// # Panics
    /// When there is no such prompt.
    pub fn tokens(&self, prompt: usize) -> &[u32] {
        self.streams[prompt].tokens()
    }

    /// How many of those tokens need not be computed: their keys and values are there.
    ///
    /// # Panics
    /// When there is no such prompt.
    pub fn n_known(&self, prompt: usize) -> usize {
        self.streams[prompt].n_known()
    }

    /// The sequences, in the order of the prompts. They have seen every token but the last of each text.
    pub fn into_sequences(self) -> Vec<Sequence> {
        self.streams.into_iter().map(Stream::into_sequence).collect()
    }
}
