"""Functions so small that a call is all they cost, and one that calls another.

In: what accelerates a function. Out: `functions`: statements for timeit with their names, and how many calls each
makes. Runs on every interpreter that is measured.
"""

from __future__ import annotations

import operator

try:
    import numpy as np
except ImportError:
    np = None

N_CHAINED = 10_000

# Each is timed; all but the first without the time of the first.
EMPTY = "empty loop"
STATEMENTS = {
    EMPTY: "pass",
    "operator.add(1, 2)": "operator_add(1, 2)",
    "add(1, 2)": "add(1, 2)",
    "operator.add(1.5, 2.5)": "operator_add(1.5, 2.5)",
    "add(1.5, 2.5)": "add_floats(1.5, 2.5)",
    "first(a)": "first(a)",
    "chain": f"chain({N_CHAINED})",
    "chain, written out": f"written_out({N_CHAINED})",
}


def add(a, b):
    return a + b


def add_floats(a, b):  # a function of its own: which types the other has seen must not matter
    return a + b


def first(a):
    return a[0]


def step(state, i):
    return (state * 1103515245 + i) & 2147483647


def chain(n):
    state = 1
    for i in range(n):
        state = step(state, i)
    return state


def written_out(n):
    state = 1
    for i in range(n):
        state = (state * 1103515245 + i) & 2147483647
    return state


def names(accelerate):
    """What the statements call. `step` is replaced and called first: `chain` finds it by its global name."""
    globals()["step"] = accelerate(step)
    step(1, 1)
    found = {f.__name__: accelerate(f) for f in (add, add_floats, first, chain, written_out)}
    found["operator_add"] = operator.add
    if np is not None:
        found["a"] = np.arange(10.0)
    return found
