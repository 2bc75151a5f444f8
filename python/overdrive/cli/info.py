"""``overdrive info``: versions, processor, and which parts work on this interpreter."""

from __future__ import annotations

import argparse
import json

import overdrive
from overdrive import information


def main(arguments: list[str]) -> int:
    """Print the facts; always 0."""
    parser = argparse.ArgumentParser(prog="overdrive info", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    facts = overdrive.info()
    print(json.dumps(facts, indent=1) if options.json else information.to_text(facts))
    return 0
