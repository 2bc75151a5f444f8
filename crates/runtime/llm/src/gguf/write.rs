//! From metadata and tensors to the bytes of a GGUF file.
//!
//! In: keys with values, names with lengths, formats and bytes. Out: a file of version 3, or of version 2, whose layout is the
//! same. Checks nothing: what it is given is what it writes, so that tests can write files that are wrong.

use overdrive_kernels::Format;

use super::value::{Array, Value};

/// A file that is being put together.
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    alignment: usize,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    /// In the file's order.
    lengths: Vec<u64>,
    format: u32,
    bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl Writer {
    /// An empty file of version 3.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says another version.
    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Aligns tensors to so many bytes, and says so.
    ///
    /// # Panics
    /// When it is 0.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        assert!(alignment > 0, "an alignment is not 0");
        self.alignment = alignment as usize;
        self.set("general.alignment", Value::U32(alignment))
    }

    /// Adds a key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor: `shape` outermost first, as in `TensorInfo`.
    pub fn tensor(&mut self, name: &str, shape: &[usize], format: Format, bytes: Vec<u8>) -> &mut Self {
        let lengths = shape.iter().rev().map(|length| *length as u64).collect();
        self.tensors.push(Tensor { name: name.into(), lengths, format: format.ggml(), bytes });
        self
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(b"GGUF");
        out.extend_from_slice(&self.version.to_le_bytes());
        put_length(&mut out, self.tensors.len());
        put_length(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            put_string(&mut out, key.as_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            put_string(&mut out, tensor.name.as_bytes());
            out.extend_from_slice(&(tensor.lengths.len() as u32).to_le_bytes());
            tensor.lengths.iter().for_each(|length| out.extend_from_slice(&length.to_le_bytes()));
            out.extend_from_slice(&tensor.format.to_le_bytes());
            put_length(&mut out, offset);
            offset = (offset + tensor.bytes.len()).next_multiple_of(self.alignment);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend_from_slice(&tensor.bytes);
        }
        out
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&(length as u64).to_le_bytes());
}

fn put_string(out: &mut Vec<u8>, string: &[u8]) {
    put_length(out, string.len());
    out.extend_from_slice(string);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut number = |number: u32, bytes: &[u8]| {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match value {
        Value::U8(value) => number(0, &value.to_le_bytes()),
        Value::I8(value) => number(1, &value.to_le_bytes()),
        Value::U16(value) => number(2, &value.to_le_bytes()),
        Value::I16(value) => number(3, &value.to_le_bytes()),
        Value::U32(value) => number(4, &value.to_le_bytes()),
        Value::I32(value) => number(5, &value.to_le_bytes()),
        Value::F32(value) => number(6, &value.to_le_bytes()),
        Value::Bool(value) => number(7, &[u8::from(*value)]),
        Value::String(bytes) => {
            number(8, &(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Value::Array(array) => {
            number(9, &[]);
            put_array(out, array);
        }
        Value::U64(value) => number(10, &value.to_le_bytes()),
        Value::I64(value) => number(11, &value.to_le_bytes()),
        Value::F64(value) => number(12, &value.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn put<T: Copy, const N: usize>(out: &mut Vec<u8>, number: u32, list: &[T], bytes: fn(T) -> [u8; N]) {
        out.extend_from_slice(&number.to_le_bytes());
        put_length(out, list.len());
        list.iter().for_each(|value| out.extend_from_slice(&bytes(*value)));
    }
    match array {
        Array::U8(list) => put(out, 0, list, u8::to_le_bytes),
        Array::I8(list) => put(out, 1, list, i8::to_le_bytes),
        Array::U16(list) => put(out, 2, list, u16::to_le_bytes),
        Array::I16(list) => put(out, 3, list, i16::to_le_bytes),
        Array::U32(list) => put(out, 4, list, u32::to_le_bytes),
        Array::I32(list) => put(out, 5, list, i32::to_le_bytes),
        Array::F32(list) => put(out, 6, list, f32::to_le_bytes),
        Array::Bool(list) => put(out, 7, list, |value| [u8::from(value)]),
        Array::String(list) => {
            out.extend_from_slice(&8_u32.to_le_bytes());
            put_length(out, list.len());
            list.iter().for_each(|string| put_string(out, string));
        }
        Array::Array(list) => {
            out.extend_from_slice(&9_u32.to_le_bytes());
            put_length(out, list.len());
            list.iter().for_each(|array| put_array(out, array));
        }
        Array::U64(list) => put(out, 10, list, u64::to_le_bytes),
        Array::I64(list) => put(out, 11, list, i64::to_le_bytes),
        Array::F64(list) => put(out, 12, list, f64::to_le_bytes),
    }
}

macro_rules! from {
    ($($from:ty, $value:ident => $into:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $into
            }
        }
    )*};
}

from! {
    u32, value => Self::U32(value);
    i32, value => Self::I32(value);
    u64, value => Self::U64(value);
    f32, value => Self::F32(value);
    bool, value => Self::Bool(value);
    &str, value => Self::String(value.into());
    Array, value => Self::Array(value);
    Vec<u32>, value => Self::Array(Array::U32(value));
    Vec<i32>, value => Self::Array(Array::I32(value));
    Vec<f32>, value => Self::Array(Array::F32(value));
    Vec<&str>, value => Self::Array(Array::String(value.into_iter().collect()));
    Vec<String>, value => Self::Array(Array::String(value.into_iter().collect()));
}
