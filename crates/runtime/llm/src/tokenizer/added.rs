//! Added tokens: pieces of text that are cut out before anything else looks at it.
//!
//! In: the vocabulary. Out: what the crate cuts them out with, once for those that always are cut out and once for all of them,
//! control tokens included, which are cut out only when the caller wants text to be able to name them.

use tokenizers::models::wordlevel::WordLevel;
use tokenizers::{AddedToken, AddedVocabulary, NormalizerWrapper};

use super::error::TokenizerError;
use super::vocabulary::{Kind, TOKENS, Vocabulary, wrong};

/// Most bytes of added tokens. The automaton takes some hundred times that while it is built.
const MOST_BYTES: usize = 1 << 20;

/// The added tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct Added {
    /// Those that always are cut out.
    pub(super) plain: AddedVocabulary,
    /// Those and the tokens of control.
    pub(super) all: AddedVocabulary,
}

impl Added {
    /// With `spaces_are_marked`, the file writes spaces of user-defined tokens as U+2581.
    pub(super) fn new(vocabulary: &Vocabulary<'_>, spaces_are_marked: bool) -> Result<Self, TokenizerError> {
        let mut tokens = Vec::new();
        for (id, text, kind) in vocabulary.iter().filter(|(_, text, _)| !text.is_empty()) {
            match kind {
                Kind::Control | Kind::Unknown => tokens.push((text.to_owned(), id, kind)),
                Kind::UserDefined if spaces_are_marked => {
                    tokens.push((text.replace('\u{2581}', " "), id, kind));
                }
                Kind::UserDefined => tokens.push((text.to_owned(), id, kind)),
                Kind::Normal | Kind::Unused | Kind::Byte => {}
            }
        }
        let n_bytes: usize = tokens.iter().map(|(text, ..)| text.len()).sum();
        if n_bytes > MOST_BYTES {
            let problem =
                format!("tokens of control and of users take {n_bytes} bytes; at most {MOST_BYTES} can be");
            return Err(wrong(TOKENS, problem));
        }
        let plain = build(tokens.iter().filter(|(.., kind)| *kind == Kind::UserDefined))?;
        Ok(Added { plain, all: build(tokens.iter())? })
    }

    /// The added token of exactly this text.
    pub(super) fn id_of(&self, text: &str) -> Option<u32> {
        self.all.get_vocab().get(text).copied()
    }
}

fn build<'t>(
    tokens: impl Iterator<Item = &'t (String, u32, Kind)> + Clone,
) -> Result<AddedVocabulary, TokenizerError> {
    let bad = |error: tokenizers::Error| wrong(TOKENS, format!("too many added tokens: {error}"));
    // The crate asks a model for the ids. Of tokens with one text, the last: as in a dictionary that is filled in order.
    let ids = tokens.clone().map(|(text, id, _)| (text.clone(), *id)).collect();
    let ids = WordLevel::builder().vocab(ids).build().map_err(bad)?;
    let tokens = tokens
        .map(|(text, _, kind)| AddedToken::from(text.as_str(), *kind != Kind::UserDefined).normalized(false));
    let mut added = AddedVocabulary::new();
    added.add_tokens(tokens, &ids, None::<&NormalizerWrapper>).map_err(bad)?;
    Ok(added)
}
