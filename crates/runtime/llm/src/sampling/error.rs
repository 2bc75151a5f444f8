//! Why no token can be chosen: fields, and one sentence each. All of them are the caller's values.

use std::fmt;

/// A refusal with its facts.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each holds what its name says")]
pub enum SamplingError {
    /// An option out of its range.
    Option { name: &'static str, value: f64 },
    /// No logits at all.
    Empty,
    /// A NaN or +inf among the logits; the first, and how many.
    NotANumber { id: usize, value: f64, n_unsound: usize, n_logits: usize },
    /// Every logit is -inf.
    NothingPossible { n_logits: usize },
    /// A token outside of the vocabulary.
    Token { id: u32, n_logits: usize },
    /// The system gives no random numbers.
    System { reason: String },
}

impl fmt::Display for SamplingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SamplingError::Option { name, value } => {
                let range = match *name {
                    "temperature" => "0 (the most probable token) or a positive number",
                    "repetition_penalty" => "a positive number; 1 turns it off",
                    _ => "a number from 0 to 1",
                };
                write!(f, "{name}={value}; it has to be {range}")
            }
            SamplingError::Empty => f.write_str("no logits: nothing to sample from"),
            SamplingError::NotANumber { id, value, n_unsound, n_logits } => {
                write!(f, "logit {id} is {value}; {n_unsound} of {n_logits} logits are NaN or +inf")
            }
            SamplingError::NothingPossible { n_logits } => {
                write!(f, "all {n_logits} logits are -inf: no token is possible")
            }
            SamplingError::Token { id, n_logits } => {
                write!(f, "token {id} is none of the {n_logits} of the vocabulary")
            }
            SamplingError::System { reason } => {
                write!(f, "the system gives no random seed ({reason}); give one")
            }
        }
    }
}

impl std::error::Error for SamplingError {}
