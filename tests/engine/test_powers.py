"""Powers of floats: where the C library's function is called without a look at errno, there is nothing to see there."""

import itertools
import math
import random

import overdrive

from ..objects.support import SPECIAL_FLOATS, random_floats
from .test_exits import outcome, same


def power(x, y):
    return x**y


def powers(xs):
    out = []
    for x in xs:
        out.append(x**1.5)
        out.append(x**2.0)
        out.append(x**-0.5)
        out.append(x**1023.5)
        out.append(x**-1074.5)
    return out


def test_powers_are_cpythons():
    jitted = overdrive.jit(power)
    rng = random.Random(3)
    ordinary = list(zip(random_floats(rng, 2000), random_floats(rng, 2000), strict=True))
    for _ in range(3):
        jitted(1.5, 2.5)
    for x, y in [*itertools.product(SPECIAL_FLOATS, repeat=2), *ordinary]:
        assert same(outcome(jitted, (x, y)), outcome(power, (x, y))), (x, y)


def test_powers_at_the_ends_of_the_range():
    # Overflow is an error, an underflow to zero is none; a result between is what errno says.
    jitted = overdrive.jit(power)
    for _ in range(3):
        jitted(1.5, 2.5)
    for base in (2.0, 10.0, math.nextafter(1.0, 2.0), math.nextafter(1.0, 0.0), 0.1, 5e-324):
        for k in range(-1100, 1100):
            y = k + 0.5
            assert same(outcome(jitted, (base, y)), outcome(power, (base, y))), (base, y)
            limit = math.copysign(300 / max(abs(math.log10(base)), 1e-17), y)
            for near in (limit, math.nextafter(limit, 0.0), math.nextafter(limit, math.inf)):
                assert same(outcome(jitted, (base, near)), outcome(power, (base, near))), (base, near)


def test_powers_in_a_loop():
    jitted = overdrive.jit(powers)
    fine = [0.5 + i / 64 for i in range(64)]
    for _ in range(4):
        assert same(outcome(jitted, (fine,)), outcome(powers, (fine,)))
    for odd in (0.0, -0.0, -1.5, -2.0, math.inf, -math.inf, math.nan, 2.0, 0.5, 1e300, 1e-300, 5e-324):
        xs = [*fine[:20], odd, *fine[20:]]
        assert same(outcome(jitted, (xs,)), outcome(powers, (xs,))), odd
