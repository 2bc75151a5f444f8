"""Waits for what promoted functions have compiled in the background, so that the next call runs it.

In: functions. Out: nothing; returns when every compile that had begun has ended, or after `LIMIT` seconds for one
that never shows.
"""

import time

from overdrive import _core

LIMIT = 1.0


def settle(functions, seen):
    """Waits; `seen` is a dict that belongs to the caller and remembers what each function had before."""
    for function in functions:
        end = time.monotonic() + LIMIT
        key = id(function)
        while True:
            data = _core.explain_data(function)
            compiles = data["compiles"]
            state = [(v["entry"], v["types"], v["compile_ms"]) for v in data["versions"]], data["refused"]
            if compiles == seen.get(key, (0, None))[0]:
                break
            if state != seen.get(key, (0, ([], [])))[1] or time.monotonic() > end:
                seen[key] = compiles, state
                break
            time.sleep(0.002)
