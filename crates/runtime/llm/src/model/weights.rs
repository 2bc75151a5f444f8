//! The matrices of a model, laid out for this processor.
//!
//! In: the table of a file's tensors, and the file. Out: each tensor with the shape the configuration asks for, or an error
//! that names it. Tensors are read, not mapped: a file that is cut meanwhile gives an error. Each thread reads some rows and brings
//! them to their places while they are near, so that no tensor is held twice. An embedding that is not the head stays in
//! the file.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use overdrive_kernels::{BuildError, Format, Matrix, Room, decode};
use overdrive_tensor::mapped::MappedFile;

use super::Progress;
use super::config::Config;
use crate::error::Error;
use crate::gguf::{self, TensorInfo};

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";
const NORM: &str = "output_norm.weight";
const DIVISORS: &str = "rope_freqs.weight";

/// Everything that is multiplied.
pub(crate) struct Weights {
    pub(crate) layers: Vec<Layer>,
    /// (n_embed,)
    pub(crate) norm: Vec<f32>,
    /// (n_vocabulary, n_embed); the embedding where the file has no other.
    pub(crate) head: Matrix,
    /// Where the embedding is not the head.
    embedding: Option<Embedding>,
    /// What the frequencies of rotations are divided by, (pairs,), if the file says so.
    pub(crate) divisors: Option<Vec<f32>>,
}

/// One layer. Shapes are (outputs, inputs).
pub(crate) struct Layer {
    /// (n_embed,)
    pub(crate) attention_norm: Vec<f32>,
    /// (heads · head_dim, n_embed)
    pub(crate) query: Matrix,
    /// (kv_heads · head_dim, n_embed)
    pub(crate) key: Matrix,
    /// (kv_heads · head_dim, n_embed)
    pub(crate) value: Matrix,
    /// (n_embed, heads · head_dim)
    pub(crate) output: Matrix,
    /// (n_embed,)
    pub(crate) feed_forward_norm: Vec<f32>,
    /// (n_ff, n_embed)
    pub(crate) gate: Matrix,
    /// (n_ff, n_embed)
    pub(crate) up: Matrix,
    /// (n_embed, n_ff)
    pub(crate) down: Matrix,
}

/// Rows that are read when they are needed.
struct Embedding {
    file: MappedFile,
    path: PathBuf,
    format: Format,
    /// Where the first row begins in the file.
    start: usize,
    row_bytes: usize,
}

/// A tensor that a model has to have.
struct Needed<'a> {
    info: &'a TensorInfo,
    /// One row where it is a vector.
    n_rows: usize,
    n_cols: usize,
}

impl Weights {
    /// Reads all tensors of a model.
    ///
    /// # Errors
    /// `Tensor` for one that is missing or has another shape, `Unsupported` for one that no Llama has, `Io`, `Interrupted`,
    /// `OutOfMemory` when the machine has no room for them.
    pub(crate) fn load(
        gguf: &gguf::File,
        config: &Config,
        file: MappedFile,
        path: &Path,
        progress: &mut Progress<'_>,
    ) -> Result<Self, Error> {
        let needed = needed(gguf, config)?;
        let is_tied = gguf.find(HEAD).is_none();
        let read: Vec<&Needed<'_>> =
            needed.iter().filter(|needed| is_tied || needed.info.name != EMBEDDING).collect();
        let n_bytes: usize = read.iter().map(|needed| needed.info.n_bytes()).sum();
        if super::memory::available().is_some_and(|available| n_bytes as u64 > available) {
            return Err(Error::OutOfMemory { bytes: n_bytes });
        }
        let (mut vectors, mut matrices) = read_all(&file, path, read, n_bytes, progress)?;
        let mut vector = |name: &str| vectors.remove(name).ok_or_else(|| missing(name));
        let mut matrix = |name: &str| matrices.remove(name).ok_or_else(|| missing(name));
        let layers = (0..config.n_layers).map(|i| {
            let name = |part| in_layer(i, part);
            Ok(Layer {
                attention_norm: vector(&name("attn_norm"))?,
                query: matrix(&name("attn_q"))?,
                key: matrix(&name("attn_k"))?,
                value: matrix(&name("attn_v"))?,
                output: matrix(&name("attn_output"))?,
                feed_forward_norm: vector(&name("ffn_norm"))?,
                gate: matrix(&name("ffn_gate"))?,
                up: matrix(&name("ffn_up"))?,
                down: matrix(&name("ffn_down"))?,
            })
        });
        let layers = layers.collect::<Result<_, Error>>()?;
        let divisors = gguf.find(DIVISORS).map(|_| vector(DIVISORS)).transpose()?;
        if divisors
            .as_ref()
            .is_some_and(|all| all.iter().any(|divisor| !(divisor.is_finite() && *divisor > 0.0)))
        {
            return Err(Error::tensor(DIVISORS, "a frequency is divided by what is no positive number"));
        }
        let embedding = if is_tied { None } else { Some(Embedding::new(gguf, file, path)?) };
        let head = matrix(if is_tied { EMBEDDING } else { HEAD })?;
        Ok(Self { layers, norm: vector(NORM)?, head, embedding, divisors })
    }

