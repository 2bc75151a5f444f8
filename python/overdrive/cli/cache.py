"""``overdrive cache``: the machine code that is kept on the disk between runs, and its removal."""

from __future__ import annotations

import argparse
import json
import sys

from overdrive import _loaded, information


def main(arguments: list[str]) -> int:
    """Show or clear. 1 when there is no extension, or the directory cannot be used."""
    parser = argparse.ArgumentParser(prog="overdrive cache", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="info|clear", required=True)
    for name, text in [
        ("info", "where it is, how many entries it has, how large they are and may become"),
        ("clear", "remove every entry; running programs are not disturbed"),
    ]:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    core = _loaded.core
    if core is None:
        print(f"overdrive cache: {_loaded.reason()}", file=sys.stderr)
        return 1
    if options.command == "clear":
        try:
            entries, size = core.cache_clear()
        except OSError as error:
            print(f"overdrive cache: {error}", file=sys.stderr)
            return 1
        removed = {"entries": entries, "bytes": size}
        print(json.dumps(removed) if options.json else f"{entries} removed, {size:,} bytes")
        return 0
    facts = information.of_cache()
    # What this process did is nothing: it compiled no function.
    del facts["loaded"], facts["made"]
    print(json.dumps(facts, indent=1) if options.json else information.to_text(facts))
    return 1 if "problem" in facts else 0
