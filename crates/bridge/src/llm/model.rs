//! `_core.LlmModel`: a loaded model, and what is computed with it at once.
//!
//! In: a path; tokens of sequences. Out: a model that any number of threads use; logits as tensors on the memory they were
//! computed into. The GIL is given up while files are read and numbers computed, and taken now and then for signals.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use overdrive_kernels::KvFormat;
use overdrive_llm::template::{Message, TemplateError};
use overdrive_llm::{LoadOptions, Model, Part, Want};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::errors;
use super::generation::{LlmGeneration, Options};
use super::profile::LlmProfile;
use super::sequence::{LlmSequence, Loan};
use super::signals::Signals;
use super::tokenizer::Tokenizer;
use crate::pool;
use crate::tensor;

/// A loaded model. Private: the face is `overdrive.llm.Model`.
#[pyclass(frozen, module = "overdrive._core")]
pub(super) struct LlmModel {
    /// None after `close`. Locked for moments, with the GIL held.
    model: Mutex<Option<Arc<Model>>>,
    path: PathBuf,
}

impl LlmModel {
    fn model(&self) -> PyResult<Arc<Model>> {
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        model.clone().ok_or_else(|| PyValueError::new_err("the model is closed"))
    }
}

#[pymethods]
impl LlmModel {
    /// Load a file. ``progress`` is called with bytes done and all bytes; what it raises ends the loading.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        n_ctx: Option<i64>,
        kv: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<LlmModel> {
        let kv = match kv {
            "f16" => KvFormat::F16,
            "q8" => KvFormat::Q8,
            _ => return Err(PyValueError::new_err(format!("kv is 'f16' or 'q8', not {kv:?}"))),
        };
        let n_ctx =
            n_ctx.map(|n| usize::try_from(n).map_err(|_| errors::negative("n_ctx", n))).transpose()?;
        pool::prepare(py);
        let mut signals = Signals::default();
        let result = py.detach(|| {
            Model::load(&path, &LoadOptions { n_ctx, kv }, &mut |done, total| {
                signals.tell(progress.as_ref(), done, total)
            })
        });
        match result {
            Ok(model) => {
                signals.finish(Ok(()))?;
                Ok(LlmModel { model: Mutex::new(Some(Arc::new(model))), path })
            }
            Err(error) => Err(signals.or_of_file(error, &path)),
        }
    }

    /// An empty text.
    fn sequence(&self) -> PyResult<LlmSequence> {
        Ok(LlmSequence::new(self.model()?.sequence()))
    }

    /// The text that `LlmSequence.save` wrote.
    fn restore(&self, py: Python<'_>, path: PathBuf) -> PyResult<LlmSequence> {
        let model = self.model()?;
        py.detach(|| model.restore(&path)).map(LlmSequence::new).map_err(|error| errors::of_model(&error))
    }

