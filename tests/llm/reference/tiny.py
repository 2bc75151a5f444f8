"""Tiny Llamas with made-up weights: as Transformers has them, and converted to GGUF files.

In: a name of `VARIANTS`. Out: `weights(variant)`, arrays by Transformers' names; `write(variant, path)`, the same model as
a GGUF file of about 200 kB. Weights come from the raw output of PCG64, which no version of NumPy changes, so none are kept;
matrices are rounded to float16, so that both sides compute with the same numbers.
"""

from __future__ import annotations

import dataclasses
import math
import struct

import numpy as np

F32, F16 = 0, 1  # GGUF's numbers of the two types
ALIGNMENT = 32
SPECIAL = ("<unk>", "<s>", "</s>")
MERGES = ("t h", "h e", "i n", "Ġ a", "e r")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A shape; `scaling` is what Transformers calls rope_parameters without the base, `window` Mistral's sliding window."""

    name: str
    n_kv_heads: int = 2
    head_dim: int = 16
    tied: bool = False
    window: int = 0
    scaling: dict = dataclasses.field(default_factory=lambda: {"rope_type": "default"})
    width: int = 64
    n_heads: int = 4
    n_layers: int = 2
    inner: int = 96
    base: float = 10000.0
    epsilon: float = 1e-5
    n_positions: int = 256

    @property
    def family(self):
        return "mistral" if self.window else "llama"


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("tied", n_kv_heads=4, tied=True),
        Variant("untied"),
        Variant("wide-heads", head_dim=32, n_kv_heads=1),
        Variant("linear", scaling={"rope_type": "linear", "factor": 4.0}),
        Variant("llama3", scaling=LLAMA3),
        Variant("yarn", scaling=YARN),
        Variant("mistral", window=8),
    )
}


def alphabet():
    """The character of each byte in a byte-level vocabulary: itself where it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {**{byte: chr(byte) for byte in visible}, **{byte: chr(256 + i) for i, byte in enumerate(hidden)}}


VOCABULARY = [*SPECIAL, *alphabet().values(), *(merge.replace(" ", "") for merge in MERGES)]


def tokens(n=48):
    """A text of n token ids, with repetitions that attention can find."""
    raw = np.random.PCG64(7).random_raw(n) % np.uint64(len(VOCABULARY))
    found = raw.astype(np.int64)
    found[n // 2 : n // 2 + 8] = found[:8]
    return [int(token) for token in found]


def weights(variant):
    """Arrays by Transformers' names, (out, in) as there, float32."""
    bits = np.random.PCG64(11)

    def uniform(*shape):
        """Numbers between -1 and 1."""
        raw = bits.random_raw(math.prod(shape)) >> np.uint64(11)
        return (raw.astype(np.float64) / 2.0**52 - 1.0).reshape(shape)

    def matrix(rows, columns):
        """A product with it keeps the size of its input, somewhat more."""
        return (uniform(rows, columns) * 1.4 * math.sqrt(3 / columns)).astype(np.float16).astype(np.float32)

    def norm():
        return (1 + 0.3 * uniform(variant.width)).astype(np.float32)

    width, dim = variant.width, variant.head_dim
    found = {
        "model.embed_tokens.weight": uniform(len(VOCABULARY), width).astype(np.float16).astype(np.float32)
    }
    for i in range(variant.n_layers):
        at = f"model.layers.{i}."
        found[at + "input_layernorm.weight"] = norm()
        found[at + "self_attn.q_proj.weight"] = matrix(variant.n_heads * dim, width)
        found[at + "self_attn.k_proj.weight"] = matrix(variant.n_kv_heads * dim, width)
        found[at + "self_attn.v_proj.weight"] = matrix(variant.n_kv_heads * dim, width)
        found[at + "self_attn.o_proj.weight"] = matrix(width, variant.n_heads * dim)
        found[at + "post_attention_layernorm.weight"] = norm()
        found[at + "mlp.gate_proj.weight"] = matrix(variant.inner, width)
        found[at + "mlp.up_proj.weight"] = matrix(variant.inner, width)
        found[at + "mlp.down_proj.weight"] = matrix(width, variant.inner)
    found["model.norm.weight"] = norm()
    if not variant.tied:
        found["lm_head.weight"] = matrix(len(VOCABULARY), width)
    return found


