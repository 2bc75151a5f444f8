//! `_core.LlmGeneration`: text under way, one step at a time.
//!
//! In: sequences on loan, prompts, options. Out: events, one for each token; the sequences go back when it ends, is closed
//! or dropped. Python goes on between two steps, so Ctrl-C is seen there; within the first, which reads the prompts, it is
//! seen between their pieces.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use overdrive_llm::sampling::Sampling;
use overdrive_llm::{Event, Finish, GenerateOptions, Generation, Model, Overflow};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use super::errors;
use super::profile::LlmProfile;
use super::sequence::{LlmSequence, Loan};
use super::signals::Signals;

/// The options of one generation, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Options {
    max_tokens: Option<i64>,
    temperature: f64,
    top_k: i64,
    top_p: f64,
    min_p: f64,
    repetition_penalty: f64,
    stop: Vec<String>,
    logprobs: Option<i64>,
    /// "stop" or "shift".
    overflow: String,
    /// Tokens that "shift" never forgets.
    keep: i64,
    /// Tokens that end the text instead of the model's own.
    ends: Option<Vec<u32>>,
}

/// What a step gives for a prompt: its number, token, text, log-probability, the likeliest tokens, why it ended.
type Row = (usize, Option<u32>, String, Option<f32>, Vec<(u32, f32)>, Option<&'static str>);

/// A generation. Private: the face is `overdrive.llm.Stream`.
#[pyclass(frozen, module = "overdrive._core")]
pub(super) struct LlmGeneration {
    /// Locked for moments, with the GIL held.
    state: Mutex<State>,
    n_reused: Vec<usize>,
    profile: Option<Py<LlmProfile>>,
}

enum State {
    /// Between two steps.
    Waits(Box<Running>),
    /// A thread computes a step.
    Steps,
    Over,
}

/// A generation with the sequences that it was lent.
struct Running {
    /// None only while this is dropped.
    generation: Option<Generation>,
    loans: Vec<Loan>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let sequences = self.generation.take().map(Generation::into_sequences).unwrap_or_default();
        for (loan, sequence) in self.loans.iter_mut().zip(sequences) {
            loan.sequence = Some(sequence);
        }
    }
}

impl LlmGeneration {
    /// Takes the sequences on loan. Nothing is computed yet.
    ///
    /// # Errors
    /// `RuntimeError` for a sequence in use, `ValueError` for prompts that are empty or too long and options out of range.
    pub(super) fn new(
        model: Arc<Model>,
        sequences: &[Bound<'_, LlmSequence>],
        prompts: Vec<Vec<u32>>,
        seeds: &[Option<u64>],
        options: Options,
        profile: Option<Py<LlmProfile>>,
    ) -> PyResult<LlmGeneration> {
        if sequences.len() != prompts.len() || seeds.len() != prompts.len() {
            return Err(PyValueError::new_err("sequences, prompts and seeds differ in number"));
        }
        let options = options.read()?;
        let mut loans: Vec<Loan> = sequences.iter().map(Loan::of).collect::<PyResult<_>>()?;
        let mut begun = Vec::with_capacity(prompts.len());
        for (loan, prompt) in loans.iter().zip(prompts) {
            // A refusal takes what it was given with it; copies share what they have, so this one costs nothing.
            let Some(sequence) = loan.sequence.clone() else { continue };
            begun.push((sequence, prompt));
        }
        let mut generation =
            Generation::new(model, Vec::new(), options.clone()).map_err(|error| errors::of_model(&error))?;
        let mut n_reused = Vec::with_capacity(begun.len());
        for ((sequence, prompt), seed) in begun.into_iter().zip(seeds) {
            let mut options = options.clone();
            options.sampling.seed = *seed;
            let number =
                generation.push(sequence, prompt, options).map_err(|error| errors::of_model(&error))?;
            n_reused.push(generation.n_known(number));
        }
        for loan in &mut loans {
            // Now there is one owner again, and what is added needs no copy.
            loan.sequence = None;
        }
        let running = Running { generation: Some(generation), loans };
        Ok(LlmGeneration { state: Mutex::new(State::Waits(Box::new(running))), n_reused, profile })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl LlmGeneration {
    /// Compute the next token of each prompt that has not ended; nothing when all have.
    fn step(&self, py: Python<'_>) -> PyResult<Vec<Row>> {
        // The lock is let go before what follows takes it again.
        let before = std::mem::replace(&mut *self.lock(), State::Steps);
        let mut running = match before {
            State::Waits(running) => running,
            State::Steps => return Err(PyRuntimeError::new_err("another thread reads from this stream")),
            State::Over => {
                *self.lock() = State::Over;
                return Ok(Vec::new());
            }
        };
        let profile = self.profile.as_ref().map(|profile| profile.clone_ref(py));
        let mut signals = Signals::default();
        let result = py.detach(|| {
            let mut profile = profile.as_ref().map(|profile| profile.get().lock());
            let generation = running.generation.as_mut()?;
            Some(generation.step(&mut || signals.look(), profile.as_deref_mut()))
        });
        let is_over = running.generation.as_ref().is_none_or(Generation::is_done);
        *self.lock() = if is_over { State::Over } else { State::Waits(running) };
        match result {
            None => Ok(Vec::new()),
            Some(Ok(events)) => Ok(events.into_iter().map(row).collect()),
            Some(Err(error)) => Err(signals.or(error)),
        }
    }

    /// End it here and give the sequences back. RuntimeError while another thread computes a step.
    fn close(&self) -> PyResult<()> {
        let mut state = self.lock();
        if let State::Steps = &*state {
            return Err(PyRuntimeError::new_err("another thread reads from this stream"));
        }
        let before = std::mem::replace(&mut *state, State::Over);
        drop(state);
        drop(before);
        Ok(())
    }

    /// Whether all prompts have ended.
    #[getter]
    fn is_over(&self) -> bool {
        matches!(&*self.lock(), State::Over)
    }

    /// Tokens of each prompt that its sequence had already.
    #[getter]
    fn n_reused(&self) -> Vec<usize> {
        self.n_reused.clone()
    }
}

fn row(event: Event) -> Row {
    let reason = event.finish.map(|finish| match finish {
        Finish::Stop => "stop",
        Finish::EndOfText => "end",
        Finish::Length => "length",
        Finish::Interrupted => "interrupted",
    });
    (event.prompt, event.token, event.text, event.log_prob, event.top, reason)
}

impl Options {
    fn read(self) -> PyResult<GenerateOptions> {
        let natural = |name: &str, n: Option<i64>| {
            n.map(|n| usize::try_from(n).map_err(|_| errors::negative(name, n))).transpose()
        };
        let keep = natural("keep", Some(self.keep))?.unwrap_or_default();
        let overflow = match self.overflow.as_str() {
            "stop" if keep == 0 => Overflow::Stop,
            "stop" => return Err(PyValueError::new_err("keep is for overflow=\"shift\" only")),
            "shift" => Overflow::Shift { keep },
            other => {
                return Err(PyValueError::new_err(format!(
                    "overflow is \"stop\" or \"shift\", not {other:?}"
                )));
            }
        };
        Ok(GenerateOptions {
            sampling: Sampling {
                temperature: self.temperature,
                top_k: natural("top_k", Some(self.top_k))?.unwrap_or_default(),
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                ..Sampling::default()
            },
            max_tokens: natural("max_tokens", self.max_tokens)?,
            stop: self.stop,
            ignore_end: self.ends.is_some(),
            stop_tokens: self.ends.unwrap_or_default(),
            log_probs: natural("logprobs", self.logprobs)?,
            overflow,
        })
    }
}
