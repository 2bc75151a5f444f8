"""The calls of Transformers: containers, padding, defaults, and what is refused by its name."""

import inspect
import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from overdrive.llm import AutoModelForCausalLM, pipeline
from overdrive.llm.auto import CausalLM

from .reference import tiny

PROMPT = "then the"


@pytest.fixture(scope="module")
def auto(model):
    return CausalLM(model)


@pytest.fixture(scope="module")
def ids(model):
    return model.tokenize(PROMPT)


def torch():
    return pytest.importorskip("torch")


def new(model, ids, n=20, **options):
    return list(model.generate(ids, max_tokens=n, **options).tokens)


def test_by_default_20_greedy_tokens_behind_the_prompt(auto, model, ids):
    assert auto.generate([ids]) == [ids + new(model, ids)]


def test_lists_and_arrays_come_back_as_they_came(auto, model, ids):
    expected = ids + new(model, ids, 5)
    assert auto.generate(ids, max_new_tokens=5) == expected
    assert auto.generate(input_ids=[ids, ids], max_new_tokens=5) == [expected] * 2
    for dtype in (np.int64, np.int32, np.uint16):
        made = auto.generate(np.array([ids], dtype), max_new_tokens=5)
        assert made.dtype == dtype and made.tolist() == [expected]
    assert auto.generate(np.array(ids), max_new_tokens=5).tolist() == expected


def test_tensors_come_back_as_tensors(auto, model, ids):
    made = auto.generate(torch().tensor([ids]), max_new_tokens=5)
    assert made.dtype == torch().int64 and made.tolist() == [ids + new(model, ids, 5)]
    batch = {
        "input_ids": torch().tensor([ids]),
        "attention_mask": torch().ones(1, len(ids), dtype=torch().long),
    }
    assert (auto.generate(**batch, max_new_tokens=5) == made).all()
    logits = auto(**batch).logits
    assert isinstance(logits, torch().Tensor) and logits.shape == (1, len(ids), auto.config.vocab_size)


def test_padding_on_the_left_changes_nothing(auto, model, ids):
    longer = model.tokenize("in the end the other")
    n = len(longer) - len(ids)
    batch = np.array([[0] * n + ids, longer])
    mask = np.array([[0] * n + [1] * len(ids), [1] * len(longer)])
    made = auto.generate(batch, attention_mask=mask, max_new_tokens=6)
    assert made[0].tolist() == [0] * n + ids + new(model, ids, 6)
    assert made[1].tolist() == longer + new(model, longer, 6)
    assert (auto.generate(batch, pad_token_id=0, max_new_tokens=6) == made).all()
    logits = auto(batch, attention_mask=mask).logits
    assert (logits[0, :n] == 0).all() and (logits[0, n:] == model.logits(ids, all=True)).all()
    for wrong in (mask[:, ::-1], mask[:1], mask * 2, mask[:, :-1]):
        with pytest.raises(ValueError, match="attention_mask"):
            auto.generate(batch, attention_mask=wrong)


def test_rows_that_end_early_are_padded_on_the_right(auto, model, ids):
    longer = model.tokenize("in the end the other")
    one, two = new(model, ids, 8), new(model, longer, 8)
    end = next(token for token in one if token not in two)
    n = len(longer) - len(ids)
    batch = np.array([[0] * n + ids, longer])
    made = auto.generate(batch, attention_mask=batch != 0, max_new_tokens=8, eos_token_id=end, pad_token_id=7)
    kept = one[: one.index(end) + 1]
    assert made[0].tolist() == [0] * n + ids + kept + [7] * (8 - len(kept))
    assert made[1].tolist() == longer + two
    lists = auto.generate([ids, longer], max_new_tokens=8, eos_token_id=[end])
    assert lists == [ids + kept, longer + two]


def test_the_prompt_counts_for_max_length(auto, model, ids):
    assert auto.generate([ids], max_length=len(ids) + 3) == [ids + new(model, ids, 3)]
    assert auto.generate([ids], max_length=9, max_new_tokens=2) == [ids + new(model, ids, 2)]
    with pytest.raises(ValueError, match="max_length"):
        auto.generate([ids], max_length=len(ids))


