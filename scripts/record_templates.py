#!/usr/bin/env python3
"""Record what Jinja2 makes of the chat templates in tests/data/templates, for the Rust tests to compare with.

usage: record_templates.py          (needs the package jinja2, nothing else)

The environment is the one that Hugging Face's templates are written for. The conversations are those of
``template/tests.rs``; the date is 2024-07-26 in UTC.
"""

from __future__ import annotations

import datetime
import json
import pathlib

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).parent.parent / "crates/runtime/llm/tests/data/templates"
CONVERSATIONS = [
    [],
    [("user", "Hi there")],
    [
        ("system", " Be kind. "),
        ("user", 'Äpfel & "pears" <b>'),
        ("assistant", "Yes,\n both \n"),
        ("user", "🐍?"),
    ],
    [("user", "a"), ("user", "b")],
    [("user", "one\n two"), ("assistant", "then stop"), ("user", "three")],
    [("tool", "{}"), ("user", "x")],
]
SEPARATOR = "\x1e\n"


def environment() -> ImmutableSandboxedEnvironment:
    """Jinja2 as Transformers sets it up."""

    def refuse(message: str) -> None:
        raise ValueError(f"raised: {message}")

    def to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = datetime.datetime(2024, 7, 26, 12, tzinfo=datetime.UTC).strftime
    return made


def main() -> None:
    """Write one file beside each template."""
    for path in sorted(FOLDER.glob("*.jinja")):
        template = environment().from_string(path.read_text())
        texts = []
        for conversation in CONVERSATIONS:
            for add_generation_prompt in (False, True):
                messages = [{"role": role, "content": content} for role, content in conversation]
                try:
                    text = template.render(
                        messages=messages,
                        add_generation_prompt=add_generation_prompt,
                        bos_token="<s>",
                        eos_token="</s>",
                    )
                except ValueError as error:
                    text = str(error)
                texts.append(text)
        path.with_suffix(".expected").write_text(SEPARATOR.join(texts))
        print(path.name, len(texts))


if __name__ == "__main__":
    main()
