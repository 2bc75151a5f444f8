//! The shape of a model, from the metadata of its file.
//!
//! In: metadata. Out: numbers that fit each other, or an error that names the key. Whatever changes what a model computes and
//! is not known here is refused by name. Must not know: tensors.

use super::rope::{RopeConfig, RopeScaling};
use crate::error::Error;
use crate::gguf::{Array, FromValue, Metadata, Value};

/// Widths and counts beyond this are no model; products of two of them fit any address.
const MOST: usize = 1 << 24;

/// The shape of a Llama.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.name`, if it has one.
    pub name: Option<String>,
    /// `general.architecture`.
    pub architecture: String,
    /// Layers, each attention and feed-forward.
    pub n_layers: usize,
    /// Width of the stream.
    pub n_embed: usize,
    /// Heads of queries.
    pub n_heads: usize,
    /// Heads of keys and values; divides `n_heads`.
    pub n_kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Width between the two halves of a feed-forward block.
    pub n_ff: usize,
    /// Tokens.
    pub n_vocabulary: usize,
    /// Positions that it was made for.
    pub n_ctx_train: usize,
    /// What norms add to the mean of squares.
    pub norm_epsilon: f32,
    /// What scores are multiplied with.
    pub attention_scale: f32,
    /// How many positions, its own included, a position sees; all where none.
    pub window: Option<usize>,
    /// How positions are told from each other.
    pub rope: RopeConfig,
}

impl Config {
    /// Reads it from the metadata of a file.
    ///
    /// # Errors
    /// `Unsupported` for an architecture or a kind of scaling that is not run here; `File` and `Key` for keys that are missing,
    /// have another type or do not fit each other.
    pub fn read(metadata: &Metadata) -> Result<Self, Error> {
        let architecture: &str = metadata.require("general.architecture")?;
        if architecture != "llama" {
            let what = format!(
                "models of the architecture {architecture:?} are not run; those of \"llama\" are (Llama, SmolLM2, Mistral)"
            );
            return Err(Error::Unsupported { what });
        }
        let keys = Keys { metadata, prefix: architecture };
        if keys.get::<usize>("expert_count")?.is_some_and(|n| n > 0) {
            let what = "mixtures of experts (llama.expert_count) are not run".to_owned();
            return Err(Error::Unsupported { what });
        }
        let n_embed = keys.count("embedding_length")?;
        let n_heads = keys.count_of_layers("attention.head_count")?;
        let n_kv_heads = match keys.has("attention.head_count_kv") {
            true => keys.count_of_layers("attention.head_count_kv")?,
            false => n_heads,
        };
        if !n_heads.is_multiple_of(n_kv_heads) {
            let problem = format!("{n_kv_heads} heads of keys do not divide {n_heads} heads of queries");
            return Err(keys.error("attention.head_count_kv", problem));
        }
        let head_dim = keys.head_dim(n_embed, n_heads)?;
        Ok(Self {
            name: metadata.get::<&str>("general.name").ok().flatten().map(str::to_owned),
            architecture: architecture.to_owned(),
            n_layers: keys.count("block_count")?,
            n_embed,
            n_heads,
            n_kv_heads,
            head_dim,
            n_ff: keys.count_of_layers("feed_forward_length")?,
            n_vocabulary: keys.n_vocabulary()?,
            n_ctx_train: keys.count("context_length")?,
            norm_epsilon: keys.norm_epsilon()?,
            attention_scale: (1.0 / (head_dim as f64).sqrt()) as f32,
            window: keys.get::<usize>("attention.sliding_window")?.filter(|window| *window > 0),
            rope: keys.rope(head_dim)?,
        })
    }
}

/// Metadata of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'a str,
}

