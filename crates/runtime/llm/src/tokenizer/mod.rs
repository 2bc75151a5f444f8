//! Text to token ids and back, as the model's own tokenizer does it.
//!
//! In: the metadata of a GGUF file, text, ids. Out: ids, text, the bytes of one token. Text goes through the parts of the crate
//! `tokenizers`, which are built here from the metadata: added tokens are cut out first, then byte-level BPE (`gpt2`) or
//! SentencePiece BPE (`llama`). Ours is what the crate does not have: files that contradict themselves are refused, which tokens
//! a text may name, tokens by their bytes, errors in place of panics. Must not know: models, chat templates.

mod added;
mod byte_level;
mod error;
mod pieces;
mod sentence_piece;
mod special;
mod vocabulary;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::models::bpe::BPE;
use tokenizers::{
    AddedVocabulary, Model as _, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizer as _,
};

use crate::gguf;
use crate::text::TextStream;

use self::added::Added;
use self::pieces::Pieces;
use self::special::Special;
use self::vocabulary::Vocabulary;
use self::words::Words;

pub use error::TokenizerError;
pub use vocabulary::Kind;

/// The tokenizer of one model. It never changes, so threads share it.
#[derive(Debug)]
pub struct Tokenizer {
    pieces: Pieces,
    kinds: Vec<Kind>,
    special: Special,
    added: Added,
    before: Before,
    model: BPE,
}

