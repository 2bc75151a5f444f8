//! Vocabularies small enough to read, and files that contradict themselves.

use std::time::{Duration, Instant};

use super::{Kind, Tokenizer, TokenizerError};
use crate::gguf::{Array, File, Value, Writer};

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The metadata of a file without tensors; what is set last holds.
#[derive(Clone, Default)]
struct Keys(Vec<(&'static str, Value)>);

impl Keys {
    fn set(mut self, key: &'static str, value: Value) -> Self {
        self.0.retain(|(known, _)| *known != key);
        self.0.push((key, value));
        self
    }

    fn without(mut self, key: &str) -> Self {
        self.0.retain(|(known, _)| *known != key);
        self
    }

    fn without_special(self) -> Self {
        self.without("tokenizer.ggml.bos_token_id").without("tokenizer.ggml.eos_token_id")
    }

    fn tokens(self, tokens: &[(&str, i32)]) -> Self {
        let texts = tokens.iter().map(|(text, _)| text).collect();
        let kinds = tokens.iter().map(|(_, kind)| *kind).collect();
        self.set("tokenizer.ggml.tokens", Value::Array(Array::String(texts)))
            .set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
    }

    fn merges(self, merges: &[&str]) -> Self {
        self.set("tokenizer.ggml.merges", Value::Array(Array::String(merges.iter().collect())))
    }

    fn scores(self, scores: &[f32]) -> Self {
        self.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores.to_vec())))
    }

    fn build(&self) -> Result<Tokenizer, TokenizerError> {
        let mut writer = Writer::new();
        for (key, value) in &self.0 {
            writer.set(key, value.clone());
        }
        Tokenizer::from_gguf(&File::parse(&writer.to_bytes()).expect("a file").metadata)
    }

    #[track_caller]
    fn tokenizer(&self) -> Tokenizer {
        self.build().expect("a vocabulary")
    }

    #[track_caller]
    fn refused(&self, words: &str) {
        let error = self.build().expect_err("a contradiction");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[track_caller]
fn encode(tokenizer: &Tokenizer, text: &str, parse_special: bool) -> Vec<u32> {
    tokenizer.encode(text, false, parse_special).expect("a text")
}

fn text(text: &str) -> Value {
    Value::String(text.as_bytes().to_vec())
}

/// Ids 0 to 9. `Ġ` is how a space is spelled.
fn bytes() -> Keys {
    let tokens = [
        ("a", NORMAL),
        ("b", NORMAL),
        ("Ġ", NORMAL),
        ("ab", NORMAL),
        ("Ġab", NORMAL),
        ("bb", NORMAL),
        ("Ã", NORMAL),
        ("<|end|>", CONTROL),
        ("<think>", USER_DEFINED),
        ("Ġa", UNUSED),
    ];
    Keys::default()
        .set("tokenizer.ggml.model", text("gpt2"))
        .set("tokenizer.ggml.pre", text("gpt-2"))
        .set("tokenizer.ggml.eos_token_id", Value::U32(7))
        .tokens(&tokens)
        .merges(&["a b", "b b", "Ġ ab"])
}

/// Ids 0 to 10, and behind them the 256 bytes.
fn pieces() -> Keys {
    let mut tokens: Vec<(String, i32)> = [
        ("<unk>", UNKNOWN),
        ("<s>", CONTROL),
        ("</s>", CONTROL),
        ("▁", NORMAL),
        ("a", NORMAL),
        ("b", NORMAL),
        ("ab", NORMAL),
        ("▁a", NORMAL),
        ("▁ab", NORMAL),
        ("b▁a", NORMAL),
        ("▁now▁", USER_DEFINED),
    ]
    .map(|(text, kind)| (text.to_owned(), kind))
    .into();
    tokens.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), BYTE)));
    let tokens: Vec<(&str, i32)> = tokens.iter().map(|(text, kind)| (text.as_str(), *kind)).collect();
    let mut scores = vec![0.0; tokens.len()];
    scores[6..10].copy_from_slice(&[-3.0, -2.0, -1.0, -4.0]);
    Keys::default()
        .set("tokenizer.ggml.model", text("llama"))
        .set("tokenizer.ggml.bos_token_id", Value::U32(1))
        .set("tokenizer.ggml.eos_token_id", Value::U32(2))
        .tokens(&tokens)
        .scores(&scores)
}

