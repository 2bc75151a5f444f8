"""A tiny model with made-up weights for most tests, SmolLM2 for those that need words."""

import sys
from pathlib import Path

import pytest

# What several tests share lies here and in `reference`.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).with_name("reference"))]

import tiny  # noqa: E402


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory):
    return tiny.write(tiny.VARIANTS["untied"], tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def chat_file(tmp_path_factory):
    """The tiny model with a chat template."""
    path = tmp_path_factory.mktemp("models") / "chat.gguf"
    template = (
        "{% for message in messages %}<s>{{ message['role'] }}:{{ message['content'] }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant:{% endif %}"
    )
    return tiny.write(tiny.VARIANTS["untied"], path, {"tokenizer.chat_template": template})


@pytest.fixture(scope="session")
def model(chat_file):
    import overdrive.llm

    with overdrive.llm.load(chat_file, progress=False) as model:
        yield model


@pytest.fixture(scope="session")
def smollm2():
    import overdrive.llm

    with overdrive.llm.load(progress=False) as model:
        yield model
