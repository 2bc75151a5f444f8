"""Choices that become selects: what is computed without need must not show, at the limits of 64 bits least of all."""

from __future__ import annotations

import itertools

import numpy as np
import overdrive
import pytest

from tests.differential.compare import same

EDGES = sorted(
    {
        n + d
        for n in (
            0,
            2**31,
            -(2**31),
            2**62,
            -(2**62),
            2**63,
            -(2**63),
            (2**63 - 1) // 3,
            -(2**63) // 3,
            (2**63) // 7,
        )
        for d in (-2, -1, 0, 1, 2)
    }
)


def step(m):
    """Half of an even number, else three times it and one."""
    return m // 2 if m % 2 == 0 else 3 * m + 1


def steps(m, n):
    """Several of them, each from the one before."""
    seen = 0
    for _ in range(n):
        m = m // 2 if m % 2 == 0 else 3 * m + 1
        seen += m & 7
    return m, seen


def counts(xs, limit):
    """One way only counts."""
    above, below = 2**63 - 4, -(2**63) + 3
    for x in xs:
        if x > limit:
            above += 1
        else:
            below -= 1
    return above, below


def two_roots(a, b, first):
    """Two integers whose sums are checked."""
    r = 5 - 7 * a if first else b + b
    return r


def falling(a, first):
    """Multiples of a negative factor, and a constant beyond them."""
    return -9 * a - 11 if first else a - 2**62


def wide(a, first):
    """A shift, a mask and a float beside the check."""
    return (a >> 3) & 255 if first else a + 1


def run(function, calls):
    """Compares each call, as a compiled function runs it and as CPython does, with the version it began with."""
    jitted = overdrive.jit(function)
    for arguments in calls:
        for _ in range(2):
            assert same(function(*arguments), jitted(*arguments)), arguments


def test_one_step_at_all_edges():
    run(step, [(m,) for m in [*range(-5, 6), *EDGES]])


def test_a_loop_that_leaves_64_bits_and_comes_back():
    run(steps, [(m, n) for m in [7, 27, *EDGES] for n in (1, 3, 200)])


@pytest.mark.parametrize("limit", [0, 3, 10])
def test_counting_over_the_edge(limit):
    run(counts, [(list(range(n)), limit) for n in (0, 2, 4, 5, 9)])


def test_two_roots():
    run(two_roots, itertools.product(EDGES[::3], EDGES[::2], (True, False)))


def test_negative_factors():
    run(falling, itertools.product(EDGES, (True, False)))


def test_cheap_work_beside_the_check():
    run(wide, itertools.product(EDGES, (True, False)))


def test_two_kinds_of_numbers_through_one_loop():
    """A float and an np.float64 share a register: which of them it is must not be lost."""

    def mixed(xs, n, first):
        s, kinds = 0.0 if first else np.float64(0.0), 0
        for i in range(n):
            if i % 3 == 2:
                s = float(s)
            s += xs[i] if i % 3 == 0 else 0.5
            kinds = kinds * 2 + (type(s) is np.float64) if i < 20 else kinds
        return s, kinds

    xs = np.linspace(-1, 1, 90)
    run(mixed, [(xs, n, first) for n in (0, 1, 2, 3, 4, 5, 30, 90) for first in (True, False)])


def test_int_and_bool_kinds_share_too():
    def mixed(flags, n):
        last, seen = 0, []
        for i in range(n):
            last = flags[i] if i % 2 else i
            seen.append(last)
        return last, seen

    run(mixed, [(np.arange(-3, 9), n) for n in (0, 1, 2, 7, 12)])
    run(mixed, [(np.arange(12) % 2 == 0, n) for n in (0, 1, 2, 7, 12)])


def test_identity_of_floats_in_shared_registers():
    """The box of a float, or of an np.float64, that went round a loop is the object itself."""

    def pick(xs, ys, n):
        last = xs[0]
        for i in range(n):
            if i % 2:
                last = xs[i % len(xs)]
            else:
                last = ys[i % len(ys)]
        return last

    xs, ys = [1.5, 2.5, float("nan")], [np.float64(0.25), np.float64("nan")]
    jitted = overdrive.jit(pick)
    for n in range(13):
        assert jitted(xs, ys, n) is pick(xs, ys, n)
