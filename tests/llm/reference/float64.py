"""The forward pass of a Llama in float64, from the dequantised weights of a GGUF file: what results are compared with.

In: a file and tokens. Out: logits. Written to be read beside the formulas, not to be fast: about 10 s for 512 tokens of
SmolLM2. It knows nothing of Overdrive, and of other software only `gguf`, which opens the file and decodes the weights.
"""

from __future__ import annotations

import gguf
import numpy as np

MATRICES = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


class Llama:
    """The weights of a file as float64, and its hyperparameters."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.weights = {
            t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors
        }

        def said(key, default=None):
            field = reader.get_field(f"llama.{key}")
            return default if field is None else field.contents()

        if said("rope.scaling.type") not in (None, "none") or "rope_freqs.weight" in self.weights:
            raise NotImplementedError("a scaled RoPE has no float64 reference here")
        self.n_layers, self.width = said("block_count"), said("embedding_length")
        self.n_heads = said("attention.head_count")
        self.n_kv_heads = said("attention.head_count_kv", self.n_heads)
        self.head_dim = said("attention.key_length", self.width // self.n_heads)
        self.epsilon = said("attention.layer_norm_rms_epsilon")
        # Positions that one sees, its own among them; 0: all.
        self.window = said("attention.sliding_window", 0)
        # Angle of pair i at position p: p * base^(-2i / head_dim).
        self.rates = said("rope.freq_base", 10000.0) ** (-np.arange(0, self.head_dim, 2) / self.head_dim)

    def cache(self):
        """The keys and values of no position yet: [layer] -> (position, kv head, dimension)."""
        nothing = np.zeros((0, self.n_kv_heads, self.head_dim))
        return [(nothing, nothing) for _ in range(self.n_layers)]

    def logits(self, tokens, cache=None):
        """Logits after each token, (token, vocabulary); `cache` is continued, and holds these tokens afterwards."""
        return self.batch([tokens], [self.cache() if cache is None else cache])

    def batch(self, texts, caches):
        """The same for several texts, each with a cache of its own: their rows one text after the other."""
        firsts = [len(cache[0][0]) for cache in caches]
        ends = np.cumsum([len(tokens) for tokens in texts])
        spans = [slice(end - len(tokens), end) for tokens, end in zip(texts, ends, strict=True)]
        positions = [np.arange(len(tokens)) + first for tokens, first in zip(texts, firsts, strict=True)]
        angles = np.concatenate(positions)[:, None] * self.rates
        x = self.weights["token_embd.weight"][np.concatenate(texts).astype(np.int64)]
        for i in range(self.n_layers):
            at = {name: self.weights[f"blk.{i}.{name}.weight"] for name in MATRICES}
            h = self.norm(x, at["attn_norm"])
            q = rotate((h @ at["attn_q"].T).reshape(len(h), self.n_heads, -1), angles)
            k = rotate((h @ at["attn_k"].T).reshape(len(h), self.n_kv_heads, -1), angles)
            v = (h @ at["attn_v"].T).reshape(len(h), self.n_kv_heads, -1)
            seen = []
            for cache, span, first in zip(caches, spans, firsts, strict=True):
                keys, values = cache[i]
                cache[i] = keys, values = np.concatenate([keys, k[span]]), np.concatenate([values, v[span]])
                seen.append(self.attend(q[span], keys, values, first))
            x = x + np.concatenate(seen) @ at["attn_output"].T
            h = self.norm(x, at["ffn_norm"])
            gate = h @ at["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ at["ffn_up"].T)) @ at["ffn_down"].T
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return self.norm(x, self.weights["output_norm.weight"]) @ head.T

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon) * weight

    def attend(self, q, keys, values, first):
        """Causal attention; several query heads in a row share a head of keys and values."""
        group = self.n_heads // self.n_kv_heads
        out = np.empty_like(q)
        here, there = first + np.arange(len(q))[:, None], np.arange(len(keys))[None, :]
        hidden = there > here
        if self.window:
            hidden |= there <= here - self.window
        for head in range(self.n_heads):
            scores = q[:, head] @ keys[:, head // group].T / np.sqrt(self.head_dim)
            scores[hidden] = -np.inf
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ values[:, head // group]
        return out.reshape(len(q), -1)


def rotate(x, angles):
    """RoPE as GGUF's Llama has it: dimensions 2i and 2i + 1 are a pair. x: (position, head, dimension)."""
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)
