"""Texts from a model: alone, as a stream, in a batch, in sessions, from threads, and what is refused."""

import os
import pickle
import threading

import numpy as np
import overdrive.llm
import pytest
import tiny

PROMPT = "then the"
OPTIONS = {"max_tokens": 24, "temperature": 0.9, "seed": 5}


def test_a_stream_is_the_text_in_pieces(model):
    whole = model.generate(PROMPT, **OPTIONS)
    with model.generate(PROMPT, stream=True, **OPTIONS) as stream:
        pieces = list(stream)
    assert "".join(pieces) == whole == stream.completion
    assert stream.completion.tokens == whole.tokens
    assert stream.completion.finish_reason == whole.finish_reason == "length"
    assert len(whole.tokens) == 24 and whole.n_prompt_tokens == len(model.tokenize(PROMPT))
    assert next(stream, None) is None


def test_a_text_in_a_batch_is_the_text_alone(model):
    prompts = [PROMPT, "a", model.tokenize("in the end the other"), "x" * 40]
    for options in (OPTIONS, {"max_tokens": 24}):
        batch = model.generate(prompts, **options)
        alone = [model.generate(prompt, **options) for prompt in prompts]
        assert [text.tokens for text in batch] == [text.tokens for text in alone]
        assert list(batch) == list(alone)
    pieces = [[] for _ in prompts]
    for number, piece in model.generate(prompts, stream=True, **OPTIONS):
        pieces[number].append(piece)
    assert ["".join(texts) for texts in pieces] == model.generate(prompts, **OPTIONS)


def test_no_prompts_give_no_texts(model):
    assert model.generate([]) == []


def test_a_prompt_is_text_or_its_tokens(model):
    tokens = model.tokenize(PROMPT)
    for same in (tokens, tuple(tokens), np.array(tokens), [np.int32(t) for t in tokens]):
        assert model.generate(same, max_tokens=8) == model.generate(PROMPT, max_tokens=8)
    assert model.detokenize(tokens) == PROMPT


def test_seeds(model):
    texts = {model.generate(PROMPT, max_tokens=12, temperature=1.5) for _ in range(6)}
    assert len(texts) > 1
    same = {model.generate(PROMPT, max_tokens=12, temperature=1.5, seed=3) for _ in range(3)}
    assert len(same) == 1


def test_greedy_tokens_are_the_likeliest(model):
    text = model.generate(PROMPT, max_tokens=6, logprobs=3)
    tokens = model.tokenize(PROMPT)
    for token, noted in zip(text.tokens, text.logprobs, strict=True):
        logits = model.logits(tokens).astype(np.float64)
        logs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        assert token == noted.token == logits.argmax()
        assert noted.logprob == pytest.approx(logs[token], abs=1e-4)
        assert list(noted.top) == np.argsort(-logits)[:3].tolist()
        assert list(noted.top.values()) == pytest.approx(np.sort(logs)[::-1][:3], abs=1e-4)
        tokens.append(token)
    assert model.generate(PROMPT, max_tokens=2).logprobs is None
    assert [noted.top for noted in model.generate(PROMPT, max_tokens=2, logprobs=0).logprobs] == [{}, {}]


def test_logits_are_the_memory_they_were_computed_into(model):
    tokens = model.tokenize(PROMPT)
    rows = model.logits(tokens, all=True)
    assert rows.dtype == np.float32 and rows.shape == (len(tokens), model.config["n_vocabulary"])
    assert isinstance(rows.base, overdrive.Tensor)
    last = model.logits(PROMPT)
    assert last.shape == rows.shape[1:] and (last == rows[-1]).all()


def test_likelihoods_are_those_of_the_logits(model):
    tokens = model.tokenize("the other end of the line")
    rows = model.logits(tokens, all=True).astype(np.float64)
    logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    expected = sum(logs[i, token] for i, token in enumerate(tokens[1:]))
    total, n = model.log_likelihood(tokens)
    assert n == len(tokens) - 1 and total == pytest.approx(expected, abs=1e-3)
    assert model.log_likelihood(tokens, window=4)[1] == sum(
        len(tokens[i : i + 4]) - 1 for i in range(0, len(tokens), 4)
    )


