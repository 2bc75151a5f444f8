//! A model: its shape, its weights, and what it gives for tokens.
//!
//! In: a GGUF file. Out: `forward`. A model does not change once it is loaded; any number of threads may use it at once.

mod config;
mod rope;
mod memory;
mod weights;
mod parts;
mod forward;
mod likelihood;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use overdrive_kernels::{KvCache, KvFormat};
use overdrive_tensor::mapped::MappedFile;

pub use config::Config;
pub use forward::Check;
pub use likelihood::Likelihood;
pub use parts::{Logits, Part, Want};
pub use rope::{RopeConfig, RopeScaling};

use crate::error::Error;
use crate::gguf::{self, Value};
use crate::sequence::Sequence;
use crate::template::{ChatTemplate, TemplateError};
use crate::tokenizer::Tokenizer;
use forward::Workspace;
use rope::Rope;
use weights::Weights;

/// What makes two models the same: a hash of the file's size, metadata and table of tensors.
pub type Fingerprint = [u8; 32];

/// How a model is to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Most positions of a sequence. By default what the model was made for, but no more than half of the memory that is
    /// available can hold keys and values of.
    pub n_ctx: Option<usize>,
    /// How its sequences hold keys and values.
    pub kv: KvFormat,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { n_ctx: None, kv: KvFormat::F16 }
    }
}

/// Called with bytes done and their total while a model is loaded; `Break` stops with [`Error::Interrupted`].
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// No context is longer.
const MOST_CTX: usize = 1 << 24;

/// A model that is ready.
pub struct Model {
    config: Config,
    weights: Weights,
    rope: Rope,
    tokenizer: Option<Tokenizer>,
    /// Compiled when it is first asked for: a file whose template is wrong still continues texts.
    chat_template: OnceLock<Result<ChatTemplate, TemplateError>>,
    metadata: Vec<(String, Value)>,
    n_ctx: usize,
    kv: KvFormat,
    fingerprint: Fingerprint,
    /// Those that no call uses at the moment.
    workspaces: Mutex<Vec<Workspace>>,
}

impl Model {
    /// Loads a GGUF file.
    ///
    /// # Errors
    /// `Io`; `Key`, `Tensor` for a file that is no whole model; `Unsupported` for an architecture or format that we do not
    /// run; `Argument` for an `n_ctx` of 0; `Interrupted`.
    pub fn load(path: &Path, options: &LoadOptions, progress: &mut Progress<'_>) -> Result<Self, Error> {
        let file = MappedFile::open(path).map_err(|source| Error::io("open", path, source))?;
        let (gguf, head) = gguf::File::read_with_head(&file).map_err(|error| match error {
            gguf::ReadError::Io(source) => Error::io("read", path, source),
            gguf::ReadError::Gguf(error) => error.into(),
        })?;
        let fingerprint = fingerprint(&head, file.len());
        drop(head);
        let config = Config::read(&gguf.metadata)?;
        let n_ctx = match options.n_ctx {
            Some(n_ctx) if (1..=MOST_CTX).contains(&n_ctx) => n_ctx,
            Some(n_ctx) => {
                let problem = format!("{n_ctx} is not between 1 and {MOST_CTX}");
                return Err(Error::Argument { name: "n_ctx", problem });
            }
            None => memory::default_n_ctx(&config, options.kv),
        };
        let tokenizer = match gguf.metadata.get::<&str>("tokenizer.ggml.model")? {
            None | Some("none") => None,
            Some(_) => Some(Tokenizer::from_gguf(&gguf.metadata)?),
        };
        let weights = Weights::load(&gguf, &config, file, path, progress)?;
        let rope = Rope::new(&config.rope, weights.divisors.as_deref());
        let no_lists = gguf.metadata.iter().filter(|(_, value)| !matches!(value, Value::Array(_)));
        let metadata = no_lists.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        Ok(Self {
            config,
            weights,
            rope,
            tokenizer,
            chat_template: OnceLock::new(),
            metadata,
            n_ctx,
            kv: options.kv,
            fingerprint,
            workspaces: Mutex::default(),
        })
    }

    /// Its shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Most positions of a sequence.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Whether the embedding serves as the head.
    pub fn is_tied(&self) -> bool {
        self.weights.is_tied()
    }

    /// Bytes of weights that are read for one token, but for its row of the embedding.
    pub fn token_bytes(&self) -> usize {
        self.weights.n_bytes()
    }

    /// How its sequences hold keys and values.
    pub fn kv_format(&self) -> KvFormat {
        self.kv
    }

    /// Whether the sequence is one of this model, or of another of the same file.
    pub fn owns(&self, sequence: &Sequence) -> bool {
        sequence.model == self.fingerprint
    }

    /// What its sequences and their files are recognised by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// From text to tokens and back, if the file has one.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// The metadata of its file, in the file's order, without lists.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// Whether the file has a template that chats are written with, and a tokenizer for what it writes.
    pub fn has_chat_template(&self) -> bool {
        self.tokenizer.is_some() && self.template_value().is_some()
    }

    /// That template, compiled once; none where [`has_chat_template`](Self::has_chat_template) says so.
    ///
    /// # Errors
    /// Each time, `TemplateError::Failed` where it is no text or no Jinja.
    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>, TemplateError> {
        let (Some(value), Some(tokenizer)) = (self.template_value(), &self.tokenizer) else {
            return Ok(None);
        };
        let compiled = self.chat_template.get_or_init(|| ChatTemplate::of_value(value, tokenizer));
        compiled.as_ref().map(Some).map_err(Clone::clone)
    }

    fn template_value(&self) -> Option<&Value> {
        self.metadata.iter().find(|(key, _)| key == "tokenizer.chat_template").map(|(_, value)| value)
    }

    /// An empty sequence.
    pub fn sequence(&self) -> Sequence {
        let Config { n_layers, n_kv_heads, head_dim, .. } = self.config;
        Sequence::new(self.fingerprint, KvCache::new(n_layers, n_kv_heads, head_dim, self.kv))
    }
}

/// Of everything in a file but the tensors' bytes.
fn fingerprint(header: &[u8], n_bytes: usize) -> Fingerprint {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(n_bytes as u64).to_le_bytes());
    hasher.update(header);
    hasher.finalize().into()
}
