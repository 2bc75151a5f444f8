"""What the tests of the object table share: calling an entry, and saying exactly how a call ended."""

import copy
import gc
import math
import struct
import sys

import numpy as np
from overdrive import _core

#: Stands for a null reference in arguments and results.
NULL = ...


def table(name, *args):
    """Call an entry of the object table as machine code would."""
    return _core._table(name, *args)


def bits(x):
    """The 64 bits of a float."""
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def describe(value, depth=0):
    """A value as something that is equal only for the same type and the same bits."""
    if type(value) is float:
        return ("float", bits(value))
    if type(value) is complex:
        return ("complex", bits(value.real), bits(value.imag))
    if type(value) in (list, tuple) and depth < 4:
        return (type(value), [describe(v, depth + 1) for v in value])
    if type(value) is dict:
        return (dict, [(describe(k, 1), describe(v, 1)) for k, v in value.items()])
    if isinstance(value, (np.generic, np.ndarray)):
        content = value.tobytes() if value.dtype != object else describe(value.tolist(), depth + 1)
        return (type(value), value.dtype, value.shape, content)
    if type(value).__eq__ is object.__eq__:
        return (type(value), "an instance")
    return (type(value), repr(value))


def chain(error):
    """An exception with what its message and fields say."""
    fields = {k: getattr(error, k, None) for k in ("name", "path", "obj", "name_from")}
    fields = {k: v if isinstance(v, (str, type(None))) else type(v) for k, v in fields.items()}
    return (type(error), [describe(a) for a in error.args], str(error), fields, type(error.__context__))


def outcome(function, *args):
    """How a call ends: its value, or its exception."""
    try:
        return ("value", describe(function(*args)))
    except Exception as error:  # whatever it is, the other side must raise the same
        return ("raises", chain(error))


def references(args):
    """Reference counts of the arguments that nobody else shares."""
    shared = (int, str, float, bytes, type(None), type(NULL), type(NotImplemented), tuple, frozenset, type)
    return [sys.getrefcount(a) for a in args if not isinstance(a, shared)]


def agree(entry, python, *args):
    """Both calls end alike, leave their arguments alike, and keep as many references."""
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    before = references(ours), references(theirs)
    got = outcome(entry, *ours)
    expected = outcome(python, *theirs)
    after = references(ours), references(theirs)
    assert got == expected, (args, got, expected)
    kept = [[b - a for a, b in zip(*pair)] for pair in zip(before, after)]
    assert kept[0] == kept[1], (args, kept)
    assert describe(list(ours)) == describe(list(theirs)), args


def leaks_nothing(function, *args, rounds=300, slack=40):
    """The number of allocated blocks does not grow with the number of calls."""

    def run():
        for _ in range(rounds):
            outcome(function, *args)
        gc.collect()  # an exception's traceback may refer to the exception

    run()
    for _ in range(3):  # caches of the interpreter may still fill in the first
        before = sys.getallocatedblocks()
        run()
        grown = sys.getallocatedblocks() - before
        if grown < slack:
            break
    assert grown < slack, f"{grown} blocks more after {rounds} calls of {function} with {args!r}"


SPECIAL_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.0, 3.0, 1e-300, -1e-300, 5e-324, -5e-324, 1e300, -1e300,
    1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, 2.2250738585072011e-308,
    709.782712893384, 709.7827128933841, -745.1332191019411, -745.1332191019412, 710.4758600739439, 0.1, 1 / 3,
    math.pi, math.pi / 2, -math.pi, math.e, 2.0**31, 2.0**52, 2.0**53, 2.0**53 + 2, 2.0**62, 2.0**63, -(2.0**63),
    2.0**64, 4503599627370495.5, 0.49999999999999994, 1 - 2**-53, 1 + 2**-52, 26.5, -26.6, 27.3,
    math.inf, -math.inf, math.nan,
]  # fmt: skip


def random_floats(rng, n):
    """Floats of all magnitudes: random bits, and the ranges where functions do something."""
    out = []
    for i in range(n):
        kind = i % 4
        if kind == 0:
            out.append(struct.unpack("<d", struct.pack("<Q", rng.getrandbits(64)))[0])
        elif kind == 1:
            out.append(rng.uniform(-1.0, 1.0))
        elif kind == 2:
            out.append(rng.uniform(-800.0, 800.0))
        else:
            out.append(float(rng.randint(-1000, 1000)) / 2)
    return out
