//! From errors of language models to Python's exceptions, in one table.
//!
//! In: errors with their fields. Out: `ValueError` for what is wrong, `NotImplementedError` for what is sound and not
//! supported, `OSError` (with its number and path) for what the system says.

use std::io::{Error as IoError, ErrorKind};
use std::path::Path;

use overdrive_llm::{Error, Kind, gguf};
use pyo3::exceptions::{
    PyKeyboardInterrupt, PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;

/// For a file that is wrong, or not supported. `path` is where it came from, if from the disk.
pub(super) fn of_gguf(error: &gguf::Error, path: Option<&Path>) -> PyErr {
    let text = match path {
        Some(path) => format!("{}: {error}", path.display()),
        None => error.to_string(),
    };
    if error.is_unsupported() { PyNotImplementedError::new_err(text) } else { PyValueError::new_err(text) }
}

/// For a file that is not read.
pub(super) fn of_read(error: gguf::ReadError, path: &Path) -> PyErr {
    match error {
        gguf::ReadError::Gguf(error) => of_gguf(&error, Some(path)),
        gguf::ReadError::Io(error) => of_io(&error, path),
    }
}

/// For what the system says of a file.
pub(super) fn of_io(error: &IoError, path: &Path) -> PyErr {
    match error.raw_os_error() {
        Some(code) => {
            let text = error.to_string();
            // Rust adds the number to the system's words, as Python does.
            let words = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((code, words, path.as_os_str().to_owned()))
        }
        None if error.kind() == ErrorKind::InvalidInput => {
            PyValueError::new_err(format!("{}: {error}", path.display()))
        }
        None => PyOSError::new_err(format!("{}: {error}", path.display())),
    }
}

/// For what a model refuses.
pub(super) fn of_model(error: &Error) -> PyErr {
    if let Error::Io { path, source, .. } = error
        && error.kind() == Kind::Os
    {
        return of_io(source, path);
    }
    let text = error.to_string();
    match error.kind() {
        Kind::Value => PyValueError::new_err(text),
        Kind::NotImplemented => PyNotImplementedError::new_err(text),
        Kind::Os => PyOSError::new_err(text),
        Kind::Memory => PyMemoryError::new_err(text),
        Kind::Interrupted => PyKeyboardInterrupt::new_err(()),
        Kind::Internal => PyRuntimeError::new_err(text),
    }
}

/// For what is wrong with, or not supported of, a model's file.
pub(super) fn of_file(error: &Error, path: &Path) -> PyErr {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        Kind::NotImplemented => PyNotImplementedError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// For a number that must be at least 0.
pub(super) fn negative(name: &str, n: i64) -> PyErr {
    PyValueError::new_err(format!("{name} must not be negative, but is {n}"))
}