def test_stop_strings_end_a_text_before_them(model):
    whole = model.generate(PROMPT, max_tokens=24)
    middle = len(whole) // 2
    stop = whole[middle : middle + 2]
    text = model.generate(PROMPT, max_tokens=24, stop=["never, ever", stop])
    assert text == whole[: whole.index(stop)] and text.finish_reason == "stop"
    assert model.generate(PROMPT, max_tokens=24, stop=stop) == text
    assert "".join(model.generate(PROMPT, max_tokens=24, stop=stop, stream=True)) == text


def test_a_session_computes_nothing_twice(model):
    session = model.session()
    first = session.generate(PROMPT, max_tokens=8)
    assert first == model.generate(PROMPT, max_tokens=8) and first.n_reused == 0
    tokens = [*model.tokenize(PROMPT), *first.tokens, *model.tokenize("and so on")]
    again = session.generate(tokens, max_tokens=8)
    assert again.n_reused >= len(tokens) - len(model.tokenize("and so on")) - 1
    assert again == model.generate(tokens, max_tokens=8)
    other = session.generate("something else", max_tokens=8)
    assert other.n_reused == 0 and other == model.generate("something else", max_tokens=8)
    session.clear()
    assert len(session) == 0 and session.tokens == []


def test_sessions_are_kept_in_files(model, tmp_path):
    session = model.session()
    text = session.generate(PROMPT, max_tokens=8)
    path = tmp_path / "prompt.cache"
    session.save(path)
    restored = model.session(path)
    assert restored.tokens == session.tokens
    more = [*session.tokens, *model.tokenize(" and")]
    assert restored.generate(more, max_tokens=8) == model.generate(more, max_tokens=8)
    assert text == model.generate(PROMPT, max_tokens=8)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"prompt\.cache"):
        model.session(path)
    with pytest.raises(FileNotFoundError):
        model.session(tmp_path / "nothing")


def test_a_talk_goes_on(model):
    session = model.session()
    answer = session.chat("hello", max_tokens=5)
    assert session.messages == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": answer},
    ]
    assert answer == model.chat("hello", max_tokens=5)
    with session.chat("more", max_tokens=5, stream=True) as stream:
        text = "".join(stream)
    assert session.messages[2:] == [
        {"role": "user", "content": "more"},
        {"role": "assistant", "content": text},
    ]
    assert text == model.chat(session.messages[:3], max_tokens=5)
    closed = session.chat("what", max_tokens=5, stream=True)
    next(closed)
    closed.close()
    assert session.messages[5]["content"] == closed.completion
    assert closed.completion.finish_reason == "interrupted"
    assert len(session.generate(PROMPT, max_tokens=2).tokens) == 2


def test_a_session_in_use_says_so(model):
    session = model.session()
    stream = session.generate(PROMPT, stream=True, max_tokens=9)
    next(stream)
    for use in (
        lambda: session.generate(PROMPT),
        lambda: session.tokens,
        session.clear,
        lambda: len(session),
    ):
        with pytest.raises(RuntimeError, match="in use"):
            use()
    del stream
    assert session.generate(PROMPT, max_tokens=3) == model.generate(PROMPT, max_tokens=3)


def test_a_refusal_leaves_a_session_as_it_was(model):
    session = model.session()
    session.generate(PROMPT, max_tokens=3)
    before = session.tokens
    for prompt, options in [([], {}), ([10**6], {}), ([1] * 1000, {}), (PROMPT, {"temperature": -1.0})]:
        with pytest.raises(ValueError):
            session.generate(prompt, **options)
        assert session.tokens == before


