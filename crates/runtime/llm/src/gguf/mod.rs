//! GGUF files: what they say of themselves, and where their tensors lie.
//!
//! In: the bytes of a whole file, from whoever sent it. Out: a `File` that owns its metadata and names byte ranges; every
//! range lies inside the bytes that were parsed. Nothing in a file is believed before it was checked: sizes are computed
//! without wrap-around, counts that the rest of the file cannot hold are refused before memory is asked for, and what is
//! allocated stays within a small multiple of the file. Must not know: models, tokenizers, where the bytes come from.

mod error;
mod file;
mod metadata;
mod names;
mod reader;
mod tensor;
mod value;
mod write;

pub use error::{Error, Problem};
pub use file::{File, ReadError};
pub use metadata::Metadata;
pub use tensor::{TensorInfo, UnknownFormat, format_named, format_of};
pub use value::{Array, FromValue, Strings, Value};
pub use write::Writer;
