"""Operators on objects end as the interpreter's own operators do: value, type, exception, references."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .support import agree, leaks_nothing, table

BINARY = ["+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"]
COMPARE = ["<", "<=", "==", "!=", ">", ">="]


class Odd:
    """Answers every operator, mostly."""

    def __init__(self, n=1):
        self.n = n

    def __repr__(self):
        return f"Odd({self.n})"

    def __add__(self, other):
        return ("add", self.n)

    def __radd__(self, other):
        return NotImplemented

    def __iadd__(self, other):
        self.n += 1
        return self

    def __lt__(self, other):
        raise KeyError("no order")

    def __eq__(self, other):
        return [self.n]

    __hash__ = None

    def __neg__(self):
        return -self.n

    def __bool__(self):
        raise ZeroDivisionError("no truth")

    def __contains__(self, item):
        return item


class Plain:
    def __repr__(self):
        return "Plain()"


OPERANDS = [
    0, 1, -3, 7, 2**40, -(2**70), True, 0.0, -0.0, 1.5, float("nan"), float("inf"), 2 + 1j, "", "ab", "%s", b"x",
    bytearray(b"xy"), None, (), (1, 2), [], [1, "a"], {1, 2}, frozenset({2}), {1: 2}, range(3), Fraction(1, 3),
    Decimal("0.5"), np.float64(1.5), np.float32(0.1), np.int64(3), np.int32(-2), np.uint8(200), np.bool_(True),
    np.arange(3), np.array([1.5, 2.5, 0.0]), Odd(), Plain(), int, NotImplemented,
]  # fmt: skip


@pytest.fixture(autouse=True)
def warnings_are_the_same_on_both_sides():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def of_source(source, *names):
    scope = {}
    exec(f"def f({', '.join(names)}):\n    {source}", scope)
    return scope["f"]


@pytest.mark.parametrize("number", range(13), ids=BINARY)
def test_binary_and_in_place(number):
    binary = of_source(f"return a {BINARY[number]} b", "a", "b")
    inplace = of_source(f"a {BINARY[number]}= b; return a", "a", "b")
    operands = OPERANDS
    if BINARY[number] in ("*", "<<", "**"):  # no results of gigabytes
        operands = [v for v in OPERANDS if not (type(v) is int and abs(v) > 100 or type(v) is np.uint8)]
    for a in operands:
        for b in operands:
            agree(lambda a, b: table("binary", number, a, b), binary, a, b)
            agree(lambda a, b: table("inplace", number, a, b), inplace, a, b)


@pytest.mark.parametrize("number", range(6), ids=COMPARE)
def test_compare(number):
    python = of_source(f"return a {COMPARE[number]} b", "a", "b")
    for a in OPERANDS:
        for b in OPERANDS:
            agree(lambda a, b: table("compare", number, a, b), python, a, b)


@pytest.mark.parametrize("number, sign", list(enumerate("-+~")))
def test_unary(number, sign):
    python = of_source(f"return {sign}a", "a")
    for a in OPERANDS:
        agree(lambda a: table("unary", number, a), python, a)


def test_truth_and_membership():
    for a in OPERANDS:
        agree(lambda a: bool(table("is_true", a)), lambda a: True if a else False, a)
        for b in OPERANDS:
            agree(lambda a, b: bool(table("contains", a, b)), lambda a, b: b in a, a, b)


def test_membership_asks_identity_first():
    nan = float("nan")
    assert table("contains", [nan], nan) == 1
    assert table("contains", [float("nan")], nan) == 0


def test_unknown_numbers_are_refused():
    for name, number in [("binary", 13), ("binary", -1), ("inplace", 99)]:
        with pytest.raises(SystemError):
            table(name, number, 1, 2)
    with pytest.raises(SystemError):
        table("compare", 6, 1, 2)
    with pytest.raises(SystemError):
        table("unary", 3, 1)


def test_nothing_leaks():
    leaks_nothing(lambda: table("binary", 0, [1], [2]))
    leaks_nothing(lambda: table("binary", 0, [1], 2))
    leaks_nothing(lambda: table("inplace", 5, [1], 4))
    leaks_nothing(lambda: table("compare", 0, Odd(), 1))
    leaks_nothing(lambda: table("contains", 3, 1))


scalars = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=3), st.binary(max_size=3), st.none(),
    st.complex_numbers(), st.integers(-100, 100).map(np.int64), st.floats().map(np.float64),
)  # fmt: skip
values = st.recursive(scalars, lambda s: st.one_of(st.lists(s, max_size=3), st.tuples(s, s)), max_leaves=4)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([n for n, op in enumerate(BINARY) if op not in ("<<", "**", "*")]), values, values)
def test_any_operands(number, a, b):
    python = of_source(f"return a {BINARY[number]} b", "a", "b")
    agree(lambda a, b: table("binary", number, a, b), python, a, b)
