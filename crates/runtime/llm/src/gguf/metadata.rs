//! The metadata of a file: keys, in the file's order, each with a value.
//!
//! In: a reader. Out: values by key, with the type that the caller needs, or an error that names the key.

use super::error::{Error, Problem};
use super::names::Names;
use super::reader::Reader;
use super::value::{FromValue, Value};

/// Bytes of the longest key that GGUF allows.
pub(super) const MAX_NAME: u64 = 65_535;

/// Keys that a file may have. Real ones have dozens; every key takes many times its bytes in the file.
const MOST_KEYS: u64 = 1 << 20;

/// A key's length, a type and the smallest value.
const LEAST_BYTES: u64 = 8 + 4 + 1;

/// Keys and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    names: Names,
}

impl Metadata {
    /// The value of `key` as a `T`; none when the key is not there.
    ///
    /// # Errors
    /// `Error::Key` when it has another type, or is a number that `T` does not hold.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, Error> {
        let Some(value) = self.value(key) else { return Ok(None) };
        T::read(value).map(Some).map_err(|problem| Error::Key { key: key.into(), problem })
    }

    /// The value of `key` as a `T`.
    ///
    /// # Errors
    /// `Error::MissingKey`, and those of `get`.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T, Error> {
        self.get(key)?.ok_or_else(|| Error::MissingKey { key: key.into() })
    }

    /// The value of `key`, whatever its type.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.names.find(key, |i| &self.entries[i].0).map(|i| &self.entries[i].1)
    }

    /// All entries, in the file's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads the number of entries.
    pub(super) fn count(reader: &mut Reader<'_>) -> Result<u64, Problem> {
        reader.count(LEAST_BYTES, MOST_KEYS)
    }

    /// Reads as many entries as were counted.
    pub(super) fn read(reader: &mut Reader<'_>, count: u64) -> Result<Self, Error> {
        let mut entries: Vec<(String, Value)> = Vec::new();
        for index in 0..count {
            let key = reader.name(MAX_NAME).map_err(|problem| Error::Entry {
                kind: "metadata entry",
                index,
                problem,
            })?;
            let value = Value::read(reader).map_err(|problem| Error::Key { key: key.into(), problem })?;
            entries.push((key.into(), value));
        }
        let names = Names::of(entries.len(), |i| &entries[i].0)
            .map_err(|i| Error::Key { key: entries[i].0.clone(), problem: Problem::Duplicate })?;
        Ok(Self { entries, names })
    }
}
