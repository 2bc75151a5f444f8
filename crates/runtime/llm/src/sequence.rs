//! The tokens a model has seen in one text, with their keys and values.
//!
//! In: what `Model::forward` appends. Out: tokens; shorter sequences; copies that share what they have in common. Must not
//! know: how keys and values are stored, which tokens come next.

use overdrive_kernels::KvCache;

use crate::model::Fingerprint;

/// A text so far. A clone is cheap: both share the keys and values they have, and go on separately.
#[derive(Clone)]
pub struct Sequence {
    pub(crate) model: Fingerprint,
    pub(crate) cache: KvCache,
    /// As many as the cache has positions.
    pub(crate) tokens: Vec<u32>,
}

impl Sequence {
    pub(crate) fn new(model: Fingerprint, cache: KvCache) -> Self {
        Self { model, cache, tokens: Vec::new() }
    }

    /// The tokens the model has seen.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Bytes of memory for its keys and values; what it shares with clones counts in each.
    pub fn n_bytes(&self) -> usize {
        self.cache.n_bytes()
    }

    /// Forgets all tokens from number `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.cache.truncate(n);
        self.tokens.truncate(n);
    }

    /// Forgets everything behind the tokens that it has in common with `tokens`; returns their number.
    pub fn keep_common_prefix(&mut self, tokens: &[u32]) -> usize {
        let n = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.truncate(n);
        n
    }
}
