//! SentencePiece BPE: the file's pieces and scores, in the form that the crate takes them.
//!
//! In: pieces and scores. Out: the crate's model, what marks the spaces of a text for it, and the bytes that pieces stand for. The
//! merges come from the scores, as the converters of Hugging Face make them: each way to cut a piece into two others is a merge, the
//! one into the piece with the highest score first. There are no words: a piece may hold a space in its middle.

use std::cmp::Ordering;

use tokenizers::NormalizerWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};

use crate::gguf::Metadata;

use super::error::TokenizerError;
use super::pieces::Pieces;
use super::vocabulary::{Kind, TOKENS, Vocabulary, wrong};

const SCORES: &str = "tokenizer.ggml.scores";
/// How a space is written in a piece.
const MARK: &str = "\u{2581}";
/// Most bytes of a piece, and most that all merges may take: what pieces like `aaa...` cost grows with the square of their length
/// and the cube. Vocabularies have some dozen bytes in a piece, and a tenth of the merges.
const LONGEST: usize = 1024;
const MOST_MERGED: usize = 256 << 20;
/// What a merge takes beside its letters.
const PER_MERGE: usize = 128;

/// Whether a text begins with a space that nobody wrote, behind an added token too.
pub(super) fn adds_space(metadata: &Metadata) -> Result<bool, TokenizerError> {
    Ok(metadata.get("tokenizer.ggml.add_space_prefix")?.unwrap_or(true))
}

/// What is done with a text before it is looked at.
pub(super) fn normalizer(adds_space: bool) -> NormalizerWrapper {
    let mark = Replace::new(" ", MARK).expect("a space is a pattern");
    let mut parts = Vec::new();
    if adds_space {
        parts.push(Prepend::new(MARK.to_owned()).into());
    }
    parts.push(mark.into());
    Sequence::new(parts).into()
}

/// The model of text.
pub(super) fn read(
    metadata: &Metadata,
    vocabulary: &Vocabulary<'_>,
    unknown: Option<u32>,
) -> Result<BPE, TokenizerError> {
    let scores: Vec<f32> = metadata.require(SCORES)?;
    if scores.len() != vocabulary.len() {
        return Err(wrong(SCORES, format!("{} scores for {} tokens", scores.len(), vocabulary.len())));
    }
    if let Some(id) = scores.iter().position(|score| score.is_nan()) {
        return Err(wrong(SCORES, format!("the score of token {id} is NaN")));
    }
    let mut ids = Vocab::with_capacity(vocabulary.len());
    for (id, text, kind) in vocabulary.iter() {
        if matches!(kind, Kind::Normal | Kind::UserDefined) {
            ids.insert(text.to_owned(), id);
        }
    }
    let merges = merges(vocabulary, &ids, &scores)?;

    // What has no piece becomes its bytes, or the unknown token where the vocabulary does not have all of them.
    let mut bytes = [None; 256];
    for (id, text, _) in vocabulary.iter().filter(|(.., kind)| *kind == Kind::Byte) {
        if let Some(byte) = byte_of(text) {
            bytes[usize::from(byte)] = Some(id);
        }
    }
    let has_bytes = bytes.iter().all(Option::is_some);
    let unknown =
        unknown.or_else(|| vocabulary.iter().find(|(.., kind)| *kind == Kind::Unknown).map(|(id, ..)| id));
    let mut model = BPE::builder().fuse_unk(true).cache_capacity(0);
    if has_bytes {
        model = model.byte_fallback(true);
        for (byte, id) in (0..=255u8).zip(bytes) {
            if id.is_some_and(|id| ids.insert(name_of(byte), id).is_some()) {
                return Err(wrong(TOKENS, format!("a piece has the name of the byte {byte}")));
            }
        }
    } else if let Some(id) = unknown {
        // A name that no piece has.
        ids.insert(String::new(), id);
        model = model.unk_token(String::new());
    }
    model.vocab_and_merges(ids, merges).build().map_err(|error| wrong(TOKENS, error.to_string()))
}

/// What tokens stand for: spaces unmarked, bytes as bytes.
pub(super) fn pieces(vocabulary: &Vocabulary<'_>) -> Result<Pieces, TokenizerError> {
    let mut pieces = Pieces::with_capacity(vocabulary.len());
    for (id, text, kind) in vocabulary.iter() {
        match kind {
            Kind::Byte => {
                let problem = || format!("token {id} is of the kind byte, but its text is {text:?}");
                pieces.push([byte_of(text).ok_or_else(|| wrong(TOKENS, problem()))?]);
            }
            Kind::Unknown | Kind::Control => pieces.push(text.bytes()),
            Kind::Normal | Kind::UserDefined | Kind::Unused => {
                pieces.push(text.replace(MARK, " ").into_bytes())
            }
        }
    }
    pieces.shrink();
    Ok(pieces)
}

/// The names that the model may know these bytes by.
pub(super) fn names(bytes: &[u8]) -> impl Iterator<Item = String> {
    let text = std::str::from_utf8(bytes).ok().map(|text| text.replace(' ', MARK));
    let byte = if let [byte] = bytes { Some(name_of(*byte)) } else { None };
    text.into_iter().chain(byte)
}

/// The name of a byte, as the crate asks for it.
fn name_of(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// The byte that a token of this name is.
fn byte_of(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    // The number would be read with a sign too.
    if digits.len() != 2 || digits.starts_with('+') {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// A way to make a piece of two, and all that its place in the list hangs on.
struct Merge<'v> {
    score: f32,
    left: &'v str,
    right: &'v str,
    ids: (u32, u32, u32),
}

fn merges(
    vocabulary: &Vocabulary<'_>,
    ids: &Vocab,
    scores: &[f32],
) -> Result<Vec<(String, String)>, TokenizerError> {
    let mut merges = Vec::new();
    let mut n_bytes = 0;
    for (id, text, kind) in vocabulary.iter() {
        if ids.get(text) != Some(&id) {
            continue;
        }
        if text.len() > LONGEST {
            // What users define is cut out before.
            if kind == Kind::UserDefined {
                continue;
            }
            let problem = format!("token {id} has {} bytes; a piece can have {LONGEST}", text.len());
            return Err(wrong(TOKENS, problem));
        }
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                merges.push(Merge { score: scores[id as usize], left, right, ids: (id, left_id, right_id) });
                n_bytes += text.len() + PER_MERGE;
            }
        }
        if n_bytes > MOST_MERGED {
            return Err(wrong(TOKENS, "the pieces are made of one another in too many ways"));
        }
    }
    let n_characters = |merge: &Merge<'_>| (merge.left.chars().count(), merge.right.chars().count());
    merges.sort_unstable_by(|a, b| {
        // No score is NaN.
        let by_score = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| n_characters(b).cmp(&n_characters(a))).then_with(|| a.ids.cmp(&b.ids))
    });
    Ok(merges.iter().map(|merge| (merge.left.to_owned(), merge.right.to_owned())).collect())
}
