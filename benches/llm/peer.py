"""llama.cpp, through the low-level functions of `llama-cpp-python`: nothing of Python lies between two tokens but one call.

In: a file, numbers of threads, tokens. Out: `Peer`, whose logits are copies and whose calls return when the work is done.
Its settings are its defaults (memory mapping, repacked weights, flash attention where it chooses it, an f16 cache).
"""

from __future__ import annotations

import ctypes
import re

import llama_cpp as low
import numpy as np

N_BATCH = 512


@low.llama_log_callback
def quiet(level, text, data):
    """Drops what the library prints."""


class Peer:
    """A model and one context."""

    def __init__(self, path, n_threads, n_ctx):
        low.llama_log_set(quiet, ctypes.c_void_p(0))
        low.llama_backend_init()
        self.model = low.llama_model_load_from_file(str(path).encode(), low.llama_model_default_params())
        if not self.model:
            raise OSError(f"llama.cpp does not load {path}")
        settings = low.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = n_ctx, N_BATCH, N_BATCH
        settings.n_threads = settings.n_threads_batch = n_threads
        self.context = low.llama_init_from_model(self.model, settings)
        if not self.context:
            raise MemoryError("llama.cpp makes no context")
        self.memory = low.llama_get_memory(self.context)
        self.vocabulary = low.llama_model_get_vocab(self.model)
        self.n_vocabulary = low.llama_vocab_n_tokens(self.vocabulary)

    def forget(self):
        """Empties the cache."""
        low.llama_memory_clear(self.memory, True)

    def tokenize(self, text, special=False):
        """Token ids; with `special`, names of special tokens in the text become these tokens."""
        raw = text.encode()
        ids = (low.llama_token * (len(raw) + 8))()
        n = low.llama_tokenize(self.vocabulary, raw, len(raw), ids, len(ids), False, special)
        return list(ids[:n])

    def decode(self, tokens, every=False):
        """Goes on with tokens, at most N_BATCH of them; logits are kept for the last one or for every one."""
        ids = (low.llama_token * len(tokens))(*tokens)
        batch = low.llama_batch_get_one(ids, len(tokens))
        if every:
            wanted = (ctypes.c_int8 * len(tokens))(*([1] * len(tokens)))
            batch.logits = ctypes.cast(wanted, ctypes.POINTER(ctypes.c_int8))
        if code := low.llama_decode(self.context, batch):
            raise RuntimeError(f"llama_decode: {code}")
        low.llama_synchronize(self.context)

    def prompt(self, tokens):
        """Reads tokens into an empty cache; logits are there for the last one."""
        self.forget()
        for start in range(0, len(tokens), N_BATCH):
            self.decode(tokens[start : start + N_BATCH])

    def steps(self, tokens):
        """Goes on with tokens one by one, as a generation does."""
        for token in tokens:
            self.decode([token])

    def logits(self, tokens):
        """Logits after each token of an empty cache's continuation, (token, vocabulary), float32."""
        self.forget()
        rows = []
        for start in range(0, len(tokens), N_BATCH):
            piece = tokens[start : start + N_BATCH]
            self.decode(piece, every=True)
            found = low.llama_get_logits(self.context)
            rows.append(np.ctypeslib.as_array(found, (len(piece), self.n_vocabulary)).copy())
        return np.concatenate(rows)


def about():
    """The version, and what of the processor the build uses."""
    used = re.findall(r"(\w+) = 1", low.llama_print_system_info().decode())
    return {"version": low.__version__, "features": ", ".join(used)}