def test_two_threads_use_one_model(model):
    expected = {seed: model.generate(PROMPT, max_tokens=40, temperature=1.0, seed=seed) for seed in range(4)}
    found, begin = {}, threading.Barrier(4)

    def work(seed):
        begin.wait()
        found[seed] = [model.generate(PROMPT, max_tokens=40, temperature=1.0, seed=seed) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: [text] * 5 for seed, text in expected.items()}


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_goes_on(model):
    expected = model.generate(PROMPT, max_tokens=12)
    overdrive_threads = overdrive.get_num_threads()
    overdrive.set_num_threads(2)
    try:
        model.generate(PROMPT, max_tokens=4)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, model.generate(PROMPT, max_tokens=12).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            assert file.read().decode() == expected
        os.waitpid(child, 0)
    finally:
        overdrive.set_num_threads(overdrive_threads)
    assert model.generate(PROMPT, max_tokens=12) == expected


def test_a_closed_model_says_so(tiny_file):
    model = overdrive.llm.load(tiny_file)
    stream = model.generate(PROMPT, stream=True, max_tokens=5)
    session = model.session()
    with model:
        assert "tiny.gguf" in repr(model) and "llama" in repr(model)
    assert model.closed and "closed" in repr(model)
    for use in (lambda: model.generate("a"), lambda: model.logits("a"), lambda: session.generate("a")):
        with pytest.raises(ValueError, match="closed"):
            use()
    # What was under way has what it needs.
    assert len("".join(stream)) > 0
    model.close()


