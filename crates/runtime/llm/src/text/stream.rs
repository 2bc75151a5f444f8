//! Bytes of a stream to characters.
//!
//! In: pieces of bytes, cut anywhere. Out: the text that `bytes.decode("utf-8", errors="replace")` makes of all of them
//! together, as early as it is certain. A character that is not complete yet is held back; bytes that begin none become
//! U+FFFD. At most three bytes are ever held.

use std::str;

/// A decoder that remembers the incomplete character at the end of what it has seen.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The beginning of a character, which the next bytes may complete.
    held: Vec<u8>,
}

impl TextStream {
    /// A stream at its beginning.
    pub fn new() -> Self {
        TextStream::default()
    }

    /// Takes the next bytes and gives the characters that are certain now; often one, sometimes none.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        if self.held.is_empty() {
            let (text, rest) = decode(bytes);
            self.held.extend_from_slice(rest);
            return text;
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        let (text, rest) = decode(&joined);
        self.held.extend_from_slice(rest);
        text
    }

    /// Ends the stream: U+FFFD for a character that never became complete, else nothing. The stream may be used again.
    pub fn finish(&mut self) -> String {
        if self.held.is_empty() {
            return String::new();
        }
        self.held.clear();
        String::from(char::REPLACEMENT_CHARACTER)
    }

    /// The bytes that are held back, not more than three.
    pub fn held(&self) -> &[u8] {
        &self.held
    }
}

/// The certain text of `bytes`, and the incomplete character at their end.
fn decode(bytes: &[u8]) -> (String, &[u8]) {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let error = match str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, &[]);
            }
            Err(error) => error,
        };
        let (valid, behind) = rest.split_at(error.valid_up_to());
        text.push_str(str::from_utf8(valid).expect("from_utf8 has just found these bytes to be valid"));
        let Some(n_bad) = error.error_len() else {
            return (text, behind);
        };
        text.push(char::REPLACEMENT_CHARACTER);
        rest = &behind[n_bad..];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_oneof, proptest};

    use super::TextStream;

    fn joined(pieces: &[&[u8]]) -> String {
        let mut stream = TextStream::new();
        let mut text: String = pieces.iter().map(|piece| stream.push(piece)).collect();
        text.push_str(&stream.finish());
        text
    }

    #[test]
    fn a_character_over_several_pieces_comes_whole() {
        let mut stream = TextStream::new();
        assert_eq!(stream.push(b"a\xc3"), "a");
        assert_eq!(stream.push(b"\xa9"), "é");
        assert_eq!(stream.push(b"\xf0\x9f"), "");
        assert_eq!(stream.held(), b"\xf0\x9f");
        assert_eq!(stream.push(b"\x90\x8d!"), "\u{1f40d}!");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn a_cut_off_end_is_one_replacement() {
        assert_eq!(joined(&[b"ok", b"\xf0\x9f"]), "ok\u{fffd}");
        assert_eq!(joined(&[b"ok", b"\xf0", b"\x9f", b"\x90"]), "ok\u{fffd}");
        assert_eq!(joined(&[]), "");
    }

    #[test]
    fn what_cannot_be_completed_is_not_held() {
        let mut stream = TextStream::new();
        assert_eq!(stream.push(b"\xf5"), "\u{fffd}");
        assert_eq!(stream.push(b"\xe0\x80"), "\u{fffd}\u{fffd}");
        assert_eq!(stream.push(b"\xed\xa0\x80"), "\u{fffd}\u{fffd}\u{fffd}");
        assert!(stream.held().is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_cut_gives_the_text_of_the_whole(pieces in prop::collection::vec(awkward(), 0..12)) {
            let whole: Vec<u8> = pieces.concat();
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            assert_eq!(joined(&pieces), String::from_utf8_lossy(&whole));
        }
    }

    /// Pieces of characters, whole characters, and noise.
    fn awkward() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
            (any::<char>(), 0usize..4).prop_map(|(c, n)| {
                let bytes = c.to_string().into_bytes();
                bytes[..n.min(bytes.len())].to_vec()
            }),
            prop::collection::vec(0x80u8..=0xff, 0..4),
            prop::collection::vec(any::<u8>(), 0..4),
        ]
    }
}
