"""SmolLM2-135M-Instruct: greedy texts as they were recorded, and what the documents say of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RAW = """\
 Paris.

The United States has a population of approximately 311 million people.

The United States"""
CHAT = """\
The four seasons are:

1. Spring (Lýbó)
2. Summer (Símrokirkjál)
3"""


def test_greedy_texts_are_those_recorded(smollm2):
    assert smollm2.generate("The capital of France is", max_tokens=24) == RAW
    assert smollm2.chat("Name the four seasons.", max_tokens=32) == CHAT


def test_a_talk_goes_on_as_if_it_were_new(smollm2):
    session = smollm2.session()
    session.chat("My name is Ada.", max_tokens=16)
    answer = session.chat("What is my name?", max_tokens=16)
    assert answer.n_reused > 40
    assert answer == smollm2.chat(session.messages[:3], max_tokens=16)


def test_pieces_are_whole_characters(smollm2):
    prompt = "Emoji of animals: \U0001f40d\U0001f40b\U0001f98a"
    pieces = list(smollm2.generate(prompt, max_tokens=16, temperature=1.0, seed=2, stream=True))
    whole = smollm2.generate(prompt, max_tokens=16, temperature=1.0, seed=2)
    assert "".join(pieces) == whole


PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/llm.md").read_text(), re.M | re.S)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_of_the_document_run(number):
    exec(compile(PROGRAMS[number], f"docs/llm.md, program {number}", "exec"), {})


def test_the_example_runs(tmp_path):
    command = [sys.executable, ROOT / "examples/03_language_model.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "The capital of France is Paris" in done.stdout
