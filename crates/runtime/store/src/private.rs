//! Whether a directory or file is the user's own: whoever can write it decides what this process executes.

use std::fs::{DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Bits of a mode that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// Whether a file that was opened is a plain one, `owner`'s and written by nobody else.
pub(crate) fn is_private_file(found: &Metadata, owner: u32) -> bool {
    found.is_file() && found.uid() == owner && found.mode() & OTHERS_WRITE == 0
}

/// Looks at the directory; not through links.
///
/// # Errors
/// `NotFound` when it is not there; others with a sentence for people.
pub(crate) fn check_directory(path: &Path, owner: u32) -> io::Result<()> {
    let found = path.symlink_metadata()?;
    let why = if !found.is_dir() {
        "is not a directory"
    } else if found.uid() != owner {
        "belongs to another user"
    } else if found.mode() & OTHERS_WRITE != 0 {
        "can be written by other users"
    } else {
        return Ok(());
    };
    Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display())))
}

/// As `check_directory`, and makes it and those above it first, for the user alone.
///
/// # Errors
/// As the system reports them, with the path.
pub(crate) fn make_directory(path: &Path, owner: u32) -> io::Result<()> {
    match check_directory(path, owner) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        known => return known,
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| io::Error::new(e.kind(), format!("cannot make {}: {e}", path.display())))?;
    check_directory(path, owner)
}
