//! The forward pass: tokens of several sequences in, logits out.
//!
//! In: for each part a sequence, the tokens that continue it and which rows of logits are wanted. Out: those rows; the
//! sequences have grown. Rows of all parts go through the matrices together, in pieces, so that work space is bounded
//! and the caller is asked between them. What a token gets does not depend on what else is in the batch:
//! kernels promise it row by row, and nothing here looks across rows. Must not know: files, text.

use std::ops::ControlFlow;
use std::sync::PoisonError;

use overdrive_kernels::{Matrix, Rows, add, attend, multiply, rms_norm, rotate, swiglu};

use super::Model;
use super::config::Config;
use super::memory;
use super::parts::{Logits, Part, Segment, Want, pieces};
use super::weights::Layer;
use crate::error::Error;
use crate::profile::{Meter, OpProfile, Operator};

/// Pieces of so many rows can be stopped between layers: those of a large model take seconds.
const MANY: usize = 64;

/// Asked between tokens, between pieces of a prompt and between the layers of a large piece; `Break` ends the call with
/// [`Error::Interrupted`].
pub type Check<'a> = dyn FnMut() -> ControlFlow<()> + 'a;

/// Buffers of a piece, kept by the model between calls. Rows lie one behind the other.
#[derive(Default)]
pub(crate) struct Workspace {
    /// (rows, n_embed): what flows past the blocks.
    stream: Vec<f32>,
    /// (rows, n_embed): what goes into a block, and behind it what the block adds.
    normed: Vec<f32>,
    /// (rows, heads, head_dim)
    queries: Vec<f32>,
    /// (rows, kv_heads, head_dim)
    keys: Vec<f32>,
    /// (rows, kv_heads, head_dim)
    values: Vec<f32>,
    /// (rows, heads, head_dim)
    attended: Vec<f32>,
    /// (rows, n_ff)
    gate: Vec<f32>,
    /// (rows, n_ff)
    up: Vec<f32>,
    /// (rows, pairs): cosine and sine.
    angles: Vec<(f32, f32)>,
}

