//! Why a GGUF file is refused: which entry of it, and what is wrong there.
//!
//! In: facts. Out: `Error`, whose sentence names the key or the tensor. Names come from the file, so they are quoted and
//! cut where they are long.

use std::fmt;

use overdrive_kernels::Format;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file does not begin with `GGUF`.
    NotGguf {
        /// Its first bytes, at most four.
        begins: Vec<u8>,
    },
    /// Numbers are stored with their most significant byte first.
    BigEndian,
    /// A version that is neither 2 nor 3.
    Version {
        /// What the file says.
        version: u32,
    },
    /// One of several files that only together are a model.
    Split {
        /// How many they are.
        count: u64,
    },
    /// Something before the first name.
    Header {
        /// What was being read.
        what: &'static str,
        /// What is wrong.
        problem: Problem,
    },
    /// An entry whose name could not be read.
    Entry {
        /// `metadata entry` or `tensor`.
        kind: &'static str,
        /// Its number, from 0.
        index: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// A metadata entry.
    Key {
        /// Its key.
        key: String,
        /// What is wrong.
        problem: Problem,
    },
    /// A tensor.
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: Problem,
    },
    /// A metadata entry that is needed is not there.
    MissingKey {
        /// The key.
        key: String,
    },
    /// A tensor that is needed is not there.
    MissingTensor {
        /// The name.
        name: String,
    },
}

/// What is wrong with one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The file ends inside it.
    Cut {
        /// Bytes that the next part needs.
        needs: u64,
        /// Bytes that are left.
        has: u64,
    },
    /// The part of the file that was given ends inside it; the file goes on.
    Unread,
    /// A count of things that the rest of the file cannot hold.
    Count {
        /// How many it says there are.
        count: u64,
        /// The fewest bytes that each of them takes.
        least: u64,
        /// Bytes that are left.
        has: u64,
    },
    /// More than any real file has.
    TooMany {
        /// How many it says there are.
        count: u64,
        /// How many are read.
        most: u64,
    },
    /// A name that is no text.
    NotUtf8,
    /// A name that is longer than names may be.
    TooLong {
        /// Its length in bytes.
        length: u64,
        /// The greatest that is read.
        most: u64,
    },
    /// The name was there before.
    Duplicate,
    /// A type of values that GGUF does not define.
    ValueType(u32),
    /// A truth value that is neither 0 nor 1.
    Bool(u8),
    /// Lists in lists in lists.
    Nested {
        /// The greatest depth that is read.
        most: usize,
    },
    /// The value has another type than the one asked for.
    WrongType {
        /// What was asked for.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// An alignment that is not a power of two that fits 32 bits.
    Alignment {
        /// What the file says.
        alignment: u64,
    },
    /// A number of axes that is not 1 to 4.
    Axes(u32),
    /// An axis of length 0.
    EmptyAxis {
        /// Which, in the order of the file.
        axis: usize,
    },
    /// Lengths whose product, in bytes, fits no address.
    TooLarge {
        /// The lengths, in the order of the file.
        lengths: Vec<u64>,
    },
    /// Rows that end inside a block.
    Row {
        /// Values of a row.
        length: u64,
        /// The format, which has its own block length.
        format: Format,
    },
    /// A format that is not decoded here.
    Format(super::UnknownFormat),
    /// An offset that is not a multiple of the alignment.
    Unaligned {
        /// From the begin of the data.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// Data that lie beyond the end of the file.
    Outside {
        /// From the begin of the data.
        offset: u64,
        /// Size of the tensor.
        bytes: u64,
        /// Bytes of data that the file has.
        has: u64,
    },
    /// Data that are another tensor's too.
    Overlaps {
        /// That tensor's name.
        other: String,
    },
}

impl Error {
    /// Whether the file may be sound and is only not supported.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::BigEndian | Self::Split { .. } => true,
            Self::Tensor { problem: Problem::Format(format), .. } => format.is_known(),
            Self::Version { version } => *version == 1,
            _ => false,
        }
    }

    /// Whether more of the file is needed to say more.
    pub(super) fn is_unread(&self) -> bool {
        match self {
            Self::Header { problem, .. }
            | Self::Entry { problem, .. }
            | Self::Key { problem, .. }
            | Self::Tensor { problem, .. } => *problem == Problem::Unread,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGguf { begins } if begins.is_empty() => f.write_str("no GGUF file: it is empty"),
            Self::NotGguf { begins } => {
                write!(f, "no GGUF file: it begins with {} instead of GGUF", begins.escape_ascii())
            }
            Self::BigEndian => {
                f.write_str("a big-endian GGUF file; only little-endian ones are read: convert it first")
            }
            Self::Version { version } => write!(f, "version {version} of GGUF; versions 2 and 3 are read"),
            Self::Split { count } => {
                write!(f, "one of {count} parts of a split model; merge them into one file first")
            }
            Self::Header { what, problem } => write!(f, "the {what}: {problem}"),
            Self::Entry { kind, index, problem } => write!(f, "{kind} {index}: {problem}"),
            Self::Key { key, problem } => write!(f, "metadata {}: {problem}", Quoted(key)),
            Self::Tensor { name, problem } => write!(f, "tensor {}: {problem}", Quoted(name)),
            Self::MissingKey { key } => write!(f, "the file has no metadata {}", Quoted(key)),
            Self::MissingTensor { name } => write!(f, "the file has no tensor {}", Quoted(name)),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { needs, has } => write!(f, "the file ends: {needs} bytes are needed, {has} are left"),
            Self::Unread => f.write_str("it goes on behind the part that was given"),
            Self::Count { count, least, has } => write!(
                f,
                "it says that there are {count}, each of {least} bytes or more, but only {has} bytes are left"
            ),
            Self::TooMany { count, most } => {
                write!(f, "it says that there are {count}; at most {most} are read")
            }
            Self::NotUtf8 => f.write_str("its name is not UTF-8"),
            Self::TooLong { length, most } => {
                write!(f, "its name has {length} bytes; names have at most {most}")
            }
            Self::Duplicate => f.write_str("it is there twice"),
            Self::ValueType(number) => {
                write!(f, "its value has the type {number}, which GGUF does not define")
            }
            Self::Bool(byte) => write!(f, "a truth value is {byte} instead of 0 or 1"),
            Self::Nested { most } => write!(f, "lists are nested more than {most} deep"),
            Self::WrongType { wanted, found } => write!(f, "it should be {wanted} and is {found}"),
            Self::Alignment { alignment } => {
                write!(f, "an alignment of {alignment}; it must be a power of two below 2**32")
            }
            Self::Axes(n) => write!(f, "it has {n} axes; tensors have 1 to 4"),
            Self::EmptyAxis { axis } => write!(f, "axis {axis} has length 0"),
            Self::TooLarge { lengths } => write!(f, "the lengths {lengths:?} multiply beyond any memory"),
            Self::Row { length, format } => write!(
                f,
                "rows of {length} values are no whole blocks: {} has {} values in a block",
                format.name(),
                format.block_values()
            ),
            Self::Format(format) => write!(f, "it is stored as {format}"),
            Self::Unaligned { offset, alignment } => {
                write!(f, "its offset {offset} is no multiple of the alignment {alignment}")
            }
            Self::Outside { offset, bytes, has } => write!(
                f,
                "it has {bytes} bytes at offset {offset}, but the file ends after {has} bytes of data"
            ),
            Self::Overlaps { other } => write!(f, "its data overlap those of {}", Quoted(other)),
        }
    }
}

/// A name out of a file, in quotes, harmless and short.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 80;
        match self.0.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}
