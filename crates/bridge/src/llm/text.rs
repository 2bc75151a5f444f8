//! Text that arrives in pieces, and one draw from logits: what Python uses of them without a model.
//!
//! In: bytes, logits in a buffer of float32 or float64. Out: text, a token.

use overdrive_llm::sampling::{Sampler, Sampling};
use overdrive_llm::text::TextStream as Inner;
use overdrive_tensor::dtype::{DType, Kind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::tensor::Held;

/// Characters out of bytes that are cut anywhere.
#[pyclass(module = "overdrive.llm")]
pub(super) struct TextStream(Inner);

#[pymethods]
impl TextStream {
    #[new]
    fn new() -> Self {
        TextStream(Inner::new())
    }

    /// Take the next bytes; return the characters that are certain now.
    fn push(&mut self, bytes: &[u8]) -> String {
        self.0.push(bytes)
    }

    /// End the stream: U+FFFD for a character that never became complete, else nothing.
    fn finish(&mut self) -> String {
        self.0.finish()
    }
}

/// Draw a token by logits that lie one behind the other.
#[pyfunction]
#[pyo3(signature = (logits, temperature, top_k, top_p, min_p, seed, /))]
pub(super) fn sample(
    logits: &Bound<'_, PyAny>,
    temperature: f64,
    top_k: usize,
    top_p: f64,
    min_p: f64,
    seed: Option<u64>,
) -> PyResult<u32> {
    let held = Held::view(logits)?;
    if !held.is_dense() {
        return Err(PyValueError::new_err("the logits do not lie one behind the other"));
    }
    let options = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
    let mut sampler = Sampler::new(options).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let dtype = held.dtype();
    let chosen = held.with_bytes(|bytes| {
        if dtype == DType::native(Kind::F32) {
            let (chunks, _) = bytes.as_chunks::<4>();
            let values: Vec<f32> = chunks.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect();
            Some(sampler.sample(&values, &[]))
        } else if dtype == DType::native(Kind::F64) {
            let (chunks, _) = bytes.as_chunks::<8>();
            let values: Vec<f64> = chunks.iter().map(|chunk| f64::from_ne_bytes(*chunk)).collect();
            Some(sampler.sample(&values, &[]))
        } else {
            None
        }
    });
    match chosen {
        None => Err(PyTypeError::new_err("logits are float32 or float64 here")),
        Some(chosen) => chosen.map_err(|error| PyValueError::new_err(error.to_string())),
    }
}
