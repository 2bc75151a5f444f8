"""Logits are those of the model: beside a float64 forward pass, beside llama.cpp's, beside Transformers'.

What is compared with lies in `reference`, recorded once: no other engine is needed here. See measures.py for the figures,
record_smollm2.py and record_tiny.py for where they come from.
"""

import pathlib
import sys

import numpy as np
import overdrive.llm
import pytest

REFERENCE = pathlib.Path(__file__).with_name("reference")
sys.path.insert(0, str(REFERENCE))

import measures  # noqa: E402
import tiny  # noqa: E402


@pytest.fixture(scope="module")
def recorded():
    with np.load(measures.RECORDED) as file:
        return dict(file)


@pytest.fixture(scope="module")
def logits_of(smollm2):
    """Logits after each token, by SmolLM2."""
    return lambda tokens: smollm2.logits(tokens, all=True)


def test_the_text_has_the_tokens_that_were_recorded(smollm2, recorded):
    text = (REFERENCE / "text.txt").read_text()
    assert smollm2.tokenize(text) == recorded["tokens"].tolist()
    lines = (REFERENCE / "prompts.txt").read_text().splitlines()
    asked = [smollm2.tokenize(line.replace("\\n", "\n"), parse_special=True) for line in lines]
    assert asked == [prompt for prompt, _ in measures.prompts(recorded)]


def test_we_are_as_close_to_float64_as_llama_cpp(logits_of, recorded):
    kept = [recorded[name] for name in ("kept_ids", "kept_log_probabilities", "kept_rest")]
    logits = logits_of(recorded["tokens"][: measures.N_POSITIONS].tolist())
    ours = measures.divergences(kept, logits).mean()
    assert 0 < ours <= recorded["peer_divergences"].mean()


def test_perplexity_is_llama_cpps_within_half_a_percent(logits_of, recorded):
    ours = measures.perplexity(logits_of, recorded["tokens"].tolist(), measures.N_POSITIONS)
    assert ours == pytest.approx(float(recorded["peer_perplexity"]), rel=0.005)


def test_greedy_text_is_float64s_wherever_it_is_certain(logits_of, recorded):
    """Both engines quantise activations and err alike; at which steps is luck. llama.cpp differs in 36 of 1,280."""
    found = measures.steps(logits_of, recorded)
    assert found["steps"] == 20 * 64
    assert found["steps_ahead_anywhere"] > 700 and found["steps_differ_anywhere"] == 0
    assert found["steps_differ_here"] <= 0.01 * found["steps_ahead_here"]
    theirs = found["peer_steps_differ"]
    assert found["steps_differ"] <= theirs + 3 * theirs**0.5  # three standard deviations of such a count


@pytest.mark.parametrize("name", tiny.VARIANTS)
def test_tiny_models_have_transformers_logits(name, tmp_path):
    """The cache holds keys and values as float16: 5e-4 of the logits' size in the mean. Another RoPE or window is 0.4 off."""
    with np.load(REFERENCE / "tiny.npz") as file:
        wanted, positions, tokens = file[name], file["positions"], file["tokens"].tolist()
    assert tokens == tiny.tokens()
    with overdrive.llm.load(tiny.write(tiny.VARIANTS[name], tmp_path / "tiny.gguf"), progress=False) as model:
        found = model.logits(tokens, all=True)
    assert found.shape == (len(tokens), len(tiny.VOCABULARY))
    error = np.abs(found[positions] - wanted)
    assert error.max() <= 0.01 * wanted.std()
    assert np.sqrt((error**2).mean()) <= 0.002 * wanted.std()


def test_the_measures_see_what_is_wrong(recorded):
    """A figure that cannot be bad says nothing: noise on logits must show, and more of it more."""
    kept = [recorded[name][:8] for name in ("kept_ids", "kept_log_probabilities", "kept_rest")]
    logits = np.full((8, 49152), -40.0)
    ids, found, _ = kept
    np.put_along_axis(logits, ids.astype(np.int64), found, axis=-1)
    # The rest is put on a token that none of the rows keeps.
    logits[:, np.setdiff1d(np.arange(49152), ids)[0]] = kept[2]
    assert np.abs(measures.divergences(kept, logits)).max() < 1e-6
    noise = np.random.default_rng(0).normal(size=logits.shape)
    small, large = (measures.divergences(kept, logits + size * noise).mean() for size in (0.01, 0.1))
    assert 0 < small < large / 50
