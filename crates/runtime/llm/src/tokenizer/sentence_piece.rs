//! SentencePiece BPE: a text, its spaces marked, whose characters join to pieces by their scores.
//!
//! In: pieces and scores as the file has them; text. Out: ids. There are no words: a piece may hold a space in its middle.
//! What has no piece becomes its bytes, `<0x00>` to `<0xFF>`, or the unknown token where the vocabulary has no bytes.

use crate::gguf::Metadata;

use super::error::TokenizerError;
use super::merge::{Merge, Merger, Symbol};
use super::pieces::Pieces;
use super::table::Table;
use super::vocabulary::{Kind, Vocabulary, wrong};

/// The model of text.
#[derive(Debug)]
pub(super) struct SentencePiece {
    /// Text begins with a space that nobody wrote; behind a token of control too.
    pub(super) adds_space: bool,
    /// Pieces of text by their bytes, with spaces as spaces.
    table: Table,
    /// When each token joins: the highest score first.
    orders: Vec<u32>,
    /// The token of each byte, where the vocabulary has all of them.
    bytes: Option<Box<[u32; 256]>>,
    unknown: Option<u32>,
}

const SCORES: &str = "tokenizer.ggml.scores";
/// A character without a piece of its own.
const NO_PIECE: u32 = u32::MAX;

impl SentencePiece {
    pub(super) fn read(
        metadata: &Metadata,
        vocabulary: &Vocabulary<'_>,
        pieces: &Pieces,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let scores: Vec<f32> = metadata.require(SCORES)?;
        if scores.len() != vocabulary.len() {
            return Err(wrong(SCORES, format!("{} scores for {} tokens", scores.len(), vocabulary.len())));
        }
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(wrong(SCORES, format!("the score of token {id} is NaN")));
        }
        let mut table = Table::with_capacity(vocabulary.len());
        let mut bytes = [None; 256];
        for (id, kind) in (0..).zip(&vocabulary.kinds) {
            match kind {
                Kind::Normal | Kind::UserDefined => drop(table.insert(id, pieces)),
                Kind::Byte => {
                    if let Some([byte]) = pieces.get(id) {
                        bytes[usize::from(*byte)] = Some(id);
                    }
                }
                Kind::Unknown | Kind::Control | Kind::Unused => {}
            }
        }
        let all_bytes: Option<Vec<u32>> = bytes.into_iter().collect();
        let of_kind =
            (0..).zip(&vocabulary.kinds).find(|(_, kind)| **kind == Kind::Unknown).map(|(id, _)| id);
        Ok(SentencePiece {
            adds_space: metadata.get("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
            table,
            orders: scores.into_iter().map(order).collect(),
            bytes: all_bytes.and_then(|ids| ids.try_into().ok()),
            unknown: unknown.or(of_kind),
        })
    }

    /// Adds the ids of a text that stands at the beginning or behind an added token.
    pub(super) fn encode(&self, text: &str, pieces: &Pieces, ids: &mut Vec<u32>) {
        let prefixed;
        let text = if self.adds_space {
            prefixed = format!(" {text}");
            &prefixed
        } else {
            text
        };
        let mut merger = Merger::default();
        // Where each character begins, and the end.
        let mut starts = Vec::with_capacity(text.len() + 1);
        for (start, character) in text.char_indices() {
            let piece = &text.as_bytes()[start..start + character.len_utf8()];
            merger.push(self.table.get(piece, pieces).unwrap_or(NO_PIECE));
            starts.push(start);
        }
        starts.push(text.len());
        let rule = |left: &Symbol, right: &Symbol| {
            let piece = &text.as_bytes()[starts[left.start]..starts[right.end]];
            let id = self.table.get(piece, pieces)?;
            Some(Merge { order: self.orders[id as usize], id })
        };
        let mut is_behind_unknown = false;
        for symbol in merger.merge(rule) {
            if symbol.id != NO_PIECE {
                ids.push(symbol.id);
            } else if let Some(bytes) = &self.bytes {
                let text = &text.as_bytes()[starts[symbol.start]..starts[symbol.end]];
                ids.extend(text.iter().map(|byte| bytes[usize::from(*byte)]));
            } else if !is_behind_unknown {
                // Several in a row are one.
                ids.extend(self.unknown);
            }
            is_behind_unknown = symbol.id == NO_PIECE;
        }
    }

    /// The token of these bytes.
    pub(super) fn id_of(&self, bytes: &[u8], pieces: &Pieces) -> Option<u32> {
        let of_byte = || match (bytes, &self.bytes) {
            ([byte], Some(ids)) => Some(ids[usize::from(*byte)]),
            _ => None,
        };
        self.table.get(bytes, pieces).or_else(of_byte)
    }
}

/// What tokens stand for: spaces unmarked, bytes as bytes.
pub(super) fn pieces(vocabulary: &Vocabulary<'_>) -> Result<Pieces, TokenizerError> {
    let mut pieces = Pieces::with_capacity(vocabulary.len());
    for (id, text, kind) in vocabulary.iter() {
        match kind {
            Kind::Byte => {
                let digits = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
                // The number would be read with a sign too.
                let byte = digits
                    .filter(|digits| digits.len() == 2 && !digits.starts_with('+'))
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let problem = || format!("token {id} is of the kind byte, but its text is {text:?}");
                pieces.push([byte.ok_or_else(|| wrong("tokenizer.ggml.tokens", problem()))?]);
            }
            Kind::Unknown | Kind::Control => pieces.push(text.bytes()),
            Kind::Normal | Kind::UserDefined | Kind::Unused => {
                pieces.push(text.replace('\u{2581}', " ").into_bytes());
            }
        }
    }
    pieces.shrink();
    Ok(pieces)
}

/// A number that is smaller the higher the score is.
fn order(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    // As whole numbers, negative floats count downwards.
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}
