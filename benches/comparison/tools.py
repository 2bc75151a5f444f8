"""What is measured: a line for each tool, and for each mode of a tool.

In: nothing. Out: `TOOLS`, the columns of the tables; `THREADED`, those that run without the GIL; `CACHED`, those whose
first call finds machine code of an earlier process; `PROMOTED`, the unchanged program that a session watches, and the one
that it is compared with.

A mode more is a line more: `Tool("overdrive-parallel", "Overdrive, parallel", HERE, "overdrive.jit(parallel=True)")`.
"""

from __future__ import annotations

import dataclasses

# Which interpreter runs a tool; bench.py says where each is.
HERE, PEERS, PYPY = "here", "peers", "pypy"


@dataclasses.dataclass(frozen=True)
class Tool:
    """A column: what to call it, who runs it, and the expression that accelerates a function (none: as it is)."""

    name: str
    title: str
    interpreter: str
    accelerate: str = ""
    missing: str = ""  # what to do where it is not there

    @property
    def module(self):
        """The module to import and whose version is told."""
        return self.accelerate.partition(".")[0]


NUMBA_MISSING = "Numba is not installed: `pip install -r scripts/requirements/bench.txt` (needs a network)"
PYPY_MISSING = "`pypy3` is not on PATH: `apt-get install pypy3` (needs root and a network)"

# The first one is what all others are compared with.
TOOLS = [
    Tool("cpython", "CPython", HERE),
    Tool("overdrive", "Overdrive", HERE, "overdrive.jit"),
    Tool("numba", "Numba", PEERS, "numba.njit", NUMBA_MISSING),
    Tool("pypy", "PyPy", PYPY, missing=PYPY_MISSING),
]
THREADED = [
    Tool("overdrive-nogil", "Overdrive, `nogil=True`", HERE, "overdrive.jit(nogil=True)"),
    Tool("numba-nogil", "Numba, `nogil=True`", PEERS, "numba.njit(nogil=True)", NUMBA_MISSING),
]
PROMOTED = Tool("overdrive-promoted", "Overdrive, promoted", HERE)
CACHED = [
    Tool("overdrive-cached", "Overdrive, from the cache", HERE, "overdrive.jit"),
]
