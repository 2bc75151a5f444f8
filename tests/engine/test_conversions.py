"""Indices made of floats: what is no index, or nothing that NumPy lets pass, is reported at its iteration."""

import numpy as np
import overdrive
import pytest

from tests.engine.test_batches import same

SPECIALS = [
    np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 2.0**61, 2.0**62, 2.0**62 + 1024, -(2.0**62), -(2.0**62) - 1024,
    2.0**63, -(2.0**63), 1e19, 1e300, 5e-324, -0.0, 15.999, 16.0, 16.5, -16.0, -16.5,
]  # fmt: skip


def binned(values, lo, scale, counts):
    n = len(counts)
    for v in values:
        b = int((v - lo) * scale)
        if b == n:
            b -= 1
        counts[b] += 1


def marked(values, lo, scale, counts):
    """By an index of the loop's own."""
    for i in range(1, len(values)):
        counts[int(values[i] * scale + values[i - 1] * lo)] += 2


def stored_first(values, lo, scale, counts):
    for i in range(len(values)):
        values[i] = values[i] * scale - lo
        counts[int(values[i])] += 1


def weighed_behind(values, lo, scale, counts):
    for v in values:
        b = int((v - lo) * scale)
        counts[b] += int(v * v)


def scaled_down(values, lo, scale, counts):
    """What is infinite before is a number again."""
    for v in values:
        counts[int(lo / (v * scale))] += 1


@pytest.mark.parametrize("fn", [binned, marked, stored_first, weighed_behind, scaled_down])
@pytest.mark.parametrize("kind", [float, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda t: t.__name__)
def test_numbers_that_are_no_index(fn, kind, dtype):
    line = np.random.default_rng(3).random(90) * 12 + 1.5

    def make(at=None, value=0.0, lo=kind(0.5), scale=kind(1.0), n=90):
        values = line[:n].astype(dtype)
        if at is not None:
            with np.errstate(all="ignore"):
                values[at] = value
        return [values, lo, scale, np.zeros(16, np.int64)]

    compiled = overdrive.jit(fn, strict=True)
    same(fn, compiled, make)
    for value in SPECIALS:
        for at in (0, 1, 45, 89):
            same(fn, compiled, lambda at=at, value=value: make(at, value))
    for lo, scale in (
        (1e308, 1.0),
        (-1e308, 0.0),
        (np.inf, 0.0),
        (0.5, np.inf),
        (0.5, np.nan),
        (0.5, 1e-320),
        (0.0, 1e18),
    ):
        for at, value in ((None, 0.0), (45, 1.7e308), (45, -1.7e308), (70, np.inf)):
            same(fn, compiled, lambda a=at, v=value, lo=lo, s=scale: make(a, v, kind(lo), kind(s)))
    for n in (0, 1, 63, 64, 65):
        same(fn, compiled, lambda n=n: make(n=n))


def test_counts_near_their_largest():
    line = np.random.default_rng(3).random(90) * 12 + 1.5
    compiled = overdrive.jit(binned, strict=True)
    for count in (2**60, 2**63 - 1, 2**63 - 3, -(2**63)):
        for at in (None, 60):

            def make(at=at, count=count):
                values = line.copy()
                if at is not None:
                    values[at] = np.inf
                counts = np.zeros(16, np.int64)
                counts[4] = count
                return [values, 0.5, 1.0, counts]

            same(binned, compiled, make)