NAMES = {  # Transformers' names, in a layer, and GGUF's
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def interleaved(matrix, n_heads):
    """Rows of each head in GGUF's order: Transformers rotates dimension i with i + dim / 2, GGUF's Llama 2i with 2i + 1."""
    rows, columns = matrix.shape
    return matrix.reshape(n_heads, 2, rows // n_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensors(variant):
    """The model's tensors by GGUF's names."""
    found = {}
    for name, values in weights(variant).items():
        if name in WHOLE:
            found[WHOLE[name]] = values
            continue
        _, _, layer, rest = name.split(".", 3)
        part = rest.removesuffix(".weight")
        if part == "self_attn.q_proj":
            values = interleaved(values, variant.n_heads)
        elif part == "self_attn.k_proj":
            values = interleaved(values, variant.n_kv_heads)
        found[f"blk.{layer}.{NAMES[part]}.weight"] = values
    if variant.scaling["rope_type"] == "llama3":
        found["rope_freqs.weight"] = llama3_factors(variant)
    return found


def llama3_factors(variant):
    """By how much each pair turns slower: not at all where it turns fast, by the whole factor where it turns slowly."""
    s = variant.scaling
    lengths = 2 * math.pi * variant.base ** (np.arange(0, variant.head_dim, 2) / variant.head_dim)
    turns = s["original_max_position_embeddings"] / lengths
    smooth = (turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"])
    smooth = np.clip(smooth, 0, 1)
    return (1 / ((1 - smooth) / s["factor"] + smooth)).astype(np.float32)


def metadata(variant):
    """The file's metadata, Python values that `value` writes."""
    found = {
        "general.architecture": "llama",
        "general.name": variant.name,
        "general.alignment": ALIGNMENT,
        "llama.block_count": variant.n_layers,
        "llama.context_length": variant.n_positions,
        "llama.embedding_length": variant.width,
        "llama.feed_forward_length": variant.inner,
        "llama.attention.head_count": variant.n_heads,
        "llama.attention.head_count_kv": variant.n_kv_heads,
        "llama.attention.key_length": variant.head_dim,
        "llama.attention.value_length": variant.head_dim,
        "llama.attention.layer_norm_rms_epsilon": variant.epsilon,
        "llama.rope.dimension_count": variant.head_dim,
        "llama.rope.freq_base": variant.base,
        "llama.vocab_size": len(VOCABULARY),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": VOCABULARY,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(VOCABULARY) - len(SPECIAL)),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }
    if variant.window:
        found["llama.attention.sliding_window"] = variant.window
    kind = variant.scaling["rope_type"]
    if kind in ("linear", "yarn"):
        found["llama.rope.scaling.type"] = kind
        found["llama.rope.scaling.factor"] = variant.scaling["factor"]
    if kind == "yarn":
        found["llama.rope.scaling.original_context_length"] = YARN["original_max_position_embeddings"]
    return found


def text(string):
    raw = string.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item):
    """A metadata value with its type's number: bool, u32, f32, string, and arrays of i32 and of strings."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    return struct.pack("<IIQ", 9, 5, len(item)) + struct.pack(f"<{len(item)}i", *item)


def write(variant, path, more=None):
    """Writes the model as a GGUF file of version 3, with more metadata if there are any."""
    items, found = {**metadata(variant), **(more or {})}, tensors(variant)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(items))
    head += b"".join(text(key) + value(item) for key, item in items.items())
    data = b""
    for name, values in found.items():
        kind, raw = (F32, values) if values.ndim == 1 else (F16, values.astype(np.float16))
        head += text(name) + struct.pack("<I", values.ndim)
        # GGUF names the innermost length first.
        head += struct.pack(f"<{values.ndim}Q", *reversed(values.shape))
        head += struct.pack("<IQ", kind, len(data))
        data += raw.tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    return path
