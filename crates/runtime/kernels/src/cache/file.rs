//! The content of a cache as bytes, so that a prompt need not be computed again.
//!
//! Out: a header (mark, version, format, shape, positions), then for each layer and block what its positions hold, in little
//! endian, then a hash of all that. In: the same; cut, changed or foreign bytes are an error, and no more memory is taken
//! than bytes came. Equal positions give equal bytes. Must not know: which model they are of; the caller writes that down.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use crate::aligned::Aligned;
use crate::cache::{Block, KvCache, KvFormat, KvShape, Layer, TILE};

const MARK: [u8; 4] = *b"ODKV";
const VERSION: u32 = 1;
/// Mark, version, format, layers, heads, size of a head (4 bytes each), positions (8 bytes).
const HEADER: usize = 32;

/// Why bytes do not become a cache.
#[derive(Debug)]
pub enum CacheError {
    /// They could not be read.
    Io(io::Error),
    /// They end too early.
    Cut,
    /// They begin differently.
    NotACache,
    /// They were written by another version of this code.
    Version(u32),
    /// Keys and values are stored in a way that is not known.
    Format(u32),
    /// They are of another model.
    Shape {
        /// What they say.
        found: KvShape,
        /// What was asked for.
        wanted: KvShape,
    },
    /// Their hash is not the one they end with.
    Damaged,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the cache of keys and values cannot be read: {error}"),
            Self::Cut => f.write_str("the cache of keys and values is cut off"),
            Self::NotACache => f.write_str("these bytes are no cache of keys and values"),
            Self::Version(found) => {
                write!(f, "the cache of keys and values has version {found}, this is {VERSION}")
            }
            Self::Format(found) => write!(f, "the cache of keys and values has the unknown format {found}"),
            Self::Shape { found, wanted } => write!(
                f,
                "the cache holds {} layers of {} heads of {} values, the model has {} of {} of {}",
                found.n_layers,
                found.n_kv_heads,
                found.head_dim,
                wanted.n_layers,
                wanted.n_kv_heads,
                wanted.head_dim
            ),
            Self::Damaged => f.write_str("the cache of keys and values is damaged: its hash does not fit"),
        }
    }
}

impl std::error::Error for CacheError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for CacheError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Cut } else { Self::Io(error) }
    }
}

impl KvFormat {
    const fn number(self) -> u32 {
        match self {
            Self::F16 => 1,
            Self::Q8 => 2,
        }
    }
}

impl KvCache {
    /// Writes all positions that every layer has.
    ///
    /// # Errors
    /// What `to` gives.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut hash = blake3::Hasher::new();
        let mut put = |bytes: &[u8]| {
            hash.update(bytes);
            to.write_all(bytes)
        };
        let len = self.len();
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MARK);
        let sizes = [self.shape.n_layers, self.shape.n_kv_heads, self.shape.head_dim].map(|n| n as u32);
        for n in [VERSION, self.format.number()].into_iter().chain(sizes) {
            bytes.extend(n.to_le_bytes());
        }
        bytes.extend((len as u64).to_le_bytes());
        put(&bytes)?;
        for layer in &self.layers {
            for (tile, n) in tiles(len) {
                bytes.clear();
                layer.blocks[tile].encode(self.shape, n, &mut bytes);
                put(&bytes)?;
            }
        }
        to.write_all(hash.finalize().as_bytes())
    }

    /// Reads what `write` wrote, and not a byte behind it.
    ///
    /// # Errors
    /// `CacheError`. Where `from` was read up to is then not said.
    pub fn read(from: &mut dyn Read, wanted: KvShape) -> Result<Self, CacheError> {
        let mut hash = blake3::Hasher::new();
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        hash.update(&header);
        let word = |i: usize| u32::from_le_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
        if header[..4] != MARK {
            return Err(CacheError::NotACache);
        }
        if word(4) != VERSION {
            return Err(CacheError::Version(word(4)));
        }
        let format = [KvFormat::F16, KvFormat::Q8].into_iter().find(|format| format.number() == word(8));
        let format = format.ok_or(CacheError::Format(word(8)))?;
        let [n_layers, n_kv_heads, head_dim] = [12, 16, 20].map(|i| word(i) as usize);
        let found = KvShape { n_layers, n_kv_heads, head_dim };
        if found != wanted {
            return Err(CacheError::Shape { found, wanted });
        }
        let len = u64::from(word(24)) | u64::from(word(28)) << 32;
        // More positions than this are never there to be read: each has bytes.
        let len =
            usize::try_from(len).ok().filter(|len| *len <= isize::MAX as usize).ok_or(CacheError::Cut)?;
        let mut cache = Self::new(n_layers, n_kv_heads, head_dim, format);
        let mut bytes = Vec::new();
        for layer in &mut cache.layers {
            *layer = Layer { len, blocks: Vec::new() };
            for (_, n) in tiles(len) {
                let mut block = Block::new(wanted, format);
                bytes.resize(block.encoded_bytes(wanted, n), 0);
                from.read_exact(&mut bytes)?;
                hash.update(&bytes);
                block.decode(wanted, n, &bytes);
                layer.blocks.push(Arc::new(block));
            }
        }
        let mut written = [0; blake3::OUT_LEN];
        from.read_exact(&mut written)?;
        if *hash.finalize().as_bytes() != written {
            return Err(CacheError::Damaged);
        }
        Ok(cache)
    }
}

