//! Why a tokenizer cannot be had: fields, and one sentence each.

use std::fmt;

use crate::gguf;

/// A refusal with its facts.
#[derive(Debug)]
#[expect(missing_docs, reason = "each holds what its name says")]
pub enum TokenizerError {
    /// A key that is missing or of the wrong type.
    File(gguf::Error),
    /// A tokenizer that exists but that we do not have.
    Unsupported { key: &'static str, name: String, known: &'static str },
    /// Lists or ids in the file that cannot be.
    Vocabulary { key: &'static str, problem: String },
    /// A text that could not be cut to its end.
    Text { n_bytes: usize, problem: String },
    /// An id outside of the vocabulary.
    Token { id: u32, n_tokens: usize },
}

impl TokenizerError {
    /// Whether the file may be right, and it is we who cannot.
    pub fn is_unsupported(&self) -> bool {
        match self {
            TokenizerError::File(error) => error.is_unsupported(),
            TokenizerError::Unsupported { .. } => true,
            TokenizerError::Vocabulary { .. }
            | TokenizerError::Text { .. }
            | TokenizerError::Token { .. } => false,
        }
    }
}

impl fmt::Display for TokenizerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenizerError::File(error) => write!(f, "{error}"),
            TokenizerError::Unsupported { key, name, known } => {
                write!(f, "{key} is {name:?}; Overdrive has {known}")
            }
            TokenizerError::Vocabulary { key, problem } => write!(f, "{key}: {problem}"),
            TokenizerError::Text { n_bytes, problem } => {
                write!(f, "a text of {n_bytes} bytes cannot be cut into tokens: {problem}")
            }
            TokenizerError::Token { id, n_tokens } => {
                write!(f, "token {id} is none of the {n_tokens} of the vocabulary")
            }
        }
    }
}

impl std::error::Error for TokenizerError {}

impl From<gguf::Error> for TokenizerError {
    fn from(error: gguf::Error) -> Self {
        TokenizerError::File(error)
    }
}
