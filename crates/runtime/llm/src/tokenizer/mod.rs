//! Text to token ids and back, as the model's own tokenizer does it.
//!
//! In: the metadata of a GGUF file, text, ids. Out: ids, text, the bytes of one token. Two models of text: byte-level BPE
//! (`gpt2`) and SentencePiece BPE (`llama`); in both, added tokens are cut out of the text first. Ids are those of the
//! reference libraries; the tables are small (some 2 MB for 49,000 tokens), for they count in what a loaded model needs.
//! Must not know: models, chat templates.

mod added;
mod byte_level;
mod error;
mod merge;
mod pieces;
mod sentence_piece;
mod special;
mod split;
mod table;
mod vocabulary;

use crate::gguf;
use crate::text::TextStream;

use self::added::{Added, Segment};
use self::byte_level::ByteLevel;
use self::pieces::Pieces;
use self::sentence_piece::SentencePiece;
use self::special::Special;
use self::vocabulary::Vocabulary;

pub use error::TokenizerError;
pub use vocabulary::Kind;

/// The tokenizer of one model. It never changes, so threads share it.
#[derive(Debug)]
pub struct Tokenizer {
    pieces: Pieces,
    kinds: Vec<Kind>,
    added: Added,
    special: Special,
    model: Model,
}

#[derive(Debug)]
enum Model {
    ByteLevel(ByteLevel),
    SentencePiece(SentencePiece),
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
        let (model, pieces, special) = match vocabulary.model {
            "gpt2" => {
                let pieces = byte_level::pieces(&vocabulary);
                let (model, adds_bos) = ByteLevel::read(metadata, &vocabulary, &pieces)?;
                (Model::ByteLevel(model), pieces, special.with_default(adds_bos))
            }
            "llama" => {
                let pieces = sentence_piece::pieces(&vocabulary)?;
                let model = SentencePiece::read(metadata, &vocabulary, &pieces, special.unknown)?;
                (Model::SentencePiece(model), pieces, special.with_default(true))
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
        Ok(Tokenizer { pieces, kinds: vocabulary.kinds, added, special, model })
    }

    /// The ids of a text.
    ///
    /// `add_special` adds the tokens that begin and end a text where the model wants them. With `parse_special` the text of
    /// a control token, such as `<|im_end|>`, becomes that token; without it, it is text like any other: for text from
    /// strangers. A byte that the vocabulary has no token for becomes the unknown token, or nothing where the model has
    /// none: so the reference does.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && self.special.adds_bos {
            ids.extend(self.special.bos);
        }
        for segment in self.added.segments(text, parse_special) {
            match segment {
                Segment::Token(id) => ids.push(id),
                Segment::Text(text) => match &self.model {
                    Model::ByteLevel(model) => model.encode(text, &self.pieces, &mut ids),
                    Model::SentencePiece(model) => model.encode(text, &self.pieces, &mut ids),
                },
            }
        }
        if add_special && self.special.adds_eos {
            ids.extend(self.special.eos);
        }
        ids
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
        let bytes = match &self.model {
            Model::SentencePiece(model) if model.adds_space => bytes.strip_prefix(b" ").unwrap_or(&bytes),
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
        self.added.id_of(piece).or_else(|| match &self.model {
            Model::ByteLevel(model) => model.id_of(piece, &self.pieces),
            Model::SentencePiece(model) => model.id_of(piece, &self.pieces),
        })
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