impl<'a> Keys<'a> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn error(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::key(self.full(key), problem)
    }

    fn has(&self, key: &str) -> bool {
        self.metadata.value(&self.full(key)).is_some()
    }

    fn get<T: FromValue<'a>>(&self, key: &str) -> Result<Option<T>, Error> {
        Ok(self.metadata.get(&self.full(key))?)
    }

    /// A number that must be there and in reason.
    fn count(&self, key: &str) -> Result<usize, Error> {
        self.in_reason(key, self.metadata.require(&self.full(key))?)
    }

    fn in_reason(&self, key: &str, n: usize) -> Result<usize, Error> {
        if (1..=MOST).contains(&n) {
            return Ok(n);
        }
        Err(self.error(key, format!("{n} is not between 1 and {MOST}")))
    }

    /// A number that some files give for each layer. Layers that differ are refused.
    fn count_of_layers(&self, key: &str) -> Result<usize, Error> {
        let Some(Value::Array(array)) = self.metadata.value(&self.full(key)) else { return self.count(key) };
        let all: Vec<usize> = self.metadata.require(&self.full(key))?;
        match all.first() {
            Some(first) if all.iter().all(|n| n == first) => self.in_reason(key, *first),
            Some(_) => {
                let what = format!("layers of different shapes ({}) are not run", self.full(key));
                Err(Error::Unsupported { what })
            }
            None => Err(self.error(key, format!("{} values", array.len()))),
        }
    }

    fn head_dim(&self, n_embed: usize, n_heads: usize) -> Result<usize, Error> {
        let key_length = self.get::<usize>("attention.key_length")?;
        let value_length = self.get::<usize>("attention.value_length")?;
        if let (Some(keys), Some(values)) = (key_length, value_length)
            && keys != values
        {
            let what = format!("heads with {keys} values in keys and {values} in values are not run");
            return Err(Error::Unsupported { what });
        }
        match key_length.or(value_length) {
            Some(n) => self.in_reason("attention.key_length", n),
            None if n_embed.is_multiple_of(n_heads) => Ok(n_embed / n_heads),
            None => {
                let problem = format!("{n_heads} heads do not divide a width of {n_embed}");
                Err(self.error("attention.head_count", problem))
            }
        }
    }

    /// The number of tokens. `vocab_size`, where it is, must agree.
    fn n_vocabulary(&self) -> Result<usize, Error> {
        const KEY: &str = "tokenizer.ggml.tokens";
        let n = match self.metadata.value(KEY) {
            Some(Value::Array(Array::String(tokens))) => Some(tokens.len()),
            Some(_) => return Err(Error::key(KEY, "it is no list of strings")),
            None => None,
        };
        match (n, self.get::<usize>("vocab_size")?) {
            (Some(n), Some(said)) if n != said => {
                Err(self.error("vocab_size", format!("{said} is not the number of tokens, {n}")))
            }
            (None, None) => Err(Error::key(KEY, "it is missing")),
            (n, said) => self.in_reason("vocab_size", n.or(said).unwrap_or(0)),
        }
    }

    fn norm_epsilon(&self) -> Result<f32, Error> {
        const KEY: &str = "attention.layer_norm_rms_epsilon";
        let epsilon: f32 = self.metadata.require(&self.full(KEY))?;
        if epsilon.is_finite() && epsilon >= 0.0 {
            return Ok(epsilon);
        }
        Err(self.error(KEY, format!("{epsilon} is no small number")))
    }

    fn rope(&self, head_dim: usize) -> Result<RopeConfig, Error> {
        let n_dims = self.get::<usize>("rope.dimension_count")?.unwrap_or(head_dim);
        if n_dims == 0 || n_dims > head_dim || !n_dims.is_multiple_of(2) {
            let problem = format!("{n_dims} is no even number of the {head_dim} values of a head");
            return Err(self.error("rope.dimension_count", problem));
        }
        let base = f64::from(self.get::<f32>("rope.freq_base")?.unwrap_or(10_000.0));
        if !(base.is_finite() && base > 1.0) {
            return Err(self.error("rope.freq_base", format!("{base} is no base of frequencies")));
        }
        Ok(RopeConfig { n_dims, base, scaling: self.rope_scaling()? })
    }

    fn rope_scaling(&self) -> Result<RopeScaling, Error> {
        let factor = |key: &str| match self.get::<f32>(key)? {
            Some(factor) if !(factor.is_finite() && factor > 0.0) => {
                Err(self.error(key, format!("{factor} is no factor")))
            }
            factor => Ok(factor.map(f64::from)),
        };
        // Old files have only the second.
        let stretch = factor("rope.scaling.factor")?.or(factor("rope.scale_linear")?);
        let kind = self.get::<&str>("rope.scaling.type")?;
        match (kind, stretch) {
            (Some("none") | None, None) | (Some("none"), _) => Ok(RopeScaling::None),
            (Some("linear") | None, Some(factor)) => Ok(RopeScaling::Linear { factor }),
            (Some("yarn"), Some(stretch)) => {
                const CONTEXT: &str = "rope.scaling.original_context_length";
                let original_n_ctx = match self.has(CONTEXT) {
                    true => self.count(CONTEXT)?,
                    false => self.count("context_length")?,
                };
                Ok(RopeScaling::Yarn {
                    factor: stretch,
                    original_n_ctx,
                    beta_fast: factor("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: factor("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    magnitude: factor("rope.scaling.attn_factor")?.unwrap_or(1.0)
                        * (1.0 + 0.1 * stretch.max(1.0).ln()),
                })
            }
            (Some("linear" | "yarn"), None) => {
                Err(self.error("rope.scaling.factor", "it is missing, and the scaling needs it"))
            }
            (Some(other), _) => {
                let what = format!(
                    "the scaling {other:?} of rotations ({}) is not run; \"linear\", \"yarn\" and frequencies in a \
                     tensor are",
                    self.full("rope.scaling.type")
                );
                Err(Error::Unsupported { what })
            }
        }
    }
}
