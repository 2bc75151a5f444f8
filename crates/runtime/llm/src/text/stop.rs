//! Strings that end a generation, looked for in a stream.
//!
//! In: text in pieces, cut anywhere. Out: the text before the stop string that is complete first; of several that are
//! complete at the same place the longest. That does not depend on how the text is cut. What may be the beginning of a
//! stop string is held back until it is certain.

use std::fmt;

/// Looks for stop strings while text arrives.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<Stop>,
    /// Text not given out: the longest end of what has been seen that begins one of the strings.
    held: String,
    /// One was found; the rest of the stream is not looked at.
    stopped: bool,
}

/// What a piece of text led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Text that is certain to stand before any stop string.
    pub text: String,
    /// Which of the stop strings is complete now; nothing of it is in `text`, and the stream is over.
    pub stop: Option<usize>,
}

/// A stop string of no characters, which would stand everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptyStop {
    /// Its place in the list.
    pub index: usize,
}

impl fmt::Display for EmptyStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stop string {} is empty; an empty string stands everywhere", self.index)
    }
}

impl std::error::Error for EmptyStop {}

impl StopMatcher {
    /// A matcher at the beginning of a text. Without stop strings it holds nothing back.
    ///
    /// # Errors
    /// `EmptyStop` when one of them is empty.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Result<Self, EmptyStop> {
        let mut known = Vec::with_capacity(stops.len());
        for (index, stop) in stops.iter().enumerate() {
            let stop = stop.as_ref();
            if stop.is_empty() {
                return Err(EmptyStop { index });
            }
            known.push(Stop::new(stop));
        }
        Ok(StopMatcher { stops: known, held: String::new(), stopped: false })
    }

    /// Takes the next piece of text. After a stop string everything is dropped.
    pub fn push(&mut self, piece: &str) -> Found {
        if self.stopped {
            return Found::default();
        }
        if self.stops.is_empty() {
            return Found { text: piece.to_owned(), stop: None };
        }
        let n_before = self.held.len();
        self.held.push_str(piece);
        for (at, &byte) in piece.as_bytes().iter().enumerate() {
            if let Some(stop) = self.complete_after(byte) {
                let end = n_before + at + 1;
                let mut text = std::mem::take(&mut self.held);
                text.truncate(end - self.stops[stop].bytes.len());
                self.stopped = true;
                return Found { text, stop: Some(stop) };
            }
        }
        // A prefix of a stop string begins where a character begins, so this is no cut inside one.
        let n_held = self.stops.iter().map(|stop| stop.n_matched).max().unwrap_or(0);
        let uncertain = self.held.split_off(self.held.len() - n_held);
        Found { text: std::mem::replace(&mut self.held, uncertain), stop: None }
    }

    /// Ends the text: what was held back turned out to be no stop string.
    pub fn finish(&mut self) -> String {
        for stop in &mut self.stops {
            stop.n_matched = 0;
        }
        std::mem::take(&mut self.held)
    }

    /// The longest stop string that ends with this byte.
    fn complete_after(&mut self, byte: u8) -> Option<usize> {
        let mut found: Option<usize> = None;
        for index in 0..self.stops.len() {
            let complete = self.stops[index].advance(byte);
            let longer = |other: usize| self.stops[index].bytes.len() > self.stops[other].bytes.len();
            if complete && found.is_none_or(longer) {
                found = Some(index);
            }
        }
        found
    }
}

/// One string as an automaton after Knuth, Morris and Pratt: each byte is looked at once.
#[derive(Clone, Debug)]
struct Stop {
    bytes: Box<[u8]>,
    /// `borders[n]`: how many of the first bytes are also the last of the first `n + 1`, fewer than all of them.
    borders: Box<[usize]>,
    /// How many of the first bytes are the last that were seen.
    n_matched: usize,
}

impl Stop {
    fn new(text: &str) -> Self {
        let bytes: Box<[u8]> = text.as_bytes().into();
        let mut borders = vec![0; bytes.len()];
        let mut n = 0;
        for at in 1..bytes.len() {
            while n > 0 && bytes[at] != bytes[n] {
                n = borders[n - 1];
            }
            n += usize::from(bytes[at] == bytes[n]);
            borders[at] = n;
        }
        Stop { bytes, borders: borders.into(), n_matched: 0 }
    }

    /// Whether the string is complete with this byte.
    fn advance(&mut self, byte: u8) -> bool {
        while self.n_matched > 0 && self.bytes[self.n_matched] != byte {
            self.n_matched = self.borders[self.n_matched - 1];
        }
        self.n_matched += usize::from(self.bytes[self.n_matched] == byte);
        self.n_matched == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, prop, proptest};

    use super::{EmptyStop, Found, StopMatcher};

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut matcher = StopMatcher::new(stops).expect("no stop string is empty");
        let mut text = String::new();
        for piece in pieces {
            let found = matcher.push(piece);
            text.push_str(&found.text);
            if found.stop.is_some() {
                return (text, found.stop);
            }
        }
        text.push_str(&matcher.finish());
        (text, None)
    }

    /// The definition, without a stream: the first end of any stop string, of those there the longest.
    fn slow(stops: &[&str], text: &str) -> (String, Option<usize>) {
        for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let here = (0..stops.len()).filter(|&index| text[..end].ends_with(stops[index]));
            if let Some(index) = here.rev().max_by_key(|&index| stops[index].len()) {
                return (text[..end - stops[index].len()].to_owned(), Some(index));
            }
        }
        (text.to_owned(), None)
    }

    #[test]
    fn what_may_begin_a_stop_is_held_and_given_when_it_does_not() {
        let mut matcher = StopMatcher::new(&["\n\nUser:"]).expect("not empty");
        assert_eq!(matcher.push("Hi.\n"), Found { text: "Hi.".into(), stop: None });
        assert_eq!(matcher.push("\nUs"), Found::default());
        assert_eq!(matcher.push("ing"), Found { text: "\n\nUsing".into(), stop: None });
        assert_eq!(matcher.push("\n\n"), Found::default());
        assert_eq!(matcher.push("User: x"), Found { text: String::new(), stop: Some(0) });
        assert_eq!(matcher.push("more"), Found::default());
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn a_false_beginning_does_not_hide_a_true_one() {
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), Some(0)));
        assert_eq!(run(&["abcd", "bc"], &["xab", "cd"]), ("xa".into(), Some(1)));
        assert_eq!(run(&["bc", "abc"], &["xab", "c"]), ("x".into(), Some(1)));
    }

    #[test]
    fn an_end_that_only_began_a_stop_is_text() {
        assert_eq!(run(&["</s>"], &["a<", "/s"]), ("a</s".into(), None));
    }

    #[test]
    fn empty_ones_are_refused_and_none_hold_nothing() {
        assert_eq!(StopMatcher::new(&["a", ""]).err(), Some(EmptyStop { index: 1 }));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_cut_gives_the_definition(
            stops in prop::collection::vec("[abé]{1,4}", 1..4),
            pieces in prop::collection::vec("[abcé]{0,4}", 0..8),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(run(&stops, &pieces), slow(&stops, &pieces.concat()));
        }
    }
}
