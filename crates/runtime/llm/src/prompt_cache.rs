//! Sequences in files, so that a long prompt is computed once.
//!
//! In: a sequence, or a file that one was written to. Out: the other. A file is written beside its place and renamed, so a
//! name always means a whole file. A file of another model, of another version, cut short or damaged is refused. Layout:
//! mark, version (4 bytes), fingerprint of the model (32), number of tokens (8), tokens (4 each), a hash of all that (32),
//! and the cache as `KvCache::write` has it.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use overdrive_kernels::{CacheError, KvCache};

use crate::error::Error;
use crate::model::Model;
use crate::sequence::Sequence;

const MARK: [u8; 8] = *b"ODPROMPT";
const VERSION: u32 = 1;
const BUFFER: usize = 1 << 18;

impl Sequence {
    /// Writes tokens, keys and values to a file.
    ///
    /// # Errors
    /// `Io`: the disk is full, say. What was there before stays.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let beside = beside(path);
        let written = self.write(&beside).and_then(|()| fs::rename(&beside, path));
        written.map_err(|source| {
            // It may not even be there.
            let _ = fs::remove_file(&beside);
            Error::io("write", path, source)
        })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(BUFFER, File::create_new(path)?);
        let mut head = Vec::with_capacity(52 + 4 * self.tokens.len());
        head.extend(MARK);
        head.extend(VERSION.to_le_bytes());
        head.extend(self.model);
        head.extend((self.tokens.len() as u64).to_le_bytes());
        head.extend(self.tokens.iter().flat_map(|token| token.to_le_bytes()));
        file.write_all(&head)?;
        file.write_all(blake3::hash(&head).as_bytes())?;
        self.cache.write(&mut file)?;
        // The name must not mean the file before the file is there.
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

impl Model {
    /// Reads what [`Sequence::save`] wrote.
    ///
    /// # Errors
    /// `Io`, `PromptCache` for a file that is none or is damaged, `OtherModel`, `TooLong` when `n_ctx` is smaller.
    pub fn restore(&self, path: &Path) -> Result<Sequence, Error> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        let n_bytes = file.metadata().map_err(|source| Error::io("open", path, source))?.len();
        self.read_sequence(&mut BufReader::with_capacity(BUFFER, file), n_bytes).map_err(|problem| {
            match problem {
                Problem::Io(source) => Error::io("read", path, source),
                Problem::Other(error) => error,
                Problem::Wrong(problem) => Error::PromptCache { path: path.to_owned(), problem },
            }
        })
    }

    fn read_sequence(&self, from: &mut dyn Read, n_bytes: u64) -> Result<Sequence, Problem> {
        let mut head = vec![0; 52];
        from.read_exact(&mut head)?;
        let version = word(&head[8..]);
        if head[..8] != MARK {
            return Err(Problem::Wrong("it begins like something else".to_owned()));
        }
        if version != VERSION {
            return Err(Problem::Wrong(format!("it has version {version}, this is {VERSION}")));
        }
        if head[12..44] != self.fingerprint() {
            return Err(Problem::Other(Error::OtherModel { what: "prompt cache" }));
        }
        let n_tokens = u64::from(word(&head[44..])) | u64::from(word(&head[48..])) << 32;
        if n_tokens > n_bytes / 4 {
            return Err(Problem::Wrong(CUT.to_owned()));
        }
        let n_tokens = n_tokens as usize;
        if n_tokens > self.n_ctx() {
            return Err(Problem::Other(Error::TooLong { n_tokens, n_ctx: self.n_ctx() }));
        }
        head.resize(52 + 4 * n_tokens, 0);
        from.read_exact(&mut head[52..])?;
        let mut hash = [0; 32];
        from.read_exact(&mut hash)?;
        if *blake3::hash(&head).as_bytes() != hash {
            return Err(Problem::Wrong("it is damaged: the hash of its tokens does not fit".to_owned()));
        }
        let tokens: Vec<u32> = head[52..].chunks_exact(4).map(word).collect();
        let cache = KvCache::read(from, self.sequence().cache.shape())?;
        if cache.len() != n_tokens {
            let problem =
                format!("it has {n_tokens} tokens and {} positions of keys and values", cache.len());
            return Err(Problem::Wrong(problem));
        }
        if from.read(&mut [0])? != 0 {
            return Err(Problem::Wrong("there are bytes behind its end".to_owned()));
        }
        Ok(Sequence { tokens, ..Sequence::new(self.fingerprint(), cache) })
    }
}

const CUT: &str = "it is cut off";

/// Why a file is not read; the path is added outside.
enum Problem {
    Io(io::Error),
    Other(Error),
    Wrong(String),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Wrong(CUT.to_owned()),
            _ => Self::Io(error),
        }
    }
}

impl From<CacheError> for Problem {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Io(error) => Self::Io(error),
            other => Self::Wrong(other.to_string()),
        }
    }
}

/// The first 4 bytes as a number.
fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A name that nobody else uses, in the same directory.
fn beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}
