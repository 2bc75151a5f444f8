"""The comparison behind `verify`: what can be told apart is, and the path says where."""

import collections
import dataclasses
import math
import struct
import types

import numpy as np
import pytest
from overdrive.comparing import Comparison


def nan(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


@dataclasses.dataclass
class Point:
    x: float
    tags: list


class Slotted:
    __slots__ = ("__hidden", "a")

    def __init__(self, a, hidden):
        self.a, self.__hidden = a, hidden


class Words(list):
    pass


def paths(a, b, **options):
    comparison = Comparison(**options)
    comparison.compare("r", a, b)
    return [difference.path for difference in comparison.differences]


def read_only(values):
    array = np.array(values)
    array.flags.writeable = False
    return array


def words(name):
    made = Words([1])
    made.name = name
    return made


def cyclic(last):
    made = [1]
    made += [made, last]
    return made


def closure(n):
    return lambda: n


SHARED = [1.0]
NAN = nan(0x7FF8000000000000)
WHOLE = np.arange(6.0)
DIFFERENT = [
    (1, True, "r"),
    (1, 1.0, "r"),
    (2**70, 2**70 + 1, "r"),
    (0.0, -0.0, "r"),
    (nan(0x7FF8000000000001), nan(0x7FF8000000000002), "r"),
    (nan(0x7FF8000000000000), nan(0xFFF8000000000000), "r"),
    ([NAN, NAN], [NAN, nan(0x7FF8000000000000)], "r[1]"),
    (1 + 0j, complex(1, -0.0), "r.imag"),
    ("a", "b", "r"),
    (b"a", bytearray(b"a"), "r"),
    ([1], (1,), "r"),
    ([1, 2, 3], [1, 2, 4], "r[2]"),
    ([1, 2], [1, 2, 3], "r"),
    ([1.5, 0.0], [1.5, -0.0], "r[1]"),
    ([True, 1], [1, True], "r[0]"),
    ([SHARED, SHARED], [[1.0], [1.0]], "r[1]"),
    ([[1.0], [1.0]], [SHARED, SHARED], "r[1]"),
    ({"a": {"b": [0, 1]}}, {"a": {"b": [0, 2]}}, "r['a']['b'][1]"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "r.keys()"),
    ({1: 2}, {True: 2}, "r.keys()"),
    ({1, 2}, {1, 3}, "r{1}"),
    (collections.deque([1]), collections.deque([2]), "r[0]"),
    (collections.defaultdict(int), collections.defaultdict(float), "r.default_factory"),
    (collections.OrderedDict(a=1), {"a": 1}, "r"),
    (Point(1.0, [1]), Point(1.0, [2]), "r.tags[0]"),
    (Slotted(1, 2), Slotted(1, 3), "r._Slotted__hidden"),
    (words("a"), words("b"), "r.name"),
    (cyclic(1), cyclic(2), "r[2]"),
    (ValueError(1), ValueError(2), "r.args[0]"),
    (range(3), range(4), "r"),
    (closure(1), closure(2), "r.<n>"),
    (iter([1, 2]), iter([1, 3]), "r[1][0][1]"),
    (np.float64(1.0), 1.0, "r"),
    (np.float64(0.0), np.float64(-0.0), "r"),
    (np.float64(1.0), np.float32(1.0), "r"),
    (np.zeros(2), np.zeros(2, np.float32), "r.dtype"),
    (np.zeros(2), np.zeros((2, 1)), "r.shape"),
    (np.zeros((2, 2)), np.zeros((2, 2), order="F"), "r.strides"),
    (np.zeros((2, 2)), np.array([[0, 0], [0, -0.0]]), "r[1, 1]"),
    (np.array([1, [2]], object), np.array([1, [3]], object), "r[1][0]"),
    (np.zeros(2), read_only([0.0, 0.0]), "r.flags.writeable"),
    ([WHOLE, WHOLE[1:]], [WHOLE, np.arange(6.0)[1:]], "r[1].base"),
    (np.zeros(2, "f8,i4"), np.array([(0, 0), (0, 1)], "f8,i4"), "r['f1'][1]"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "path"), DIFFERENT, ids=[f"{n}-{d[2]}" for n, d in enumerate(DIFFERENT)])
def test_what_differs(a, b, path):
    assert path in paths(a, b)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("pair", DIFFERENT, ids=lambda pair: pair[2])
def test_the_same_again_is_equal(pair, side):
    comparison = Comparison()
    comparison.compare("r", pair[side], pair[side])
    assert not comparison.differences and not comparison.uncompared


def test_equal_values_that_are_not_the_same_objects():
    for make in [
        lambda: [
            1.5,
            {"a": (1, [2**80])},
            {1, "x"},
            np.arange(3),
            Point(1.0, []),
            cyclic(1),
            bytearray(b"x"),
        ],
        lambda: [
            nan(0x7FF8000000000001),
            math.inf,
            Slotted([1], "h"),
            iter([1]),
            zip([1], [2]),
            closure([1]),
        ],
        lambda: [1.0] * 1000,
        lambda: (x for x in [1]),
        lambda: types.SimpleNamespace(a=1, b=[2]),
    ]:
        assert paths(make(), make()) == []


def test_nan_bits_are_compared_on_demand():
    assert paths(nan(0x7FF8000000000001), nan(0xFFF8000000000002), nan_bits=False) == []
    assert paths(np.array([nan(0x7FF8000000000001)]), np.array([NAN])) == ["r[0]"]
    assert paths(np.array([nan(0x7FF8000000000001)]), np.array([NAN]), nan_bits=False) == []


def test_nested_deeper_than_the_stack():
    a, b = [1], [2]
    for _ in range(50_000):
        a, b = [a], [b]
    assert len(paths(a, b)) == 1
    while isinstance(a[0], list):  # their destructor has a limit, too
        a, b = a[0], b[0]


def test_there_is_an_end_of_differences():
    assert len(paths(list(range(1000)), list(range(1, 1001)))) == 20


def test_what_cannot_be_looked_into_is_told(tmp_path):
    with open(tmp_path / "a", "w") as a, open(tmp_path / "b", "w") as b:
        comparison = Comparison()
        comparison.compare("r", [a], [b])
        assert comparison.uncompared == ["r[0]"]
