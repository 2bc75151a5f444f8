"""A float that was computed once is one object wherever it goes: `is`, `in` and `==` of containers ask for identity first.

Every function runs as in CPython, compiled, and compiled with exits forced at random, and gives nothing that tells them
apart. Leaks show in the reference count of what was returned.
"""

import math
import sys

import overdrive
import pytest
from overdrive import _core


def returned_twice(x, n):
    v = x - 7.0
    w = v
    return v, w


def in_nested_tuples(x, n):
    v = x - 7.0
    return (v, 1), v, (2, (v, v))


def after_a_loop(x, n):
    v = x
    for _ in range(n):
        v = v - 1.0
    w = v
    return v is w, [v] == [w], v, w


def after_a_loop_in_a_container(x, n):
    v = x
    for _ in range(n):
        v = v - 1.0
    kept = [v]
    return v in kept, kept, v


def changed_after_it_was_kept(x, n):
    v, kept = x, []
    for i in range(n):
        if i % 3 == 2:
            kept.append(v)
            kept.append(v)
        v = v * 1.5
    return kept, v


def twice_in_a_loop(x, n):
    v, found = x, 0
    for _ in range(n):
        w = v
        found += (v is w) + ([v] == [w])
        v = w + 1.0
    return found, v, w


FUNCTIONS = [
    returned_twice,
    in_nested_tuples,
    after_a_loop,
    after_a_loop_in_a_container,
    changed_after_it_was_kept,
    twice_in_a_loop,
]


def picture(value, seen):
    """The value, with a number for each float that says which object it is."""
    if isinstance(value, (list, tuple)):
        return type(value), [picture(part, seen) for part in value]
    if isinstance(value, float):
        return repr(value), seen.setdefault(id(value), len(seen)), sys.getrefcount(value)
    return value


@pytest.mark.parametrize("force", [None, ("seed", 1, 0.1), ("seed", 2, 1.0)], ids=["plain", "some", "all"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_float_is_one_object(function, force):
    _core.debug_force(force)
    compiled = overdrive.jit(function)
    for _ in range(3):
        for start, n in [("nan", 9), ("2.5", 9), ("nan", 1), ("1e308", 30)]:
            want, got = (picture(f(float(start), n), {}) for f in (function, compiled))
            assert got == want
    assert _core.explain_data(compiled)["versions"]


def test_a_nan_found_in_its_list():
    assert overdrive.jit(after_a_loop)(math.nan, 9)[:2] == (True, True)
