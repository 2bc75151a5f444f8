"""``overdrive llm inspect``: what is in a model's file: shape, formats, sizes, tokenizer, chat template."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING, Any

from overdrive import information

if TYPE_CHECKING:
    from overdrive.llm.gguf import GgufFile

HELP = "say what is in a GGUF file: the model's shape, formats and sizes of its tensors, tokenizer, template"


def main(arguments: list[str]) -> int:
    """Print what is in a file."""
    parser = argparse.ArgumentParser(prog="overdrive llm inspect", description=HELP)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a GGUF file; without one the default model, SmolLM2"
    )
    parser.add_argument("--tensors", action="store_true", help="list every tensor")
    parser.add_argument("--metadata", action="store_true", help="list every key of the metadata")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the facts."""
    from overdrive import llm

    path = llm.default_model() if options.file is None else options.file
    file = llm.read_gguf(path)
    facts = collect(file)
    if options.metadata:
        facts["metadata"] = {key: of_metadata(file, key) for key in file.metadata}
    if options.tensors:
        facts["each tensor"] = {
            name: {"shape": list(tensor.shape), "type": tensor.type, "bytes": tensor.nbytes}
            for name, tensor in file.tensors.items()
        }
    if options.json:
        print(json.dumps(facts, indent=1))
    else:
        print(information.to_text(for_people(facts)))
    return 0


def collect(file: GgufFile) -> dict[str, Any]:
    """Return the facts by name, as JSON has them. What the file does not say is None."""
    architecture = of_metadata(file, "general.architecture")

    def of_architecture(key: str) -> Any:
        return of_metadata(file, f"{architecture}.{key}")

    formats: dict[str, dict[str, int]] = {}
    for tensor in file.tensors.values():
        of_type = formats.setdefault(tensor.type, {"tensors": 0, "values": 0, "bytes": 0})
        of_type["tensors"] += 1
        of_type["values"] += tensor.size
        of_type["bytes"] += tensor.nbytes
    n_values = sum(of_type["values"] for of_type in formats.values())
    n_bytes = sum(of_type["bytes"] for of_type in formats.values())
    return {
        "file": file.path,
        "bytes": file.nbytes,
        "version": file.version,
        "name": of_metadata(file, "general.name"),
        "licence": of_metadata(file, "general.license"),
        "architecture": architecture,
        "shape": {
            "layers": of_architecture("block_count"),
            "width": of_architecture("embedding_length"),
            "feed forward": of_architecture("feed_forward_length"),
            "heads": of_architecture("attention.head_count"),
            "key-value heads": of_architecture("attention.head_count_kv"),
            "context": of_architecture("context_length"),
            "sliding window": of_architecture("attention.sliding_window"),
        },
        "tensors": len(file.tensors),
        "parameters": n_values,
        "bits per parameter": round(8 * n_bytes / n_values, 2) if n_values else None,
        "formats": dict(sorted(formats.items(), key=lambda item: -item[1]["bytes"])),
        "tokenizer": {
            "kind": of_metadata(file, "tokenizer.ggml.model"),
            "pre-tokenizer": of_metadata(file, "tokenizer.ggml.pre"),
            "pieces": file.length("tokenizer.ggml.tokens"),
            "chat template": "tokenizer.chat_template" in file.metadata,
        },
    }


LONG_LIST = 8  # Longer ones are counted.
MOST_LETTERS = 100


def of_metadata(file: GgufFile, key: str) -> Any:
    """Return a value of the metadata as JSON can say it, None where there is none."""
    length = file.length(key)
    if length is not None and length > LONG_LIST:
        return {"items": length}
    return plain(file.metadata.get(key))


def plain(value: Any) -> Any:
    """Return a value as JSON can say it: bytes and what is no number as text, long lists counted."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, list):
        return {"items": len(value)} if len(value) > LONG_LIST else [plain(each) for each in value]
    return value


def for_people(value: Any) -> Any:
    """Return facts as harmless text, without what the file does not say."""
    if isinstance(value, dict):
        if value.keys() == {"items"}:
            return f"{value['items']:,} items"
        if value.keys() == {"tensors", "values", "bytes"}:
            return f"{value['bytes']:>13,} bytes in {value['tensors']} tensor{'s'[: value['tensors'] > 1]}"
        if value.keys() == {"shape", "type", "bytes"}:
            return f"{value['type']:5} {value['bytes']:>13,}  {' x '.join(map(str, value['shape']))}"
        said = {key: each for key, each in value.items() if each is not None and each != {}}
        return {printable(key): for_people(each) for key, each in said.items()}
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return printable(value if isinstance(value, str) else repr(value))


def printable(text: str) -> str:
    """Return text of a file so that a terminal obeys nothing in it, and not too much of it."""
    text = text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
