"""Generated programs over lists of objects: attributes written and read, aliases, methods with stores, branches. Compiled and
interpreted side by side, every third program with exits forced. `OBJECTS=n` tries n programs."""

from __future__ import annotations

import os
import random
import sys

import overdrive
import pytest
from overdrive import _core

ATTRIBUTES = ["x", "y", "z"]
CONSTANTS = ["0", "1", "2", "-3", "0.5", "2.5", "257", "1 << 29", "1 << 40"]
N_PROGRAMS = int(os.environ.get("OBJECTS", "60"))


class Program:
    """The text of a class `C` with two methods and of a function `f(objs, n)`."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.attributes = ATTRIBUTES[: self.r.randint(2, 3)]
        lines = ["class C:"]
        if self.r.random() < 0.3:
            lines.append(f"    __slots__ = {tuple(self.attributes)!r}")
        lines.append("    def __init__(self, *values):")
        lines += [f"        self.{a} = values[{i}]" for i, a in enumerate(self.attributes)]
        for m in range(2):
            lines.append(f"    def m{m}(self, o, a):")
            lines += self.body(["self", "o"], ["a"], 1, 2)
            lines.append(f"        return {self.expression(2, ['a', *self.members(['self', 'o'])])}")
        lines += [
            "def f(objs, n):",
            "    s = t = u = 0",
            "    for i in range(n):",
            "        for p in objs:",
            "            q = objs[i % len(objs)]",
            *self.body(["p", "q"], ["t", "u", "i", "s"], 2, 3),
            f"            s = {self.expression(1, ['t', 'u', 's', 'i', *self.members(['p', 'q'])])}",
            "            s = s % 1000003 if s == s and abs(s) < 1e300 else 1",
            "    return s, t, u",
        ]
        self.text = "\n".join(lines)

    def members(self, objects):
        return [f"{o}.{a}" for o in objects for a in self.attributes]

    def expression(self, depth, names):
        kind = self.r.random()
        if depth == 0 or kind < 0.25:
            return self.r.choice(names)
        if kind < 0.4:
            return f"({self.r.choice(CONSTANTS)})"
        sides = self.expression(depth - 1, names), self.expression(depth - 1, names)
        return f"({sides[0]} {self.r.choice('++--*')} {sides[1]})"

    def body(self, objects, names, depth, indent):
        """Statements; those of a method call no methods and rebind no objects."""
        lines, pad, in_method = [], "    " * indent, "self" in objects
        for _ in range(self.r.randint(1, 4)):
            known = [*names, *self.members(objects)]
            place = f"{self.r.choice(objects)}.{self.r.choice(self.attributes)}"
            kind = self.r.random()
            if kind < 0.35:
                lines.append(f"{pad}{place} = {self.expression(2, known)}")
            elif kind < 0.5:
                lines.append(f"{pad}{place} {self.r.choice(['+=', '-='])} {self.expression(1, known)}")
            elif kind < 0.65:
                name = self.r.choice("tu")
                lines.append(f"{pad}{name} = {self.expression(2, known)}")
                names = [*names, name]
            elif kind < 0.75 and depth:
                lines.append(f"{pad}if {self.expression(1, known)} < {self.expression(1, known)}:")
                lines += self.body(objects, names, depth - 1, indent + 1)
            elif in_method:
                lines.append(f"{pad}{place} = a")
            elif kind < 0.9:
                name, method = self.r.choice("tu"), f"{self.r.choice(objects)}.m{self.r.randint(0, 1)}"
                lines.append(f"{pad}{name} = {method}({self.r.choice(objects)}, {self.expression(1, known)})")
                names = [*names, name]
            else:
                lines.append(f"{pad}{self.r.choice(objects)} = {self.r.choice(objects)}")
        return lines

    def arguments(self):
        """Values of a few objects: mostly all of one type for each attribute."""
        kinds = [
            lambda: self.r.randint(-5, 1000),
            lambda: self.r.random() * 10 - 3,
            lambda: 1 << 62,
            lambda: self.r.choice([True, 0.0, -0.0, 300]),
        ]
        for k in range(4):
            of_type = [self.r.choice(kinds[: 2 if k < 3 else 4]) for _ in self.attributes]
            yield [[make() for make in of_type] for _ in range(self.r.randint(1, 4))]


def outcome(space, f, values, attributes):
    objects = [space["C"](*v) for v in values]
    if len(objects) > 2:
        objects[2] = objects[0]
    try:
        result = f(objects, 5)
    except Exception as error:
        result = type(error).__name__, str(error)
    return repr(result), [[repr(getattr(o, a)) for a in attributes] for o in objects]


@pytest.fixture(autouse=True)
def long_ints():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)
    _core.debug_force(None)


@pytest.mark.parametrize("seed", range(N_PROGRAMS))
def test_generated(seed):
    program = Program(seed)
    plain, compiled = {}, {}
    for space in (plain, compiled):
        exec(compile(program.text, f"<objects {seed}>", "exec"), space)
    if seed % 3 == 2:
        _core.debug_force(("seed", seed, 0.1))
    f = overdrive.jit(compiled["f"])
    sets = list(program.arguments())
    for _ in range(3):
        for values in sets:
            want = outcome(plain, plain["f"], values, program.attributes)
            assert outcome(compiled, f, values, program.attributes) == want, program.text


def test_what_is_generated_is_compiled():
    """Most lines run natively, methods too, or the programs above would test nothing."""
    n_native = n_through = n_inlined = 0
    for seed in range(40):
        program = Program(seed)
        space = {}
        exec(compile(program.text, f"<objects {seed}>", "exec"), space)
        f = overdrive.jit(space["f"])
        for _ in range(4):
            outcome(space, f, [[1.5, 2.5, 0.5]] * 2, program.attributes)
        lines = str(overdrive.explain(f)).splitlines()
        n_native += sum("native" in line for line in lines)
        n_through += sum("CPython" in line for line in lines)
        n_inlined += sum("inlined, its result" in line for line in lines)
    assert n_native > 5 * n_through and n_inlined > 5, (n_native, n_through, n_inlined)
