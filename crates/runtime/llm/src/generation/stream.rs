//! One prompt of a generation: its text so far, and whether it goes on.
//!
//! In: logits of the next token. Out: the token, and the text that became certain. Must not know: other prompts.

use super::{Event, Finish, GenerateOptions, Overflow};
use crate::error::Error;
use crate::model::Model;
use crate::sampling::{Sampler, log_probs};
use crate::sequence::Sequence;
use crate::text::{StopMatcher, TextStream};

pub(super) struct Stream {
    sequence: Sequence,
    /// The whole text. What the sequence has of it is behind it; the last token is always ahead.
    tokens: Vec<u32>,
    n_generated: usize,
    options: GenerateOptions,
    sampler: Sampler,
    text: TextStream,
    stops: StopMatcher,
    is_done: bool,
}

impl Stream {
    pub(super) fn new(
        model: &Model,
        sequence: Sequence,
        tokens: Vec<u32>,
        options: GenerateOptions,
    ) -> Result<Self, Error> {
        let n_vocabulary = model.config().n_vocabulary;
        if tokens.is_empty() {
            let problem = "there is no token to continue; begin with the token that begins texts".to_owned();
            return Err(Error::Argument { name: "prompt", problem });
        }
        if let Some(&id) = tokens.iter().find(|id| **id as usize >= n_vocabulary) {
            return Err(Error::Token { id, n_vocabulary });
        }
        if !model.owns(&sequence) {
            return Err(Error::OtherModel { what: "sequence" });
        }
        let n_ctx = model.n_ctx();
        match options.overflow {
            Overflow::Stop if tokens.len() > n_ctx => {
                return Err(Error::TooLong { n_tokens: tokens.len(), n_ctx });
            }
            Overflow::Shift { keep } if keep + 2 > n_ctx => {
                let problem = format!("{keep} tokens that stay leave no room in a context of {n_ctx}");
                return Err(Error::Argument { name: "keep", problem });
            }
            Overflow::Stop | Overflow::Shift { .. } => {}
        }
        let sampler = Sampler::new(options.sampling.clone())?;
        let stops = StopMatcher::new(&options.stop)
            .map_err(|error| Error::Argument { name: "stop", problem: error.to_string() })?;
        let text = TextStream::new();
        let mut stream =
            Self { sequence, tokens, n_generated: 0, options, sampler, text, stops, is_done: false };
        stream.shift(n_ctx);
        stream.sequence.keep_common_prefix(&stream.tokens);
        Ok(stream)
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(super) fn into_sequence(self) -> Sequence {
        self.sequence
    }

    /// The last token is always computed, for its logits.
    pub(super) fn n_known(&self) -> usize {
        self.sequence.len().min(self.tokens.len() - 1)
    }

    /// What has to go through the model next: never nothing, for its logits are wanted.
    pub(super) fn ahead(&mut self) -> (&mut Sequence, &[u32]) {
        let n_behind = self.n_known();
        self.sequence.truncate(n_behind);
        (&mut self.sequence, &self.tokens[n_behind..])
    }

    /// The end of a prompt that is to get no token at all.
    pub(super) fn end_without_token(&mut self) -> Option<Event> {
        (self.options.max_tokens == Some(0)).then(|| self.end(Finish::Length))
    }

    /// Ends the text; what was held back is certain now.
    pub(super) fn end(&mut self, finish: Finish) -> Event {
        self.is_done = true;
        let mut found = self.stops.push(&self.text.finish());
        found.text.push_str(&self.stops.finish());
        Event { text: found.text, finish: Some(finish), ..Event::default() }
    }

    /// Takes the next token by its logits.
    pub(super) fn choose(&mut self, model: &Model, logits: &[f32]) -> Result<Event, Error> {
        let token = self.sampler.sample(logits, &self.tokens)?;
        let probabilities = match self.options.log_probs {
            Some(n_top) => Some(log_probs(logits, token, n_top)?),
            None => None,
        };
        self.tokens.push(token);
        self.n_generated += 1;
        let mut event = self.read(model, token)?;
        event.token = Some(token);
        if let Some(probabilities) = probabilities {
            event.log_prob = Some(probabilities.chosen);
            event.top = probabilities.top;
        }
        Ok(event)
    }

    /// The text of a new token, and whether it is the last one.
    fn read(&mut self, model: &Model, token: u32) -> Result<Event, Error> {
        // Without one, tokens have no text and only the caller knows which are an end.
        let tokenizer = model.tokenizer();
        let is_end = !self.options.ignore_end && tokenizer.is_some_and(|tokenizer| tokenizer.is_end(token));
        if is_end || self.options.stop_tokens.contains(&token) {
            return Ok(self.end(Finish::EndOfText));
        }
        let mut event = Event::default();
        if let Some(tokenizer) = tokenizer
            && !tokenizer.is_special(token)
        {
            let found = self.stops.push(&self.text.push(tokenizer.piece(token)?));
            event.text = found.text;
            if found.stop.is_some() {
                self.is_done = true;
                event.finish = Some(Finish::Stop);
                return Ok(event);
            }
        }
        let is_full = self.tokens.len() > model.n_ctx() && self.options.overflow == Overflow::Stop;
        if is_full || self.options.max_tokens == Some(self.n_generated) {
            let end = self.end(Finish::Length);
            return Ok(Event { text: event.text + &end.text, ..end });
        }
        self.shift(model.n_ctx());
        Ok(event)
    }

    /// Forgets the older half of a text that is longer than the context, where the options say so.
    fn shift(&mut self, n_ctx: usize) {
        let Overflow::Shift { keep } = self.options.overflow else { return };
        while self.tokens.len() > n_ctx {
            let n_forgotten = ((self.tokens.len() - keep) / 2).max(1);
            self.tokens.drain(keep..keep + n_forgotten);
        }
        self.sequence.keep_common_prefix(&self.tokens);
    }
}