#[test]
fn bytes_merge_in_the_order_of_the_list() {
    let tokenizer = bytes().tokenizer();
    let ids = |text| encode(&tokenizer, text, false);
    assert_eq!(ids("ab"), [3]);
    // "a b" comes before "b b", and words end before their spaces.
    assert_eq!(ids("abb"), [3, 1]);
    assert_eq!(ids("bbb ab"), [5, 1, 4]);
    // A token of the kind unused may be what bytes are, but no merge makes it.
    assert_eq!(ids(" a"), [2, 0]);
    assert_eq!(ids(""), [0; 0]);
    // ä is the bytes C3 and A4, of which the vocabulary has the first; what has no token is left out.
    assert_eq!(ids("aäb"), [0, 6, 1]);
    assert_eq!(tokenizer.decode(&[4, 6, 0], false).expect("ids"), " ab\u{fffd}a");
    assert_eq!(tokenizer.piece(4).expect("an id"), b" ab");
    assert_eq!((tokenizer.id_of(b" ab"), tokenizer.id_of(b"ba")), (Some(4), None));
    assert_eq!((tokenizer.n_tokens(), tokenizer.kind(9), tokenizer.kind(10)), (10, Some(Kind::Unused), None));
}

#[test]
fn tokens_of_control_are_named_only_by_who_may() {
    let tokenizer = bytes().tokenizer();
    assert_eq!(encode(&tokenizer, "a<|end|><think>b", true), [0, 7, 8, 1]);
    // What strangers write is text; tokens that users defined are text that is never cut.
    let ids = encode(&tokenizer, "<|end|>b<think>b", false);
    assert!(!ids.contains(&7) && ids.ends_with(&[1, 8, 1]), "{ids:?}");
    assert_eq!(tokenizer.decode(&[0, 7, 8], true).expect("ids"), "a<think>");
    assert_eq!(tokenizer.decode(&[0, 7, 8], false).expect("ids"), "a<|end|><think>");
    assert!(tokenizer.is_special(7) && !tokenizer.is_special(8) && tokenizer.is_end(7));
    assert_eq!((tokenizer.ends(), tokenizer.eos(), tokenizer.bos()), (&[7][..], Some(7), None));
}

#[test]
fn the_longest_added_token_is_taken_and_of_equal_ones_the_last() {
    let tokens =
        [("x", NORMAL), ("<a", USER_DEFINED), ("<a>", USER_DEFINED), ("<a>", CONTROL), ("", USER_DEFINED)];
    let tokenizer = bytes().without_special().tokens(&tokens).merges(&[]).tokenizer();
    assert_eq!(encode(&tokenizer, "x<a<a>x", true), [0, 1, 3, 0]);
    assert_eq!(encode(&tokenizer, "x<a<a>x", false), [0, 1, 2, 0]);
    assert_eq!(tokenizer.id_of(b"<a>"), Some(3));
    assert_eq!(tokenizer.piece(4).expect("an id"), b"");
}

#[test]
fn pieces_join_by_their_scores_across_spaces_too() {
    let tokenizer = pieces().tokenizer();
    let ids = |text| encode(&tokenizer, text, false);
    assert_eq!(ids("ab"), [8]);
    assert_eq!(ids("aab"), [7, 6]);
    // A piece with a space in its middle.
    assert_eq!(ids("bb a"), [3, 5, 9]);
    assert_eq!(ids(""), [0; 0]);
    assert_eq!(tokenizer.encode("ab", true, false).expect("a text"), [1, 8]);
    // What a text begins with was not written; a token of control begins a text anew.
    assert_eq!(encode(&tokenizer, "</s>ab", true), [2, 8]);
    assert_eq!(tokenizer.decode(&[1, 8, 2], true).expect("ids"), "ab");
    assert_eq!(ids("a now a"), [7, 10, 7]);
    let bare = pieces().set("tokenizer.ggml.add_space_prefix", Value::Bool(false)).tokenizer();
    assert_eq!(encode(&bare, "ab", false), [6]);
    assert_eq!(bare.decode(&[8], false).expect("ids"), " ab");
}

