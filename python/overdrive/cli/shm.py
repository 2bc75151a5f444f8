"""``overdrive shm``: what shared memory there is on this machine, and the removal of what nobody holds."""

from __future__ import annotations

import argparse
import json

from overdrive import shm


def main(arguments: list[str]) -> int:
    """List or collect; always 0."""
    parser = argparse.ArgumentParser(prog="overdrive shm", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="ls|gc", required=True)
    for name, text in [
        ("ls", "list segments: name, kind, bytes, participants alive, tensors in flight"),
        ("gc", "remove segments that nobody holds, and print their names"),
    ]:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.command == "gc":
        removed = shm.gc()
        print(json.dumps(removed) if options.json else "\n".join([*removed, f"{len(removed)} removed"]))
        return 0
    rows = shm.list()
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'name':42} {'kind':8} {'bytes':>14} {'held by':>8} {'in flight':>9}")
    for row in rows:
        held, flying = row["participants"], row["in_flight"]
        print(f"{row['name']:42} {row['kind']:8} {row['bytes']:14,} {held:8} {flying:9}")
    return 0
