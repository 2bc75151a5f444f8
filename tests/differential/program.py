"""A generated program: a prelude, what its areas define, two functions, and the calls that are made.

In: a seed. Out: the source text of a module that defines `f`, `h` and `calls()`. The same seed gives the same text
on every CPython. `calls()` yields fresh arguments for each call, so every mode of running sees the same ones; between
calls it rebinds globals, patches classes and puts other functions in the place of `h`.
"""

from __future__ import annotations

import random
import warnings

from . import classes, control
from .areas import AREAS, AnyFunction
from .arrays import COMPLEX, CUBE, DTYPES, ZERO
from .classes import OBJECT, OBJECTS
from .containers import DEQUE, DICT, NAMES, PAIRS, SET, WORDS
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

PRELUDE = """\
import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import reduce, wraps
from itertools import accumulate, chain
import numpy as np

K_INT, K_BIG, K_FLOAT, G_INT = 7, 2**62, 0.75, 5
NOTES = []


def note(x):
    NOTES.append(x)


def put(x, i, value):
    x[i] = value
    return x


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


N_MORE = 12  # calls; cheap beside the compilation
LONG = (ARRAY, ARRAY, ARRAY, MATRIX, MATRIX, FLOATS, INTS, ROWS)  # parameters of kernels


def argument(rng, kind, is_tame=False, areas=(), dtype=None):
    """An expression that makes an argument of this type; often an ordinary one, sometimes a nasty one."""
    if not is_tame and rng.random() < 0.03:
        kind = rng.choice(KINDS)
    if "kernels" in areas and kind in LONG:
        return long_argument(rng, kind, dtype)
    small = lambda: str(rng.randrange(-4, 30))
    real = lambda: repr(round(rng.uniform(-9, 9), 3)) if rng.random() < 0.7 else rng.choice(REALS)
    whole = lambda: small() if rng.random() < (0.9 if is_tame else 0.75) else rng.choice(INTEGERS)
    fewest = (2, 2, 3) if is_tame else (0, 2, 2, 3)
    some = lambda make, n=7: ", ".join(make() for _ in range(rng.randrange(rng.choice(fewest), n)))
    dtype = dtype or a_dtype(rng, areas)
    n = rng.randrange(1, 6) + 1
    if kind == MIXED:
        mixed = [whole(), real(), "True", "np.float64(1.5)", "np.int64(3)", "Loud(1.5)", "Small(3)"]
        mixed += [] if is_tame else ["None", "'s'"]
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
        return base + rng.choice(("", "", ".T", "[::-1, ::-2]", "[:, 1:]", *(() if is_tame else ("[:0]",))))
    word = lambda: rng.choice(("'a'", "'b'", "'ab'", "'xyz'", "''", "'é'"))
    text = lambda: rng.choice(
        (
            "'abc'",
            "'a b,ab'",
            "'3 12'",
            "'日本 a'",
            "'Hello, World'",
            "'\\U0001f600ab'",
            *(() if is_tame else ("''",)),
        )
    )
    instance = lambda: f"{rng.choice(classes.NAMES)}({real()}, {small()})"
    same = rng.choice(classes.NAMES)
    return {
        INT: whole,
        FLOAT: real,
        BOOL: lambda: rng.choice(("True", "False")),
        STR: text,
        NONE: lambda: "None",
        INTS: lambda: f"[{some(whole)}]",
        FLOATS: lambda: f"[{some(real)}]",
        ROWS: lambda: (
            "["
            + ", ".join(f"[{', '.join(real() for _ in range(n))}]" for _ in range(rng.randrange(1, 4)))
            + "]"
        ),
        TUPLE: lambda: f"({whole()}, {real()}, {small()})",
        BYTES: lambda: rng.choice(
            ("b'abc'", "b'\\x80a\\xff'", "bytes(range(7))", *(() if is_tame else ("b''",)))
        ),
        BYTEARRAY: lambda: rng.choice(("bytearray(b'abc')", "bytearray(5)", "bytearray(range(250, 256))")),
        SCALAR: lambda: f"np.{dtype}({rng.choice(('0', '1', '3', '100'))})",
        DICT: lambda: "{" + ", ".join(f"{small()}: {real()}" for _ in range(rng.randrange(5))) + "}",
        WORDS: lambda: "{" + ", ".join(f"{word()}: {small()}" for _ in range(rng.randrange(4))) + "}",
        SET: lambda: f"{{{whole()}, {some(small)}}}",
        NAMES: lambda: f"[{some(word)}]",
        PAIRS: lambda: "[" + ", ".join(f"({small()}, {real()})" for _ in range(rng.randrange(1, 5))) + "]",
        DEQUE: lambda: f"deque([{some(real)}], 9)",
        CUBE: lambda: f"np.arange({4 * n}).astype(np.{dtype}).reshape(2, 2, {n})",
        ZERO: lambda: f"np.array({rng.choice(('3', '2.5', '-1'))})",
        COMPLEX: lambda: f"complex({real()}, {real()})",
        OBJECT: instance,
        OBJECTS: lambda: (
            f"[{', '.join(instance() for _ in range(3))}]"
            if rng.random() < 0.3
            else f"[{same}(q * {real()}, q) for q in range({rng.choice((2, 4, 9, 70))})]"
        ),
    }[kind]()


def a_dtype(rng, areas):
    """The name of one that suits these areas."""
    if "arrays" in areas:
        return rng.choice(DTYPES)
    return rng.choice(("float64", "float64", "float64", "float32", "int64", "int32", "uint8", "bool_"))


def long_argument(rng, kind, dtype=None):
    """One of 60 to 200 elements, with some that do not fit the others."""
    n = rng.choice((60, 64, 65, 70, 100, 129, 200))
    odd = f", {rng.randrange(n)}, {rng.choice(('math.nan', 'math.inf', '-0.0', '1e308', '5e-324', '0', '-1e16', '7'))}"
    factor = rng.choice(("1", "0.37", "1", "-3", "1e3", "0.1", "1e-160", "1e300"))
    if kind in (FLOATS, INTS):
        one = f"q * {factor if kind == FLOATS else rng.choice(('1', '7 % 31', '-3', '10**8', '2**57'))}"
        made = f"[{one}{rng.choice(('', ' - 5', ' + 1'))} for q in range({n})]"
        odd = odd if kind == FLOATS else f", {rng.randrange(n)}, {rng.choice(INTEGERS)}"
        return f"put({made}{odd})" if rng.random() < 0.4 else made
    if kind == ROWS:
        rows, columns = rng.choice(((4, 70), (9, 9), (70, 3), (12, 12)))
        made = f"[[(q * 7 + r) * {factor} for r in range({columns})] for q in range({rows})]"
        return f"put({made}, 1, {made}[0])" if rng.random() < 0.1 else made
    dtype = dtype or a_dtype(rng, ())
    if not dtype.startswith("float"):
        factor = rng.choice(("1", "7", "-3", "1", "2**24", "2**56"))
        odd = f", {rng.randrange(n)}, {rng.choice(('0', '1', '100'))}"
    if kind == ARRAY:
        made = f"(np.arange({n}) * {factor} - {rng.choice(('0', '5', '0.5'))}).astype(np.{dtype})"
        made = f"put({made}{odd})" if rng.random() < 0.4 else made
        return made + rng.choice(("", "", "", "", "[::2]", "[::-1]", "[1:]", ".reshape(-1, 1)[:, 0]"))
    rows, columns = rng.choice(((5, 70), (70, 5), (12, 33), (3, 129), (9, 9), (2, 200)))
    made = f"(np.arange({rows * columns}) * {factor}).astype(np.{dtype}).reshape({rows}, {columns})"
    return made + rng.choice(("", "", "", ".T", "[:, ::-1]", "[1:]", "[:, 1:]", "[::2]"))


def rebinding(rng, areas):
    """A statement between two calls."""
    choices = [
        f"globals()['G_INT'] = {rng.choice(('2.5', '-3', '2**70', 'True', 'np.float64(0.5)'))}",
        f"globals()['K_FLOAT'] = {rng.choice(('0.25', '3', 'np.float32(2)'))}",
        "globals()['h'] = lambda a, last=3: 1.5",
        "globals()['K_INT'] = 9",
    ]
    if "classes" in areas:
        choices += [f"patch({rng.randrange(12)})"] * 4
    if "control" in areas:
        choices += ["globals()['rec'] = lambda n, x: n + 0.5", "globals()['opt'] = lambda a, *b, **c: a"]
    return rng.choice(choices)


def source(seed):
    """The module's text."""
    rng = random.Random(seed)
    while True:  # one in a thousand puts a walrus where none may be
        text = attempt(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compile(text, "<generated>", "exec", dont_inherit=True)
            except SyntaxError:
                continue
        return text


def attempt(rng):
    """A text that is mostly a program."""
    count = rng.choice((0, 1, 1, 1, 2))
    areas = tuple(rng.sample(list(AREAS), count))
    is_tame = rng.random() < (0.8 if areas else 0.5)
    added = tuple(kind for area in areas for kind in AREAS[area])
    choices = (
        LONG if areas == ("kernels",) else (*KINDS, *added * 3, *(LONG * 4 if "kernels" in areas else ()))
    )
    kinds = [rng.choice(choices) for _ in range(3)]
    if "classes" in areas and not set(kinds) & {OBJECT, OBJECTS}:
        kinds[0] = rng.choice((OBJECT, OBJECTS))
    if "kernels" in areas:
        kinds[1] = kinds[0] if rng.random() < 0.4 else rng.choice(LONG)
    helper_kinds = [rng.choice(choices) for _ in range(2)]
    common = added * 4
    style = {"areas": areas, "is_tame": is_tame, "common": common}
    helper = AnyFunction(
        rng, "h", {"a": helper_kinds[0], "last": helper_kinds[1]}, n_statements=rng.randrange(1, 4), **style
    )
    parameters = dict(zip(("a", "b", "c"), kinds, strict=True))
    n_statements = rng.randrange(2, 7) if areas else rng.randrange(3, 10)
    main = AnyFunction(
        rng, "f", parameters, callees=[("h", helper_kinds)], n_statements=n_statements, **style
    )
    defined = classes.definitions(rng) if "classes" in areas else []
    defined += control.definitions(rng) if "control" in areas else []
    dtypes = [
        a_dtype(rng, areas) if rng.random() < 0.6 else None for _ in kinds
    ]  # of all calls, or of each its own
    made = [
        [argument(rng, kind, is_tame, areas, dtype) for kind, dtype in zip(kinds, dtypes, strict=True)]
        for _ in range(4 + N_MORE)
    ]
    lines = ["", "", *defined, "@jit", *helper.lines, "", "", "@jit", *main.lines, "", "", "def calls():"]
    for number, call in enumerate((made[0], made[0], made[1], made[2], made[0], made[3], made[0])):
        if number > 2 and rng.random() < 0.4:
            lines.append(f"    {rebinding(rng, areas)}")
        lines.append(f"    yield ({', '.join(call)},)")
    lines += [f"    yield ({', '.join(call)},)" for call in made[4:]]
    if kinds[0] == kinds[1]:  # the same object twice, and two views of one memory
        lines += [f"    x, y = {made[3][0]}, {made[3][2]}", "    yield (x, x, y)"]
        if kinds[0] in (ARRAY, MATRIX):
            lines += [
                f"    yield (x[{rng.choice(('1:', '::-1', ':-1'))}], x[{rng.choice((':-1', '1:'))}], y)"
            ]
    return PRELUDE + "\n".join(lines) + "\n"
