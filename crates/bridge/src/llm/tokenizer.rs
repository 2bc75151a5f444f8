//! `overdrive.llm.Tokenizer`: from text to tokens and back.
//!
//! In: a model, which has one, or a file. Out: ids, texts, the bytes of one token. Long texts let other threads run.

use std::path::PathBuf;
use std::sync::Arc;

use overdrive_llm::Model;
use overdrive_llm::gguf::File;
use overdrive_llm::tokenizer::{Tokenizer as Inner, TokenizerError};
use overdrive_tensor::mapped::MappedFile;
use pyo3::exceptions::{PyIndexError, PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors;

/// The tokenizer of a model, or of a file alone.
#[pyclass(frozen, module = "overdrive.llm")]
pub(super) struct Tokenizer(Source);

enum Source {
    Model(Arc<Model>),
    File(Box<Inner>),
}

/// Read the tokenizer that a GGUF file describes, and nothing else of the file.
///
/// NotImplementedError names a kind of tokenizer that is not here; ValueError says what in the file cannot be.
#[pyfunction]
#[pyo3(signature = (path, /))]
pub(super) fn load_tokenizer(py: Python<'_>, path: PathBuf) -> PyResult<Tokenizer> {
    py.detach(|| {
        let mapped = MappedFile::open(&path).map_err(|error| errors::of_io(&error, &path))?;
        let file = File::read(&mapped).map_err(|error| errors::of_read(error, &path))?;
        let inner = Inner::from_gguf(&file.metadata).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            if error.is_unsupported() {
                PyNotImplementedError::new_err(text)
            } else {
                PyValueError::new_err(text)
            }
        })?;
        Ok(Tokenizer(Source::File(Box::new(inner))))
    })
}

impl Tokenizer {
    /// The tokenizer of a model; methods say so where it has none.
    pub(super) fn of_model(model: Arc<Model>) -> Self {
        Tokenizer(Source::Model(model))
    }

    fn inner(&self) -> PyResult<&Inner> {
        match &self.0 {
            Source::File(inner) => Ok(inner),
            Source::Model(model) => {
                model.tokenizer().ok_or_else(|| PyValueError::new_err("the file has no tokenizer"))
            }
        }
    }
}

fn no_token(error: TokenizerError) -> PyErr {
    match error {
        TokenizerError::Token { .. } => PyIndexError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

#[pymethods]
impl Tokenizer {
    /// The ids of a text.
    ///
    /// ``add_special`` adds what begins and ends a text where the model wants it. With ``parse_special`` the names of
    /// control tokens become those tokens; without it they are text, as text from strangers has to be.
    #[pyo3(signature = (text, *, add_special=true, parse_special=true))]
    fn encode(
        &self,
        py: Python<'_>,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let inner = self.inner()?;
        py.detach(|| inner.encode(text, add_special, parse_special)).map_err(no_token)
    }

    /// The text of ids. ``skip_special`` leaves control tokens out. Bytes that are no character become U+FFFD.
    ///
    /// IndexError for an id outside of the vocabulary.
    #[pyo3(signature = (ids, *, skip_special=false))]
    fn decode(&self, py: Python<'_>, ids: Vec<u32>, skip_special: bool) -> PyResult<String> {
        let inner = self.inner()?;
        py.detach(|| inner.decode(&ids, skip_special)).map_err(no_token)
    }

    /// The bytes that a token stands for, maybe a part of a character; for a control token its name.
    fn piece<'py>(&self, py: Python<'py>, id: u32) -> PyResult<Bound<'py, PyBytes>> {
        self.inner()?.piece(id).map(|bytes| PyBytes::new(py, bytes)).map_err(no_token)
    }

    /// The token that stands for exactly these bytes, or None.
    fn id_of(&self, piece: &[u8]) -> PyResult<Option<u32>> {
        Ok(self.inner()?.id_of(piece))
    }

    /// Whether a token stands for no text.
    fn is_special(&self, id: u32) -> PyResult<bool> {
        Ok(self.inner()?.is_special(id))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.inner()?.n_tokens())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<overdrive.llm.Tokenizer of {} tokens>", self.inner()?.n_tokens()))
    }

    #[getter]
    fn bos_id(&self) -> PyResult<Option<u32>> {
        Ok(self.inner()?.bos())
    }

    #[getter]
    fn eos_id(&self) -> PyResult<Option<u32>> {
        Ok(self.inner()?.eos())
    }

    #[getter]
    fn pad_id(&self) -> PyResult<Option<u32>> {
        Ok(self.inner()?.padding())
    }

    #[getter]
    fn unknown_id(&self) -> PyResult<Option<u32>> {
        Ok(self.inner()?.unknown())
    }

    /// With which the model ends what it says.
    #[getter]
    fn end_ids(&self) -> PyResult<Vec<u32>> {
        Ok(self.inner()?.ends().to_vec())
    }
}
