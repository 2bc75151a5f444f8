//! Byte-level BPE: the words of a text, each a row of bytes that merges join.
//!
//! In: tokens and merges as the file spells them, each byte as a printable character; text. Out: ids. Inside, tokens are
//! their bytes: the spelling is undone once, while the file is read.

use std::collections::HashMap;

use crate::gguf::{Metadata, Strings};

use super::error::TokenizerError;
use super::merge::{Merge, Merger};
use super::pieces::Pieces;
use super::split::Splitter;
use super::table::{Secret, Table};
use super::vocabulary::{Kind, Vocabulary, wrong};

/// The model of text.
#[derive(Debug)]
pub(super) struct ByteLevel {
    splitter: Splitter,
    /// The token of each byte, where there is one.
    bytes: Box<[Option<u32>; 256]>,
    merges: HashMap<(u32, u32), Merge, Secret>,
    /// Tokens by their bytes.
    table: Table,
    /// Of each token: whether a whole word may be it. Empty where whole words are not looked up.
    may_be_word: Vec<bool>,
}

const MERGES: &str = "tokenizer.ggml.merges";

impl ByteLevel {
    /// The model, and whether texts begin with `bos` where the file does not say.
    pub(super) fn read(
        metadata: &Metadata,
        vocabulary: &Vocabulary<'_>,
        pieces: &Pieces,
    ) -> Result<(Self, bool), TokenizerError> {
        let splitter = Splitter::named(metadata.require("tokenizer.ggml.pre")?)?;
        // Tokens of text come last, so that of tokens with the same bytes they are the ones that are found.
        let is_text = |kind: Kind| matches!(kind, Kind::Normal | Kind::Byte);
        let mut table = Table::with_capacity(vocabulary.len());
        for wanted in [false, true] {
            for (id, kind) in (0..).zip(&vocabulary.kinds) {
                if is_text(*kind) == wanted {
                    table.insert(id, pieces);
                }
            }
        }
        let mut bytes = Box::new([None; 256]);
        for byte in 0..=255 {
            bytes[usize::from(byte)] = table.get(&[byte], pieces);
        }
        let merges = read_merges(metadata.require(MERGES)?, &table, pieces)?;
        let may_be_word = match splitter.whole_words {
            true => {
                vocabulary.kinds.iter().map(|kind| is_text(*kind) || *kind == Kind::UserDefined).collect()
            }
            false => Vec::new(),
        };
        let adds_bos = splitter.adds_bos;
        Ok((ByteLevel { splitter, bytes, merges, table, may_be_word }, adds_bos))
    }

    /// Adds the ids of a text without added tokens.
    pub(super) fn encode(&self, text: &str, pieces: &Pieces, ids: &mut Vec<u32>) {
        let mut merger = Merger::default();
        self.splitter.words(text, |word| {
            if let Some(id) = self.whole_word(word, pieces) {
                ids.push(id);
                return;
            }
            merger.clear();
            word.bytes().filter_map(|byte| self.bytes[usize::from(byte)]).for_each(|id| merger.push(id));
            let rule = |left: &super::merge::Symbol, right: &super::merge::Symbol| {
                self.merges.get(&(left.id, right.id)).copied()
            };
            ids.extend(merger.merge(rule).map(|symbol| symbol.id));
        });
    }

    /// The token of these bytes.
    pub(super) fn id_of(&self, bytes: &[u8], pieces: &Pieces) -> Option<u32> {
        self.table.get(bytes, pieces)
    }

    fn whole_word(&self, word: &str, pieces: &Pieces) -> Option<u32> {
        if self.may_be_word.is_empty() {
            return None;
        }
        self.table.get(word.as_bytes(), pieces).filter(|&id| self.may_be_word[id as usize])
    }
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

/// The merges by the ids of what they join.
fn read_merges(
    spelled: &Strings,
    table: &Table,
    pieces: &Pieces,
) -> Result<HashMap<(u32, u32), Merge, Secret>, TokenizerError> {
    let alphabet = Alphabet::new();
    let mut merges = HashMap::with_capacity_and_hasher(spelled.len(), Secret::new());
    let mut joined = Vec::new();
    let mut second = Vec::new();
    for (order, line) in (0..).zip(spelled.iter()) {
        let bad = |problem: &str| {
            wrong(MERGES, format!("merge {order}, {:?}: {problem}", String::from_utf8_lossy(line)))
        };
        let line = std::str::from_utf8(line).map_err(|_| bad("not UTF-8"))?;
        let (left, right) = line
            .split_once(' ')
            .filter(|(left, right)| !(left.is_empty() || right.is_empty() || right.contains(' ')))
            .ok_or_else(|| bad("not two tokens with a space between them"))?;
        let find = |text: &str, bytes: &mut Vec<u8>| {
            if !alphabet.read(text, bytes) {
                bytes.clear();
                bytes.extend_from_slice(text.as_bytes());
            }
            table.get(bytes, pieces)
        };
        let missing = || bad("a token of it is not in the vocabulary");
        let left = find(left, &mut joined).ok_or_else(missing)?;
        let right = find(right, &mut second).ok_or_else(missing)?;
        joined.extend_from_slice(&second);
        let id = table.get(&joined, pieces).ok_or_else(missing)?;
        // Of merges of one pair the last: as in a dictionary that is filled in order.
        merges.insert((left, right), Merge { order, id });
    }
    Ok(merges)
}

/// How bytes are spelled: those that print in Latin-1 as themselves, the others by the characters from U+0100 on.
struct Alphabet {
    /// The byte of each character below U+0144.
    bytes: [Option<u8>; 0x144],
}

impl Alphabet {
    fn new() -> Self {
        let mut bytes = [None; 0x144];
        let mut next_other = 0x100;
        for byte in 0..=255u8 {
            let prints = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
            let character = if prints { usize::from(byte) } else { next_other };
            bytes[character] = Some(byte);
            next_other += usize::from(!prints);
        }
        Alphabet { bytes }
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
