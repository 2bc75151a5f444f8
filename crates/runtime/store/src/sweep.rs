//! Where entries are, how much they are together, and the removal of those that were not used for longest.
//!
//! Files come and go meanwhile, put and removed by other processes: what is gone already is no error.

use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::entry::Key;

/// Begins the name of a file that is being written.
pub(crate) const UNFINISHED: &str = ".new-";
/// A file that is still being written after so long was left by a process that was killed.
const LEFT_AFTER: Duration = Duration::from_secs(3600);

/// How many entries there are, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub entries: u64,
    pub bytes: u64,
}

/// The file of a key: directories by the first byte keep each of them short.
pub(crate) fn path(root: &Path, key: &Key) -> PathBuf {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    root.join(hex(&key[..1])).join(hex(&key[1..]))
}

/// A file of ours.
struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    is_entry: bool,
}

pub(crate) fn usage(root: &Path) -> io::Result<Usage> {
    let found = files(root)?;
    let entries = || found.iter().filter(|f| f.is_entry);
    Ok(Usage { entries: entries().count() as u64, bytes: entries().map(|f| f.bytes).sum() })
}

pub(crate) fn clear(root: &Path) -> io::Result<Usage> {
    let mut removed = Usage::default();
    for file in files(root)? {
        gone(fs::remove_file(&file.path))?;
        if file.is_entry {
            removed = Usage { entries: removed.entries + 1, bytes: removed.bytes + file.bytes };
        }
    }
    Ok(removed)
}

/// Removes what nobody used for longest until three quarters of `limit` are left, if there is more than `limit`; and
/// what killed processes left. One process at a time: the others find nothing to do.
pub(crate) fn bound(root: &Path, limit: u64) -> io::Result<()> {
    let lock = File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let (mut entries, unfinished): (Vec<Found>, Vec<Found>) =
        files(root)?.into_iter().partition(|f| f.is_entry);
    let now = SystemTime::now();
    let is_left = |f: &&Found| now.duration_since(f.used).is_ok_and(|age| age > LEFT_AFTER);
    unfinished.iter().filter(is_left).try_for_each(|f| gone(fs::remove_file(&f.path)))?;
    let mut total: u64 = entries.iter().map(|f| f.bytes).sum();
    if total <= limit {
        return Ok(());
    }
    entries.sort_by_key(|f| f.used);
    for file in entries {
        if total <= limit / 4 * 3 {
            break;
        }
        gone(fs::remove_file(&file.path))?;
        total -= file.bytes;
    }
    Ok(())
}

/// Every file that a store has made; others are left alone.
fn files(root: &Path) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for shard in there(fs::read_dir(root))?.into_iter().flatten() {
        let shard = shard?;
        if !is_hex(&shard, 2) || !shard.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        for file in there(fs::read_dir(shard.path()))?.into_iter().flatten() {
            let file = file?;
            let is_entry = is_hex(&file, 62);
            let is_ours = is_entry || file.file_name().to_str().is_some_and(|n| n.starts_with(UNFINISHED));
            let Some(known) = there(file.metadata())? else { continue };
            if is_ours && known.is_file() {
                found.push(Found {
                    path: file.path(),
                    bytes: known.len(),
                    used: known.modified()?,
                    is_entry,
                });
            }
        }
    }
    Ok(found)
}

fn is_hex(entry: &DirEntry, len: usize) -> bool {
    let name = entry.file_name();
    name.len() == len && name.as_encoded_bytes().iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// `None` for what is not there any more.
fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    there(removed).map(|_| ())
}
