//! A whole file: header, metadata, the table of tensors.
//!
//! In: bytes. Out: `File`, or the first thing that is wrong. The order of the checks is that of the file.

use std::{fmt, io};

use overdrive_tensor::mapped::MappedFile;

use super::error::{Error, Problem};
use super::metadata::{MAX_NAME, Metadata};
use super::names::Names;
use super::reader::Reader;
use super::tensor::{Row, TensorInfo};

/// Where the data begin, and each tensor, unless the file says otherwise.
const DEFAULT_ALIGNMENT: u64 = 32;

/// How much of a file is read at first. Vocabularies of 32,000 pieces fit, larger ones need four times that.
const FIRST_PART: usize = 2 << 20;

/// What a GGUF file says. Owns everything; the tensors' bytes stay in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// 2 or 3.
    pub version: u32,
    /// Keys and values.
    pub metadata: Metadata,
    /// Of the data and of each tensor in them, in bytes: a power of two.
    pub alignment: usize,
    /// Where the data begin in the file; at most the file's length.
    pub data_start: usize,
    tensors: Vec<TensorInfo>,
    names: Names,
}

impl File {
    /// Reads a file of which these are all the bytes.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        Self::parse_part(bytes, bytes.len())
    }

    /// Reads a mapped file, but not in the mapping: what is checked here is a copy that nobody can change meanwhile, and a
    /// file that is cut is an error. The copy is gone afterwards; the data are not read.
    ///
    /// # Errors
    /// `ReadError`: whatever is wrong with the file, or what the system says of reading it.
    pub fn read(mapped: &MappedFile) -> Result<Self, ReadError> {
        Self::read_with_head(mapped).map(|(file, _)| file)
    }

    /// The same, with the bytes in front of the data, from which the file was read.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_with_head(mapped: &MappedFile) -> Result<(Self, Vec<u8>), ReadError> {
        let mut n_read = FIRST_PART;
        loop {
            let mut part = vec![0; n_read.min(mapped.len())];
            mapped.read_at(0, &mut part).map_err(ReadError::Io)?;
            match Self::parse_part(&part, mapped.len()) {
                Err(error) if error.is_unread() => n_read = n_read.saturating_mul(4),
                Err(error) => return Err(ReadError::Gguf(error)),
                Ok(file) => {
                    part.truncate(file.data_start);
                    return Ok((file, part));
                }
            }
        }
    }

    /// `bytes` are the first of `length`.
    fn parse_part(bytes: &[u8], length: usize) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes, length as u64);
        let version = read_version(&mut reader, bytes)?;
        let header = |what| move |problem| Error::Header { what, problem };
        let n_tensors = Row::count(&mut reader).map_err(header("number of tensors"))?;
        let n_keys = Metadata::count(&mut reader).map_err(header("number of metadata entries"))?;
        let metadata = Metadata::read(&mut reader, n_keys)?;
        refuse_parts(&metadata)?;
        let alignment = read_alignment(&metadata)?;

        let mut rows = Vec::new();
        for index in 0..n_tensors {
            let name =
                reader.name(MAX_NAME).map_err(|problem| Error::Entry { kind: "tensor", index, problem })?;
            let row = Row::read(&mut reader).map_err(|problem| of_tensor(name, problem))?;
            rows.push((name, row));
        }

        // A file without tensors may end before the place where data would begin.
        let data_start =
            reader.position().checked_next_multiple_of(alignment as usize).unwrap_or(length).min(length);
        let n_data = length - data_start;
        let mut tensors = Vec::with_capacity(rows.len());
        for (name, row) in rows {
            let tensor = row.check(name, alignment, data_start, n_data);
            tensors.push(tensor.map_err(|problem| of_tensor(name, problem))?);
        }
        let names = Names::of(tensors.len(), |i| &tensors[i].name)
            .map_err(|i| of_tensor(&tensors[i].name, Problem::Duplicate))?;
        refuse_overlaps(&tensors)?;
        Ok(Self { version, metadata, alignment: alignment as usize, data_start, tensors, names })
    }

    /// All tensors, in the order of the table.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name, if the file has it.
    pub fn find(&self, name: &str) -> Option<&TensorInfo> {
        self.names.find(name, |i| &self.tensors[i].name).map(|i| &self.tensors[i])
    }

    /// The tensor with this name.
    ///
    /// # Errors
    /// `Error::MissingTensor`.
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, Error> {
        self.find(name).ok_or_else(|| Error::MissingTensor { name: name.into() })
    }
}

/// Why a file on the disk was not read.
#[derive(Debug)]
pub enum ReadError {
    /// The system could not read it, or it was cut meanwhile.
    Io(io::Error),
    /// It is wrong.
    Gguf(Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Gguf(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

fn of_tensor(name: &str, problem: Problem) -> Error {
    Error::Tensor { name: name.into(), problem }
}

fn read_version(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<u32, Error> {
    if reader.array() != Ok(*b"GGUF") {
        return Err(Error::NotGguf { begins: bytes[..bytes.len().min(4)].to_vec() });
    }
    match reader.u32().map_err(|problem| Error::Header { what: "version", problem })? {
        version @ 2..=3 => Ok(version),
        // The magic reads the same in both orders; only the version tells.
        version if (1..=3).contains(&version.swap_bytes()) => Err(Error::BigEndian),
        version => Err(Error::Version { version }),
    }
}

fn refuse_parts(metadata: &Metadata) -> Result<(), Error> {
    match metadata.get::<u64>("split.count")? {
        Some(count) if count > 1 => Err(Error::Split { count }),
        _ => Ok(()),
    }
}

fn read_alignment(metadata: &Metadata) -> Result<u64, Error> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.get::<u64>(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || u32::try_from(alignment).is_err() {
        return Err(Error::Key { key: KEY.into(), problem: Problem::Alignment { alignment } });
    }
    Ok(alignment)
}

fn refuse_overlaps(tensors: &[TensorInfo]) -> Result<(), Error> {
    let mut in_order: Vec<&TensorInfo> = tensors.iter().collect();
    in_order.sort_unstable_by_key(|tensor| tensor.range.start);
    // None is empty, so neighbours tell.
    for pair in in_order.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            let other = pair[0].name.clone();
            return Err(of_tensor(&pair[1].name, Problem::Overlaps { other }));
        }
    }
    Ok(())
}
