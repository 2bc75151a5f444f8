//! Added tokens: pieces of text that are cut out before anything else looks at it.
//!
//! In: text. Out: segments, from left to right: tokens, and the text between them. Where several tokens begin at one place
//! the longest is taken. Control tokens are cut out only when the caller wants text to be able to name them.

use aho_corasick::{AhoCorasick, FindIter, MatchKind};

use super::error::TokenizerError;
use super::vocabulary::{Kind, Vocabulary, wrong};

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment<'t> {
    Token(u32),
    /// Never empty.
    Text(&'t str),
}

/// The added tokens of a vocabulary.
#[derive(Debug)]
pub(super) struct Added {
    /// Those that always are cut out.
    plain: Finder,
    /// Those and the tokens of control.
    all: Finder,
}

#[derive(Debug)]
struct Finder {
    automaton: AhoCorasick,
    /// Ids of its patterns.
    ids: Vec<u32>,
}

impl Added {
    /// With `spaces_are_marked`, the file writes spaces of user-defined tokens as U+2581.
    pub(super) fn new(vocabulary: &Vocabulary<'_>, spaces_are_marked: bool) -> Result<Self, TokenizerError> {
        let mut tokens = Vec::new();
        for (id, text, kind) in vocabulary.iter().filter(|(_, text, _)| !text.is_empty()) {
            match kind {
                Kind::Control | Kind::Unknown => tokens.push((id, text.to_owned(), false)),
                Kind::UserDefined if spaces_are_marked => {
                    tokens.push((id, text.replace('\u{2581}', " "), true))
                }
                Kind::UserDefined => tokens.push((id, text.to_owned(), true)),
                Kind::Normal | Kind::Unused | Kind::Byte => {}
            }
        }
        // Of tokens with one text, the last: as in a dictionary that is filled in order.
        tokens.reverse();
        let plain = Finder::new(tokens.iter().filter(|(.., is_plain)| *is_plain))?;
        Ok(Added { plain, all: Finder::new(tokens.iter())? })
    }

    /// The segments of a text.
    pub(super) fn segments<'a, 't>(&'a self, text: &'t str, parse_special: bool) -> Segments<'a, 't> {
        let finder = if parse_special { &self.all } else { &self.plain };
        Segments { text, at: 0, ids: &finder.ids, found: finder.automaton.find_iter(text), next: None }
    }

    /// The added token of exactly this text.
    pub(super) fn id_of(&self, text: &[u8]) -> Option<u32> {
        let found = self.all.automaton.find(text)?;
        (found.range() == (0..text.len())).then(|| self.all.ids[found.pattern().as_usize()])
    }
}

impl Finder {
    fn new<'a>(tokens: impl Iterator<Item = &'a (u32, String, bool)>) -> Result<Self, TokenizerError> {
        let (ids, texts): (Vec<u32>, Vec<&str>) = tokens.map(|(id, text, _)| (*id, text.as_str())).unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|error| wrong("tokenizer.ggml.tokens", format!("too many added tokens: {error}")))?;
        Ok(Finder { automaton, ids })
    }
}

/// Iterates over the segments of a text.
pub(super) struct Segments<'a, 't> {
    text: &'t str,
    /// Where the rest of the text begins.
    at: usize,
    ids: &'a [u32],
    found: FindIter<'a, 't>,
    /// A token whose text before it was given out last.
    next: Option<(u32, usize)>,
}

impl<'t> Iterator for Segments<'_, 't> {
    type Item = Segment<'t>;

    fn next(&mut self) -> Option<Segment<'t>> {
        if let Some((id, end)) = self.next.take() {
            self.at = end;
            return Some(Segment::Token(id));
        }
        let Some(found) = self.found.next() else {
            let rest = &self.text[self.at..];
            self.at = self.text.len();
            return (!rest.is_empty()).then_some(Segment::Text(rest));
        };
        let id = self.ids[found.pattern().as_usize()];
        let before = &self.text[self.at..found.start()];
        if before.is_empty() {
            self.at = found.end();
            return Some(Segment::Token(id));
        }
        self.next = Some((id, found.end()));
        Some(Segment::Text(before))
    }
}
