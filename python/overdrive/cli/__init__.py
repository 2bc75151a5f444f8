"""The command ``overdrive``: finds the subcommand and hands over.

``run`` is told apart first and by hand: what it runs must find the interpreter as ``python`` leaves it, so
that no module (``argparse``, ``re``, …) is imported here that the program does not import itself.
"""

from __future__ import annotations

import sys

USAGE = """\
usage: overdrive <command> …

  run       run a program, find its hot functions and compile them while it runs
  explain   say for each line of a function whether it is compiled, and why not
  info      versions, processor, and which parts work on this interpreter
  cache     where compiled code is kept on the disk, how much it is; remove it
  shm       list shared memory, remove what killed processes left
  llm       run language models, measure them, look into their files

overdrive <command> --help says more; overdrive --version prints the version.
"""


def main() -> None:
    """Run the command line in ``sys.argv`` and exit with status 0, 1 or 2 (or the program's own)."""
    command, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else (None, [])
    if command == "run":
        from overdrive.cli import run

        run.main(rest)
    elif command in ("explain", "info", "cache", "shm"):
        from overdrive.cli import cache, explain, info, shm

        commands = {"explain": explain, "info": info, "cache": cache, "shm": shm}
        sys.exit(commands[command].main(rest))
    elif command == "llm":
        from overdrive.cli import llm

        sys.exit(llm.main(rest))
    elif command in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
    elif command in ("-V", "--version"):
        from overdrive import __version__

        sys.stdout.write(f"overdrive {__version__}\n")
    else:
        if command is not None:
            sys.stderr.write(f"overdrive: unknown command {command!r}\n")
        sys.stderr.write(USAGE)
        sys.exit(2)
