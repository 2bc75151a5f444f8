"""Boxes are bit for bit what CPython and NumPy make, and unboxing declines outside 64 bits."""

import math
import random
import struct

import numpy as np
import pytest

from .support import SPECIAL_FLOATS, bits, leaks_nothing, random_floats, table

INTS = [0, 1, -1, 5, 256, 257, -6, 2**30, -(2**30), 2**31, 2**60, 2**62, 2**63 - 1, -(2**63)]


def test_ints():
    for value in INTS:
        assert table("box_int", value) == value and type(table("box_int", value)) is int
        assert table("unbox_int", value) == value
    for value in [2**63, -(2**63) - 1, 10**40, True, 1.0, "1", None, np.int64(1)]:
        assert table("unbox_int", value) is NotImplemented
    assert table("box_int", 5) is table("box_int", 5)  # CPython's small ints


def test_floats():
    for value in SPECIAL_FLOATS + random_floats(random.Random(1), 1000):
        assert bits(table("box_float", value)) == bits(value)


@pytest.mark.parametrize(
    "entry, kind, values",
    [
        ("box_np_f64", np.float64, SPECIAL_FLOATS),
        ("box_np_f32", np.float32, [0.0, -0.0, 0.5, 1.0, -2.5, math.inf, -math.inf, float(np.float32(0.1))]),
        ("box_np_i64", np.int64, INTS),
        ("box_np_i32", np.int32, [0, 1, -1, 2**31 - 1, -(2**31)]),
        ("box_np_u8", np.uint8, [0, 1, 127, 128, 255]),
    ],
)
def test_numpy_scalars(entry, kind, values):
    for value in values:
        made, theirs = table(entry, value), kind(value)
        assert type(made) is type(theirs) is kind
        assert made.dtype is theirs.dtype or made.dtype == theirs.dtype
        assert made.tobytes() == theirs.tobytes()
        assert hash(made) == hash(theirs) or math.isnan(value)
        assert repr(made) == repr(theirs)
        assert (made + kind(0)).tobytes() == (theirs + kind(0)).tobytes()
    leaks_nothing(lambda: table(entry, values[-1]))


def test_range_iterators():
    rng = random.Random(2)
    cases = [(0, 0, 1), (2**63 - 3, 2**63 - 1, 1), (-(2**63), 2**63 - 1, 2**62), (5, -5, -(2**63)), (1, 9, 3)]
    cases += [
        (rng.randint(-50, 50), rng.randint(-50, 50), rng.choice([-7, -2, -1, 1, 3])) for _ in range(200)
    ]
    for case in cases:
        made = table("box_range_iter", *case)
        assert type(made) is type(iter(range(*case)))
        assert made.__reduce__()[1] == iter(range(*case)).__reduce__()[1]
        assert list(made) == list(range(*case))
    with pytest.raises(ValueError):
        table("box_range_iter", 0, 1, 0)
    leaks_nothing(lambda: table("box_range_iter", 0, 10**6, 1))


def test_the_bits_of_a_float32_survive():
    rng = random.Random(3)
    for _ in range(1000):
        raw = struct.pack("<I", rng.getrandbits(32))
        (value,) = struct.unpack("<f", raw)
        if not math.isnan(value):
            assert table("box_np_f32", value).tobytes() == raw