impl Model {
    /// Continues each part's sequence by its tokens, and gives the logits that are wanted: row `i` of a part is what follows
    /// its token `i`.
    ///
    /// # Errors
    /// `Token` for a number that is none, `TooLong` where the context ends, `OtherModel`: then no sequence has changed.
    /// `Interrupted` when `check` says so, and `Io` when the file of an untied embedding cannot be read: then the
    /// sequences have the tokens of the pieces that were done. `OutOfMemory` for the logits.
    pub fn forward(
        &self,
        parts: &mut [Part<'_>],
        check: &mut Check<'_>,
        profile: Option<&mut OpProfile>,
    ) -> Result<Logits, Error> {
        let mut logits = Logits::default();
        self.forward_into(parts, check, profile, &mut logits)?;
        Ok(logits)
    }

    /// As `forward`, into logits whose memory is used again.
    ///
    /// # Errors
    /// Those of `forward`; what is in `logits` then means nothing.
    pub fn forward_into(
        &self,
        parts: &mut [Part<'_>],
        check: &mut Check<'_>,
        profile: Option<&mut OpProfile>,
        logits: &mut Logits,
    ) -> Result<(), Error> {
        self.prepare(parts, logits)?;
        let mut workspace =
            self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let mut meter = Meter(profile);
        let mut n_logits = 0;
        let mut result = Ok(());
        for piece in pieces(parts) {
            result = match check() {
                ControlFlow::Break(()) => Err(Error::Interrupted),
                ControlFlow::Continue(()) => {
                    let n_wanted: usize = piece.iter().map(|segment| segment.n_wanted).sum();
                    let out = &mut logits.values[n_logits * logits.n_vocabulary..]
                        [..n_wanted * logits.n_vocabulary];
                    n_logits += n_wanted;
                    self.piece(parts, piece, &mut workspace, out, check, &mut meter)
                }
            };
            if result.is_err() {
                break;
            }
        }
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
        result
    }

    /// Tests the parts and allocates what they want.
    fn prepare(&self, parts: &[Part<'_>], logits: &mut Logits) -> Result<(), Error> {
        let n_vocabulary = self.config.n_vocabulary;
        logits.n_vocabulary = n_vocabulary;
        logits.starts.clear();
        logits.starts.push(0);
        let mut n_rows = 0;
        for part in parts {
            if !self.owns(part.sequence) {
                return Err(Error::OtherModel { what: "sequence" });
            }
            if let Some(&id) = part.tokens.iter().find(|id| **id as usize >= n_vocabulary) {
                return Err(Error::Token { id, n_vocabulary });
            }
            let n_tokens = part.sequence.len() + part.tokens.len();
            if n_tokens > self.n_ctx {
                return Err(Error::TooLong { n_tokens, n_ctx: self.n_ctx });
            }
            n_rows += match part.logits {
                Want::None => 0,
                Want::Last => part.tokens.len().min(1),
                Want::All => part.tokens.len(),
            };
            logits.starts.push(n_rows);
        }
        let n_values = n_rows * n_vocabulary;
        let n_more = n_values.saturating_sub(logits.values.len());
        logits.values.try_reserve_exact(n_more).map_err(|_| Error::OutOfMemory { bytes: n_values * 4 })?;
        logits.values.resize(n_values, 0.0);
        Ok(())
    }

    /// Takes the rows of one piece through all layers and writes the wanted logits to `out`.
    fn piece(
        &self,
        parts: &mut [Part<'_>],
        mut segments: Vec<Segment>,
        w: &mut Workspace,
        out: &mut [f32],
        check: &mut Check<'_>,
        meter: &mut Meter<'_>,
    ) -> Result<(), Error> {
        let config = &self.config;
        let (n_embed, head_dim) = (config.n_embed, config.head_dim);
        let n_query = config.n_heads * head_dim;
        let mut n_rows = segments.iter().map(Segment::n_rows).sum::<usize>();
        let n_wanted = segments.iter().map(|segment| segment.n_wanted).sum::<usize>();
        w.resize(config, n_rows);
        for segment in &segments {
            // Whatever a call left behind that was stopped, or panicked.
            let sequence = &mut parts[segment.part].sequence;
            sequence.cache.truncate(sequence.tokens.len());
            for i in 0..segment.n_rows() {
                self.rope.push(segment.position + i, &mut w.angles);
            }
        }
        let ids = segments.iter().flat_map(|segment| &parts[segment.part].tokens[segment.tokens.clone()]);
        let n_bytes = n_rows * self.weights.embedding_row_bytes();
        meter.time(Operator::Embedding, n_bytes, 0, || {
            for (id, row) in ids.zip(w.stream.chunks_exact_mut(n_embed)) {
                self.weights.embed(*id as usize, row)?;
            }
            Ok::<(), Error>(())
        })?;
        for (number, layer) in self.weights.layers.iter().enumerate() {
            let is_last = number + 1 == self.weights.layers.len();
            if number > 0 && n_rows >= MANY && check().is_break() {
                // The next call forgets the keys and values of the layers that were done.
                return Err(Error::Interrupted);
            }
            self.norm(&layer.attention_norm, n_rows, w, meter);
            let (query, key, value) = (&layer.query, &layer.key, &layer.value);
            if is_last && n_wanted < n_rows {
                // Behind this layer's keys and values nobody looks at the other rows.
                let products = &mut [(key, &mut w.keys[..]), (value, &mut w.values[..])];
                product(Operator::Qkv, products, &w.normed, n_embed, meter);
                self.store(number, parts, &segments, w, meter);
                n_rows = w.keep_wanted(&mut segments, n_embed, self.rope.n_pairs());
                let products = &mut [(query, &mut w.queries[..n_rows * n_query])];
                product(Operator::Qkv, products, &w.normed[..n_rows * n_embed], n_embed, meter);
            } else {
                let products =
                    &mut [(query, &mut w.queries[..]), (key, &mut w.keys[..]), (value, &mut w.values[..])];
                product(Operator::Qkv, products, &w.normed, n_embed, meter);
                self.store(number, parts, &segments, w, meter);
            }
            if n_rows == 0 {
                break;
            }
            self.attend(number, parts, &segments, w, meter);
            let products = &mut [(&layer.output, &mut w.normed[..n_rows * n_embed])];
            product(Operator::Output, products, &w.attended[..n_rows * n_query], n_query, meter);
            w.add_block(n_rows * n_embed, meter);
            self.feed_forward(layer, n_rows, w, meter);
        }
        if n_wanted > 0 {
            self.norm(&self.weights.norm, n_rows, w, meter);
            let products = &mut [(&self.weights.head, out)];
            product(Operator::Head, products, &w.normed[..n_rows * n_embed], n_embed, meter);
        }
        for segment in &segments {
            let part = &mut parts[segment.part];
            part.sequence.tokens.extend_from_slice(&part.tokens[segment.tokens.clone()]);
        }
        Ok(())
    }

    /// Norms the first rows of the stream.
    fn norm(&self, weight: &[f32], n_rows: usize, w: &mut Workspace, meter: &mut Meter<'_>) {
        let n = weight.len();
        meter.time(Operator::Norm, n * 4, n_rows * n * 4, || {
            let (rows, out) = (&w.stream[..n_rows * n], &mut w.normed[..n_rows * n]);
            rms_norm(rows, weight, self.config.norm_epsilon, out);
        });
    }

    /// Rotates the keys of all rows and gives them and the values to the caches.
    fn store(
        &self,
        layer: usize,
        parts: &mut [Part<'_>],
        segments: &[Segment],
        w: &mut Workspace,
        meter: &mut Meter<'_>,
    ) {
        let head_dim = self.config.head_dim;
        let n_kv = self.config.n_kv_heads * head_dim;
        meter.time(Operator::Rope, 0, w.keys.len() * 3, || {
            rotate_rows(&mut w.keys, n_kv, head_dim, &w.angles, self.rope.n_pairs());
        });
        meter.time(Operator::Attention, 0, 0, || {
            let mut at = 0;
            for segment in segments {
                let range = at * n_kv..(at + segment.n_rows()) * n_kv;
                let cache = &mut parts[segment.part].sequence.cache;
                cache.append(layer, &w.keys[range.clone()], &w.values[range]);
                at += segment.n_rows();
            }
        });
    }

    /// Rotates the queries of all rows that are left and lets them attend.
    fn attend(
        &self,
        layer: usize,
        parts: &mut [Part<'_>],
        segments: &[Segment],
        w: &mut Workspace,
        meter: &mut Meter<'_>,
    ) {
        let config = &self.config;
        let n_query = config.n_heads * config.head_dim;
        let n_rows = segments.iter().map(Segment::n_rows).sum::<usize>();
        meter.time(Operator::Rope, 0, n_rows * n_query * 3, || {
            let queries = &mut w.queries[..n_rows * n_query];
            rotate_rows(queries, n_query, config.head_dim, &w.angles, self.rope.n_pairs());
        });
        let n_seen = |segment: &Segment| {
            let positions = segment.position + segment.n_dropped..segment.position + segment.tokens.len();
            let seen = positions.map(|position| (position + 1).min(config.window.unwrap_or(usize::MAX)));
            seen.sum::<usize>()
        };
        let n_read = |segment: &Segment| {
            let n_behind = segment.position + segment.n_dropped;
            n_behind.min(config.window.map_or(usize::MAX, |window| window - 1)) + segment.n_rows()
        };
        let (mut n_operations, mut n_bytes) = (0, 0);
        if meter.is_on() {
            n_operations = segments.iter().map(n_seen).sum::<usize>() * n_query * 4;
            n_bytes = segments.iter().map(n_read).sum::<usize>() * memory::position_bytes(config, self.kv)
                / config.n_layers;
        }
        meter.time(Operator::Attention, n_bytes, n_operations, || {
            let (mut queries, mut out) =
                (&w.queries[..n_rows * n_query], &mut w.attended[..n_rows * n_query]);
            let mut asking = Vec::with_capacity(segments.len());
            for segment in segments.iter().filter(|segment| segment.n_rows() > 0) {
                let n = segment.n_rows() * n_query;
                let (these, others) = queries.split_at(n);
                let (to_these, to_others) = out.split_at_mut(n);
                (queries, out) = (others, to_others);
                let cache = &parts[segment.part].sequence.cache;
                let first = segment.position + segment.n_dropped;
                asking.push(overdrive_kernels::Part { cache, first, queries: these, out: to_these });
            }
            attend(&mut asking, layer, config.attention_scale, config.window);
        });
    }

    /// The second half of a layer.
    fn feed_forward(&self, layer: &Layer, n_rows: usize, w: &mut Workspace, meter: &mut Meter<'_>) {
        let (n_embed, n_ff) = (self.config.n_embed, self.config.n_ff);
        self.norm(&layer.feed_forward_norm, n_rows, w, meter);
        let (gate, up) = (&mut w.gate[..n_rows * n_ff], &mut w.up[..n_rows * n_ff]);
        let products = &mut [(&layer.gate, &mut *gate), (&layer.up, &mut *up)];
        product(Operator::GateUp, products, &w.normed[..n_rows * n_embed], n_embed, meter);
        meter.time(Operator::Swiglu, 0, n_rows * n_ff * 5, || swiglu(gate, up));
        let products = &mut [(&layer.down, &mut w.normed[..n_rows * n_embed])];
        product(Operator::Down, products, gate, n_ff, meter);
        w.add_block(n_rows * n_embed, meter);
    }
}

impl Workspace {
    fn resize(&mut self, config: &Config, n_rows: usize) {
        let (n_query, n_kv) = (config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim);
        self.stream.resize(n_rows * config.n_embed, 0.0);
        self.normed.resize(n_rows * config.n_embed, 0.0);
        self.queries.resize(n_rows * n_query, 0.0);
        self.keys.resize(n_rows * n_kv, 0.0);
        self.values.resize(n_rows * n_kv, 0.0);
        self.attended.resize(n_rows * n_query, 0.0);
        self.gate.resize(n_rows * config.n_ff, 0.0);
        self.up.resize(n_rows * config.n_ff, 0.0);
        self.angles.clear();
    }

    /// Drops the rows that nobody wants logits of; returns how many are left.
    fn keep_wanted(&mut self, segments: &mut [Segment], n_embed: usize, n_pairs: usize) -> usize {
        let (mut from, mut to) = (0, 0);
        for segment in segments {
            segment.n_dropped = segment.tokens.len() - segment.n_wanted;
            from += segment.n_dropped;
            let rows = from..from + segment.n_wanted;
            self.stream.copy_within(rows.start * n_embed..rows.end * n_embed, to * n_embed);
            self.normed.copy_within(rows.start * n_embed..rows.end * n_embed, to * n_embed);
            self.angles.copy_within(rows.start * n_pairs..rows.end * n_pairs, to * n_pairs);
            from += segment.n_wanted;
            to += segment.n_wanted;
        }
        to
    }

    /// Adds what a block gave to the stream.
    fn add_block(&mut self, n: usize, meter: &mut Meter<'_>) {
        meter.time(Operator::Residual, 0, n, || {
            add(&mut self.stream[..n], &self.normed[..n]);
        });
    }
}

/// Multiplies rows of `n_cols` values with several matrices.
fn product(
    operator: Operator,
    products: &mut [(&Matrix, &mut [f32])],
    rows: &[f32],
    n_cols: usize,
    meter: &mut Meter<'_>,
) {
    let n_bytes = products.iter().map(|(matrix, _)| matrix.n_bytes()).sum();
    let n_outputs = products.iter().map(|(matrix, _)| matrix.n_rows()).sum::<usize>();
    meter.time(operator, n_bytes, 2 * n_outputs * rows.len(), || {
        let rows = Rows::prepare(rows, n_cols, products.iter().map(|(matrix, _)| matrix.format()));
        multiply(products, &rows);
    });
}

/// Rotates each row, `n` values of several heads, by its own angles.
fn rotate_rows(rows: &mut [f32], n: usize, head_dim: usize, angles: &[(f32, f32)], n_pairs: usize) {
    for (row, angles) in rows.chunks_exact_mut(n).zip(angles.chunks_exact(n_pairs)) {
        rotate(row, head_dim, angles);
    }
}
