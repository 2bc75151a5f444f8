"""Overdrive, with the same methods as `peer.Peer`.

In: a file, numbers of threads, tokens, which kernels. Out: `Ours`. Below the face that users see, because logits of one token
after the other are asked for, and nothing of what makes text of them.
"""

from __future__ import annotations

import numpy as np
import overdrive
import overdrive.llm
from overdrive import _core


class Ours:
    """A model and one sequence."""

    def __init__(self, path, n_threads, n_ctx, kernels="auto"):
        overdrive.set_num_threads(n_threads)
        choose(kernels)
        self.model = overdrive.llm.load(path, n_ctx=n_ctx, progress=False)
        self.core = self.model._core
        self.sequence = self.core.sequence()

    def prompt(self, tokens):
        """Reads tokens into an empty cache; logits are there for the last one."""
        self.sequence.clear()
        self.core.forward([self.sequence], [tokens], False)

    def steps(self, tokens):
        """Goes on with tokens one by one, as a generation does."""
        for token in tokens:
            self.core.forward([self.sequence], [[token]], False)

    def logits(self, tokens):
        """Logits after each token of an empty cache's continuation, (token, vocabulary), float32."""
        return np.asarray(self.model.logits(tokens, all=True))


def choose(kernels):
    """Takes the kernels for a kind of processor; those that this one is of are taken by themselves."""
    if kernels != "auto":
        _core.set_kernel_level(kernels)


def about(kernels="auto"):
    """The version, and what of the processor is used."""
    choose(kernels)
    return {"version": overdrive.__version__, "features": _core.kernel_level()}
