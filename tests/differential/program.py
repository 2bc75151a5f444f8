"""A generated program: a prelude, two functions, and the calls that are made.

In: a seed. Out: the source text of a module that defines `f`, `h` and `calls()`. The same seed gives the same text
on every CPython. `calls()` builds fresh arguments at each call, so every mode of running sees the same ones.
"""

from __future__ import annotations

import random

from .expressions import (
    ARRAY,
    BOOL,
    BYTEARRAY,
    BYTES,
    FLOAT,
    FLOATS,
    INT,
    INTEGERS,
    INTS,
    MATRIX,
    MIXED,
    NONE,
    REALS,
    ROWS,
    SCALAR,
    STR,
    TUPLE,
)
from .statements import Function

PRELUDE = """\
import math
import numpy as np

K_INT, K_BIG, K_FLOAT, G_INT = 7, 2**62, 0.75, 5
NOTES = []


def note(x):
    NOTES.append(x)


# An object's own repr shows its address, which differs from run to run.
class Named:
    def __repr__(self):
        return f"<{type(self).__name__}>"


class Manager(Named):
    def __init__(self, swallows):
        self.swallows = swallows

    def __enter__(self):
        NOTES.append("enter")
        return 3

    def __exit__(self, kind, value, traceback):
        NOTES.append(("exit", kind and kind.__name__))
        return self.swallows


class Finalised(Named):
    def __init__(self, x):
        self.x = x

    def __del__(self):
        NOTES.append(("gone", self.x))


class Loud(float):
    def __add__(self, other):
        NOTES.append("add")
        return float(self) + other

    def __lt__(self, other):
        NOTES.append("lt")
        return float(self) < other


class Small(int):
    def __mul__(self, other):
        NOTES.append("mul")
        return int(self) * other

    def __index__(self):
        return 1


class Sequence(Named):
    def __len__(self):
        NOTES.append("len")
        return 3

    def __getitem__(self, i):
        NOTES.append(i)
        if i == 3:
            raise IndexError("end")
        return i * 1.5
"""

KINDS = (
    INT,
    INT,
    INT,
    FLOAT,
    FLOAT,
    FLOAT,
    BOOL,
    STR,
    INTS,
    INTS,
    FLOATS,
    FLOATS,
    MIXED,
    ROWS,
    TUPLE,
    BYTES,
    BYTEARRAY,
    ARRAY,
    ARRAY,
    MATRIX,
    SCALAR,
    NONE,
)


def argument(rng, kind):
    """An expression that makes an argument of this type; often an ordinary one, sometimes a nasty one."""
    if rng.random() < 0.03:
        kind = rng.choice(KINDS)
    small = lambda: str(rng.randrange(-4, 30))
    real = lambda: repr(round(rng.uniform(-9, 9), 3)) if rng.random() < 0.7 else rng.choice(REALS)
    whole = lambda: small() if rng.random() < 0.75 else rng.choice(INTEGERS)
    some = lambda make, n=7: ", ".join(make() for _ in range(rng.randrange(rng.choice((0, 2, 2, 3)), n)))
    dtype = rng.choice(("float64", "float64", "float32", "int64", "int32", "uint8", "bool_"))
    n = rng.randrange(1, 6) + 1
    if kind == MIXED:
        mixed = [
            whole(),
            real(),
            "None",
            "True",
            "'s'",
            "np.float64(1.5)",
            "np.int64(3)",
            "Loud(1.5)",
            "Small(3)",
        ]
        return f"[{', '.join(rng.sample(mixed, rng.randrange(1, 6)))}]"
    if kind == ARRAY:
        base = f"(np.arange({2 * n}) * {rng.choice(('1', '1.5', '37', '-3'))}).astype(np.{dtype})"
        return base + rng.choice(
            ("", "", "[::2]", "[::-1]", "[1:]", ".reshape(2, -1).T.ravel()", ".reshape(-1, 2)[:, 1]")
        )
    if kind == MATRIX:
        base = (
            f"(np.arange({6 * n}) * {rng.choice(('1', '0.5', '11'))}).astype(np.{dtype}).reshape(3, {2 * n})"
        )
        return base + rng.choice(("", "", ".T", "[::-1, ::-2]", "[:, 1:]", "[:0]"))
    return {
        INT: whole,
        FLOAT: real,
        BOOL: lambda: rng.choice(("True", "False")),
        STR: lambda: rng.choice(("''", "'abc'", "'3'", "'日本'")),
        NONE: lambda: "None",
        INTS: lambda: f"[{some(whole)}]",
        FLOATS: lambda: f"[{some(real)}]",
        ROWS: lambda: (
            "["
            + ", ".join(f"[{', '.join(real() for _ in range(n))}]" for _ in range(rng.randrange(1, 4)))
            + "]"
        ),
        TUPLE: lambda: f"({whole()}, {real()}, {small()})",
        BYTES: lambda: rng.choice(("b'abc'", "b''", "bytes(range(7))")),
        BYTEARRAY: lambda: rng.choice(("bytearray(b'abc')", "bytearray(5)", "bytearray(range(250, 256))")),
        SCALAR: lambda: f"np.{dtype}({rng.choice(('0', '1', '3', '100'))})",
    }[kind]()


def source(seed):
    """The module's text."""
    rng = random.Random(seed)
    kinds = [rng.choice(KINDS) for _ in range(3)]
    helper_kinds = [rng.choice(KINDS) for _ in range(2)]
    helper = Function(
        rng, "h", {"a": helper_kinds[0], "last": helper_kinds[1]}, n_statements=rng.randrange(1, 5)
    )
    parameters = dict(zip(("a", "b", "c"), kinds, strict=True))
    main = Function(rng, "f", parameters, callees=[("h", helper_kinds)], n_statements=rng.randrange(3, 10))
    calls = []
    for _ in range(3):
        calls.append([argument(rng, kind) for kind in kinds])
    shared = [argument(rng, kind) for kind in kinds]
    calls.append(shared)
    lines = ["", "", "@jit", *helper.lines, "", "", "@jit", *main.lines, "", "", "def calls():"]
    lines.append("    return [")
    lines += [f"        ({', '.join(call)},)," for call in (calls[0], calls[0], *calls[1:], calls[0])]
    if kinds[0] == kinds[1]:  # the same object twice
        lines.append(f"        *((x, x, y) for x, y in [({shared[0]}, {shared[2]})]),")
    lines.append("    ]")
    return PRELUDE + "\n".join(lines) + "\n"