def test_seeds_come_from_the_generator_of_the_container(auto, ids):
    def drawn(x):
        return np.asarray(auto.generate(x, do_sample=True, temperature=2.0)).tolist()

    for make, seed in [(lambda: [ids], random.seed), (lambda: np.array([ids]), np.random.seed)]:
        seed(1)
        first = drawn(make())
        assert drawn(make()) != first
        seed(1)
        assert drawn(make()) == first
    one = auto.generate([ids], do_sample=True, temperature=2.0, seed=4)
    assert one == auto.generate([ids], do_sample=True, temperature=2.0, seed=4)


def test_several_sequences_of_one_prompt(auto, ids):
    made = auto.generate(np.array([ids]), do_sample=True, num_return_sequences=3, temperature=2.0, seed=1)
    assert made.shape == (3, len(ids) + 20)
    assert len({tuple(row) for row in made.tolist()}) == 3
    with pytest.raises(ValueError, match="num_return_sequences"):
        auto.generate([ids], num_return_sequences=2)


def test_top_k_1_is_greedy(auto, model, ids):
    assert auto.generate([ids], do_sample=True, top_k=1) == [ids + new(model, ids)]
    # Options of sampling do nothing to a greedy text, as there.
    assert auto.generate([ids], temperature=0.3, top_p=0.1, top_k=3) == [ids + new(model, ids)]


def test_stop_strings_stay_in_the_ids(auto, model, ids):
    text = model.generate(ids, max_tokens=20)
    stop = text[4:6]
    (made,) = auto.generate([ids], stop_strings=stop, tokenizer=None)
    assert made == ids + list(text.tokens[: len(made) - len(ids)])
    assert stop in model.detokenize(made[len(ids) :])


class Heard:
    def __init__(self):
        self.put_values, self.ended = [], False

    def put(self, value):
        self.put_values.append(value)

    def end(self):
        self.ended = True


def test_streamers_hear_the_prompt_and_each_token(auto, ids):
    heard = Heard()
    made = auto.generate(np.array([ids]), max_new_tokens=4, streamer=heard)
    assert heard.ended and heard.put_values[0].tolist() == [ids]
    assert [int(value.item()) for value in heard.put_values[1:]] == made[0, len(ids) :].tolist()
    with pytest.raises(ValueError, match="streamer"):
        auto.generate([ids, ids], streamer=heard)


def test_generation_configs_are_read(auto, model, ids):
    config = SimpleNamespace(to_diff_dict=lambda: {"max_new_tokens": 3, "transformers_version": "5.24.0"})
    assert auto.generate([ids], config) == [ids + new(model, ids, 3)]
    assert auto.generate([ids], generation_config=config, max_new_tokens=2) == [ids + new(model, ids, 2)]
    beams = SimpleNamespace(to_diff_dict=lambda: {"num_beams": 4})
    with pytest.raises(NotImplementedError, match="num_beams=4"):
        auto.generate([ids], generation_config=beams)


@pytest.mark.parametrize(
    "option",
    [{"num_beams": 2}, {"output_scores": True}, {"logits_processor": [1]}, {"no_repeat_ngram_size": 2},
     {"assistant_model": "x"}, {"return_dict_in_generate": True}, {"use_cache": False}, {"typical_p": 0.5}],
    ids=str,
)  # fmt: skip
def test_what_is_not_built_is_named(auto, ids, option):
    (name,) = option
    with pytest.raises(NotImplementedError, match=name):
        auto.generate([ids], **option)


def test_what_changes_nothing_is_taken(auto, model, ids):
    made = auto.generate([ids], num_beams=1, use_cache=True, output_scores=False, logits_processor=None)
    assert made == [ids + new(model, ids)]
    with pytest.raises(TypeError, match="max_tokens"):
        auto.generate([ids], max_tokens=3)


@pytest.mark.parametrize(
    "wrong, error",
    [
        ("text", TypeError),
        (None, ValueError),
        ([[1.5]], TypeError),
        (np.array([[1.5]]), TypeError),
        (np.zeros((1, 1, 1), int), ValueError),
        ([[]], ValueError),
        ([], ValueError),
        ([[-1]], ValueError),
        ([[10**6]], ValueError),
    ],
    ids=str,
)
def test_inputs_that_are_none(auto, wrong, error):
    with pytest.raises(error):
        auto.generate(wrong)


