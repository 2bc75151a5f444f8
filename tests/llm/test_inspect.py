"""``overdrive llm inspect``: what it says of files, and of what is none."""

import json
import sys

import pytest

from ..cli.both import run
from . import files


def inspect(directory, *arguments):
    return run([sys.executable, "-m", "overdrive", "llm", "inspect", *arguments], directory)


@pytest.fixture
def file(tmp_path):
    metadata = [
        ("general.architecture", 8, "llama"),
        ("general.name", 8, "a\x1b[31mb"),
        ("llama.block_count", 4, 3),
        ("llama.embedding_length", 4, 1024),
        ("tokenizer.ggml.model", 8, "gpt2"),
        ("tokenizer.ggml.tokens", 9, (8, ["x"] * 2000)),
        ("tokenizer.chat_template", 8, "{{ messages }}\n"),
        ("odd", 8, b"\xff"),
    ]
    tensors = [("w", (64, 32), 8, bytes(64 * 34)), ("norm", (32,), 0, bytes(128))]
    path = tmp_path / "model.gguf"
    path.write_bytes(files.gguf(metadata, tensors))
    return path


def test_the_facts_as_json(file, tmp_path):
    outcome = inspect(tmp_path, "model.gguf", "--json", "--tensors", "--metadata")
    assert (outcome.status, outcome.stderr) == (0, b"")
    facts = json.loads(outcome.stdout)
    assert facts["bytes"] == file.stat().st_size and facts["architecture"] == "llama"
    assert facts["shape"]["layers"] == 3 and facts["shape"]["heads"] is None
    assert facts["formats"] == {
        "Q8_0": {"tensors": 1, "values": 2048, "bytes": 2176},
        "F32": {"tensors": 1, "values": 32, "bytes": 128},
    }
    assert facts["parameters"] == 2080 and facts["bits per parameter"] == round(8 * 2304 / 2080, 2)
    assert facts["tokenizer"] == {
        "kind": "gpt2",
        "pre-tokenizer": None,
        "pieces": 2000,
        "chat template": True,
    }
    assert facts["metadata"]["tokenizer.ggml.tokens"] == {"items": 2000}
    assert facts["metadata"]["odd"] == "\\xff"
    assert facts["each tensor"]["w"] == {"shape": [64, 32], "type": "Q8_0", "bytes": 2176}


def test_the_facts_for_people(file, tmp_path):
    outcome = inspect(tmp_path, "model.gguf", "--tensors", "--metadata")
    text = outcome.stdout.decode()
    assert outcome.status == 0
    assert "Q8_0" in text and "2,176" in text and "2,000 items" in text and "64 x 32" in text
    assert "\x1b" not in text, "nothing out of a file steers the terminal"


def test_files_that_want_to_steer_the_terminal(tmp_path):
    evil = "\x1b[31m\x07\u202e"
    metadata = [
        ("general.architecture", 8, evil),
        ("general.name", 8, b"\x1b\xff"),
        (f"{evil}.block_count", 9, (8, [evil])),
        ("nan", 6, float("nan")),
        ("nested", 9, (9, [(8, [evil]), (4, [1] * 1000)])),
        ("tokenizer.ggml.model", 4, 5),
        (evil, 8, evil * 1000),
    ]
    (tmp_path / "evil.gguf").write_bytes(files.gguf(metadata, [(evil, (1,), 0, bytes(4))]))
    outcome = inspect(tmp_path, "evil.gguf", "--tensors", "--metadata")
    text = outcome.stdout.decode()
    assert outcome.status == 0
    assert all(letter.isprintable() or letter == "\n" for letter in text) and len(text) < 3000
    outcome = inspect(tmp_path, "evil.gguf", "--tensors", "--metadata", "--json")
    refuse = lambda constant: pytest.fail(f"{constant} is no JSON")
    facts = json.loads(outcome.stdout, parse_constant=refuse)
    assert facts["name"] == "\x1b\\xff" and facts["metadata"]["nan"] == "nan"
    assert facts["metadata"]["nested"] == [[evil], {"items": 1000}]


def test_without_a_file_it_is_the_default_model(tmp_path):
    outcome = inspect(tmp_path, "--json")
    assert outcome.status == 0 and json.loads(outcome.stdout)["parameters"] == 134_515_008


def test_what_is_no_model(tmp_path):
    (tmp_path / "text").write_text("hello")
    for argument, words in [
        ("nowhere", b"No such file"),
        ("text", b"no GGUF file: it begins with hell"),
        (".", b"directory"),
    ]:
        outcome = inspect(tmp_path, argument)
        assert outcome.status == 1 and outcome.stdout == b""
        assert outcome.stderr.startswith(b"overdrive llm inspect: ") and words in outcome.stderr
        assert outcome.stderr.count(b"\n") == 1
    assert inspect(tmp_path, "--nonsense").status == 2
