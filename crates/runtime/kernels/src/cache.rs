//! Keys and values of the positions that a sequence has seen, for all layers.
//!
//! In: rows of keys and values as they are computed. Out: tiles of `f32` for attention. They lie in blocks of 64 positions, so
//! that growth moves nothing; clones share blocks until one of them writes into a block, so that several sequences continue
//! one prompt for the price of its last block. Must not know: tokens, how attention is computed.

mod block;
mod file;

use std::sync::Arc;

pub use file::CacheError;

pub(crate) use block::Block;

use crate::attention::{Part, attend};
use crate::cpu::level;
use crate::lanes::LANES;

/// Positions in a block. Blocks begin at multiples of it.
pub(crate) const TILE: usize = 64;
/// Values that share a scale in `KvFormat::Q8`.
const GROUP: usize = 32;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvFormat {
    /// Half precision: 2 bytes for each value.
    F16,
    /// 8 bits with a scale for each 32 values of a head: 1.125 bytes for each value.
    Q8,
}

/// What all positions of a cache have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers of the model.
    pub n_layers: usize,
    /// Heads that have keys and values; several heads of queries may share one.
    pub n_kv_heads: usize,
    /// Values of one head.
    pub head_dim: usize,
}

impl KvShape {
    /// Values in a row of keys or values.
    fn row(self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    /// `head_dim`, filled up to whole vectors.
    pub(crate) fn padded_dim(self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Scales of one head of one position.
    fn n_groups(self) -> usize {
        self.head_dim.div_ceil(GROUP)
    }
}

/// Keys and values of one sequence, all layers.
#[derive(Clone)]
pub struct KvCache {
    shape: KvShape,
    format: KvFormat,
    layers: Vec<Layer>,
}

#[derive(Clone, Default)]
struct Layer {
    len: usize,
    blocks: Vec<Arc<Block>>,
}

impl KvCache {
    /// With no positions, and no memory for any.
    ///
    /// # Panics
    /// When `n_kv_heads` or `head_dim` is 0.
    pub fn new(n_layers: usize, n_kv_heads: usize, head_dim: usize, format: KvFormat) -> Self {
        assert!(n_kv_heads > 0 && head_dim > 0, "a cache of {n_kv_heads} heads of {head_dim}");
        let shape = KvShape { n_layers, n_kv_heads, head_dim };
        Self { shape, format, layers: vec![Layer::default(); n_layers] }
    }

    /// Layers, heads and their size.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// How keys and values are stored.
    pub fn format(&self) -> KvFormat {
        self.format
    }

    /// Positions that every layer has.
    pub fn len(&self) -> usize {
        self.layers.iter().map(|layer| layer.len).min().unwrap_or(0)
    }

    /// Whether there is no position that every layer has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions that one layer has: more than [`len`](Self::len) while a step is under way.
    ///
    /// # Panics
    /// When there is no such layer.
    pub fn layer_len(&self, layer: usize) -> usize {
        self.layers[layer].len
    }

    /// Bytes of memory for keys and values. Blocks that clones share count in each of them.
    pub fn n_bytes(&self) -> usize {
        self.layers.iter().flat_map(|layer| &layer.blocks).map(|block| block.n_bytes()).sum()
    }

    /// Bytes that one more block of 64 positions takes in all layers.
    pub fn block_bytes(&self) -> usize {
        self.shape.n_layers * Block::n_bytes_of(self.shape, self.format)
    }

    /// Forgets all positions from `n` on, also those of an unfinished step. Nothing happens where there are fewer.
    pub fn truncate(&mut self, n: usize) {
        for layer in &mut self.layers {
            layer.len = layer.len.min(n);
            layer.blocks.truncate(layer.len.div_ceil(TILE));
        }
    }

    /// Adds positions to a layer: `keys` (already rotated) and `values` are `(positions, kv_heads, head_dim)`. A step adds the
    /// same number to each layer; where it ends early, `truncate(len())` takes back what it added.
    ///
    /// # Panics
    /// When there is no such layer, or the rows are not whole and equally many.
    pub fn append(&mut self, layer: usize, keys: &[f32], values: &[f32]) {
        let row = self.shape.row();
        assert!(
            keys.len() == values.len() && keys.len().is_multiple_of(row),
            "{} keys and {} values in rows of {row}",
            keys.len(),
            values.len()
        );
        let (shape, format, level) = (self.shape, self.format, level());
        let layer = &mut self.layers[layer];
        let (mut keys, mut values) = (keys, values);
        while !keys.is_empty() {
            let at = layer.len % TILE;
            if at == 0 && layer.blocks.len() == layer.len / TILE {
                layer.blocks.push(Arc::new(Block::new(shape, format)));
            }
            let n = (TILE - at).min(keys.len() / row);
            let block = Arc::make_mut(&mut layer.blocks[layer.len / TILE]);
            block.put(level, shape, at, &keys[..n * row], &values[..n * row]);
            layer.len += n;
            (keys, values) = (&keys[n * row..], &values[n * row..]);
        }
    }

    /// Attention of queries at the positions `first`, `first + 1`, … up to the last of the layer: see [`attend`].
    ///
    /// # Panics
    /// As [`attend`].
    pub fn attend(
        &self,
        layer: usize,
        first: usize,
        queries: &[f32],
        scale: f32,
        window: Option<usize>,
        out: &mut [f32],
    ) {
        attend(&mut [Part { cache: self, first, queries, out }], layer, scale, window);
    }

    /// The block of positions from `tile * TILE` on.
    pub(crate) fn block(&self, layer: usize, tile: usize) -> &Block {
        &self.layers[layer].blocks[tile]
    }
}

#[cfg(test)]
mod tests;