def test_from_pretrained(tiny_file, tmp_path):
    for model in (
        AutoModelForCausalLM.from_pretrained(tiny_file),
        AutoModelForCausalLM.from_pretrained(
            str(tiny_file.parent), gguf_file=tiny_file.name, device_map="auto"
        ),
    ):
        assert model.config.num_hidden_layers == 2 and model.config.num_key_value_heads == 2
        assert model.config.vocab_size == model.model.config["n_vocabulary"]
        assert model.eval().to("cpu") is model
        with pytest.raises(ValueError, match="cuda"):
            model.to("cuda")
    with pytest.raises(NotImplementedError, match="device_map"):
        AutoModelForCausalLM.from_pretrained(tiny_file, device_map="cuda:0")
    with pytest.raises(TypeError, match="nonsense"):
        AutoModelForCausalLM.from_pretrained(tiny_file, nonsense=1)
    with pytest.raises(OSError, match="from_pretrained"):
        AutoModelForCausalLM()
    with pytest.raises(FileNotFoundError):
        AutoModelForCausalLM.from_pretrained(tmp_path / "nothing.gguf")


def test_pipelines_continue_texts(model):
    pipe = pipeline("text-generation", model=model, do_sample=False, max_new_tokens=6)
    text = PROMPT + model.generate(PROMPT, max_tokens=6)
    assert pipe(PROMPT) == [{"generated_text": text}]
    assert pipe([PROMPT, PROMPT]) == [[{"generated_text": text}]] * 2
    assert pipe(PROMPT, return_full_text=False) == [{"generated_text": text[len(PROMPT) :]}]
    ids = model.tokenize(PROMPT)
    assert pipe(PROMPT, return_tensors=True) == [{"generated_token_ids": ids + new(model, ids, 6)}]
    assert pipe([]) == []


def test_pipelines_answer_chats(model):
    pipe = pipeline(model=CausalLM(model))
    chat = [{"role": "user", "content": "hello"}]
    answer = model.chat(chat, max_tokens=6)
    expected = [{"generated_text": [*chat, {"role": "assistant", "content": answer}]}]
    assert pipe(chat, do_sample=False, max_new_tokens=6) == expected
    assert pipe([chat, chat], do_sample=False, max_new_tokens=6) == [expected] * 2
    with pytest.raises(NotImplementedError, match="assistant"):
        pipe([*chat, {"role": "assistant", "content": "I"}])


def test_pipelines_draw_by_default(model):
    pipe = pipeline("text-generation", model)
    random.seed(3)
    (first,) = pipe(PROMPT, num_return_sequences=1)
    random.seed(3)
    assert pipe(PROMPT) == [first]
    assert len(pipe(PROMPT, num_return_sequences=3, max_new_tokens=4)) == 3


def test_pipelines_refuse_by_name(model):
    for task, error in [("translation", NotImplementedError), (None, RuntimeError)]:
        with pytest.raises(error):
            pipeline(task)
    with pytest.raises(NotImplementedError, match="device"):
        pipeline("text-generation", model, device="cuda")
    with pytest.raises(NotImplementedError, match="handle_long_generation"):
        pipeline("text-generation", model)(PROMPT, handle_long_generation="hole")
    with pytest.raises(TypeError):
        pipeline("text-generation", model)([3])


RECORDED = json.loads((Path(__file__).parent / "reference/generate.json").read_text())


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['model']} {case['options']}")
def test_ids_are_those_of_transformers(case, tmp_path):
    path = tiny.write(tiny.VARIANTS[case["model"]], tmp_path / "tiny.gguf")
    auto = AutoModelForCausalLM.from_pretrained(path)
    ids, mask = np.array(case["input_ids"]), np.array(case["attention_mask"])
    assert auto.generate(ids, attention_mask=mask, **case["options"]).tolist() == case["generated"]
    if case["options"]["pad_token_id"] == 0:
        # Padding is found without the mask, too.
        assert auto.generate(ids, **case["options"]).tolist() == case["generated"]


def test_names_are_those_of_transformers():
    """Of Transformers 5.24: what their callers give by position, or by name."""
    names = list(inspect.signature(CausalLM.generate).parameters)
    assert names[:3] == ["self", "inputs", "generation_config"]
    assert list(inspect.signature(pipeline).parameters)[:2] == ["task", "model"]
