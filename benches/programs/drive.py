"""One program of `programs` for a number of rounds: `python drive.py NAME ROUNDS FILE`.

In: its name. Out: in FILE, JSON with the seconds of each round on the clock and of this thread on a processor, and a hash of the results,
which must not differ between rounds.
"""

import hashlib
import json
import sys
import time

from programs import PROGRAMS


def main(name, rounds, out):
    """Run it."""
    work = PROGRAMS[name].prepare()
    results, times, own = set(), [], []
    for _ in range(int(rounds)):
        start, computed = time.perf_counter(), time.thread_time()
        result = work()
        own.append(time.thread_time() - computed)
        times.append(time.perf_counter() - start)
        results.add(hashlib.sha256(result.encode()).hexdigest())
    if len(results) != 1:
        sys.exit(f"{name}: the rounds gave {len(results)} results")
    with open(out, "w") as file:
        json.dump(
            {"rounds": times, "own": own, "own_total": time.thread_time(), "result": results.pop()}, file
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