/// What happens to a text before the model has it.
#[derive(Debug)]
enum Before {
    /// It is cut into words, and their bytes are spelled.
    ByteLevel(Words),
    /// Its spaces are marked.
    SentencePiece { normalizer: NormalizerWrapper, adds_space: bool },
}

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    ///
    /// # Errors
    /// `TokenizerError::File` for keys that are missing or of a wrong type, `Unsupported` with the name of a tokenizer or a
    /// pre-tokenizer that we do not have, `Vocabulary` where the lists contradict each other.
    pub fn from_gguf(metadata: &gguf::Metadata) -> Result<Self, TokenizerError> {
        let vocabulary = Vocabulary::read(metadata)?;
        let special = Special::read(metadata, &vocabulary)?;
        let (model, before, pieces, special) = match vocabulary.model {
            "gpt2" => {
                let (model, words) = byte_level::read(metadata, &vocabulary)?;
                let special = special.with_default(words.adds_bos);
                (model, Before::ByteLevel(words), byte_level::pieces(&vocabulary), special)
            }
            "llama" => {
                let pieces = sentence_piece::pieces(&vocabulary)?;
                let model = sentence_piece::read(metadata, &vocabulary, special.unknown)?;
                let adds_space = sentence_piece::adds_space(metadata)?;
                let normalizer = sentence_piece::normalizer(adds_space);
                (model, Before::SentencePiece { normalizer, adds_space }, pieces, special.with_default(true))
            }
            other => {
                return Err(TokenizerError::Unsupported {
                    key: "tokenizer.ggml.model",
                    name: other.to_owned(),
                    known: "gpt2, llama",
                });
            }
        };
        special.check()?;
        let added = Added::new(&vocabulary, vocabulary.model == "llama")?;
        Ok(Tokenizer { pieces, kinds: vocabulary.kinds, special, added, before, model })
    }

    /// The ids of a text.
    ///
    /// `add_special` adds the tokens that begin and end a text where the model wants them. With `parse_special` the text of
    /// a control token, such as `<|im_end|>`, becomes that token; without it, it is text like any other: for text from
    /// strangers. A byte that the vocabulary has no token for becomes the unknown token, or nothing where the model has
    /// none: so the reference does.
    ///
    /// # Errors
    /// `TokenizerError::Text` where the crate gives up: on a million white spaces in a row.
    pub fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<u32>, TokenizerError> {
        let failed = |problem: String| TokenizerError::Text { n_bytes: text.len(), problem };
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && self.special.adds_bos {
            ids.extend(self.special.bos);
        }
        let added = if parse_special { &self.added.all } else { &self.added.plain };
        // The crate says `expect` where it trusts itself; a text is not worth the process.
        catch_unwind(AssertUnwindSafe(|| self.cut(text, added, &mut ids)))
            .map_err(|_| failed("the crate `tokenizers` panicked; please report it with the text".into()))?
            .map_err(|error| failed(error.to_string()))?;
        if add_special && self.special.adds_eos {
            ids.extend(self.special.eos);
        }
        Ok(ids)
    }

    /// Adds the ids of a text. On one thread: of the crate's functions, those for several texts start some.
    fn cut(&self, text: &str, added: &AddedVocabulary, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        let mut text = match &self.before {
            Before::ByteLevel(words) => {
                let mut text = added.extract_and_normalize(None::<&NormalizerWrapper>, text);
                words.pre_tokenize(&mut text)?;
                text
            }
            Before::SentencePiece { normalizer, .. } => added.extract_and_normalize(Some(normalizer), text),
        };
        self.model.tokenize_in_pretokenized(&mut text, None)?;
        let parts = text.get_splits(OffsetReferential::Original, OffsetType::None);
        ids.extend(
            parts.into_iter().filter_map(|(.., tokens)| tokens.as_ref()).flatten().map(|token| token.id),
        );
        Ok(())
    }

    /// The text of ids. Bytes that are no character become U+FFFD. `skip_special` leaves control tokens out.
    ///
    /// # Errors
    /// `TokenizerError::Token` for an id outside of the vocabulary.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            let piece = self.piece(id)?;
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(piece);
            }
        }
        let bytes = match self.before {
            Before::SentencePiece { adds_space: true, .. } => bytes.strip_prefix(b" ").unwrap_or(&bytes),
            _ => &bytes,
        };
        let mut stream = TextStream::new();
        let mut text = stream.push(bytes);
        text.push_str(&stream.finish());
        Ok(text)
    }

    /// The bytes that a token stands for; maybe a part of a character. For a control token, its name.
    ///
    /// # Errors
    /// `TokenizerError::Token` for an id outside of the vocabulary.
    pub fn piece(&self, id: u32) -> Result<&[u8], TokenizerError> {
        self.pieces.get(id).ok_or(TokenizerError::Token { id, n_tokens: self.n_tokens() })
    }

    /// The token that stands for exactly these bytes; of several the one that text is cut into.
    pub fn id_of(&self, piece: &[u8]) -> Option<u32> {
        let added = std::str::from_utf8(piece).ok().and_then(|text| self.added.id_of(text));
        let id = added.or_else(|| match &self.before {
            Before::ByteLevel(_) => self.model.token_to_id(&byte_level::spell(piece)),
            Before::SentencePiece { .. } => {
                sentence_piece::names(piece).find_map(|name| self.model.token_to_id(&name))
            }
        });
        // Not what a name alone says: `<0x41>` is no token of six letters.
        id.filter(|&id| self.pieces.get(id) == Some(piece))
    }

    /// How many tokens there are; ids are below it.
    pub fn n_tokens(&self) -> usize {
        self.kinds.len()
    }

    /// What kind of token it is.
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// Whether it is a token of control, which stands for no text.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(Kind::Control | Kind::Unknown))
    }

    /// The token that begins a text, where the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The token that ends a text, where the model has one.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The token for what has no token.
    pub fn unknown(&self) -> Option<u32> {
        self.special.unknown
    }

    /// The token that fills places without meaning.
    pub fn padding(&self) -> Option<u32> {
        self.special.padding
    }

    /// Whether `encode` with `add_special` begins with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.special.adds_bos
    }

    /// Whether `encode` with `add_special` ends with [`eos`](Self::eos).
    pub fn adds_eos(&self) -> bool {
        self.special.adds_eos
    }

    /// The tokens with which the model ends what it says, in ascending order: the end of a text, of a turn, of a message.
    pub fn ends(&self) -> &[u32] {
        &self.special.ends
    }

    /// Whether the model ends with this token.
    pub fn is_end(&self, id: u32) -> bool {
        self.special.ends.binary_search(&id).is_ok()
    }
}

#[cfg(test)]
mod tests;
