//! Values of metadata: numbers, text, lists of them.
//!
//! In: a type's number and bytes. Out: values that own what they hold. A list of strings is one piece of memory with the
//! ends of its strings, for vocabularies have a hundred thousand of them. Text is kept as bytes and checked when it is
//! asked for: some files have bytes in place of text, and those are read too.

use super::error::Problem;
use super::reader::Reader;

/// How deep lists may lie in lists.
pub(super) const MAX_DEPTH: usize = 4;

/// One value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each holds what its name says")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Text, or bytes in its place.
    String(Vec<u8>),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A list of values of one type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each holds what its name says")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings, one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`.
    ends: Vec<usize>,
}

impl Strings {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    /// Adds one at the end.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::default();
        strings.into_iter().for_each(|string| all.push(string.as_ref()));
        all
    }
}

impl Value {
    /// Reads a value behind its type.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Problem> {
        Ok(match reader.u32()? {
            0 => Self::U8(u8::from_le_bytes(reader.array()?)),
            1 => Self::I8(i8::from_le_bytes(reader.array()?)),
            2 => Self::U16(u16::from_le_bytes(reader.array()?)),
            3 => Self::I16(i16::from_le_bytes(reader.array()?)),
            4 => Self::U32(reader.u32()?),
            5 => Self::I32(i32::from_le_bytes(reader.array()?)),
            6 => Self::F32(f32::from_le_bytes(reader.array()?)),
            7 => Self::Bool(truth(reader.array::<1>()?[0])?),
            8 => Self::String(reader.string()?.to_vec()),
            9 => Self::Array(Array::read(reader, 1)?),
            10 => Self::U64(reader.u64()?),
            11 => Self::I64(i64::from_le_bytes(reader.array()?)),
            12 => Self::F64(f64::from_le_bytes(reader.array()?)),
            number => return Err(Problem::ValueType(number)),
        })
    }

    /// The type's name, for people.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "a uint8",
            Self::I8(_) => "an int8",
            Self::U16(_) => "a uint16",
            Self::I16(_) => "an int16",
            Self::U32(_) => "a uint32",
            Self::I32(_) => "an int32",
            Self::F32(_) => "a float32",
            Self::Bool(_) => "a truth value",
            Self::String(_) => "a string",
            Self::Array(array) => array.type_name(),
            Self::U64(_) => "a uint64",
            Self::I64(_) => "an int64",
            Self::F64(_) => "a float64",
        }
    }

    /// A whole number of any width.
    fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// What it is, with its value where that is a number.
    fn description(&self) -> String {
        match self.integer() {
            Some(integer) => format!("{integer}, {}", self.type_name()),
            None => self.type_name().into(),
        }
    }
}

fn truth(byte: u8) -> Result<bool, Problem> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Problem::Bool(other)),
    }
}

/// Numbers of `N` bytes each, behind their count.
fn numbers<T, const N: usize>(reader: &mut Reader<'_>, from: fn([u8; N]) -> T) -> Result<Vec<T>, Problem> {
    let count = reader.count_at_hand(N as u64)?;
    let (chunks, _) = reader.take((count * N) as u64)?.as_chunks::<N>();
    Ok(chunks.iter().map(|chunk| from(*chunk)).collect())
}

