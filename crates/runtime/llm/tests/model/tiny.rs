//! Tiny random Llamas, as GGUF files.
//!
//! In: a shape and formats. Out: a file, and the same weights decoded to double precision for the reference.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use overdrive_kernels::{Format, decode};
use overdrive_llm::gguf::{Array, Strings, Value, Writer};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Between -1 and 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// How positions are stretched, as the file says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaling {
    None,
    Linear(f64),
    Yarn(f64, usize),
    /// Divisors in a tensor.
    Divisors,
}

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) n_layers: usize,
    pub(crate) n_embed: usize,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) n_rope: usize,
    pub(crate) n_ff: usize,
    pub(crate) n_vocabulary: usize,
    pub(crate) n_ctx: usize,
    pub(crate) is_tied: bool,
    pub(crate) window: Option<usize>,
    pub(crate) scaling: Scaling,
    pub(crate) format: Format,
    pub(crate) seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            n_layers: 2,
            n_embed: 64,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 32,
            n_rope: 32,
            n_ff: 96,
            n_vocabulary: 272,
            n_ctx: 256,
            is_tied: false,
            window: None,
            scaling: Scaling::None,
            format: Format::F32,
            seed: 1,
        }
    }
}

pub(crate) const EPSILON: f32 = 1e-5;
pub(crate) const BASE: f32 = 1000.0;

/// A file being made, and what its tensors decode to.
pub(crate) struct Tiny {
    pub(crate) shape: Shape,
    metadata: Vec<(String, Value)>,
    tensors: Writer,
    pub(crate) weights: HashMap<String, Vec<f64>>,
    random: Random,
}

impl Tiny {
    pub(crate) fn new(shape: Shape) -> Self {
        let random = Random(shape.seed);
        let (metadata, tensors) = (Vec::new(), Writer::new());
        let mut tiny = Self { shape, metadata, tensors, weights: HashMap::new(), random };
        tiny.set_metadata();
        tiny.put_tensors();
        tiny
    }

    /// The file, at a path of its own.
    pub(crate) fn file(&self) -> Scratch {
        Scratch::with(&self.bytes())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut writer = self.tensors.clone();
        for (key, value) in &self.metadata {
            writer.set(key, value.clone());
        }
        writer.to_bytes()
    }

    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.remove(key);
        self.metadata.push((key.to_owned(), value));
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.metadata.retain(|(other, _)| other != key);
    }

    fn set_metadata(&mut self) {
        let shape = self.shape.clone();
        let number = |n: usize| Value::U32(n as u32);
        let writer = &mut *self;
        writer.set("general.architecture", Value::String(b"llama".to_vec()));
        writer.set("general.name", Value::String(b"tiny".to_vec()));
        writer.set("llama.block_count", number(shape.n_layers));
        writer.set("llama.context_length", number(shape.n_ctx));
        writer.set("llama.embedding_length", number(shape.n_embed));
        writer.set("llama.feed_forward_length", number(shape.n_ff));
        writer.set("llama.attention.head_count", number(shape.n_heads));
        writer.set("llama.attention.head_count_kv", number(shape.n_kv_heads));
        writer.set("llama.attention.key_length", number(shape.head_dim));
        writer.set("llama.attention.value_length", number(shape.head_dim));
        writer.set("llama.attention.layer_norm_rms_epsilon", Value::F32(EPSILON));
        writer.set("llama.rope.dimension_count", number(shape.n_rope));
        writer.set("llama.rope.freq_base", Value::F32(BASE));
        if let Some(window) = shape.window {
            writer.set("llama.attention.sliding_window", number(window));
        }
        let mut scaling = |kind: &str, factor: f64| {
            writer.set("llama.rope.scaling.type", Value::String(kind.as_bytes().to_vec()));
            writer.set("llama.rope.scaling.factor", Value::F32(factor as f32));
        };
        match shape.scaling {
            Scaling::None | Scaling::Divisors => {}
            Scaling::Linear(factor) => scaling("linear", factor),
            Scaling::Yarn(factor, original) => {
                scaling("yarn", factor);
                writer.set("llama.rope.scaling.original_context_length", number(original));
            }
        }
        // Bytes as GPT-2 writes them, a few merges of them, and three tokens that control.
        let mut tokens: Vec<String> = (0..=255).map(|byte| String::from(byte_as_char(byte))).collect();
        tokens.extend(["th", "he", "Ġt", "Ġth", "in", "er"].map(str::to_owned));
        while tokens.len() < shape.n_vocabulary - 3 {
            tokens.push(format!("<unused{}>", tokens.len()));
        }
        tokens.extend(["<|begin|>", "<|end|>", "<|pad|>"].map(str::to_owned));
        let n = tokens.len();
        let kinds = (0..n).map(|i| match i {
            i if i >= n - 3 => 3,
            i if i >= 262 => 5,
            _ => 1,
        });
        let kinds: Vec<i32> = kinds.collect();
        let merges = ["t h", "h e", "Ġ t", "Ġt h", "i n", "e r"];
        writer.set("tokenizer.ggml.model", Value::String(b"gpt2".to_vec()));
        writer.set("tokenizer.ggml.pre", Value::String(b"smollm".to_vec()));
        writer.set("tokenizer.ggml.tokens", strings(tokens.iter().map(String::as_str)));
        writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
        writer.set("tokenizer.ggml.merges", strings(merges));
        writer.set("tokenizer.ggml.bos_token_id", number(n - 3));
        writer.set("tokenizer.ggml.eos_token_id", number(n - 2));
        writer.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    }

    fn put_tensors(&mut self) {
        let Shape { n_embed, n_ff, n_heads, n_kv_heads, head_dim, n_vocabulary, .. } = self.shape;
        let (n_query, n_kv) = (n_heads * head_dim, n_kv_heads * head_dim);
        self.matrix("token_embd.weight", n_vocabulary, n_embed, 1.0);
        for i in 0..self.shape.n_layers {
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            let narrow = 1.0 / (n_embed as f64).sqrt();
            self.vector(&name("attn_norm"), n_embed);
            // Large enough for scores to differ: a softmax of equals hides errors of position.
            self.matrix(&name("attn_q"), n_query, n_embed, 2.5 * narrow);
            self.matrix(&name("attn_k"), n_kv, n_embed, 2.5 * narrow);
            self.matrix(&name("attn_v"), n_kv, n_embed, narrow);
            self.matrix(&name("attn_output"), n_embed, n_query, 1.0 / (n_query as f64).sqrt());
            self.vector(&name("ffn_norm"), n_embed);
            self.matrix(&name("ffn_gate"), n_ff, n_embed, narrow);
            self.matrix(&name("ffn_up"), n_ff, n_embed, narrow);
            self.matrix(&name("ffn_down"), n_embed, n_ff, 1.0 / (n_ff as f64).sqrt());
        }
        self.vector("output_norm.weight", n_embed);
        if !self.shape.is_tied {
            self.matrix("output.weight", n_vocabulary, n_embed, 1.0 / (n_embed as f64).sqrt());
        }
        if self.shape.scaling == Scaling::Divisors {
            let divisors: Vec<f32> = (0..self.shape.n_rope / 2).map(|pair| 1.0 + pair as f32 / 4.0).collect();
            self.put("rope_freqs.weight", &[divisors.len()], Format::F32, bytes_of(&divisors));
        }
    }

    fn vector(&mut self, name: &str, n: usize) {
        let values: Vec<f32> = (0..n).map(|_| (1.0 + self.random.unit() / 2.0) as f32).collect();
        self.put(name, &[n], Format::F32, bytes_of(&values));
    }

    fn matrix(&mut self, name: &str, n_rows: usize, n_cols: usize, deviation: f64) {
        let format = self.shape.format;
        let bytes = random_blocks(&mut self.random, format, n_rows * n_cols, deviation);
        self.put(name, &[n_rows, n_cols], format, bytes);
    }

    pub(crate) fn put(&mut self, name: &str, shape: &[usize], format: Format, bytes: Vec<u8>) {
        let mut values = vec![0.0; shape.iter().product()];
        decode(format, &bytes, &mut values).unwrap();
        self.weights.insert(name.to_owned(), values.into_iter().map(f64::from).collect());
        self.tensors.tensor(name, shape, format, bytes);
    }
}