#[test]
fn what_has_no_piece_becomes_bytes_or_the_unknown_token() {
    let tokenizer = pieces().tokenizer();
    // The euro is the bytes E2 82 AC.
    assert_eq!(encode(&tokenizer, "a€", false), [7, 11 + 0xe2, 11 + 0x82, 11 + 0xac]);
    assert_eq!(tokenizer.decode(&[7, 11 + 0xe2, 11 + 0x82, 11 + 0xac], false).expect("ids"), "a€");
    assert_eq!(tokenizer.decode(&[11 + 0xe2, 4], false).expect("ids"), "\u{fffd}a");
    assert_eq!((tokenizer.kind(11), tokenizer.id_of(&[0xe2])), (Some(Kind::Byte), Some(11 + 0xe2)));
    let tokens = [("<unk>", UNKNOWN), ("▁", NORMAL), ("a", NORMAL), ("<0x00>", BYTE)];
    let few = pieces().without_special().tokens(&tokens).scores(&[0.0; 4]);
    // Several in a row are one.
    assert_eq!(encode(&few.tokenizer(), "a€€a€", false), [1, 2, 0, 2, 0]);
}

#[test]
fn ids_outside_of_the_vocabulary_are_errors() {
    for tokenizer in [bytes().tokenizer(), pieces().tokenizer()] {
        let n_tokens = tokenizer.n_tokens();
        for id in [n_tokens as u32, u32::MAX] {
            let error = tokenizer.decode(&[0, id], true).expect_err("no such id");
            assert!(
                matches!(error, TokenizerError::Token { id: of, n_tokens: n } if of == id && n == n_tokens)
            );
            assert!(tokenizer.piece(id).is_err() && !tokenizer.is_special(id) && !tokenizer.is_end(id));
        }
    }
}

#[test]
fn files_that_contradict_themselves_are_refused() {
    let list = |texts: &[&[u8]]| Value::Array(Array::String(texts.iter().collect()));
    bytes().set("tokenizer.ggml.tokens", list(&[])).refused("0 tokens");
    bytes()
        .set("tokenizer.ggml.tokens", list(&[b"a", b"\xff"]))
        .without("tokenizer.ggml.token_type")
        .refused("token 1 is not UTF-8");
    bytes().set("tokenizer.ggml.tokens", Value::U32(3)).refused("tokenizer.ggml.tokens");
    bytes().tokens(&[("a", 7)]).refused("token 0 has the type 7");
    bytes().tokens(&[("a", -1)]).refused("token 0 has the type -1");
    bytes().set("tokenizer.ggml.eos_token_id", Value::U32(10)).refused("10; the vocabulary has 10 tokens");
    bytes().set("tokenizer.ggml.eos_token_id", Value::I32(-2)).refused("-2");
    bytes().set("tokenizer.ggml.eos_token_id", text("7")).refused("eos_token_id");
    bytes().set("tokenizer.ggml.add_bos_token", Value::Bool(true)).refused("no bos_token_id");
    for merge in ["ab", "a  b", " a", "a ", "a b b", "", " "] {
        bytes().merges(&[merge]).refused("merge 0");
    }
    bytes().merges(&["a b", "b a"]).refused("tokenizer.ggml.merges: Token `ba` out of vocabulary");
    // Longer than any token: the crate would write past its buffer's end.
    bytes().merges(&["a b", "a <|end|>"]).refused("not in the vocabulary");
    bytes().set("tokenizer.ggml.merges", list(&[b"\xff a"])).refused("not UTF-8");
    bytes().set("tokenizer.ggml.pre", text("")).refused("tokenizer.ggml.pre");
    pieces().scores(&[0.0]).refused("1 scores for 267 tokens");
    let mut scores = vec![0.0; 267];
    scores[5] = f32::NAN;
    pieces().scores(&scores).refused("token 5 is NaN");
    for byte in ["<0x1>", "<0x+1>", "<0xGG>", "a", "", "<0x100>"] {
        pieces().without_special().tokens(&[(byte, BYTE)]).scores(&[0.0]).refused("of the kind byte");
    }
}

