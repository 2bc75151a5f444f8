//! Pre-tokenizers: text to the words that merging stays within, in the structure that each kind of vocabulary was published with.
//!
//! In: the name a file gives. Out: the crate's parts for it. The patterns are the published ones; the engine that they go
//! through answers with an error where it gives up, and that error is passed on: a text is cut as the pattern says or not at all.

use fancy_regex::Regex;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::{PreTokenizedString, PreTokenizer, SplitDelimiterBehavior};

use super::error::TokenizerError;

/// How a vocabulary's text is cut.
#[derive(Debug)]
pub(super) struct Words {
    pattern: Regex,
    /// Each digit is a word, and what lies between digits is cut by itself.
    digits_alone: bool,
    /// A whole word that is a token is taken as it is, whatever the merges would make of it.
    pub(super) whole_words: bool,
    /// Texts begin with `bos` where the file does not say.
    pub(super) adds_bos: bool,
}

/// GPT-2: letters, numbers, other characters, each with a space before them.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3: numbers of up to three digits, line breaks apart.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Mistral's Tekken: words end where upper case follows lower case.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

impl Words {
    /// # Errors
    /// `Unsupported` for names that we do not have: another one's words would give other ids without a sign of it.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let (pattern, digits_alone, newer) = match name {
            "gpt-2" | "default" | "phi-2" | "olmo" | "mpt" => (GPT2, false, false),
            "smollm" | "starcoder" | "refact" | "codeshell" | "exaone" | "minerva-7b" => (GPT2, true, false),
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" => {
                (LLAMA3, false, true)
            }
            "tekken" => (TEKKEN, false, true),
            other => {
                return Err(TokenizerError::Unsupported {
                    key: "tokenizer.ggml.pre",
                    name: other.to_owned(),
                    known: "gpt-2, default, smollm, starcoder, llama-bpe, tekken and their relatives",
                });
            }
        };
        let pattern = Regex::new(pattern).expect("a constant, and the tests compile each of them");
        Ok(Words { pattern, digits_alone, whole_words: newer, adds_bos: newer })
    }
}

impl PreTokenizer for Words {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        if self.digits_alone {
            Digits::new(true).pre_tokenize(text)?;
        }
        // Not the crate's `Split`: it takes an error of the engine for the end of the words.
        text.split(|_, part| part.split(&self.pattern, SplitDelimiterBehavior::Isolated))?;
        ByteLevel::new(false, false, false).pre_tokenize(text)
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    use super::Words;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut cut = PreTokenizedString::from(text);
        Words::named(name).expect("a name we have").pre_tokenize(&mut cut).expect("a text");
        let parts = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
        parts.into_iter().map(|(_, (start, end), _)| &text[start..end]).collect()
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
    fn other_names_are_refused() {
        let error = Words::named("bloom").expect_err("not ours");
        assert!(error.is_unsupported() && error.to_string().contains("\"bloom\""), "{error}");
    }
}
