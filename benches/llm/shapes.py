"""GGUF files in the shapes of real Llamas with random weights: how fast a model runs does not depend on what it says.

Usage: python benches/llm/shapes.py 1b|8b OUT.gguf --tokenizer-from MODEL.gguf. Formats are those of the common Q4_K_M
recipe: Q4_K, and Q6_K for the head, the values' projection and every second down projection. The vocabulary is copied from a
real file and filled up. Needs gguf and NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib

import gguf
import numpy as np

Q4_K, Q6_K = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K


@dataclasses.dataclass(frozen=True)
class Shape:
    n_layers: int
    width: int
    n_heads: int
    n_kv_heads: int
    inner: int
    n_vocabulary: int = 128256


SHAPES = {"1b": Shape(16, 2048, 32, 8, 8192), "8b": Shape(32, 4096, 32, 8, 14336)}


def blocks(random, kind, rows, columns):
    """Random codes with scales that keep a layer's output about as large as its input."""
    per, size = gguf.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows * columns // per, size), dtype=np.uint8)

    def halves(value):
        return np.full(len(raw), value, np.float16).view(np.uint8).reshape(-1, 2)

    if kind == Q4_K:  # d, dmin, scales, codes
        raw[:, 0:2], raw[:, 2:4] = halves(1e-4), halves(7e-4)
    else:  # Q6_K: codes, scales, d
        raw[:, 208:210] = halves(2e-5)
    return raw.reshape(rows, -1)


def write(name, out, tokenizer_from):
    """Writes a file; it appears when it is whole."""
    shape, source, random = SHAPES[name], gguf.GGUFReader(tokenizer_from), np.random.default_rng(0)
    unfinished = out.with_suffix(".part")
    writer = gguf.GGUFWriter(unfinished, "llama")
    writer.add_name(f"random-{name}")
    writer.add_block_count(shape.n_layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.n_heads)
    writer.add_head_count_kv(shape.n_kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.n_heads)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.n_vocabulary)

    known = {
        key: source.get_field(f"tokenizer.ggml.{key}").contents()
        for key in ("tokens", "token_type", "merges")
    }
    n_more = shape.n_vocabulary - len(known["tokens"])
    unused = gguf.TokenType.UNUSED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(known["tokens"] + [f"<unused_{i}>" for i in range(n_more)])
    writer.add_token_types(known["token_type"] + [unused] * n_more)
    writer.add_token_merges(known["merges"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)

    def matrix(tensor, rows, columns, kind=Q4_K):
        writer.add_tensor(f"{tensor}.weight", blocks(random, kind, rows, columns), raw_dtype=kind)

    def norm(tensor):
        writer.add_tensor(f"{tensor}.weight", np.ones(shape.width, np.float32))

    kv_width = shape.width // shape.n_heads * shape.n_kv_heads
    matrix("token_embd", shape.n_vocabulary, shape.width)
    norm("output_norm")
    matrix("output", shape.n_vocabulary, shape.width, Q6_K)
    for i in range(shape.n_layers):
        norm(f"blk.{i}.attn_norm")
        norm(f"blk.{i}.ffn_norm")
        matrix(f"blk.{i}.attn_q", shape.width, shape.width)
        matrix(f"blk.{i}.attn_k", kv_width, shape.width)
        matrix(f"blk.{i}.attn_v", kv_width, shape.width, Q6_K)
        matrix(f"blk.{i}.attn_output", shape.width, shape.width)
        matrix(f"blk.{i}.ffn_gate", shape.inner, shape.width)
        matrix(f"blk.{i}.ffn_up", shape.inner, shape.width)
        matrix(f"blk.{i}.ffn_down", shape.width, shape.inner, Q6_K if i % 2 else Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(unfinished, out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--tokenizer-from", required=True, metavar="MODEL.gguf")
    chosen = parser.parse_args()
    write(chosen.shape, chosen.out, chosen.tokenizer_from)


if __name__ == "__main__":
    main()
