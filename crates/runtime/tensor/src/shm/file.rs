//! The system calls of shared memory: files in `/dev/shm`, their locks, their mapping, clocks and random numbers.
//!
//! In: names and sizes. Out: descriptors and addresses, or the error of the call. Locks belong to an open file (OFD
//! locks), so each participant opens the file for itself; the kernel drops them with the last descriptor of that
//! opening. Space is reserved before it is mapped, so touching it never raises SIGBUS.

#![expect(unsafe_code, reason = "system calls take and return raw pointers and descriptors")]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Where the names are.
pub const DIRECTORY: &str = "/dev/shm";
/// What they begin with.
pub const PREFIX: &str = "overdrive-";
/// Bytes of a page; data begins at a multiple of it.
pub const PAGE: usize = 4096;
/// Participants of one segment.
pub const PARTICIPANTS: usize = 256;

/// Participant `i` holds the byte `PARTICIPANT_LOCKS + i`. The bytes lie behind any content.
const PARTICIPANT_LOCKS: i64 = 1 << 60;
/// Held while several words of a segment change together.
const CHANGE_LOCK: i64 = PARTICIPANT_LOCKS - 1;
/// The longest that one waits for a change that another process makes; they take microseconds.
const CHANGE_LIMIT: Duration = Duration::from_secs(10);

/// The last error of the system.
pub fn failed(call: &'static str) -> Error {
    Error::System { call, code: io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

/// Path of a segment's file.
pub fn path(id: &[u8; 16]) -> CString {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    CString::new(format!("{DIRECTORY}/{PREFIX}{hex}")).unwrap_or_default()
}

/// Bytes nobody can guess.
///
/// # Errors
/// `System`.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0u8; N];
    // SAFETY: the call writes at most N bytes; so few come at once or not at all.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    if n == N as isize { Ok(bytes) } else { Err(failed("getrandom")) }
}

/// Nanoseconds since the machine was started, the same in all its processes, suspended time included.
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every supported kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A file without a name, readable and writable by its owner alone.
///
/// # Errors
/// `System`.
pub fn create() -> Result<OwnedFd, Error> {
    let directory = CString::new(DIRECTORY).unwrap_or_default();
    // SAFETY: a path and flags; the descriptor is new.
    unsafe {
        let fd = libc::open(directory.as_ptr(), libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC, 0o600);
        if fd < 0 {
            return Err(failed("open /dev/shm"));
        }
        let fd = OwnedFd::from_raw_fd(fd);
        if libc::fchmod(fd.as_raw_fd(), 0o600) < 0 {
            return Err(failed("fchmod"));
        }
        Ok(fd)
    }
}

/// Gives a file without a name its name, which must not exist.
///
/// # Errors
/// `System`.
pub fn publish(fd: i32, id: &[u8; 16]) -> Result<(), Error> {
    let from = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    // SAFETY: two paths.
    let done = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            path(id).as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    if done < 0 { Err(failed("linkat")) } else { Ok(()) }
}

/// Opens a segment by its id. `None`: there is none.
///
/// # Errors
/// `System`.
pub fn open(id: &[u8; 16]) -> Result<Option<OwnedFd>, Error> {
    // SAFETY: a path; the descriptor is new.
    let fd = unsafe { libc::open(path(id).as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW) };
    match fd {
        0.. => Ok(Some(own(fd))),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT) => Ok(None),
        _ => Err(failed("open of shared memory")),
    }
}

/// Opens the file behind a descriptor once more: a new open file, with locks of its own. It may have no name any more.
///
/// # Errors
/// `System`.
pub fn reopen(fd: i32) -> Result<OwnedFd, Error> {
    let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    // SAFETY: as in `open`.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(failed("open of shared memory")) } else { Ok(own(fd)) }
}

fn own(fd: i32) -> OwnedFd {
    // SAFETY: callers pass a descriptor that was just opened.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Removes the name; no error when it is gone.
pub fn unlink(id: &[u8; 16]) -> bool {
    // SAFETY: a path.
    unsafe { libc::unlink(path(id).as_ptr()) == 0 }
}

/// Size, and whether the file still has a name.
///
/// # Errors
/// `System`.
pub fn status(fd: i32) -> Result<(u64, bool), Error> {
    // SAFETY: the struct is filled in by the call.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &mut status) < 0 {
            return Err(failed("fstat"));
        }
        Ok((status.st_size as u64, status.st_nlink > 0))
    }
}

/// Reserves bytes from `start` on, zeroed. From then on they can be touched without a signal.
///
/// # Errors
/// `NoSharedSpace`, `System`.
pub fn reserve(fd: i32, start: u64, bytes: u64) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    loop {
        // SAFETY: numbers only.
        if unsafe { libc::fallocate(fd, 0, start as i64, bytes as i64) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENOSPC | libc::EFBIG | libc::ENOMEM | libc::EDQUOT) => return Err(no_space(bytes)),
            _ => return Err(failed("fallocate")),
        }
    }
}

/// Writes bytes, which reserves their space too and is faster than reserving, mapping and copying.
///
/// # Errors
/// `NoSharedSpace`, `System`.
///
/// # Safety
/// `bytes` can be read from `data` on.
pub unsafe fn write(fd: i32, mut start: u64, mut data: *const u8, mut bytes: usize) -> Result<(), Error> {
    while bytes > 0 {
        // SAFETY: by contract.
        let n = unsafe { libc::pwrite(fd, data.cast(), bytes, start as i64) };
        if n < 0 {
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ENOSPC | libc::EFBIG | libc::EDQUOT) => return Err(no_space(bytes as u64)),
                _ => return Err(failed("pwrite")),
            }
        }
        start += n as u64;
        bytes -= n as usize;
        data = data.wrapping_add(n as usize);
    }
    Ok(())
}

