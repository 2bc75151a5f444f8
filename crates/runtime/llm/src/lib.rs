//! From a GGUF file to text: weights, tokenizer, forward pass, sampling, sequences.
//!
//! In: a file, text or tokens, options. Out: logits, tokens, text; errors with fields, whose kind says which exception they
//! are. Begin with `Model`: `load` it, give it a `sequence`, and either ask for logits (`forward`) or for text
//! (`Generation`). Must not know: Python, how products are computed.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod gguf;
pub mod sampling;
pub mod template;
pub mod text;
pub mod tokenizer;
mod error;
mod profile;
mod model;
mod sequence;
mod generation;
mod prompt_cache;

pub use error::{Error, Kind};
pub use generation::{Event, Finish, GenerateOptions, Generation, Overflow};
pub use model::{
    Check, Config, Fingerprint, Likelihood, LoadOptions, Logits, Model, Part, Progress, RopeConfig,
    RopeScaling, Want,
};
pub use profile::{Cost, OpProfile, Operator};
pub use sequence::Sequence;
