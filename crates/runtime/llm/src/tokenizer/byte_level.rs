//! Byte-level BPE: the file's tokens and merges, in the form that the crate takes them.
//!
//! In: tokens and merges as the file spells them, each byte as a printable character. Out: the crate's model, and the bytes that
//! tokens stand for. What would make the crate panic or hide something is refused here.

use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Vocab};

use crate::gguf::{Metadata, Strings};

use super::error::TokenizerError;
use super::pieces::Pieces;
use super::vocabulary::{Kind, Vocabulary, wrong};
use super::words::Words;

const MERGES: &str = "tokenizer.ggml.merges";

/// The model of text, and how text is cut before it.
pub(super) fn read(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<(BPE, Words), TokenizerError> {
    let words = Words::named(metadata.require("tokenizer.ggml.pre")?)?;
    let merges = read_merges(metadata.require(MERGES)?)?;
    let mut hidden = HashSet::new();
    if words.whole_words {
        hidden = tokens_that_no_word_is(vocabulary, &merges);
    }
    let mut ids = Vocab::with_capacity(vocabulary.len());
    // Of tokens with one text, one of text rather than one of control, and of those the last.
    for wanted in [false, true] {
        for (id, text, kind) in vocabulary.iter() {
            if is_text(kind) == wanted && (wanted || !hidden.contains(text)) {
                ids.insert(text.to_owned(), id);
            }
        }
    }
    let longest = ids.keys().map(String::len).max().unwrap_or(0);
    // The crate has a buffer of that length, and checks nothing.
    if let Some((left, right)) = merges.iter().find(|(left, right)| left.len() + right.len() > longest) {
        return Err(wrong(
            MERGES,
            format!("{left:?} and {right:?} make a token that is not in the vocabulary"),
        ));
    }
    let model = BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(words.whole_words)
        // Its memory is one for each thread, and no tokenizer frees it.
        .cache_capacity(0)
        .build()
        .map_err(|error| wrong(MERGES, error.to_string()))?;
    Ok((model, words))
}

/// What tokens stand for. A text that is not written in the alphabet of bytes stands for itself.
pub(super) fn pieces(vocabulary: &Vocabulary<'_>) -> Pieces {
    let alphabet = Alphabet::new();
    let mut pieces = Pieces::with_capacity(vocabulary.len());
    let mut bytes = Vec::new();
    for (_, text, kind) in vocabulary.iter() {
        let is_spelled = matches!(kind, Kind::Normal | Kind::Byte | Kind::Unused);
        if !(is_spelled && alphabet.read(text, &mut bytes)) {
            bytes.clear();
            bytes.extend_from_slice(text.as_bytes());
        }
        pieces.push(bytes.iter().copied());
    }
    pieces.shrink();
    pieces
}

/// How the file spells bytes.
pub(super) fn spell(bytes: &[u8]) -> String {
    let alphabet = Alphabet::new();
    bytes.iter().map(|byte| alphabet.characters[usize::from(*byte)]).collect()
}

fn is_text(kind: Kind) -> bool {
    matches!(kind, Kind::Normal | Kind::Byte)
}

fn read_merges(spelled: &Strings) -> Result<Vec<(String, String)>, TokenizerError> {
    let mut merges = Vec::with_capacity(spelled.len());
    for (order, line) in spelled.iter().enumerate() {
        let bad = |problem: &str| {
            wrong(MERGES, format!("merge {order}, {:?}: {problem}", String::from_utf8_lossy(line)))
        };
        let line = std::str::from_utf8(line).map_err(|_| bad("not UTF-8"))?;
        let (left, right) = line
            .split_once(' ')
            .filter(|(left, right)| !(left.is_empty() || right.is_empty() || right.contains(' ')))
            .ok_or_else(|| bad("not two tokens with a space between them"))?;
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}

/// Tokens that whole words are not looked up in: those that are cut out of the text before, or that no text becomes. Text from
/// strangers would name them else. Those that merges name, or that are a byte, are parts of words whatever their kind.
fn tokens_that_no_word_is<'v>(vocabulary: &Vocabulary<'v>, merges: &[(String, String)]) -> HashSet<&'v str> {
    let mut hidden: HashSet<&str> = vocabulary
        .iter()
        .filter(|(_, text, kind)| !is_text(*kind) && text.chars().nth(1).is_some())
        .map(|(_, text, _)| text)
        .collect();
    let mut joined = String::new();
    for (left, right) in merges {
        if hidden.is_empty() {
            break;
        }
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        for named in [left, right, &joined] {
            hidden.remove(named.as_str());
        }
    }
    hidden
}

/// How bytes are spelled: those that print in Latin-1 as themselves, the others by the characters from U+0100 on.
struct Alphabet {
    characters: [char; 256],
    /// The byte of each character below U+0144.
    bytes: [Option<u8>; 0x144],
}

impl Alphabet {
    fn new() -> Self {
        let mut alphabet = Alphabet { characters: ['\0'; 256], bytes: [None; 0x144] };
        let mut others = '\u{100}'..;
        for byte in 0..=255u8 {
            let prints = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let other = if prints { None } else { others.next() };
            let character = other.unwrap_or(char::from(byte));
            alphabet.characters[usize::from(byte)] = character;
            alphabet.bytes[character as usize] = Some(byte);
        }
        alphabet
    }

    /// The bytes that `text` spells; false where it has a character that spells none.
    fn read(&self, text: &str, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        for character in text.chars() {
            match self.bytes.get(character as usize) {
                Some(Some(byte)) => bytes.push(*byte),
                _ => return false,
            }
        }
        true
    }
}
