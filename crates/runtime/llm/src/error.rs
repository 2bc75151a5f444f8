//! Why a model, a sequence or a generation cannot be had: fields, and one sentence each.
//!
//! In: facts. Out: [`Error`], whose [`Kind`] says which of Python's exceptions it is; the bridge asks for that alone.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::gguf;
use crate::sampling::SamplingError;
use crate::tokenizer::TokenizerError;

/// What kind of exception an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The file or an argument is not what it has to be: `ValueError`.
    Value,
    /// It may be right, but we cannot do it: `NotImplementedError`.
    NotImplemented,
    /// The system refused: `OSError`.
    Os,
    /// `MemoryError`.
    Memory,
    /// The caller's check said stop: `KeyboardInterrupt`.
    Interrupted,
    /// A fault of ours: `RuntimeError`.
    Internal,
}

/// A refusal with its facts.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum Error {
    /// A file could not be opened, read or written.
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// A file that is no sound GGUF file, or lacks a key or a tensor.
    File(gguf::Error),
    /// Metadata that are no model.
    Key { key: String, problem: String },
    /// A tokenizer that is not known, or makes no sense.
    Tokenizer(TokenizerError),
    /// A tensor that is missing, or is not what the model has to have there.
    Tensor { name: String, problem: String },
    /// A model that exists but that we cannot run.
    Unsupported { what: String },
    /// An option out of its range.
    Argument { name: &'static str, problem: String },
    /// Options of sampling, or logits that name no token.
    Sampling(SamplingError),
    /// No such token.
    Token { id: u32, n_vocabulary: usize },
    /// More tokens than the context holds.
    TooLong { n_tokens: usize, n_ctx: usize },
    /// A sequence or prompt cache made with another model.
    OtherModel { what: &'static str },
    /// A file that is no prompt cache, or a damaged one.
    PromptCache { path: PathBuf, problem: String },
    /// The allocator has no such block.
    OutOfMemory { bytes: usize },
    /// The caller's check said stop.
    Interrupted,
    /// What should not happen.
    Internal { what: String },
}

impl Error {
    /// Which exception it is.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => Kind::Memory,
            Error::Io { .. } => Kind::Os,
            Error::File(error) if error.is_unsupported() => Kind::NotImplemented,
            Error::Tokenizer(error) if error.is_unsupported() => Kind::NotImplemented,
            Error::File(_) | Error::Tokenizer(_) => Kind::Value,
            Error::Key { .. }
            | Error::Tensor { .. }
            | Error::Argument { .. }
            | Error::Sampling(_)
            | Error::Token { .. }
            | Error::TooLong { .. }
            | Error::OtherModel { .. }
            | Error::PromptCache { .. } => Kind::Value,
            Error::Unsupported { .. } => Kind::NotImplemented,
            Error::OutOfMemory { .. } => Kind::Memory,
            Error::Interrupted => Kind::Interrupted,
            Error::Internal { .. } => Kind::Internal,
        }
    }

    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }

    pub(crate) fn key(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Key { key: key.into(), problem: problem.into() }
    }

    pub(crate) fn tensor(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Tensor { name: name.into(), problem: problem.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            Error::File(error) => error.fmt(f),
            Error::Key { key, problem } => write!(f, "metadata {key:?}: {problem}"),
            Error::Tensor { name, problem } => write!(f, "tensor {name:?}: {problem}"),
            Error::Unsupported { what } => f.write_str(what),
            Error::Argument { name, problem } => write!(f, "{name}: {problem}"),
            Error::Tokenizer(error) => error.fmt(f),
            Error::Sampling(error) => error.fmt(f),
            Error::Token { id, n_vocabulary } => {
                write!(f, "token {id} is not one of the model's {n_vocabulary}")
            }
            Error::TooLong { n_tokens, n_ctx } => write!(
                f,
                "{n_tokens} tokens do not fit a context of {n_ctx}; load with a larger n_ctx or shorten the prompt"
            ),
            Error::OtherModel { what } => write!(f, "this {what} was made with another model"),
            Error::PromptCache { path, problem } => {
                write!(f, "{} is not a prompt cache of this model: {problem}", path.display())
            }
            Error::OutOfMemory { bytes } => write!(f, "cannot allocate {bytes} bytes"),
            Error::Interrupted => f.write_str("interrupted"),
            Error::Internal { what } => write!(f, "a fault of Overdrive, please report it: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::File(error) => Some(error),
            Error::Tokenizer(error) => Some(error),
            Error::Sampling(error) => Some(error),
            _ => None,
        }
    }
}

impl From<gguf::Error> for Error {
    fn from(error: gguf::Error) -> Self {
        Self::File(error)
    }
}

impl From<SamplingError> for Error {
    fn from(error: SamplingError) -> Self {
        Self::Sampling(error)
    }
}

impl From<TokenizerError> for Error {
    fn from(error: TokenizerError) -> Self {
        Self::Tokenizer(error)
    }
}