/// Each block of so many positions, and how many of them it has.
fn tiles(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len.div_ceil(TILE)).map(move |tile| (tile, TILE.min(len - tile * TILE)))
}

impl Block {
    /// Appends what the first `n` places hold.
    fn encode(&self, shape: KvShape, n: usize, out: &mut Vec<u8>) {
        let (padded, n_groups) = (shape.padded_dim(), shape.n_groups());
        match self {
            Self::F16 { keys, values } => {
                encode_runs(keys, TILE, n, out);
                encode_runs(values, TILE * padded, n * padded, out);
            }
            Self::Q8 { keys, key_scales, values, value_scales } => {
                encode_runs(keys, TILE, n, out);
                encode_runs(key_scales, TILE, n, out);
                encode_runs(values, TILE * padded, n * padded, out);
                encode_runs(value_scales, TILE * n_groups, n * n_groups, out);
            }
        }
    }

    /// Bytes that `encode` appends.
    fn encoded_bytes(&self, shape: KvShape, n: usize) -> usize {
        // All arrays have one run of `n` parts in `TILE` for each place.
        Self::n_bytes_of(shape, self.format()) / TILE * n
    }

    /// `bytes` are of `encode` with the same `n`.
    fn decode(&mut self, shape: KvShape, n: usize, mut bytes: &[u8]) {
        let (padded, n_groups) = (shape.padded_dim(), shape.n_groups());
        match self {
            Self::F16 { keys, values } => {
                decode_runs(keys, TILE, n, &mut bytes);
                decode_runs(values, TILE * padded, n * padded, &mut bytes);
            }
            Self::Q8 { keys, key_scales, values, value_scales } => {
                decode_runs(keys, TILE, n, &mut bytes);
                decode_runs(key_scales, TILE, n, &mut bytes);
                decode_runs(values, TILE * padded, n * padded, &mut bytes);
                decode_runs(value_scales, TILE * n_groups, n * n_groups, &mut bytes);
            }
        }
    }

    fn format(&self) -> KvFormat {
        match self {
            Self::F16 { .. } => KvFormat::F16,
            Self::Q8 { .. } => KvFormat::Q8,
        }
    }
}

/// A number with a form in bytes.
trait Number: Copy + Default {
    const BYTES: usize;
    fn put(self, out: &mut Vec<u8>);
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Number for $type {
            const BYTES: usize = size_of::<$type>();
            fn put(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )+};
}

numbers!(u16, i8, f32);

/// Of each `run` elements the first `n`.
fn encode_runs<T: Number>(from: &Aligned<T>, run: usize, n: usize, out: &mut Vec<u8>) {
    for x in from.chunks_exact(run).flat_map(|run| &run[..n]) {
        x.put(out);
    }
}

fn decode_runs<T: Number>(to: &mut Aligned<T>, run: usize, n: usize, bytes: &mut &[u8]) {
    let (own, rest) = bytes.split_at(to.len() / run * n * T::BYTES);
    let places = to.chunks_exact_mut(run).flat_map(|run| &mut run[..n]);
    for (x, bytes) in places.zip(own.chunks_exact(T::BYTES)) {
        *x = T::get(bytes);
    }
    *bytes = rest;
}
