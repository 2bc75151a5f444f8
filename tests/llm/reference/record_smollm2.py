"""Records the float64 reference of SmolLM2 and what llama.cpp makes of the same tokens, in smollm2.npz.

Usage: scripts/bench_llm --record, which builds an environment with gguf, NumPy and llama-cpp-python and runs this with the model;
it takes some minutes. What the test needs afterwards is this file and the model:

* text: the tokens of text.txt; the reference's most likely tokens after each of the first 512 (see measures.py);
  llama.cpp's divergence from them, and its perplexity of the whole text in windows of 512 tokens.
* prompts: 20 prompts, the reference's greedy continuation of 64 tokens each, and for each step how far the best token is ahead
  of the second (`gaps`) and how far llama.cpp is off there (`peer_errors`), given the reference's tokens up to it: the largest
  error of the distance between the best token and another one, over the ten best.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "benches/llm")]

import float64  # noqa: E402
import measures  # noqa: E402
import peer  # noqa: E402
from measures import N_POSITIONS  # noqa: E402

N_STEPS = 64
N_CANDIDATES = 10


def prompts():
    """One a line; \\n stands for an end of line in it."""
    return [line.replace("\\n", "\n") for line in (HERE / "prompts.txt").read_text().splitlines()]


def greedy(model, asked):
    """The reference's continuations of prompts: tokens, and logits before each of them, (prompt, step, vocabulary)."""
    caches = [model.cache() for _ in asked]
    ends = np.cumsum([len(prompt) for prompt in asked])
    rows = model.batch(asked, caches)[ends - 1]
    found, before = [], []
    for step in range(N_STEPS):
        before.append(rows)
        found.append(rows.argmax(axis=-1))
        print(f"\rstep {step + 1} of {N_STEPS}", end="", flush=True)
        rows = model.batch(found[-1][:, None], caches)
    print()
    return np.stack(found, axis=1), np.stack(before, axis=1)


def errors(wanted, found):
    """Of each row, the largest error of the distance between the best token and another of the ten best."""
    best = np.argsort(-wanted, axis=-1, kind="stable")[:, :N_CANDIDATES]
    wanted, found = (
        np.take_along_axis(np.asarray(rows, np.float64), best, axis=-1) for rows in (wanted, found)
    )
    return np.abs((wanted - wanted[:, :1]) - (found - found[:, :1])).max(axis=-1)


def main():
    path = pathlib.Path(sys.argv[1])
    reference, other = float64.Llama(path), peer.Peer(path, n_threads=1, n_ctx=1024)
    tokens = other.tokenize((HERE / "text.txt").read_text())
    print(f"text of {len(tokens)} tokens")
    wanted = measures.log_softmax(reference.logits(tokens[:N_POSITIONS]))
    kept = measures.keep(wanted)
    logits = other.logits(tokens[:N_POSITIONS])
    theirs = measures.log_softmax(logits)
    whole = (np.exp(wanted) * (wanted - theirs)).sum(axis=-1)
    peer_divergences = measures.divergences(kept, logits)
    print(f"llama.cpp's KL divergence: {peer_divergences.mean():.3e}, over all tokens {whole.mean():.3e}")
    print(f"the rest has {np.exp(kept[2]).mean():.4f} of the probability in the mean")
    peer_perplexity = measures.perplexity(other.logits, tokens, N_POSITIONS)
    reference_perplexity = measures.perplexity(reference.logits, tokens, N_POSITIONS)
    print(f"perplexity: {reference_perplexity:.4f}, llama.cpp {peer_perplexity:.4f}")

    asked = [other.tokenize(prompt, special=True) for prompt in prompts()]
    gaps, peer_errors, n_other = [], [], 0
    continuations, before = greedy(reference, asked)
    for prompt, found, rows in zip(asked, continuations.tolist(), before, strict=True):
        theirs = other.logits(prompt + found)[len(prompt) - 1 : -1]
        ordered = np.sort(rows, axis=-1)
        gaps.append(ordered[:, -1] - ordered[:, -2])
        peer_errors.append(errors(rows, theirs))
        n_other += int((theirs.argmax(axis=-1) != found).sum())
    gaps, peer_errors = np.array(gaps), np.array(peer_errors)
    print(f"steps: {gaps.size}; within llama.cpp's error: {int((gaps <= peer_errors).sum())}")
    print(f"llama.cpp's error: median {np.median(peer_errors):.3f}, largest {peer_errors.max():.3f}")
    print(f"llama.cpp's best token differs from the reference's in {n_other} steps")

    out = HERE / "smollm2.npz"
    about = f"llama-cpp-python {peer.about()['version']}, gguf {importlib.metadata.version('gguf')}"
    np.savez_compressed(
        out,
        tokens=np.array(tokens, np.uint16),
        kept_ids=kept[0],
        kept_log_probabilities=kept[1],
        kept_rest=kept[2],
        peer_divergences=peer_divergences.astype(np.float32),
        peer_perplexity=np.array(peer_perplexity),
        reference_perplexity=np.array(reference_perplexity),
        prompts=np.array([token for prompt in asked for token in prompt], np.uint16),
        prompt_lengths=np.array([len(prompt) for prompt in asked], np.uint16),
        continuations=continuations.astype(np.uint16),
        gaps=gaps.astype(np.float32),
        peer_errors=peer_errors.astype(np.float32),
        peer_steps_differ=np.array(n_other),
        versions=np.array(about),
    )
    print(f"wrote {out.name}, {out.stat().st_size} bytes, with {about}")


if __name__ == "__main__":
    main()