    /// Whether the embedding is the head.
    pub(crate) fn is_tied(&self) -> bool {
        self.embedding.is_none()
    }

    /// Bytes of a row of the embedding.
    pub(crate) fn embedding_row_bytes(&self) -> usize {
        match &self.embedding {
            Some(embedding) => embedding.row_bytes,
            None => self.head.n_bytes() / self.head.n_rows(),
        }
    }

    /// The embedding of a token.
    ///
    /// # Errors
    /// `Io` when it stays in the file and cannot be read.
    ///
    /// # Panics
    /// When there is no such token.
    pub(crate) fn embed(&self, id: usize, out: &mut [f32]) -> Result<(), Error> {
        match &self.embedding {
            Some(embedding) => embedding.row(id, out),
            None => {
                self.head.row(id, out);
                Ok(())
            }
        }
    }

    /// Bytes that a pass for one token reads, but for its row of the embedding.
    pub(crate) fn n_bytes(&self) -> usize {
        let layers = self.layers.iter().map(|layer| {
            let Layer { query, key, value, output, gate, up, down, .. } = layer;
            [query, key, value, output, gate, up, down].iter().map(|matrix| matrix.n_bytes()).sum::<usize>()
        });
        layers.sum::<usize>() + self.head.n_bytes()
    }
}

impl Embedding {
    fn new(gguf: &gguf::File, file: MappedFile, path: &Path) -> Result<Self, Error> {
        let info = gguf.tensor(EMBEDDING)?;
        let row_bytes = info.n_bytes() / info.n_rows();
        let (path, format, start) = (path.to_owned(), info.format, info.range.start);
        Ok(Self { file, path, format, start, row_bytes })
    }

    fn row(&self, id: usize, out: &mut [f32]) -> Result<(), Error> {
        let mut bytes = vec![0; self.row_bytes];
        self.file
            .read_at(self.start + id * self.row_bytes, &mut bytes)
            .map_err(|source| Error::io("read an embedding from", &self.path, source))?;
        decode(self.format, &bytes, out).map_err(|error| Error::tensor(EMBEDDING, error.to_string()))
    }
}

fn missing(name: &str) -> Error {
    gguf::Error::MissingTensor { name: name.to_owned() }.into()
}

fn in_layer(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}.weight")
}