#[test]
fn nothing_that_a_vocabulary_holds_makes_encoding_slow_or_endless() {
    // Each pair of equal tokens merges, down to one token for 2^12 letters; infinite scores; pieces that are one another.
    let letters: Vec<String> = (0..13).map(|level| "a".repeat(1 << level)).collect();
    let tokens: Vec<(&str, i32)> = letters.iter().map(|text| (text.as_str(), NORMAL)).collect();
    let merges: Vec<String> = letters[..12].iter().map(|half| format!("{half} {half}")).collect();
    let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
    let halves = bytes().without_special().tokens(&tokens).merges(&merges).tokenizer();
    let scores: Vec<f32> =
        (0..11).map(|level| if level % 2 == 0 { f32::INFINITY } else { f32::NEG_INFINITY }).collect();
    let scored = pieces().without_special().tokens(&tokens[..11]).scores(&scores).tokenizer();
    let long = "a".repeat(100_000);
    let start = Instant::now();
    let ids = encode(&halves, &long, false);
    assert_eq!(halves.decode(&ids, false).expect("ids"), long);
    assert_eq!(ids.len(), 100_000 / 4_096 + (100_000_usize % 4_096).count_ones() as usize);
    // The space in front has no piece and no byte, and there is no unknown token.
    let ids = encode(&scored, &long, false);
    assert_eq!(scored.decode(&ids, false).expect("ids"), long);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_run_of_white_space_that_the_engine_cannot_hold_is_an_error() {
    for name in ["gpt-2", "smollm", "llama-bpe", "tekken"] {
        let tokenizer = bytes().set("tokenizer.ggml.pre", text(name)).tokenizer();
        for n in [100_000, 900_000] {
            let ids = encode(&tokenizer, &(" ".repeat(n) + "ab"), false);
            assert_eq!((ids.len(), ids.last()), (n, Some(&4)), "{name}");
        }
        let error = tokenizer.encode(&(" ".repeat(1_100_000) + "ab"), false, false).expect_err("too many");
        assert!(matches!(error, TokenizerError::Text { n_bytes: 1_100_002, .. }), "{error}");
    }
}

#[test]
fn a_whole_word_is_no_token_of_control() {
    // Llama 3 takes whole words that are tokens; strangers' text must not name control tokens by that.
    let tokens =
        [("s", NORMAL), ("y", NORMAL), ("sy", CONTROL), ("ss", NORMAL), ("yy", UNUSED), ("ys", CONTROL)];
    let llama3 = bytes().without_special().tokens(&tokens).set("tokenizer.ggml.pre", text("llama-bpe"));
    let tokenizer = llama3.clone().merges(&[]).tokenizer();
    assert_eq!(encode(&tokenizer, "sy", false), [0, 1]);
    assert_eq!(encode(&tokenizer, "sy", true), [2]);
    assert_eq!(encode(&tokenizer, "ss", false), [3]);
    assert_eq!(encode(&tokenizer, "yy", false), [1, 1]);
    // What merges name is a part of text all the same.
    assert_eq!(encode(&llama3.merges(&["y s"]).tokenizer(), "ys", false), [5]);
}

#[test]
fn vocabularies_that_would_take_too_much_are_refused() {
    let long = "x".repeat((1 << 20) + 1);
    let tokens = [("a", NORMAL), (long.as_str(), USER_DEFINED)];
    bytes().without_special().tokens(&tokens).merges(&[]).refused("tokenizer.ggml.tokens");
    let long = "a".repeat(1025);
    let scored = |kind| pieces().without_special().tokens(&[("a", NORMAL), (&long, kind)]).scores(&[0.0; 2]);
    scored(NORMAL).refused("token 1 has 1025 bytes");
    scored(USER_DEFINED).tokenizer();
    let letters =
        ["a", "b", "c", "d", "e"].map(|letter| (1..1024).map(|n| letter.repeat(n)).collect::<Vec<_>>());
    let tokens: Vec<(&str, i32)> = letters.iter().flatten().map(|text| (text.as_str(), NORMAL)).collect();
    pieces().without_special().tokens(&tokens).scores(&vec![0.0; tokens.len()]).refused("too many ways");
}

#[test]
fn a_piece_is_not_named_as_a_byte() {
    let mut tokens: Vec<(String, i32)> = (0..256).map(|byte| (format!("<0x{byte:02x}>"), BYTE)).collect();
    tokens.push(("<0x0A>".to_owned(), NORMAL));
    let tokens: Vec<(&str, i32)> = tokens.iter().map(|(text, kind)| (text.as_str(), *kind)).collect();
    pieces().without_special().tokens(&tokens).scores(&[0.0; 257]).refused("the name of the byte 10");
    let tokenizer = pieces().without_special().tokens(&tokens[..256]).scores(&[0.0; 256]).tokenizer();
    assert_eq!(encode(&tokenizer, "\n", false), [0xe2, 0x96, 0x81, 10]);
}
