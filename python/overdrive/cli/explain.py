"""``overdrive explain``: for each line of a function, whether it is compiled, and why not."""

from __future__ import annotations

import argparse
import sys

from overdrive import errors, explanation


def main(arguments: list[str]) -> int:
    """Explain the functions of a file. 1 when the file or function cannot be explained."""
    parser = argparse.ArgumentParser(
        prog="overdrive explain",
        description="Say for each line of a function whether it runs natively, through CPython or not "
        "compiled, and why. The file is read, not run: the types of arguments are unknown, so more is native "
        "in a running program.",
    )
    parser.add_argument(
        "target", metavar="PATH[::function]", help="a Python file, and optionally one function in it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--emit", metavar="STAGE", choices=explanation.STAGES, help="print a stage: %(choices)s"
    )
    options = parser.parse_args(arguments)
    try:
        explained = explanation.explain(options.target)
        if options.emit:
            print(explained.emit(options.emit))
        else:
            print(explained.to_json() if options.json else explained)
    except (OSError, SyntaxError, LookupError, errors.Error) as error:
        print(f"overdrive explain: {error}", file=sys.stderr)
        return 1
    return 0
