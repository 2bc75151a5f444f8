"""A worker of `fuzz`: seeds come in on standard input, one line per event goes out.

Every seed runs in all modes, or each in one of them, by turns. Events: `seed N`, `mode NAME` before each compiled run
(so that the parent knows where a crash was), `ran N M` after it (lines of `f` that are compiled, and how many of them
natively), `skip`, `differs JSON`, `end`.
"""

import gc
import json
import resource
import sys

from overdrive import _core

from .program import source
from .run import TooSlow, check

MEMORY = 6 << 30  # a program that multiplies a list by 2**31 must fail, not fill the machine


def main():
    """Runs the seeds."""
    modes = tuple(sys.argv[1].split(","))
    takes_turns = sys.argv[2] == "turns"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    say = lambda *words: sys.__stdout__.write(" ".join(words) + "\n") and sys.__stdout__.flush()

    def look(module):
        lines = _core.explain_data(module.f)["lines"] if "f" in vars(module) else []
        native = sum(line["status"] == "native" for line in lines)
        compiled = native + sum(line["status"] == "cpython" for line in lines)
        say("ran", str(compiled), str(native))

    gc.freeze()
    for line in sys.stdin.read().split():
        seed = int(line)
        say("seed", str(seed))
        try:
            chosen = modes[seed % len(modes) :][:1] if takes_turns else modes
            found = check(source(seed), chosen, seed, lambda mode: say("mode", mode), look)
        except TooSlow:
            say("skip")
            continue
        if found:
            say("differs", json.dumps(found))
        gc.collect()  # a reference too few, or one too many, shows at the program that made it
    say("end")


if __name__ == "__main__":
    main()
