//! Getting and putting.
//!
//! A file is written under another name and renamed, so that a name always means a whole file; after a crash of the
//! machine it may not, and then its checksum tells. Nothing waits for the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::entry::{self, HEADER, Key};
use crate::private;
use crate::sweep::{self, Usage};

/// How old the time of last use may become before a use renews it.
const RENEWED_AFTER: Duration = Duration::from_secs(3600);

/// A directory of entries.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    /// The user whose files are trusted.
    owner: u32,
    limit: u64,
    problem: Mutex<Option<String>>,
}

impl Store {
    /// Entries below `root`, of at most `limit` bytes together (somewhat more until the next sweep). `owner` is the
    /// user that this process runs as. Touches nothing.
    pub fn new(root: PathBuf, owner: u32, limit: u64) -> Store {
        Store { root, owner, limit, problem: Mutex::new(None) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Bytes that the entries may have together.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The latest thing that went wrong, for people.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was put under `key`.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        match self.read(key) {
            Ok(file) => entry::decode(key, file),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => {
                self.remember(&e);
                None
            }
        }
    }

    /// Keeps `payload` for whoever asks for `key`, if possible. Replaces what is there.
    pub fn put(&self, key: &Key, payload: &[u8]) {
        // Larger ones would push out everything else.
        if (HEADER + payload.len()) as u64 > self.limit / 4 {
            return;
        }
        if let Err(e) = self.write(key, payload) {
            self.remember(&e);
        }
        // Keys are hashes, so this is one put in 256, however many processes there are.
        if key[31] == 0
            && let Err(e) = sweep::bound(&self.root, self.limit)
        {
            self.remember(&e);
        }
    }

    /// How much there is.
    ///
    /// # Errors
    /// When the directory cannot be read, or is not to be trusted.
    pub fn usage(&self) -> io::Result<Usage> {
        match private::check_directory(&self.root, self.owner) {
            Ok(()) => sweep::usage(&self.root),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Usage::default()),
            Err(e) => Err(e),
        }
    }

    /// Removes every entry, and says how much it was. Those that are put meanwhile may stay.
    ///
    /// # Errors
    /// As `usage`, and when a file cannot be removed.
    pub fn clear(&self) -> io::Result<Usage> {
        match private::check_directory(&self.root, self.owner) {
            Ok(()) => sweep::clear(&self.root),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Usage::default()),
            Err(e) => Err(e),
        }
    }

    fn read(&self, key: &Key) -> io::Result<Vec<u8>> {
        private::check_directory(&self.root, self.owner)?;
        let path = sweep::path(&self.root, key);
        // No links, and no waiting for whoever writes into a pipe.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
        let found = file.metadata()?;
        if !private::is_private_file(&found, self.owner) {
            let why = format!("{} is not a private file of this user", path.display());
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        if found.len() > self.limit {
            return Ok(vec![]);
        }
        let mut bytes = Vec::with_capacity(found.len() as usize + 1);
        file.read_to_end(&mut bytes)?;
        let now = SystemTime::now();
        let age = found.modified().and_then(|then| now.duration_since(then).map_err(io::Error::other));
        if age.is_ok_and(|age| age > RENEWED_AFTER) {
            // Nobody needs it: without, the entry is removed sooner.
            let _ = file.set_modified(now);
        }
        Ok(bytes)
    }

    fn write(&self, key: &Key, payload: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        private::make_directory(&self.root, self.owner)?;
        let path = sweep::path(&self.root, key);
        let Some(shard) = path.parent() else { return Ok(()) };
        private::make_directory(shard, self.owner)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}-{}", sweep::UNFINISHED, std::process::id(), now.as_nanos());
        let unfinished = shard.join(name);
        let written = (|| {
            let mut file: File =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(&entry::encode(key, payload))?;
            drop(file);
            fs::rename(&unfinished, &path)
        })();
        written.map_err(|e| {
            let _ = fs::remove_file(&unfinished);
            io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()))
        })
    }

    fn remember(&self, problem: &io::Error) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.to_string());
    }
}