impl Array {
    /// Reads a list behind the type of its elements, at a depth that begins with 1.
    fn read(reader: &mut Reader<'_>, depth: usize) -> Result<Self, Problem> {
        Ok(match reader.u32()? {
            0 => Self::U8(numbers(reader, u8::from_le_bytes)?),
            1 => Self::I8(numbers(reader, i8::from_le_bytes)?),
            2 => Self::U16(numbers(reader, u16::from_le_bytes)?),
            3 => Self::I16(numbers(reader, i16::from_le_bytes)?),
            4 => Self::U32(numbers(reader, u32::from_le_bytes)?),
            5 => Self::I32(numbers(reader, i32::from_le_bytes)?),
            6 => Self::F32(numbers(reader, f32::from_le_bytes)?),
            7 => {
                let count = reader.count_at_hand(1)?;
                Self::Bool(
                    reader.take(count as u64)?.iter().map(|byte| truth(*byte)).collect::<Result<_, _>>()?,
                )
            }
            8 => {
                // Each has its length before it.
                let count = reader.count_at_hand(8)?;
                // Once to know how long they are together, once to copy them.
                let mut ahead = reader.clone();
                let n_bytes = (0..count).try_fold(0, |n, _| ahead.string().map(|string| n + string.len()))?;
                let mut strings =
                    Strings { bytes: Vec::with_capacity(n_bytes), ends: Vec::with_capacity(count) };
                for _ in 0..count {
                    strings.push(reader.string()?);
                }
                Self::String(strings)
            }
            9 if depth < MAX_DEPTH => {
                // Each has its type and its count before it.
                let count = reader.count_at_hand(12)?;
                let mut arrays = Vec::with_capacity(count);
                for _ in 0..count {
                    arrays.push(Self::read(reader, depth + 1)?);
                }
                Self::Array(arrays)
            }
            9 => return Err(Problem::Nested { most: MAX_DEPTH }),
            10 => Self::U64(numbers(reader, u64::from_le_bytes)?),
            11 => Self::I64(numbers(reader, i64::from_le_bytes)?),
            12 => Self::F64(numbers(reader, f64::from_le_bytes)?),
            number => return Err(Problem::ValueType(number)),
        })
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(list) => list.len(),
            Self::I8(list) => list.len(),
            Self::U16(list) => list.len(),
            Self::I16(list) => list.len(),
            Self::U32(list) => list.len(),
            Self::I32(list) => list.len(),
            Self::F32(list) => list.len(),
            Self::Bool(list) => list.len(),
            Self::String(list) => list.len(),
            Self::Array(list) => list.len(),
            Self::U64(list) => list.len(),
            Self::I64(list) => list.len(),
            Self::F64(list) => list.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "a list of uint8",
            Self::I8(_) => "a list of int8",
            Self::U16(_) => "a list of uint16",
            Self::I16(_) => "a list of int16",
            Self::U32(_) => "a list of uint32",
            Self::I32(_) => "a list of int32",
            Self::F32(_) => "a list of float32",
            Self::Bool(_) => "a list of truth values",
            Self::String(_) => "a list of strings",
            Self::Array(_) => "a list of lists",
            Self::U64(_) => "a list of uint64",
            Self::I64(_) => "a list of int64",
            Self::F64(_) => "a list of float64",
        }
    }

    /// Whole numbers of any width, when all fit.
    fn integers<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        fn all<S: Copy + Into<i128>, T: TryFrom<i128>>(list: &[S]) -> Option<Vec<T>> {
            list.iter().map(|value| T::try_from((*value).into()).ok()).collect()
        }
        match self {
            Self::U8(list) => all(list),
            Self::I8(list) => all(list),
            Self::U16(list) => all(list),
            Self::I16(list) => all(list),
            Self::U32(list) => all(list),
            Self::I32(list) => all(list),
            Self::U64(list) => all(list),
            Self::I64(list) => all(list),
            _ => None,
        }
    }
}

/// A type that metadata can be asked for. Whole numbers are read from any width that holds them, floats from both.
pub trait FromValue<'a>: Sized {
    /// What is asked for, with its article.
    const WANTED: &'static str;

    /// The value as this type, when it is one.
    fn from_value(value: &'a Value) -> Option<Self>;

    /// The value as this type.
    ///
    /// # Errors
    /// `Problem::WrongType`.
    fn read(value: &'a Value) -> Result<Self, Problem> {
        Self::from_value(value)
            .ok_or_else(|| Problem::WrongType { wanted: Self::WANTED, found: value.description() })
    }
}

macro_rules! integers {
    ($($integer:ty: $one:literal, $many:literal;)*) => {$(
        impl FromValue<'_> for $integer {
            const WANTED: &'static str = $one;

            fn from_value(value: &Value) -> Option<Self> {
                value.integer()?.try_into().ok()
            }
        }

        impl FromValue<'_> for Vec<$integer> {
            const WANTED: &'static str = $many;

            fn from_value(value: &Value) -> Option<Self> {
                let Value::Array(array) = value else { return None };
                array.integers()
            }
        }
    )*};
}

integers! {
    u32: "a whole number of 32 bits without sign", "a list of whole numbers of 32 bits without sign";
    i32: "a whole number of 32 bits", "a list of whole numbers of 32 bits";
    u64: "a whole number of 64 bits without sign", "a list of whole numbers of 64 bits without sign";
    i64: "a whole number of 64 bits", "a list of whole numbers of 64 bits";
    usize: "a whole number that fits an address", "a list of whole numbers that fit an address";
}

impl FromValue<'_> for f32 {
    const WANTED: &'static str = "a float";

    fn from_value(value: &Value) -> Option<Self> {
        match *value {
            Value::F32(value) => Some(value),
            Value::F64(value) => Some(value as f32),
            _ => None,
        }
    }
}

impl FromValue<'_> for Vec<f32> {
    const WANTED: &'static str = "a list of floats";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Array(Array::F32(list)) => Some(list.clone()),
            Value::Array(Array::F64(list)) => Some(list.iter().map(|value| *value as f32).collect()),
            _ => None,
        }
    }
}

impl FromValue<'_> for bool {
    const WANTED: &'static str = "a truth value";

    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bool(value) = value { Some(*value) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a str {
    const WANTED: &'static str = "a string of UTF-8";

    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::String(bytes) = value { std::str::from_utf8(bytes).ok() } else { None }
    }
}

impl<'a> FromValue<'a> for &'a [u8] {
    const WANTED: &'static str = "a string";

    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::String(bytes) = value { Some(bytes) } else { None }
    }
}

impl<'a> FromValue<'a> for &'a Strings {
    const WANTED: &'static str = "a list of strings";

    fn from_value(value: &'a Value) -> Option<Self> {
        if let Value::Array(Array::String(strings)) = value { Some(strings) } else { None }
    }
}