    /// Continue each sequence by its tokens; return a float32 tensor (rows, vocabulary): of each the last row, or with
    /// ``all`` every row, or None where ``all`` is None.
    #[pyo3(signature = (sequences, tokens, all, profile=None))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        sequences: Vec<Bound<'py, LlmSequence>>,
        tokens: Vec<Vec<u32>>,
        all: Option<bool>,
        profile: Option<Py<LlmProfile>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let model = self.model()?;
        if sequences.len() != tokens.len() {
            return Err(PyValueError::new_err(format!(
                "{} sequences and {} lists of tokens",
                sequences.len(),
                tokens.len()
            )));
        }
        let mut loans: Vec<Loan> = sequences.iter().map(Loan::of).collect::<PyResult<_>>()?;
        let want = match all {
            None => Want::None,
            Some(false) => Want::Last,
            Some(true) => Want::All,
        };
        pool::prepare(py);
        let mut signals = Signals::default();
        let result = py.detach(|| {
            let mut parts: Vec<Part<'_>> = loans
                .iter_mut()
                .zip(&tokens)
                .filter_map(|(loan, tokens)| {
                    let sequence = loan.sequence.as_mut()?;
                    Some(Part { sequence, tokens, logits: want })
                })
                .collect();
            let mut profile = profile.as_ref().map(|profile| profile.get().lock());
            model.forward(&mut parts, &mut || signals.look(), profile.as_deref_mut())
        });
        drop(loans);
        let logits = signals.finish(result)?;
        if all.is_none() {
            return Ok(None);
        }
        let n_vocabulary = logits.n_vocabulary();
        let values = logits.into_values();
        let shape = [(values.len() / n_vocabulary).cast_signed(), n_vocabulary.cast_signed()];
        tensor::Held::of_floats(py, &shape, values).map(Some)
    }

    /// Begin to generate; see `overdrive.llm.Model.generate`.
    #[pyo3(signature = (sequences, prompts, seeds, options, profile=None))]
    fn generate(
        &self,
        py: Python<'_>,
        sequences: Vec<Bound<'_, LlmSequence>>,
        prompts: Vec<Vec<u32>>,
        seeds: Vec<Option<u64>>,
        options: Options,
        profile: Option<Py<LlmProfile>>,
    ) -> PyResult<LlmGeneration> {
        pool::prepare(py);
        LlmGeneration::new(self.model()?, &sequences, prompts, &seeds, options, profile)
    }

    /// Sum of the log-probabilities of the tokens in windows of so many, and how many tokens are in it.
    #[pyo3(signature = (tokens, window=None, progress=None, profile=None))]
    fn log_likelihood(
        &self,
        py: Python<'_>,
        tokens: Vec<u32>,
        window: Option<i64>,
        progress: Option<Py<PyAny>>,
        profile: Option<Py<LlmProfile>>,
    ) -> PyResult<(f64, usize)> {
        let model = self.model()?;
        let window =
            window.map(|n| usize::try_from(n).map_err(|_| errors::negative("window", n))).transpose()?;
        pool::prepare(py);
        let mut signals = Signals::default();
        let result = py.detach(|| {
            let mut profile = profile.as_ref().map(|profile| profile.get().lock());
            model.log_likelihood(
                &tokens,
                window.unwrap_or(model.n_ctx()),
                &mut |done, total| signals.tell(progress.as_ref(), done, total),
                profile.as_deref_mut(),
            )
        });
        signals.finish(result).map(|sum| (sum.log_probability, sum.n_scored))
    }

    /// The tokens of a chat.
    fn apply_template(
        &self,
        py: Python<'_>,
        messages: Vec<(String, String)>,
        add_generation_prompt: bool,
    ) -> PyResult<Vec<u32>> {
        let model = self.model()?;
        let wrong = |error: String| PyValueError::new_err(format!("{}: {error}", self.path.display()));
        let none = || wrong("the file has no chat template; generate() continues texts".into());
        let tokenizer = model.tokenizer().ok_or_else(none)?;
        let messages: Vec<_> =
            messages.into_iter().map(|(role, content)| Message { role, content }).collect();
        let tokens = py.detach(|| {
            let of_template = |error: TemplateError| error.to_string();
            let Some(template) = model.chat_template().map_err(of_template)? else { return Ok(None) };
            // Templates write the token that begins texts themselves, where there is one.
            let text = template.render(&messages, add_generation_prompt).map_err(of_template)?;
            tokenizer.encode(&text, false, true).map(Some).map_err(|error| error.to_string())
        });
        tokens.map_err(wrong)?.ok_or_else(none)
    }

    /// Whether the file brings a chat template.
    #[getter]
    fn has_template(&self) -> PyResult<bool> {
        Ok(self.model()?.has_chat_template())
    }

    /// The tokenizer that the file describes.
    #[getter]
    fn tokenizer(&self) -> PyResult<Tokenizer> {
        Ok(Tokenizer::of_model(self.model()?))
    }

    /// The shape of the model.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let model = self.model()?;
        let config = model.config();
        let facts = PyDict::new(py);
        facts.set_item("name", config.name.as_deref())?;
        facts.set_item("architecture", &config.architecture)?;
        facts.set_item("n_layers", config.n_layers)?;
        facts.set_item("n_embed", config.n_embed)?;
        facts.set_item("n_heads", config.n_heads)?;
        facts.set_item("n_kv_heads", config.n_kv_heads)?;
        facts.set_item("head_dim", config.head_dim)?;
        facts.set_item("n_ff", config.n_ff)?;
        facts.set_item("n_vocabulary", config.n_vocabulary)?;
        facts.set_item("n_ctx_train", config.n_ctx_train)?;
        facts.set_item("window", config.window)?;
        facts.set_item("rope_base", config.rope.base)?;
        Ok(facts)
    }

    #[getter]
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    #[getter]
    fn n_ctx(&self) -> PyResult<usize> {
        Ok(self.model()?.n_ctx())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.model().is_err()
    }

    /// Give the model up; what still computes keeps it for so long.
    fn close(&self, py: Python<'_>) {
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(model));
    }
}
