//! A file as memory: mapped once, read-only, as long as it was when it was opened.
//!
//! In: a path. Out: its bytes, in place or copied. A file that is *cut* while it is mapped takes its pages away, and the system
//! kills a process that touches one (SIGBUS). What must not die of that reads by `read_at`, which asks the system to copy
//! and gets an error instead. Who changes a file in place changes what is read here: nothing that was checked in the
//! mapping may be trusted later, so what is checked is copied first.

#![expect(unsafe_code, reason = "maps a file and lends its bytes")]

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

/// A regular file with at least one byte. The mapping ends with it.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: nothing here writes to the mapping, and the descriptor is a number.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Opens and maps the file at `path`. Reads none of it.
    ///
    /// # Errors
    /// What the system says of the path (not found, not permitted); `IsADirectory`; `InvalidInput` for what is no regular
    /// file (pipes, devices) and for files without a byte.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Without this flag a pipe would wait for somebody to write; regular files do not know it.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let status = file.metadata()?;
        if status.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        if !status.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
        }
        if status.len() == 0 {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the file is empty"));
        }
        let len = usize::try_from(status.len())
            .ok()
            .filter(|len| isize::try_from(*len).is_ok())
            .ok_or_else(|| io::Error::new(ErrorKind::FileTooLarge, "the file is too large to be mapped"))?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { file, base, len })
    }

    /// Bytes that the file had when it was opened; the mapping has as many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: files without a byte are not opened.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from `start` on into all of `out`, without touching the mapping.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, also because it was cut since it was opened; what the system says of a
    /// disk that fails.
    pub fn read_at(&self, start: usize, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, start as u64).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                let now = self.file.metadata().map_or(0, |status| status.len());
                let text = format!(
                    "the file ends inside bytes {start} to {}: it had {} bytes when it was opened and has {now} now",
                    start.saturating_add(out.len()),
                    self.len
                );
                io::Error::new(ErrorKind::UnexpectedEof, text)
            }
            _ => error,
        })
    }

    /// Whether the file still has the bytes that it had, so that its mapping can be touched. True for this moment only.
    ///
    /// # Errors
    /// `UnexpectedEof` when it was cut.
    pub fn check_length(&self) -> io::Result<()> {
        let now = self.file.metadata()?.len();
        if now >= self.len as u64 {
            return Ok(());
        }
        let text = format!("the file had {} bytes when it was opened and has {now} now", self.len);
        Err(io::Error::new(ErrorKind::UnexpectedEof, text))
    }

    /// Takes the pages of these bytes out of this process's memory; touching them reads them again. Only a hint: what the
    /// system does not do costs memory and nothing else. Bytes beyond the file are left out.
    pub fn drop_pages(&self, range: Range<usize>) {
        // SAFETY: a question.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = range.start.min(self.len) / page * page;
        let end = range.end.min(self.len);
        if start >= end {
            return;
        }
        // SAFETY: whole pages of our mapping, from a multiple of the page size on. They are never written, so that what the
        // file holds is what comes back.
        unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), end - start, libc::MADV_DONTNEED) };
    }
}

impl AsRef<[u8]> for MappedFile {
    /// The mapping. See the head of this file for what touching it takes for granted.
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped with this length until `drop`, and not written through here.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: ours, and with the last borrow nobody uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A path of its own for each test, removed with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn with(bytes: &[u8]) -> Self {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("overdrive-mapped-{}-{n}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Pages of a mapping that this process has in memory, from what the system says of it.
    fn resident_kib(mapped: &MappedFile) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begins = format!("{:x}-", mapped.base.as_ptr().addr());
        let block = maps.split_once(&begins).unwrap().1;
        let line = block.lines().find(|line| line.starts_with("Rss:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn the_bytes_are_those_of_the_file_and_outlive_its_name() {
        let scratch = Scratch::with(b"some bytes");
        let mapped = MappedFile::open(&scratch.0).unwrap();
        drop(scratch);
        assert_eq!((mapped.as_ref(), mapped.len()), (&b"some bytes"[..], 10));
        let mut part = [0; 5];
        mapped.read_at(5, &mut part).unwrap();
        assert_eq!(&part, b"bytes");
    }

    #[test]
    fn dropped_pages_leave_memory_and_come_back() {
        let bytes: Vec<u8> = (0..1 << 20).map(|i: usize| (i % 251) as u8).collect();
        let scratch = Scratch::with(&bytes);
        let mapped = MappedFile::open(&scratch.0).unwrap();
        assert_eq!(mapped.as_ref(), bytes);
        let before = resident_kib(&mapped);
        mapped.drop_pages(0..mapped.len());
        let after = resident_kib(&mapped);
        assert!(before >= 1024 && after == 0, "{before} KiB, then {after}");
        assert_eq!(mapped.as_ref(), bytes);
        mapped.drop_pages(5000..5001);
        mapped.drop_pages(usize::MAX - 1..usize::MAX);
        mapped.drop_pages(10..10);
        assert_eq!(mapped.as_ref(), bytes);
    }

    #[test]
    fn reading_never_goes_beyond_the_end_of_a_file_that_was_cut() {
        let scratch = Scratch::with(&[7; 10_000]);
        let mapped = MappedFile::open(&scratch.0).unwrap();
        mapped.check_length().unwrap();
        OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(100).unwrap();
        let mut out = [0; 200];
        let error = mapped.read_at(0, &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("had 10000 bytes when it was opened and has 100 now"), "{error}");
        assert_eq!(mapped.check_length().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        mapped.read_at(0, &mut out[..100]).unwrap();
        assert_eq!(out[..100], [7; 100]);
    }

    #[test]
    fn what_is_no_file_with_bytes_is_refused() {
        let kind = |path: &Path| MappedFile::open(path).unwrap_err().kind();
        assert_eq!(kind(Path::new("/nowhere/at/all")), ErrorKind::NotFound);
        assert_eq!(kind(&std::env::temp_dir()), ErrorKind::IsADirectory);
        assert_eq!(kind(&Scratch::with(b"").0), ErrorKind::InvalidInput);
        assert_eq!(kind(Path::new("/dev/null")), ErrorKind::InvalidInput);
        let pipe = Scratch::with(b"");
        std::fs::remove_file(&pipe.0).unwrap();
        let name = std::ffi::CString::new(pipe.0.to_str().unwrap()).unwrap();
        // SAFETY: a path.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(kind(&pipe.0), ErrorKind::InvalidInput);
    }
}