fn no_space(bytes: u64) -> Error {
    let path = CString::new(DIRECTORY).unwrap_or_default();
    // SAFETY: the struct is filled in by the call, or stays zero.
    let room = unsafe {
        let mut room: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut room);
        room
    };
    let unit = room.f_frsize;
    Error::NoSharedSpace { bytes, free: room.f_bavail * unit, total: room.f_blocks * unit }
}

/// Maps the first `bytes` of a file, shared and writable.
///
/// # Errors
/// `System`, `OutOfMemory`.
pub fn map(fd: i32, bytes: usize) -> Result<*mut u8, Error> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    if address == libc::MAP_FAILED {
        return Err(match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOMEM) => Error::OutOfMemory { bytes },
            _ => failed("mmap"),
        });
    }
    Ok(address.cast())
}

/// Forbids writing to part of a mapping.
///
/// # Errors
/// `System`.
///
/// # Safety
/// Whole pages of a mapping of ours, to which nobody writes any more.
pub unsafe fn protect(address: *mut u8, bytes: usize) -> Result<(), Error> {
    // SAFETY: by contract.
    if bytes > 0 && unsafe { libc::mprotect(address.cast(), bytes, libc::PROT_READ) } < 0 {
        return Err(failed("mprotect"));
    }
    Ok(())
}

/// Ends a mapping.
///
/// # Safety
/// It is ours, and nobody uses it any more.
pub unsafe fn unmap(address: *mut u8, bytes: usize) {
    // SAFETY: by contract.
    unsafe { libc::munmap(address.cast(), bytes) };
}

fn lock(fd: i32, command: i32, kind: i32, start: i64, bytes: i64) -> io::Result<libc::flock> {
    // SAFETY: plain data, of which the call fills in what is asked for.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = start;
        lock.l_len = bytes;
        if libc::fcntl(fd, command, &mut lock) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(lock)
    }
}

/// Takes the place of a participant. False: somebody holds it.
///
/// # Errors
/// `System`.
pub fn take_place(fd: i32, place: usize) -> Result<bool, Error> {
    match lock(fd, libc::F_OFD_SETLK, libc::F_WRLCK, PARTICIPANT_LOCKS + place as i64, 1) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(_) => Err(failed("fcntl(F_OFD_SETLK)")),
    }
}

/// Gives the place of a participant up.
pub fn leave_place(fd: i32, place: usize) {
    // Nothing can be done where unlocking fails; closing the file unlocks too.
    let _ = lock(fd, libc::F_OFD_SETLK, libc::F_UNLCK, PARTICIPANT_LOCKS + place as i64, 1);
}

/// Gives up what `take_all_places` took.
pub fn leave_all_places(fd: i32) {
    let _ = lock(fd, libc::F_OFD_SETLK, libc::F_UNLCK, PARTICIPANT_LOCKS, PARTICIPANTS as i64);
}

/// Whether a participant other than this opening of the file holds a place. When in doubt it does.
pub fn is_taken(fd: i32, place: usize) -> bool {
    lock(fd, libc::F_OFD_GETLK, libc::F_WRLCK, PARTICIPANT_LOCKS + place as i64, 1)
        .map_or(true, |seen| i32::from(seen.l_type) != libc::F_UNLCK)
}

/// Takes every place at once, which only succeeds while nobody has one. They are given up with the file.
pub fn take_all_places(fd: i32) -> bool {
    lock(fd, libc::F_OFD_SETLK, libc::F_WRLCK, PARTICIPANT_LOCKS, PARTICIPANTS as i64).is_ok()
}

/// How many participants there are beside this opening of the file.
pub fn count_others(fd: i32) -> usize {
    (0..PARTICIPANTS).filter(|&place| is_taken(fd, place)).count()
}

/// The right to change several words of a segment together; ends when it is dropped, or with the process.
#[derive(Debug)]
pub struct Change {
    fd: i32,
}

impl Drop for Change {
    fn drop(&mut self) {
        let _ = lock(self.fd, libc::F_OFD_SETLK, libc::F_UNLCK, CHANGE_LOCK, 1);
    }
}

/// Waits for the right to change a segment. Threads of one process exclude each other by other means.
///
/// # Errors
/// `TimedOut` when another process keeps it (stopped by a debugger, say), `System`.
pub fn change(fd: i32) -> Result<Change, Error> {
    let mut began: Option<Instant> = None;
    loop {
        match lock(fd, libc::F_OFD_SETLK, libc::F_WRLCK, CHANGE_LOCK, 1) {
            Ok(_) => return Ok(Change { fd }),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES | libc::EINTR)) => {
                let began = began.get_or_insert_with(Instant::now);
                if began.elapsed() > CHANGE_LIMIT {
                    return Err(Error::TimedOut {
                        what: "waiting for another process to change shared memory",
                    });
                }
                if began.elapsed() < Duration::from_micros(200) {
                    std::thread::yield_now();
                } else {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            Err(_) => return Err(failed("fcntl(F_OFD_SETLK)")),
        }
    }
}

/// Makes `to` another name of `from`'s open file, which closes what it was before. Async-signal-safe.
pub fn replace(from: i32, to: i32) {
    // SAFETY: descriptor numbers of ours.
    unsafe { libc::dup3(from, to, libc::O_CLOEXEC) };
}

/// First line of a small file, without white space around it.
pub fn first_line(path: &str) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    File::open(path).ok()?.take(256).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}
