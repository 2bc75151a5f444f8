"""Arithmetic whose rules are longer than an instruction, and `math`, bit for bit on random and special values."""

import itertools
import math
import operator
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from overdrive import _core

from .support import SPECIAL_FLOATS, bits, random_floats, table

DECLINED = NotImplemented
N = 100_000
INT64 = st.integers(-(2**63), 2**63 - 1)


def same_bits(entry, python, rows):
    """The entry decides what the interpreter answers with a float, and gives that float. Number of those."""
    decided = 0
    for args in rows:
        ours = _core._table(entry, *args)
        try:
            exact = python(*args)
        except (ValueError, OverflowError, ZeroDivisionError):
            exact = DECLINED
        if ours is DECLINED or type(exact) is not float:
            assert ours is DECLINED and type(exact) is not float, (entry, args, ours, exact)
            continue
        decided += 1
        if ours != exact or exact == 0.0:  # other equal floats have equal bits
            assert bits(ours) == bits(exact), (entry, args, ours, exact)
    return decided


UNARY = [
    "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "erf", "erfc",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_float(name):
    values = SPECIAL_FLOATS + random_floats(random.Random(name), N)
    assert same_bits(f"math_{name}", getattr(math, name), ((x,) for x in values)) > N // 5


BINARY = {
    "math_atan2": math.atan2,
    "math_fmod": math.fmod,
    "math_pow": math.pow,
    "math_hypot": math.hypot,
    "float_floor_div": operator.floordiv,
    "float_mod": operator.mod,
    "float_pow": operator.pow,
}


@pytest.mark.parametrize("entry", BINARY)
def test_functions_of_two_floats(entry):
    rng, python = random.Random(entry), BINARY[entry]
    pairs = list(itertools.product(SPECIAL_FLOATS, repeat=2))
    pairs += zip(random_floats(rng, N), (rng.choice([x, rng.uniform(-9, 9), float(rng.randint(-9, 9))])
                                         for x in random_floats(rng, N)))  # fmt: skip
    pairs += [(x, y) for x in random_floats(rng, 300) for y in SPECIAL_FLOATS]
    assert same_bits(entry, python, pairs) > N // 5


def test_hypot_where_squares_leave_the_range():
    rng = random.Random(7)
    pairs = []
    for _ in range(N):
        scale = 2.0 ** rng.randint(-1074, 1023)
        pairs.append((rng.random() * scale, rng.random() * scale * 2.0 ** rng.randint(-60, 0)))
    assert same_bits("math_hypot", math.hypot, pairs) == N


def integers(rng, n):
    special = [
        0,
        1,
        -1,
        2,
        3,
        -3,
        2**53,
        2**53 + 1,
        -(2**53) - 1,
        2**62,
        2**63 - 1,
        -(2**63),
        -(2**63) + 1,
        10**18,
    ]
    return special + [rng.randint(-(2**63), 2**63 - 1) >> rng.randint(0, 62) for _ in range(n)]


def test_true_division_of_ints():
    rng = random.Random(11)
    special = integers(rng, 0)
    pairs = list(itertools.product(special, repeat=2)) + list(zip(integers(rng, N), integers(rng, N)))
    assert same_bits("int_true_div", operator.truediv, pairs) > N * 0.9


@settings(deadline=None, max_examples=500)
@given(INT64, INT64)
def test_true_division_rounds_once(a, b):
    same_bits("int_true_div", operator.truediv, [(a, b), (b, a), (a, 3), (3, a)])


def test_integer_powers():
    rng = random.Random(12)
    pairs = [
        (a, b) for a in [*range(-12, 13), 2**31, -(2**31), 2**32, 3037000499, 3037000500] for b in range(70)
    ]
    pairs += [(rng.randint(-(2**40), 2**40) >> rng.randint(0, 40), rng.randint(0, 64)) for _ in range(N // 5)]
    pairs += [(1, 2**63 - 1), (-1, 2**63 - 1), (0, 2**63 - 1), (-2, 63), (2, 63), (0, 0)]
    for a, b in pairs:
        exact = a**b if abs(a) < 2 or b < 100 else None
        fits = exact is not None and -(2**63) <= exact < 2**63
        assert table("int_pow", a, b) == exact if fits else table("int_pow", a, b) is DECLINED, (a, b)
    assert table("int_pow", 2, -1) is DECLINED


def test_rounding():
    for x in SPECIAL_FLOATS + random_floats(random.Random(13), N) + [n + 0.5 for n in range(-100, 100)]:
        try:
            exact = round(x)
        except (ValueError, OverflowError):
            exact = None
        ours = table("float_round", x)
        fits = exact is not None and -(2**63) <= exact < 2**63
        assert ours == exact if fits else ours is DECLINED, x


COMPARE = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]


def test_comparing_ints_with_floats():
    rng = random.Random(14)
    ints = integers(rng, 60)
    floats = (
        SPECIAL_FLOATS
        + random_floats(rng, 80)
        + [float(i) for i in ints]
        + [float(i) + 0.5 for i in ints[:50]]
    )
    for a, b in itertools.product(ints, floats):
        for number, python in enumerate(COMPARE):
            assert table("int_float_compare", number, a, b) is python(a, b), (number, a, b)
