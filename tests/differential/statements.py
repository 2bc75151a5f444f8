"""Random Python functions: statements around the expressions of `expressions`.

In: a random generator and the functions that may be called. Out: lines of source. Every loop is bounded: counters
count, a container that grows while it is iterated stops growing, and integers that are multiplied in a loop are
taken modulo something.
"""

from __future__ import annotations

from .expressions import (
    ALL,
    ARRAY,
    BOOL,
    BYTEARRAY,
    BYTES,
    FLOAT,
    FLOATS,
    INT,
    INTS,
    ITERABLE,
    MATRIX,
    MIXED,
    NONE,
    ROWS,
    SCALAR,
    STR,
    TUPLE,
    Expressions,
)

ELEMENT = {
    **{INTS: INT, FLOATS: FLOAT, MIXED: FLOAT, TUPLE: INT, BYTES: INT, BYTEARRAY: INT, STR: STR},
    **{ROWS: FLOATS, ARRAY: SCALAR, MATRIX: ARRAY},
}
COMMON = (
    INT,
    INT,
    INT,
    FLOAT,
    FLOAT,
    FLOAT,
    BOOL,
    INTS,
    FLOATS,
    SCALAR,
    STR,
    TUPLE,
    MIXED,
    NONE,
    ARRAY,
    ROWS,
    BYTEARRAY,
)
ERRORS = (
    "ZeroDivisionError",
    "IndexError",
    "TypeError",
    "Exception",
    "(ValueError, OverflowError)",
    "ArithmeticError",
    "UnboundLocalError",
)
MAX_TRIPS = 150


