"""How far logits are from the reference: what the recording and the test compute alike.

In: logits of a token sequence, and the reference as it is kept: per position the most likely tokens with their
log-probabilities, and the log of what all others have together. Out: numbers. Knows nothing of who made the logits.
"""

from __future__ import annotations

import pathlib

import numpy as np

RECORDED = pathlib.Path(__file__).with_name("smollm2.npz")
N_POSITIONS = 512  # of the text that divergence is measured on; also the window of perplexity
# Tokens per position; what is not kept counts as one.
N_KEPT = 64


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def keep(log_probabilities):
    """The reference as it is kept: (ids, log-probabilities, log of the rest), the most likely first."""
    order = np.argsort(-log_probabilities, axis=-1, kind="stable")
    ids = order[:, :N_KEPT]
    rest = np.take_along_axis(log_probabilities, order[:, N_KEPT:], axis=-1)
    return (
        ids.astype(np.uint16),
        np.take_along_axis(log_probabilities, ids, axis=-1).astype(np.float32),
        np.logaddexp.reduce(rest, axis=-1).astype(np.float32),
    )


def divergences(kept, logits):
    """KL divergence of each position in nats, of the kept tokens and the rest as one: at most that of all tokens."""
    ids, found, rest = (np.asarray(part) for part in kept)
    own = log_softmax(logits)
    ids = ids.astype(np.int64)
    ours = np.take_along_axis(own, ids, axis=-1)
    np.put_along_axis(own, ids, -np.inf, axis=-1)
    our_rest = np.logaddexp.reduce(own, axis=-1)
    found, rest = found.astype(np.float64), rest.astype(np.float64)
    return (np.exp(found) * (found - ours)).sum(axis=-1) + np.exp(rest) * (rest - our_rest)


def log_loss(logits, tokens):
    """The sum of -log p over all tokens but the first, from logits after each of them."""
    rows = log_softmax(np.asarray(logits)[:-1])
    return -np.take_along_axis(rows, np.asarray(tokens, np.int64)[1:, None], axis=-1).sum()


def windows(tokens, length):
    """The pieces of a text that perplexity is computed on, each from an empty cache."""
    return [tokens[i : i + length] for i in range(0, len(tokens), length) if len(tokens[i : i + length]) > 1]


def perplexity(logits_of, tokens, length):
    """exp of the mean -log p; `logits_of(tokens)` gives logits after each token."""
    pieces = windows(tokens, length)
    total = sum(log_loss(logits_of(piece), piece) for piece in pieces)
    return float(np.exp(total / sum(len(piece) - 1 for piece in pieces)))


def against_reference(logits_of, recorded=None):
    """What SmolLM2's logits by an engine differ from the recorded reference, and what llama.cpp's did; numbers by name."""
    recorded = np.load(RECORDED) if recorded is None else recorded
    kept = [recorded[name] for name in ("kept_ids", "kept_log_probabilities", "kept_rest")]
    tokens = recorded["tokens"].tolist()
    return {
        "divergence": float(divergences(kept, logits_of(tokens[:N_POSITIONS])).mean()),
        "peer_divergence": float(recorded["peer_divergences"].mean()),
        "perplexity": perplexity(logits_of, tokens, N_POSITIONS),
        "peer_perplexity": float(recorded["peer_perplexity"]),
        "reference_perplexity": float(recorded["reference_perplexity"]),
        **steps(logits_of, recorded),
        "recorded_with": str(recorded["versions"]),
    }


def prompts(recorded):
    """(prompt, continuation) of each recorded greedy text."""
    ends = np.cumsum(recorded["prompt_lengths"], dtype=np.int64)
    found = np.split(recorded["prompts"].astype(np.int64), ends[:-1])
    return [
        (prompt.tolist(), rest.tolist())
        for prompt, rest in zip(found, recorded["continuations"], strict=True)
    ]


def steps(logits_of, recorded):
    """Greedy steps whose best token is not the reference's, each asked behind the reference's own tokens; numbers by name.

    How far the reference's best token is ahead of the second says whether a step can be asked of quantised weights at all. So
    they are counted three times: all; those where it is ahead by more than llama.cpp errs at that very step, which is luck
    of each engine for itself; those where it is ahead by more than llama.cpp errs anywhere.
    """
    gaps, errors = recorded["gaps"], recorded["peer_errors"]
    differ = np.array(
        [
            np.asarray(logits_of(prompt + rest[:-1]))[len(prompt) - 1 :].argmax(axis=-1) != rest
            for prompt, rest in prompts(recorded)
        ]
    )
    here, anywhere = gaps > errors, gaps > errors.max()
    return {
        "steps": int(gaps.size),
        "steps_differ": int(differ.sum()),
        "peer_steps_differ": int(recorded["peer_steps_differ"]),
        "steps_ahead_here": int(here.sum()),
        "steps_differ_here": int((differ & here).sum()),
        "steps_ahead_anywhere": int(anywhere.sum()),
        "steps_differ_anywhere": int((differ & anywhere).sum()),
    }
