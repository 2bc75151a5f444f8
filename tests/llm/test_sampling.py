"""What ``sample`` draws, and what it refuses."""

import math

import numpy as np
import pytest
from overdrive import llm

Z = np.array([1.0, 3.0, 3.0, -np.inf], np.float32)


def test_edges():
    assert llm.sample(Z, temperature=0.0) == 1
    assert {llm.sample(Z, top_k=0, seed=seed) for seed in range(400)} == {0, 1, 2}
    assert {llm.sample(Z, top_k=1, seed=seed) for seed in range(50)} == {1}
    assert [llm.sample(Z, seed=7) for _ in range(5)] == [llm.sample(Z, seed=7)] * 5
    assert len({llm.sample(np.zeros(1000)) for _ in range(20)}) > 1


def plain(logits, seed, temperature=1.0):
    """The same draw in Python's own words: SplitMix64, then the weights laid end to end."""
    mask = (1 << 64) - 1
    mixed = (seed + 0x9E3779B97F4A7C15) & mask
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & mask
    unit = ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)
    weights = [math.exp((float(logit) - float(max(logits))) / temperature) for logit in logits]
    wanted, mass = unit * sum(weights), 0.0
    for token, weight in enumerate(weights):
        mass += weight
        if mass > wanted:
            return token
    raise AssertionError("the weights do not reach their sum")


def test_draws_are_those_of_the_definition():
    source = np.random.default_rng(5)
    for seed in range(300):
        logits = source.normal(size=50).astype(np.float32) * 3
        assert llm.sample(logits, seed=seed) == plain(logits, seed)
        assert llm.sample(logits, seed=seed, temperature=0.5) == plain(logits, seed, 0.5)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", "<f8"])
def test_any_floats(kind):
    logits = np.array([1, 5, 2, 5], kind)
    assert llm.sample(logits, temperature=0) == 1
    assert llm.sample(np.repeat(logits, 2)[::2], temperature=0) == 1
    logits.flags.writeable = False
    assert llm.sample(logits, temperature=0) == 1
    assert llm.sample(logits.tolist(), temperature=0) == 1


@pytest.mark.parametrize(
    "bad",
    [np.full(4, np.nan), np.full(4, -np.inf), np.zeros(0), [], [1.0, float("nan")], [0.0, float("inf")]],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_name_no_token(bad, temperature):
    with pytest.raises(ValueError, match="logit"):
        llm.sample(bad, seed=0, temperature=temperature)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 1.1},
        {"top_p": -0.1},
        {"min_p": 2},
        {"min_p": float("nan")},
        {"seed": -1},
        {"seed": 1 << 64},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        llm.sample(Z, **options)


def test_wrong_kinds():
    with pytest.raises(TypeError):
        llm.sample(["a", "b"])
    with pytest.raises(TypeError):
        llm.sample(Z, top_k=1.5)
    with pytest.raises(ValueError, match="one row"):
        llm.sample(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="one row"):
        llm.sample(3.0)


def test_large_vocabularies_and_limits():
    logits = np.random.default_rng(1).normal(size=128_256).astype(np.float32)
    best = set(np.argsort(-logits)[:3].tolist())
    assert {llm.sample(logits, top_k=3, seed=seed) for seed in range(60)} == best
    assert llm.sample(logits, top_k=10**30, seed=3) == llm.sample(logits, seed=3)
    assert {llm.sample(logits, top_p=0, seed=seed) for seed in range(5)} == {int(logits.argmax())}
