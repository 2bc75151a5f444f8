//! The tokens with a meaning of their own: which begin and end a text, and with which the model ends what it says.

use crate::gguf::Metadata;

use super::error::TokenizerError;
use super::vocabulary::{Kind, Vocabulary, wrong};

/// Ids by meaning.
#[derive(Debug)]
pub(super) struct Special {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
    pub(super) padding: Option<u32>,
    pub(super) adds_bos: bool,
    pub(super) adds_eos: bool,
    /// The file does not say whether texts begin with `bos`.
    bos_is_open: bool,
    /// Sorted.
    pub(super) ends: Vec<u32>,
}

/// Tokens of control that end a turn or a text, where a file does not name them by a key.
const END_NAMES: [&str; 11] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<|return|>",
    "<EOT>",
    "</s>",
];

impl Special {
    pub(super) fn read(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<Self, TokenizerError> {
        let id = |key: &'static str| -> Result<Option<u32>, TokenizerError> {
            match metadata.get::<i64>(key)? {
                // Some writers say "none" with -1.
                None | Some(-1 | 0xffff_ffff) => Ok(None),
                Some(id) => match u32::try_from(id) {
                    Ok(id) if (id as usize) < vocabulary.len() => Ok(Some(id)),
                    _ => Err(wrong(key, format!("{id}; the vocabulary has {} tokens", vocabulary.len()))),
                },
            }
        };
        let eos = id("tokenizer.ggml.eos_token_id")?;
        let mut ends: Vec<u32> = vocabulary
            .iter()
            .filter(|(_, text, kind)| *kind == Kind::Control && END_NAMES.contains(text))
            .map(|(id, ..)| id)
            .collect();
        ends.extend(eos);
        ends.extend(id("tokenizer.ggml.eot_token_id")?);
        ends.extend(id("tokenizer.ggml.eom_token_id")?);
        ends.sort_unstable();
        ends.dedup();
        let adds_bos = metadata.get("tokenizer.ggml.add_bos_token")?;
        Ok(Special {
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos,
            unknown: id("tokenizer.ggml.unknown_token_id")?,
            padding: id("tokenizer.ggml.padding_token_id")?,
            adds_bos: adds_bos.unwrap_or(false),
            adds_eos: metadata.get("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            bos_is_open: adds_bos.is_none(),
            ends,
        })
    }

    /// What holds where the file does not say whether texts begin with `bos`.
    pub(super) fn with_default(mut self, adds_bos: bool) -> Self {
        if self.bos_is_open {
            self.adds_bos = adds_bos && self.bos.is_some();
        }
        self
    }

    /// Whether what is added exists.
    pub(super) fn check(&self) -> Result<(), TokenizerError> {
        if self.adds_bos && self.bos.is_none() {
            return Err(wrong("tokenizer.ggml.add_bos_token", "true, but there is no bos_token_id"));
        }
        if self.adds_eos && self.eos.is_none() {
            return Err(wrong("tokenizer.ggml.add_eos_token", "true, but there is no eos_token_id"));
        }
        Ok(())
    }
}
