//! The vocabulary as the file spells it.
//!
//! In: metadata. Out: tokens as text with their kinds, borrowed from the metadata; lists of one length, kinds that exist.

use crate::gguf::{Metadata, Strings};

use super::error::TokenizerError;

/// Most tokens: what ids of 31 bits count. No vocabulary comes near it.
const MOST_TOKENS: usize = i32::MAX as usize;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A piece of text.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Stands for no text: begins a turn, ends a text.
    Control,
    /// A piece of text that is never cut, whatever stands around it.
    UserDefined,
    /// Takes part in nothing.
    Unused,
    /// One byte, for text that has no token.
    Byte,
}

/// Tokens and kinds, in order of ids.
#[derive(Debug)]
pub(super) struct Vocabulary<'a> {
    /// `tokenizer.ggml.model`.
    pub(super) model: &'a str,
    texts: Vec<&'a str>,
    pub(super) kinds: Vec<Kind>,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn read(metadata: &'a Metadata) -> Result<Self, TokenizerError> {
        let model = metadata.require("tokenizer.ggml.model")?;
        let texts: &Strings = metadata.require(TOKENS)?;
        if texts.is_empty() || texts.len() > MOST_TOKENS {
            return Err(wrong(TOKENS, format!("{} tokens", texts.len())));
        }
        let kinds = match metadata.get::<Vec<i32>>(TYPES)? {
            None => vec![Kind::Normal; texts.len()],
            Some(types) => kinds(&types, texts.len())?,
        };
        let texts = texts.iter().enumerate().map(|(id, text)| {
            std::str::from_utf8(text).map_err(|_| wrong(TOKENS, format!("token {id} is not UTF-8")))
        });
        let texts = texts.collect::<Result<_, _>>()?;
        Ok(Vocabulary { model, texts, kinds })
    }

    /// How many tokens there are.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Ids, texts and kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &'a str, Kind)> {
        (0..).zip(&self.texts).zip(&self.kinds).map(|((id, text), &kind)| (id, *text, kind))
    }
}

pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";

fn kinds(types: &[i32], n_tokens: usize) -> Result<Vec<Kind>, TokenizerError> {
    if types.len() != n_tokens {
        return Err(wrong(TYPES, format!("{} types for {n_tokens} tokens", types.len())));
    }
    types
        .iter()
        .enumerate()
        .map(|(id, number)| {
            Ok(match number {
                1 => Kind::Normal,
                2 => Kind::Unknown,
                3 => Kind::Control,
                4 => Kind::UserDefined,
                5 => Kind::Unused,
                6 => Kind::Byte,
                _ => return Err(wrong(TYPES, format!("token {id} has the type {number}; types are 1 to 6"))),
            })
        })
        .collect()
}

pub(super) fn wrong(key: &'static str, problem: impl Into<String>) -> TokenizerError {
    TokenizerError::Vocabulary { key, problem: problem.into() }
}
