//! Why a piece of memory cannot be a tensor, or a layout cannot be said in some format: fields, and one sentence each.
//!
//! In: facts. Out: `Error`, which the bridge maps to Python's exceptions by one table. Each sentence names what was
//! given and, where there is one, the way out.

use std::fmt;

/// Most axes a tensor has; NumPy's own limit.
pub const MAX_NDIM: usize = 64;

/// A refusal with its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A format string of some protocol names no element type that a tensor has.
    UnknownType { protocol: &'static str, name: String, reason: &'static str },
    /// The element type exists here but not in the format asked for.
    Unsayable { target: &'static str, what: String, hint: &'static str },
    /// More axes than `MAX_NDIM`.
    TooManyAxes { ndim: usize },
    /// A negative length.
    NegativeLength { axis: usize, length: isize },
    /// The bytes that the layout spans do not fit an address.
    TooLarge,
    /// `align` is not a power of two or too large.
    BadAlignment { align: usize, largest: usize },
    /// The allocator has no such block.
    OutOfMemory { bytes: usize },
    /// An arena or pool that still has views is to be reset or closed.
    InUse { what: &'static str, views: usize },
    /// An arena, pool or ring was closed before.
    Closed { what: &'static str },
    /// A handle of shared memory that leads nowhere, or is none.
    Handle { reason: &'static str },
    /// `/dev/shm` is full.
    NoSharedSpace { bytes: u64, free: u64, total: u64 },
    /// The pool has no gap of this size, or no entry left.
    PoolFull { bytes: usize, reason: &'static str },
    /// More processes or consumers than there are places for.
    Crowded { what: &'static str, most: usize },
    /// A message does not fit a slot.
    TooLong { bytes: usize, slot: usize },
    /// Time ran out.
    TimedOut { what: &'static str },
    /// A call to the system failed.
    System { call: &'static str, code: i32 },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownType { protocol, name, reason } => {
                write!(f, "{protocol} element type {name:?} cannot be a tensor: {reason}")
            }
            Error::Unsayable { target, what, hint } => write!(f, "{target} cannot express {what}; {hint}"),
            Error::TooManyAxes { ndim } => write!(f, "{ndim} axes; a tensor has at most {MAX_NDIM}"),
            Error::NegativeLength { axis, length } => {
                write!(f, "axis {axis} has length {length}; lengths are not negative")
            }
            Error::TooLarge => f.write_str("shape times element size does not fit an address"),
            Error::BadAlignment { align, largest } => {
                write!(f, "align={align} is not a power of two up to {largest}")
            }
            Error::OutOfMemory { bytes } => write!(f, "cannot allocate {bytes} bytes"),
            Error::InUse { what, views } => write!(
                f,
                "{views} view{} of this {what} {} alive; drop {} first",
                if *views == 1 { "" } else { "s" },
                if *views == 1 { "is" } else { "are" },
                if *views == 1 { "it" } else { "them" },
            ),
            Error::Closed { what } => write!(f, "this {what} is closed"),
            Error::Handle { reason } => f.write_str(reason),
            Error::NoSharedSpace { bytes, free, total } => write!(
                f,
                "no room for {bytes} bytes of shared memory: /dev/shm has {free} of {total} bytes free; \
                 make it larger (a container: --shm-size; a machine: mount -o remount,size=… /dev/shm)"
            ),
            Error::PoolFull { bytes, reason } => {
                write!(f, "the pool cannot hold another {bytes} bytes: {reason}")
            }
            Error::Crowded { what, most } => write!(f, "{what} has its {most} participants already"),
            Error::TooLong { bytes, slot } => {
                write!(f, "{bytes} bytes do not fit a slot of {slot}; make the ring with a larger slot_bytes")
            }
            Error::TimedOut { what } => write!(f, "{what} took too long"),
            Error::System { call, code } => {
                write!(f, "{call} failed: {}", std::io::Error::from_raw_os_error(*code))
            }
        }
    }
}

impl std::error::Error for Error {}