class Function:
    """One generated function; `lines` is its source."""

    expressions_of = Expressions

    def __init__(self, rng, name, parameters, callees=(), n_statements=7, areas=(), is_tame=False, common=()):
        self.rng = rng
        self.areas = areas
        self.is_tame = is_tame
        self.common = (*COMMON, *common)
        self.expressions = self.expressions_of(rng, dict(parameters), callees, areas, is_tame)
        self.scope = self.expressions.scope
        self.lines = []
        self.n_names = 0
        self.trips = 1
        self.in_loop = 0
        self.loop_frames = 0  # loops that break and continue may refer to
        self.iterated = set()
        kinds = list(parameters.values())
        self.types = kinds
        self.name = name
        heads = list(parameters)
        if callees == ():
            heads[-1] += "=3"
        self.lines.append(f"def {name}({', '.join(heads)}):")
        if rng.random() < 0.15:
            self.say(1, "global G_INT")
            self.scope["G_INT"] = INT
        self.block(1, n_statements)
        self.say(1, f"return {self.result()}")

    # --- helpers

    def say(self, level, text):
        """Adds a line."""
        self.lines.append("    " * level + text)

    def make(self, kind, depth=2):
        """An expression."""
        return self.expressions.make(kind, depth)

    def chance(self, p):
        """True with probability p."""
        return self.rng.random() < p

    def fresh(self):
        """A name that is not in use."""
        self.n_names += 1
        return f"v{self.n_names}"

    def target(self, kind):
        """A name to assign to: a new one, or one that exists, sometimes of another type."""
        names = [n for n in self.expressions.names(kind) if n != "last" and not n.startswith("i")]
        others = [n for n in self.scope if n != "last" and not n.startswith("i") and n != "G_INT"]
        if names and self.chance(0.6):
            return self.rng.choice(names)
        if others and self.chance(0.05):
            return self.rng.choice(others)
        return self.fresh()

    def bounded(self, expression):
        """The expression, kept small when it stands in a loop."""
        if self.in_loop and any(mark in expression for mark in ("*", "<<", "h(")):
            return f"{expression} {self.rng.choice(('% 1000003', '% 2147483648', '& 65535', '% 9223372036854775783', '% 4611686018427387847'))}"
        return expression

    def value(self, kind, depth=2):
        """An expression to be assigned."""
        made = self.make(kind, depth)
        return self.bounded(made) if kind == INT else made

    def result(self):
        """What is returned: often several values at once."""
        names = [n for n in self.scope if n != "last"]
        if names and self.chance(0.8):
            chosen = self.rng.sample(names, min(len(names), 1 + self.rng.randrange(5)))
            return "(" + ", ".join(chosen) + ",)" if len(chosen) > 1 else chosen[0]
        return self.make(self.rng.choice(self.common))

    def block(self, level, n):
        """Some statements; at least one line."""
        start = len(self.lines)
        for _ in range(n):
            self.statement(level)
        if len(self.lines) == start:
            self.say(level, "pass")

    def branch(self, level, n):
        """A block that may not run: what it defines is mostly unknown afterwards."""
        before = dict(self.scope)
        self.block(level, n)
        for name in [n for n in self.scope if n not in before]:
            if self.is_tame or not self.chance(0.12):
                del self.scope[name]

    # --- statements

    def statement(self, level):
        """One statement."""
        rng, deep = self.rng, level >= 5
        if self.areas and not deep and self.chance(0.6):
            getattr(self, "statement_" + rng.choice(self.areas))(level)
            return
        choice = rng.randrange(100)
        if choice < 26 or (deep and choice < 70):
            kind = rng.choice(self.common)
            self.say(level, f"{(name := self.target(kind))} = {self.value(kind)}")
            self.scope[name] = kind
        elif choice < 36:
            self.augmented(level)
        elif choice < 40:
            self.unpack(level)
        elif choice < 46:
            self.store(level)
        elif choice < 51:
            self.append(level)
        elif choice < 60:
            self.condition(level)
        elif choice < 78 and not deep:
            self.loop(level)
        elif choice < 83 and not deep:
            self.attempt(level)
        elif choice < 85 and not deep:
            self.context(level)
        elif choice < 88 and self.loop_frames:
            self.say(level, f"if {self.make(BOOL)}:")
            self.say(level + 1, rng.choice(("break", "continue")))
        elif choice < 90:
            self.say(level, f"if {self.make(BOOL)}:")
            self.say(level + 1, f"return {self.result()}")
        elif choice < 92:
            self.rare(level)
        elif choice < 94:
            self.closure(level)
        elif choice < 96:
            call = self.expressions.call(1)
            if call:
                self.say(level, f"{(name := self.fresh())} = {call}")
                self.scope[name] = rng.choice((INT, FLOAT))
        elif choice < 98:
            self.say(level, f"note({self.make(rng.choice(ALL), 1)})")
        else:
            self.say(level, f"print({self.make(rng.choice((INT, FLOAT, STR)), 1)})")

    def augmented(self, level):
        names = [
            n
            for n in self.expressions.names(INT, FLOAT, SCALAR, BOOL)
            if n != "last" and not n.startswith("i")
        ]
        if not names:
            return
        name = self.rng.choice(names)
        kind = self.scope[name]
        makes_float = self.chance(0.1)
        ops = (
            ("+=", "+=", "-=", "*=", "//=", "%=", "/=")
            if kind != INT
            else ("+=", "+=", "-=", "//=", "%=", "^=", "|=", "&=", "-=")
        )
        self.say(
            level,
            f"{name} {self.rng.choice(ops)} {self.operand(kind if makes_float or kind != INT else INT)}",
        )

    def operand(self, kind):
        made = self.make(kind if kind == INT else self.rng.choice((kind, INT, FLOAT)), 1)
        return made if self.chance(0.3) else f"(abs({made}) + 1)"

    def unpack(self, level):
        first, second = self.target(INT), self.target(FLOAT)
        pair = f"{self.value(INT)}, {self.make(FLOAT)}"
        source = self.rng.choice(
            (
                pair,
                pair,
                pair,
                pair,
                f"{self.make(TUPLE, 1)}",
                f"{self.make(self.rng.choice((FLOATS, INTS, MIXED, ARRAY)), 1)}",
                f"divmod({self.make(INT, 1)}, {self.make(INT, 1)} or 3)",
            )
        )
        if self.is_tame and not source.startswith(("divmod", pair)):
            source = pair
        star = "*" if self.chance(0.1) else ""
        self.say(level, f"{first}, {star}{second} = {source}")
        self.scope[first] = INT
        self.scope[second] = FLOATS if star else FLOAT

    def store(self, level):
        names = self.expressions.names(INTS, FLOATS, MIXED, BYTEARRAY, ARRAY, MATRIX, ROWS)
        if not names:
            return
        name = self.rng.choice(names)
        kind = self.scope[name]
        index = self.expressions.index(name)
        if kind == MATRIX:
            index += ", " + self.expressions.index()
        place = f"{name}[{index}]" + (f"[{self.expressions.index()}]" if kind == ROWS else "")
        value = (
            ELEMENT[kind]
            if kind not in (ROWS, MATRIX, ARRAY)
            else self.rng.choice((FLOAT, INT, SCALAR, BOOL))
        )
        op = "=" if self.chance(0.6) else self.rng.choice(("+=", "-=", "*="))
        made = self.make(value, 1)
        self.say(level, f"{place} {op} {self.bounded(made) if op == '=' and value == INT else made}")

    def append(self, level):
        names = self.expressions.names(INTS, FLOATS, MIXED)
        if not names:
            return
        name = self.rng.choice(names)
        kind = ELEMENT[self.scope[name]] if self.chance(0.85) else self.rng.choice(COMMON)
        if self.in_loop:
            self.say(level, f"if len({name}) < 40:")
            level += 1
        self.say(
            level,
            f"{name}.append({self.make(kind, 1)})"
            if self.chance(0.85)
            else f"{name}.{self.rng.choice(('pop()', 'reverse()', 'extend((1, 2.5))', 'insert(0, 7)'))}",
        )

    def condition(self, level):
        self.say(level, f"if {self.make(BOOL)}:")
        self.branch(level + 1, 1 + self.rng.randrange(2))
        if self.chance(0.3):
            self.say(level, f"elif {self.make(self.rng.choice((BOOL, BOOL, INT, INTS)))}:")
            self.branch(level + 1, 1)
        if self.chance(0.5):
            self.say(level, "else:")
            self.branch(level + 1, 1 + self.rng.randrange(2))

    def loop(self, level):
        n = self.rng.choice((3, 4, 6, 9, 30))
        if self.trips * n > MAX_TRIPS:
            return
        saved = self.trips, self.in_loop, self.loop_frames
        self.trips, self.in_loop, self.loop_frames = self.trips * n, self.in_loop + 1, self.loop_frames + 1
        if self.chance(0.3):
            self.while_loop(level, n)
        else:
            self.for_loop(level, n)
        self.loop_frames = saved[2]
        if self.chance(0.15):
            self.say(level, "else:")
            self.branch(level + 1, 1)
        self.trips, self.in_loop, _ = saved

    def repeat(self, level, head, n_trips, n, defines=None):
        """A loop with this head that runs at most so often, its body of about `n` statements; for other modules."""
        if self.trips * n_trips > MAX_TRIPS:
            return
        saved = self.trips, self.in_loop, self.loop_frames
        self.trips, self.in_loop, self.loop_frames = (
            self.trips * n_trips,
            self.in_loop + 1,
            self.loop_frames + 1,
        )
        self.say(level, head)
        self.scope.update(defines or {})
        self.branch(level + 1, n)
        for name in defines or {}:
            self.scope.pop(name, None)
        self.trips, self.in_loop, self.loop_frames = saved

    def assign(self, level, kind, text, bound=""):
        """Assigns to a name of this type, cut where it might grow in a loop."""
        name = self.target(kind)
        self.say(level, f"{name} = ({text}){bound}" if self.in_loop and bound else f"{name} = {text}")
        self.scope[name] = kind

    def while_loop(self, level, n):
        counter = f"i{self.fresh()}"
        self.say(level, f"{counter} = {self.rng.choice(('0', '0', '-3', '0.0'))}")
        self.scope[counter] = INT
        test = f"{counter} < {n}"
        if self.chance(0.3):
            test = f"{test} and {self.make(BOOL, 1)}"
        self.say(level, f"while {test}:")
        self.say(level + 1, f"{counter} += {self.rng.choice(('1', '1', '2'))}")
        self.branch(level + 1, 1 + self.rng.randrange(4))

    def for_loop(self, level, n):
        rng = self.rng
        name = f"i{self.fresh()}"
        choice = rng.randrange(10)
        if choice < 5:
            self.scope[name] = INT
            text = rng.choice(
                (
                    f"range({n})",
                    f"range({n})",
                    f"range(1, {n})",
                    f"range({n}, -2, -1)",
                    f"range(0, {n}, 2)",
                    "range(2**63 - 2, 2**63 + 2)",
                    "range(len({c}))",
                )
            )
            containers = self.expressions.names(INTS, FLOATS, MIXED, ARRAY, BYTES, TUPLE)
            text = (
                text.replace("{c}", rng.choice(containers)) if containers else text.replace("len({c})", "4")
            )
            self.say(level, f"for {name} in {text}:")
        else:
            kind = rng.choice(ITERABLE)
            iterated = self.make(kind, 1)
            if choice < 8:
                self.scope[name] = ELEMENT[kind]
                self.say(level, f"for {name} in {iterated}:")
            elif choice == 8:
                other = f"i{self.fresh()}"
                self.scope[name], self.scope[other] = INT, ELEMENT[kind]
                start = f", {self.make(INT, 0)}" if self.chance(0.3) else ""
                self.say(level, f"for {name}, {other} in enumerate({iterated}{start}):")
            else:
                other, second = f"i{self.fresh()}", rng.choice(ITERABLE)
                more = self.make(second, 1)
                self.scope[name], self.scope[other] = ELEMENT[kind], ELEMENT[second]
                self.say(level, f"for {name}, {other} in zip({iterated}, {more}):")
        self.branch(level + 1, 1 + rng.randrange(4))
        if not self.chance(0.15):
            self.scope.pop(name, None)

    def attempt(self, level):
        self.say(level, "try:")
        self.branch(level + 1, 1 + self.rng.randrange(3))
        has_handler = self.chance(0.8)
        if has_handler:
            name = self.fresh()
            self.say(level, f"except {self.rng.choice(ERRORS)} as {name}:")
            self.say(
                level + 1,
                self.rng.choice(
                    (
                        f"note(type({name}).__name__)",
                        f"note({name}.args)",
                        "pass",
                        "raise" if self.chance(0.3) else "pass",
                    )
                ),
            )
            self.branch(level + 1, 1)
            if self.chance(0.2):
                self.say(level, "else:")
                self.branch(level + 1, 1)
        if not has_handler or self.chance(0.3):
            saved, self.loop_frames = self.loop_frames, 0
            self.say(level, "finally:")
            self.branch(level + 1, 1)
            self.loop_frames = saved

    def context(self, level):
        name = self.fresh()
        self.say(level, f"with Manager({self.rng.choice(('False', 'False', 'True'))}) as {name}:")
        self.branch(level + 1, 1 + self.rng.randrange(2))
        if self.chance(0.5):
            self.scope[name] = INT

    def rare(self, level):
        names = [n for n in self.scope if n.startswith("v")]
        choice = self.rng.randrange(5)
        if choice == 0:
            self.say(level, f"if {self.make(BOOL)}:")
            self.say(
                level + 1,
                f"raise {self.rng.choice(('ValueError', 'KeyError', 'IndexError'))}({self.make(INT, 1)})",
            )
        elif choice == 1 and names:
            self.say(level, f"del {self.rng.choice(names)}")
        elif choice == 2:
            self.say(level, f"{(name := self.fresh())} = Finalised({self.make(INT, 0)})")
            if self.chance(0.5):
                self.say(level, f"{name} = None")
        elif choice == 3:
            self.say(level, f"assert {self.make(BOOL)} or {self.make(BOOL)}, {self.make(INT, 0)}")
        else:
            self.say(
                level,
                f"{(name := self.fresh())} = {self.rng.choice(('Loud(2.5)', 'Small(7)', 'Sequence()'))}",
            )
            self.scope[name] = self.rng.choice((FLOAT, INT, INTS))

    def closure(self, level):
        name, inner = self.fresh(), self.fresh()
        if self.chance(0.5):
            self.say(level, f"{name} = lambda {inner}: {self.make(self.rng.choice((INT, FLOAT)), 1)}")
        else:
            outer = [n for n in self.scope if n.startswith("v")]
            self.say(level, f"def {name}({inner}):")
            if outer and self.chance(0.6):
                kept = self.rng.choice(outer)
                self.say(level + 1, f"nonlocal {kept}")
                self.say(level + 1, f"{kept} = {inner}")
            self.say(level + 1, f"return {self.make(self.rng.choice((INT, FLOAT)), 1)}")
        result = self.fresh()
        self.say(level, f"{result} = {name}({self.make(self.rng.choice((INT, FLOAT)), 0)})")
        self.scope[result] = self.rng.choice((INT, FLOAT))
