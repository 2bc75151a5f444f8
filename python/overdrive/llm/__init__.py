"""Language models from GGUF files, in this process and on its processors.

>>> import overdrive.llm
>>> model = overdrive.llm.load()  # doctest: +SKIP
>>> print(model.generate("The capital of France is", max_tokens=8))  # doctest: +SKIP

``load`` gives a `Model` (``generate``, ``chat``, ``session``, ``logits``), `AutoModelForCausalLM` and
`pipeline` the same with the calls of Transformers. ``read_gguf`` opens a file (metadata, tensors on the
file's own memory), ``dequantize`` decodes its formats. Nothing here is imported, and no file is opened,
before it is used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from overdrive._core import Tokenizer, dequantize, load_tokenizer
    from overdrive.llm.auto import AutoModelForCausalLM
    from overdrive.llm.completion import BatchStream, Completion, Stream, TokenLogprob
    from overdrive.llm.gguf import GgufFile, GgufTensor, Quantisation, read_gguf
    from overdrive.llm.model import Model, load
    from overdrive.llm.models import default_model
    from overdrive.llm.pipelines import pipeline
    from overdrive.llm.profile import OpCost, OpProfile
    from overdrive.llm.sampling import sample
    from overdrive.llm.session import Session
    from overdrive.llm.text import stream_text

# In which module each name is.
_LAZY = {
    "AutoModelForCausalLM": "overdrive.llm.auto",
    "BatchStream": "overdrive.llm.completion",
    "Completion": "overdrive.llm.completion",
    "GgufFile": "overdrive.llm.gguf",
    "GgufTensor": "overdrive.llm.gguf",
    "Model": "overdrive.llm.model",
    "OpCost": "overdrive.llm.profile",
    "OpProfile": "overdrive.llm.profile",
    "Quantisation": "overdrive.llm.gguf",
    "Session": "overdrive.llm.session",
    "Stream": "overdrive.llm.completion",
    "TokenLogprob": "overdrive.llm.completion",
    "Tokenizer": "overdrive._core",
    "default_model": "overdrive.llm.models",
    "dequantize": "overdrive._core",
    "load": "overdrive.llm.model",
    "load_tokenizer": "overdrive._core",
    "pipeline": "overdrive.llm.pipelines",
    "read_gguf": "overdrive.llm.gguf",
    "sample": "overdrive.llm.sampling",
    "stream_text": "overdrive.llm.text",
}

__all__ = [
    "AutoModelForCausalLM",
    "BatchStream",
    "Completion",
    "GgufFile",
    "GgufTensor",
    "Model",
    "OpCost",
    "OpProfile",
    "Quantisation",
    "Session",
    "Stream",
    "TokenLogprob",
    "Tokenizer",
    "default_model",
    "dequantize",
    "load",
    "load_tokenizer",
    "pipeline",
    "read_gguf",
    "sample",
    "stream_text",
]


def __getattr__(name: str) -> Any:
    """Import on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__import__(_LAZY[name], fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