/// Every tensor that a model of this shape has, each of which the file has with the right shape, and no others.
fn needed<'a>(gguf: &'a gguf::File, config: &Config) -> Result<Vec<Needed<'a>>, Error> {
    let Config { n_embed, n_ff, head_dim, n_vocabulary, .. } = *config;
    let (n_query, n_kv) = (config.n_heads * head_dim, config.n_kv_heads * head_dim);
    let mut needed = Vec::new();
    let mut need = |name: String, n_rows: usize, n_cols: usize| {
        let info = gguf.tensor(&name)?;
        let is_vector = n_rows == 1 && info.shape == [n_cols];
        if !is_vector && info.shape != [n_rows, n_cols] {
            let problem = format!("it is {:?} and has to be {:?}", info.shape, [n_rows, n_cols]);
            return Err(Error::Tensor { name, problem });
        }
        needed.push(Needed { info, n_rows, n_cols });
        Ok(())
    };
    need(EMBEDDING.to_owned(), n_vocabulary, n_embed)?;
    for layer in 0..config.n_layers {
        let mut need = |part, n_rows, n_cols| need(in_layer(layer, part), n_rows, n_cols);
        need("attn_norm", 1, n_embed)?;
        need("attn_q", n_query, n_embed)?;
        need("attn_k", n_kv, n_embed)?;
        need("attn_v", n_kv, n_embed)?;
        need("attn_output", n_embed, n_query)?;
        need("ffn_norm", 1, n_embed)?;
        need("ffn_gate", n_ff, n_embed)?;
        need("ffn_up", n_ff, n_embed)?;
        need("ffn_down", n_embed, n_ff)?;
    }
    need(NORM.to_owned(), 1, n_embed)?;
    if gguf.find(HEAD).is_some() {
        need(HEAD.to_owned(), n_vocabulary, n_embed)?;
    }
    if gguf.find(DIVISORS).is_some() {
        need(DIVISORS.to_owned(), 1, config.rope.n_dims / 2)?;
    }
    if needed.len() < gguf.tensors().len() {
        let names: std::collections::HashSet<_> = needed.iter().map(|needed| &needed.info.name).collect();
        if let Some(other) = gguf.tensors().iter().find(|tensor| !names.contains(&tensor.name)) {
            let what = format!("the file has a tensor {:?}, which no model that is run here has", other.name);
            return Err(Error::Unsupported { what });
        }
    }
    Ok(needed)
}

type Tensors = (HashMap<String, Vec<f32>>, HashMap<String, Matrix>);

/// Reads the tensors in the order of the file: vectors as they are, matrices laid out for the processor.
fn read_all(
    file: &MappedFile,
    path: &Path,
    mut needed: Vec<&Needed<'_>>,
    n_bytes: usize,
    progress: &mut Progress<'_>,
) -> Result<Tensors, Error> {
    needed.sort_by_key(|needed| needed.info.range.start);
    let mut room = room(&needed)?;
    let (mut vectors, mut matrices) = (HashMap::new(), HashMap::new());
    let mut n_done = 0;
    for Needed { info, n_rows, n_cols } in needed {
        if let ControlFlow::Break(()) = progress(n_done as u64, n_bytes as u64) {
            return Err(Error::Interrupted);
        }
        let start = info.range.start;
        let wrong = |problem: String| Error::tensor(&info.name, problem);
        let unread = |source| Error::io("read", path, source);
        if *n_rows == 1 {
            let mut bytes = vec![0; info.n_bytes()];
            file.read_at(start, &mut bytes).map_err(unread)?;
            let mut values = vec![0.0; *n_cols];
            decode(info.format, &bytes, &mut values).map_err(|error| wrong(error.to_string()))?;
            vectors.insert(info.name.clone(), values);
        } else {
            let source = |first, out: &mut [u8]| file.read_at(start + first, out);
            let matrix = Matrix::read(info.format, *n_rows, *n_cols, &mut room, &source);
            let matrix = matrix.map_err(|error| match error {
                BuildError::Shape(error) => wrong(error.to_string()),
                BuildError::Source(source) => unread(source),
            })?;
            matrices.insert(info.name.clone(), matrix);
        }
        n_done += info.n_bytes();
    }
    // Nothing is left to be stopped.
    let _ = progress(n_bytes as u64, n_bytes as u64);
    Ok((vectors, matrices))
}

/// One piece of memory for all matrices.
fn room(needed: &[&Needed<'_>]) -> Result<Room, Error> {
    let mut bytes = 0usize;
    for Needed { info, n_rows, n_cols } in needed.iter().filter(|needed| needed.n_rows > 1) {
        let n = Matrix::room_bytes(info.format, *n_rows, *n_cols);
        bytes = n
            .and_then(|n| n.checked_add(bytes))
            .ok_or_else(|| Error::tensor(&info.name, "it is too large to be laid out"))?;
    }
    Room::new(bytes).ok_or(Error::OutOfMemory { bytes })
}
