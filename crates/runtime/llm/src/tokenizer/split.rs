//! Pre-tokenizers: text to the words that merging stays within.
//!
//! In: the name a file gives, text. Out: words that together are the text. The published patterns end in
//! `\s+(?!\S)|\s+`: of several spaces before a word the last belongs to the word. That look-ahead is done here in code, so
//! that the patterns can go through an engine whose time is linear in the text, whatever the text.

use std::sync::LazyLock;

use regex::Regex;

use super::error::TokenizerError;

/// How a vocabulary's text is cut.
#[derive(Debug)]
pub(super) struct Splitter {
    family: Family,
    /// A whole word that is a token is taken as it is, whatever the merges would make of it.
    pub(super) whole_words: bool,
    /// Texts begin with `bos` where the file does not say.
    pub(super) adds_bos: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// GPT-2: letters, numbers, other characters, each with a space before them.
    Gpt2,
    /// The same, with each digit alone.
    DigitsAlone,
    /// Llama 3: numbers of up to three digits, line breaks apart.
    Llama3,
    /// Mistral's Tekken: words end where upper case follows lower case.
    Tekken,
}

impl Splitter {
    /// # Errors
    /// `Unsupported` for names that we do not have: another one's words would give other ids without a sign of it.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let (family, whole_words, adds_bos) = match name {
            "gpt-2" | "default" | "phi-2" | "olmo" | "mpt" => (Family::Gpt2, false, false),
            "smollm" | "starcoder" | "refact" | "codeshell" | "exaone" | "minerva-7b" => {
                (Family::DigitsAlone, false, false)
            }
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" => {
                (Family::Llama3, true, true)
            }
            "tekken" => (Family::Tekken, true, true),
            other => {
                return Err(TokenizerError::Unsupported {
                    key: "tokenizer.ggml.pre",
                    name: other.to_owned(),
                    known: "gpt-2, default, smollm, starcoder, llama-bpe, tekken and their relatives",
                });
            }
        };
        Ok(Splitter { family, whole_words, adds_bos })
    }

    /// Calls `each` with the words of `text`, from left to right.
    pub(super) fn words<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) {
        let pattern = self.family.pattern();
        let mut at = 0;
        while at < text.len() {
            let found = pattern.find_at(text, at).filter(|found| !found.is_empty());
            let (start, end) = found.map_or((text.len(), text.len()), |found| (found.start(), found.end()));
            if at < start {
                each(&text[at..start]);
            }
            at = start + self.length(&text[start..end], &text[end..]);
            if start < at {
                each(&text[start..at]);
            }
        }
    }

    /// How much of what the pattern found is one word: of spaces before a word, all but the last.
    fn length(&self, found: &str, behind: &str) -> usize {
        let Some(last) = found.chars().next_back() else { return 0 };
        let Some(next) = behind.chars().next() else { return found.len() };
        let n_last = last.len_utf8();
        let breaks_apart = matches!(self.family, Family::Llama3 | Family::Tekken);
        let is_one = found.len() == n_last
            || !last.is_whitespace()
            || (breaks_apart && matches!(last, '\r' | '\n'))
            || (self.family == Family::DigitsAlone && next.is_numeric())
            || !found.chars().all(char::is_whitespace);
        if is_one { found.len() } else { found.len() - n_last }
    }
}

impl Family {
    /// The published pattern without its look-ahead.
    fn pattern(self) -> &'static Regex {
        static GPT2: LazyLock<Regex> =
            LazyLock::new(|| pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+"));
        static DIGITS_ALONE: LazyLock<Regex> =
            LazyLock::new(|| pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"));
        static LLAMA3: LazyLock<Regex> = LazyLock::new(|| {
            pattern(concat!(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
                r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
            ))
        });
        static TEKKEN: LazyLock<Regex> = LazyLock::new(|| {
            pattern(concat!(
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
                r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
                r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
            ))
        });
        match self {
            Family::Gpt2 => &GPT2,
            Family::DigitsAlone => &DIGITS_ALONE,
            Family::Llama3 => &LLAMA3,
            Family::Tekken => &TEKKEN,
        }
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns are constants, and the tests compile each of them")
}

#[cfg(test)]
mod tests {
    use super::Splitter;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        Splitter::named(name).expect("a name we have").words(text, |word| words.push(word));
        words
    }

    #[test]
    fn the_last_space_belongs_to_the_word() {
        for name in ["gpt-2", "smollm", "llama-bpe", "tekken"] {
            assert_eq!(words(name, "a   b"), ["a", "  ", " b"], "{name}");
            assert_eq!(words(name, "a \t "), ["a", " \t "], "{name}");
            assert_eq!(words(name, "  "), ["  "], "{name}");
            assert_eq!(words(name, ""), [""; 0], "{name}");
        }
        assert_eq!(words("gpt-2", "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(words("llama-bpe", "a\n\n  b"), ["a", "\n\n", " ", " b"]);
        assert_eq!(words("llama-bpe", "a \n b"), ["a", " \n", " b"]);
    }

    #[test]
    fn numbers_are_cut_as_each_family_does() {
        assert_eq!(words("gpt-2", "a  1234"), ["a", " ", " 1234"]);
        assert_eq!(words("smollm", "a  12"), ["a", "  ", "1", "2"]);
        assert_eq!(words("llama-bpe", "1234567"), ["123", "456", "7"]);
        assert_eq!(words("tekken", "12a"), ["1", "2", "a"]);
    }

    #[test]
    fn short_forms_and_case() {
        assert_eq!(words("gpt-2", "it's IT'S"), ["it", "'s", " IT", "'", "S"]);
        assert_eq!(words("llama-bpe", "it's IT'S"), ["it", "'s", " IT", "'S"]);
        assert_eq!(words("tekken", "helloWorld"), ["hello", "World"]);
    }

    #[test]
    fn a_million_spaces_take_no_time() {
        let text = " ".repeat(1_000_000) + "a" + &" \n".repeat(500_000) + "b";
        for name in ["gpt-2", "smollm", "llama-bpe", "tekken"] {
            assert_eq!(words(name, &text).concat(), text, "{name}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        let error = Splitter::named("bloom").expect_err("not ours");
        assert!(error.is_unsupported() && error.to_string().contains("\"bloom\""), "{error}");
    }
}
