//! Language models for Python: the bridge's side of the crate `overdrive-llm`.
//!
//! In: paths, buffers, options. Out: Python objects, which share what they stand on. Files: `gguf` shows what is in a file,
//! `decode` turns quantised bytes into floats; `model` computes, `sequence` is a text so far, `generation` one under way;
//! `tokenizer` and `text` work without one; `errors` is the one table from the crate's errors to Python's, `signals` what stops a computation.

mod decode;
mod errors;
mod generation;
mod gguf;
mod level;
mod model;
mod profile;
mod sequence;
mod signals;
mod text;
mod tokenizer;

use pyo3::prelude::{Bound, PyModule, PyModuleMethods, PyResult, wrap_pyfunction};

/// Adds the types and the functions to `overdrive._core`.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<gguf::GgufFile>()?;
    module.add_class::<gguf::GgufTensor>()?;
    module.add_class::<gguf::Quantisation>()?;
    module.add_class::<model::LlmModel>()?;
    module.add_class::<sequence::LlmSequence>()?;
    module.add_class::<generation::LlmGeneration>()?;
    module.add_class::<profile::LlmProfile>()?;
    module.add_class::<tokenizer::Tokenizer>()?;
    module.add_class::<text::TextStream>()?;
    module.add_function(wrap_pyfunction!(text::sample, module)?)?;
    module.add_function(wrap_pyfunction!(tokenizer::load_tokenizer, module)?)?;
    module.add_function(wrap_pyfunction!(gguf::read_gguf, module)?)?;
    module.add_function(wrap_pyfunction!(level::kernel_level, module)?)?;
    module.add_function(wrap_pyfunction!(level::set_kernel_level, module)?)?;
    module.add_function(wrap_pyfunction!(decode::dequantize, module)?)
}
