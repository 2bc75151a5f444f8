"""``overdrive explain``: for each line of a function, whether it is compiled, and why not."""

from __future__ import annotations

import argparse
import sys

from overdrive import errors, explanation

_HTML_FILE = "overdrive-explain.html"


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
    parser.add_argument(
        "--html",
        action="store_true",
        help="make one page that needs nothing else: the source, each line shaded by how it runs. It goes "
        f"to standard output, or to {_HTML_FILE} when that is a terminal",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE, as a whole, instead of standard output"
    )
    options = parser.parse_args(arguments)
    if options.html + options.json + bool(options.emit) > 1:
        parser.error("--html, --json and --emit exclude each other")
    try:
        explained = explanation.explain(options.target)
        if options.emit:
            text = explained.emit(options.emit)
        elif options.html:
            text = explained.html()
        else:
            text = explained.to_json() if options.json else str(explained)
        _put(text, options)
    except (OSError, SyntaxError, LookupError, errors.Error) as error:
        print(f"overdrive explain: {error}", file=sys.stderr)
        return 1
    return 0


def _put(text: str, options: argparse.Namespace) -> None:
    file = options.output
    if file is None and options.html and sys.stdout.isatty():
        file = _HTML_FILE
    if file is None:
        print(text, end="" if options.html else "\n")
        return
    from overdrive.html import page

    page.write(file, text if text.endswith("\n") else f"{text}\n")
    if options.output is None:
        print(f"overdrive explain: the page is in {file}", file=sys.stderr)