/// How GPT-2's vocabulary writes a byte.
fn byte_as_char(byte: u8) -> char {
    let is_plain = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_plain(byte) {
        return char::from(byte);
    }
    let n_before = (0..byte).filter(|byte| !is_plain(*byte)).count();
    char::from_u32(256 + n_before as u32).unwrap()
}

fn strings<'a>(all: impl IntoIterator<Item = &'a str>) -> Value {
    let mut strings = Strings::default();
    for string in all {
        strings.push(string.as_bytes());
    }
    Value::Array(Array::String(strings))
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Blocks of random codes whose values have about this standard deviation and a mean near 0.
fn random_blocks(random: &mut Random, format: Format, n_values: usize, deviation: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..n_values / format.block_values() {
        let mut block: Vec<u8> = (0..format.block_bytes()).map(|_| random.next() as u8).collect();
        let plain = random.unit() * deviation * 3f64.sqrt();
        let mut halves = |at: usize, value: f64| {
            block[at..at + 2].copy_from_slice(&half::f16::from_f64(value).to_le_bytes());
        };
        match format {
            Format::F32 => block = (plain as f32).to_le_bytes().to_vec(),
            Format::F16 => halves(0, plain),
            Format::BF16 => block = half::bf16::from_f64(plain).to_le_bytes().to_vec(),
            Format::Q4_0 => halves(0, deviation / 4.6),
            Format::Q4_1 => {
                halves(0, deviation / 4.6);
                halves(2, deviation / 4.6 * -7.5);
            }
            Format::Q5_0 => halves(0, deviation / 9.2),
            Format::Q5_1 => {
                halves(0, deviation / 9.2);
                halves(2, deviation / 9.2 * -15.5);
            }
            Format::Q8_0 => halves(0, deviation / 74.0),
            Format::Q4K => {
                halves(0, deviation / 240.0);
                halves(2, deviation / 240.0 * 7.5);
            }
            Format::Q5K => {
                halves(0, deviation / 480.0);
                halves(2, deviation / 480.0 * 15.5);
            }
            Format::Q6K => halves(208, deviation / 1370.0),
        }
        bytes.extend(block);
    }
    bytes
}

/// A file that is removed when it is dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// A path where nothing is.
    pub(crate) fn empty() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("overdrive-llm-{}-{number}", std::process::id())))
    }

    pub(crate) fn with(bytes: &[u8]) -> Self {
        let scratch = Self::empty();
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