@pytest.mark.parametrize(
    "options, named",
    [
        ({"temperature": -0.5}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": -1}, "logprobs"),
        ({"stop": ""}, "stop"),
        ({"seed": -1}, "seed"),
        ({"overflow": "ring"}, "overflow"),
        ({"overflow": "shift", "keep": -1}, "keep"),
        ({"overflow": "shift", "keep": 10**6}, "keep"),
        ({"keep": 3}, "keep"),
    ],
    ids=str,
)
def test_options_out_of_range_are_named(model, options, named):
    with pytest.raises(ValueError, match=named):
        model.generate(PROMPT, **options)


def test_prompts_that_are_none(model):
    for prompt in (b"bytes", None, 3, [1.5], [["a"]], {"a": 1}):
        with pytest.raises(TypeError):
            model.generate(prompt)
    for prompt in ("", [-1], [1 << 40], [10**6]):
        with pytest.raises(ValueError):
            model.generate(prompt)
    with pytest.raises(TypeError):
        pickle.dumps(model)


def test_a_prompt_longer_than_the_context_says_both_numbers(tiny_file):
    with overdrive.llm.load(tiny_file, n_ctx=16) as model:
        with pytest.raises(ValueError, match=r"40.*16"):
            model.generate([5] * 40)
        text = model.generate([5] * 10, max_tokens=None, temperature=1.0, seed=1)
        assert text.finish_reason in ("length", "end")
        assert len(text.tokens) <= 7


def test_no_tokens_are_asked_for(model):
    text = model.generate(PROMPT, max_tokens=0)
    assert text == "" and text.tokens == () and text.finish_reason == "length"


@pytest.mark.parametrize(
    "messages, error",
    [
        ([], ValueError),
        ([{"role": "user"}], ValueError),
        ([{"role": "user", "content": "x", "tool_calls": []}], NotImplementedError),
        (["hello"], TypeError),
        ([{"content": "x"}], ValueError),
    ],
    ids=str,
)
def test_messages_that_are_none(model, messages, error):
    with pytest.raises(error):
        model.chat(messages)


def test_a_template_that_is_wrong_says_so_at_each_chat_and_texts_go_on(tmp_path):
    keys = {"tokenizer.chat_template": "{% for message in %}"}
    path = tiny.write(tiny.VARIANTS["untied"], tmp_path / "wrong.gguf", keys)
    with overdrive.llm.load(path, progress=False) as model:
        for _ in range(2):
            with pytest.raises(ValueError, match=r"wrong\.gguf: the chat template fails: .*line 1"):
                model.apply_template("Hi")
        assert model.has_template and len(model.generate("Hi", max_tokens=2, temperature=0).tokens) <= 2


def test_a_file_without_a_template_cannot_chat(tiny_file):
    with overdrive.llm.load(tiny_file) as model:
        assert not model.has_template
        with pytest.raises(ValueError, match="template"):
            model.chat("hello")


def test_a_quantised_cache_is_close(tiny_file, chat_file):
    with overdrive.llm.load(tiny_file, kv="q8") as quantised, overdrive.llm.load(tiny_file) as plain:
        difference = np.abs(quantised.logits(PROMPT) - plain.logits(PROMPT)).max()
        assert 0 < difference < 0.5
    with pytest.raises(ValueError, match="kv"):
        overdrive.llm.load(tiny_file, kv="q2")


def test_profiles_sum_operators(model):
    with model.profile() as profile:
        model.generate(PROMPT, max_tokens=4)
    rows = {row.operator: row for row in profile.rows}
    assert {"qkv", "attention", "gate/up", "down", "head"} <= set(rows)
    assert all(row.n_calls > 0 and row.seconds >= 0 for row in rows.values())
    assert rows["head"].n_bytes > 0 and rows["head"].n_operations > 0
    assert "attention" in str(profile)
    before = profile.rows
    model.generate(PROMPT, max_tokens=4)
    assert profile.rows == before


def test_loading_tells_how_far_it_is(tiny_file):
    told = []
    overdrive.llm.load(tiny_file, progress=lambda done, total: told.append((done, total))).close()
    assert told and told[-1][0] == told[-1][1] > 0
    assert told == sorted(told)

    class Stopped(Exception):
        pass

    def stop(done, total):
        raise Stopped

    with pytest.raises(Stopped):
        overdrive.llm.load(tiny_file, progress=stop)


def test_files_that_are_no_models(tmp_path, tiny_file):
    data = tiny_file.read_bytes()
    for name, content in [
        ("empty", b""),
        ("text", b"hello"),
        ("cut", data[: len(data) // 2]),
        ("head", data[:100]),
    ]:
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(content)
        with pytest.raises(ValueError):
            overdrive.llm.load(path)
    with pytest.raises(NotImplementedError, match="mamba"):
        path.write_bytes(data.replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0mamba", 1))
        overdrive.llm.load(path)
    with pytest.raises(ValueError, match="n_ctx"):
        overdrive.llm.load(tiny_file, n_ctx=0)
    with pytest.raises(ValueError, match="n_ctx"):
        overdrive.llm.load(tiny_file, n_ctx=-5)


def test_a_shift_forgets_the_older_half_and_goes_on(tiny_file):
    n_ctx, keep = 16, 3
    prompt = list(range(5, 15))
    with overdrive.llm.load(tiny_file, n_ctx=n_ctx) as model:
        expected, text = [], list(prompt)
        for _ in range(40):
            while len(text) > n_ctx:
                del text[keep : keep + (len(text) - keep) // 2]
            expected.append(int(model.logits(text).argmax()))
            text.append(expected[-1])
        options = {"overflow": "shift", "keep": keep, "max_tokens": 40}
        made = model.generate(prompt, **options)
        assert list(made.tokens) == expected[: len(made.tokens)]
        assert made.finish_reason in ("length", "end")
        # A longer prompt is shortened by the same rule; a session counts what it need not compute.
        long = [7] * keep + list(range(20, 60))
        short = list(long)
        while len(short) > n_ctx:
            del short[keep : keep + (len(short) - keep) // 2]
        session = model.session()
        first = session.generate(long, overflow="shift", keep=keep, max_tokens=1)
        again = session.generate(long, overflow="shift", keep=keep, max_tokens=1)
        assert first.tokens == again.tokens == (int(model.logits(short).argmax()),)
        assert first.n_reused == 0 and again.n_reused == len(short) - 1
