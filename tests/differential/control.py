"""Control flow and calls: nested try and with, match, closures, generators, recursion, star arguments, globals.

In: the scope of `Expressions` and `Function`. Out: text, and the functions that it calls (`definitions`). Loops count,
recursion goes down.
"""

from __future__ import annotations

from .classes import formula
from .expressions import BOOL, FLOAT, FLOATS, INT, INTS, MIXED, STR, TUPLE

KINDS = (INT, FLOAT, TUPLE, INTS, FLOATS)
ERRORS = (
    "ValueError",
    "KeyError",
    "Own",
    "ZeroDivisionError",
    "(IndexError, TypeError)",
    "Exception",
    "ArithmeticError",
    "BaseException",
)


def definitions(rng):
    """The text of a program's own helpers."""
    f = lambda terms, depth=2: formula(rng, terms, depth)
    jit = lambda: ["@jit"] if rng.random() < 0.5 else []
    lines = [
        *("class Own(Exception):", "    pass", ""),
        *(*jit(), "def opt(a, b=2, *rest, c=3, **kw):", f"    return {f(['a', 'b', 'c', 'len(rest)', 'len(kw)'])}", ""),
        *(*jit(), "def only(a, /, b, *, c=1.5):", f"    return {f(['a', 'b', 'c'])}", ""),
        *(*jit(), "def rec(n, x):", "    if n <= 0:", f"        return {rng.choice(('x', '1', 'x * 0.5'))}", f"    return {rng.choice((f'rec(n - 1, {f(chr(110) + chr(120), 1)})', f'rec(n - 1, x) + {f([chr(110), chr(120)], 1)}', 'rec(n - 1, x) + rec(n - 2, x + 1)', 'n + other(n - 1, x)'))}", ""),
        *(*jit(), "def other(n, x):", "    if n < 1:", "        return x", f"    return {f(['n', 'x'], 1)} + rec(n - {rng.choice('12')}, x)", ""),
        *("def gen(n, x):", "    for i in range(n):", f"        yield {f(['i', 'x'])}", *rng.choice(([], ["    return 3"], ["    yield from (x, x)"])), ""),
        *("def deco(function):", "    @wraps(function)", "    def inner(*args, **kw):", f"        return function(*args, **kw) {rng.choice(('+ 1', '* 0.5', '- G_INT'))}", "    return inner", ""),
        *("@deco", *jit(), "def wrapped(x, k=2):", f"    return {f(['x', 'k'])}", ""),
        *(*jit(), "def bump(k):", "    global G_INT", f"    G_INT = {rng.choice(('(G_INT + k) % 1000', 'k', 'G_INT + 0.5', '-k'))}", "    return G_INT", ""),
        *(*jit(), "def risky(k):", f"    if k % {rng.choice('357')} == 1:", f"        raise {rng.choice(('Own(k)', 'ValueError(k, 2)', 'KeyError', 'ZeroDivisionError'))}", f"    return {f(['k', 'G_INT'])}", ""),
    ]  # fmt: skip
    return lines


class Control:
    """Expressions; for `Expressions`."""

    def make_float(self, depth):
        if "control" not in self.areas or self.chance(0.6):
            return super().make_float(depth)
        a, k = self.make(FLOAT, depth), self.make(INT, 0)
        return self.pick(
            f"opt({k}, {a})", f"opt({a}, c={k})", f"opt({k}, *({a}, 2), d={k})", f"opt(*{self.leaf(FLOATS)}[:3], 1)",
            f"opt({k}, **{{'c': {a}}})", f"only({k}, {a})", f"only({k}, b={a}, c=2)", f"rec({k} & 7, {a})",
            f"rec({k} % 5, {k})", f"wrapped({a})", f"wrapped({k}, k={a})",
            f"sum(gen({k} & 3, {a}))", f"next(gen(2, {a}))", f"bump({k} & 15)", f"(lambda q, r={a}: q + r)({k})",
            f"(v_ := {a})", f"(v_ + {k} if (v_ := {a}) > 0 else v_)",
            f"(lambda *q: len(q) + q[0])({a}, *{self.leaf(INTS)}[:2])", f"float(Fraction({k}, 7) + 1)",
            f"float(Decimal('1.1') * ({k} % 100))", f"other({k} & 7, {a})",
        )  # fmt: skip

    def make_int(self, depth):
        if "control" not in self.areas or self.chance(0.6):
            return super().make_int(depth)
        a, b = self.make(INT, depth), self.make(INT, 0)
        return self.pick(
            f"({a} ** 9 % 1000003)", f"pow({a}, 3, 1009)", f"math.gcd({a}, {b})", f"math.isqrt(abs({a}))",
            f"({a} * {b} * 2**61 >> 60) % 10007", f"len([w_ for q in {self.leaf(INTS)} if (w_ := q % 5) > 1])",
            f"int(Fraction({a}, 3) * 2) % 1009", f"({a} // 10**20)", f"({a} < {b}) + ({b} < {a})",
            f"(({a}) % 7 if {a} < {b} < 100 else {b})",
            f"sum(i for i, q in enumerate(gen(3, {b})) if q)", "G_INT" if self.chance(0.3) else f"({a} or {b})",
            f"({a} and {b})", f"hash({a})", f"rec({b} % 4, 1)", f"int(10**20 // ({b} % 9 + 1) % 1013)",
        )  # fmt: skip


class ControlStatements:
    """Statements; for `Function`."""

    def statement_control(self, level):
        self.rng.choice((
            self.nested_try, self.nested_try, self.nested_try, self.managers, self.matching, self.matching, self.counter, self.counter, self.lambdas, self.generator, self.generator, self.walrus, self.early, self.risk, self.risk, self.rebinding, self.recursion, self.undo, self.polymorphic, self.polymorphic, self.big,
        ))(level)  # fmt: skip

    def leave(self):
        """A statement that leaves a block, or one that does not."""
        choices = [
            f"note({self.make(INT, 0)})",
            "pass",
            f"return {self.result()}",
            f"raise Own({self.make(INT, 0)})",
            f"note(risky({self.make(INT, 0)}))",
        ]
        return self.rng.choice(
            choices + (["break", "continue", "break", "continue"] if self.loop_frames else [])
        )

    def nested_try(self, level):
        name, i = self.fresh(), f"i{self.fresh()}"
        is_loop = self.chance(0.7)
        saved = self.trips, self.in_loop, self.loop_frames
        if is_loop:
            self.say(level, f"for {i} in range({self.rng.choice(('3', '5', '9'))}):")
            self.trips, self.in_loop, self.loop_frames, level = (
                self.trips * 9,
                self.in_loop + 1,
                self.loop_frames + 1,
                level + 1,
            )
            self.scope[i] = INT
        self.say(level, "try:")
        if self.chance(0.4) and level < 5:
            self.say(level + 1, "try:")
            self.branch(level + 2, 1)
            self.say(level + 2, f"if {self.make(BOOL, 1)}: {self.leave()}")
            if self.chance(0.5):
                self.say(level + 1, f"except {self.rng.choice(ERRORS)}:")
                self.say(
                    level + 2,
                    self.leave()
                    if self.chance(0.6)
                    else f"raise {self.rng.choice(('', 'KeyError(3) from None', 'ValueError(4)'))}",
                )
            else:
                self.say(level + 1, "finally:")
                self.say(level + 2, self.leave() if self.chance(0.4) else f"note({self.make(INT, 0)})")
        else:
            self.branch(level + 1, 1)
            self.say(level + 1, f"if {self.make(BOOL, 1)}: {self.leave()}")
            if is_loop:
                self.say(level + 1, f"note(risky({i}))")
        self.say(level, f"except {self.rng.choice(ERRORS)} as {name}:")
        self.say(
            level + 1,
            self.rng.choice(
                (
                    f"note(type({name}).__name__)",
                    f"note(({name}.args, type({name}.__context__).__name__))",
                    "note(sys.exc_info()[0].__name__)",
                )
            ),
        )
        if self.chance(0.3):
            self.say(level + 1, self.leave())
        if self.chance(0.3):
            self.say(level, "else:")
            self.branch(level + 1, 1)
        if self.chance(0.4):
            self.say(level, "finally:")
            self.say(
                level + 1,
                f"note({self.make(self.rng.choice((INT, FLOAT)), 0)})"
                if self.chance(0.7)
                else f"if {self.make(BOOL, 1)}: {self.leave()}",
            )
        self.trips, self.in_loop, self.loop_frames = saved
        self.scope.pop(i, None)

    def managers(self, level):
        a, b = self.fresh(), self.fresh()
        self.say(
            level,
            self.rng.choice(
                (
                    f"with Manager(True) as {a}, Manager(False) as {b}:",
                    f"with Manager(True) as {a}:",
                    f"with suppress({self.rng.choice(('ValueError', 'Own', 'Exception'))}):",
                )
            ),
        )
        self.branch(level + 1, 1)
        self.say(level + 1, f"if {self.make(BOOL, 1)}: {self.leave()}")

    def matching(self, level):
        kind = self.rng.choice((INT, TUPLE, FLOATS, STR, MIXED, FLOAT, INTS))
        a, b = self.fresh(), self.fresh()
        self.say(level, f"match {self.make(kind, 1)}:")
        cases = [
            ("case 1 | 2 | 3:", {}), (f"case int({a}) if {a} > 5:", {a: INT}), (f"case float() as {a}:", {a: FLOAT}),
            (f"case ({a}, {b}):", {a: INT, b: FLOAT}), (f"case [{a}, *{b}]:", {a: FLOAT, b: FLOATS}),
            ("case []:", {}), ("case 'a' | 'ab':", {}), (f"case str({a}):", {a: STR}),
            ("case None | True:", {}), (f"case [{a}, _, *_]:", {a: INT}), ("case {'a': 1}:", {}),
            (f"case Small() | Loud() as {a}:", {}), ("case -1:", {}),
            (f"case [int({a}), float({b}), *_]:", {a: INT, b: FLOAT}),
        ]  # fmt: skip
        for text, defines in self.rng.sample(cases, 3):
            self.say(level + 1, text)
            self.scope.update(defines)
            self.branch(level + 2, 1)
            for name in defines:
                self.scope.pop(name, None)
        if self.chance(0.6):
            self.say(level + 1, "case _:")
            self.branch(level + 2, 1)

    def counter(self, level):
        """A closure that changes what it closes over, called in a loop."""
        c, function, i, out = self.fresh(), self.fresh(), f"i{self.fresh()}", self.target(FLOAT)
        self.say(level, f"{c} = {self.make(self.rng.choice((INT, FLOAT)), 0)}")
        self.say(level, f"def {function}(k, d={self.make(INT, 0)}):")
        self.say(level + 1, f"nonlocal {c}")
        self.say(
            level + 1,
            f"{c} = {self.rng.choice((f'({c} + k) % 1009', f'{c} * 0.5 + k', 'k', f'{c} + d if k else d'))}",
        )
        self.say(level + 1, f"return {self.rng.choice((c, f'{c} + k', 'k'))}")
        self.say(level, f"{out} = 0")
        self.say(level, f"for {i} in range({self.rng.choice(('3', '9', '30'))}):")
        self.say(level + 1, f"{out} += {function}({self.rng.choice((i, f'{i}, 2', f'k={i}'))})")
        self.scope.update({out: FLOAT, c: FLOAT})

    def lambdas(self, level):
        functions, q = self.fresh(), self.fresh()
        self.say(
            level,
            f"{functions} = [{self.rng.choice((f'lambda x: x + {q}', f'lambda x, y={q}: x * y', f'lambda x: (x, {q})[1]'))} for {q} in range(3)]",
        )
        self.assign(level, FLOAT, f"sum(function({self.make(INT, 0)}) for function in {functions})")

    def generator(self, level):
        g, i, e = self.fresh(), f"i{self.fresh()}", self.expressions
        choice = self.rng.randrange(5)
        if choice == 0:
            self.say(level, f"{g} = gen({self.rng.randrange(5)}, {e.make(FLOAT, 0)})")
            self.say(level, f"note(next({g}, None))")
            self.repeat(level, f"for {i} in {g}:", 5, 2, {i: FLOAT})
            self.say(level, f"note(list({g}))")
        elif choice == 1:
            self.repeat(level, f"for {i} in gen({e.make(INT, 0)} & 7, {e.make(INT, 0)}):", 8, 2, {i: FLOAT})
        elif choice == 2:
            self.repeat(
                level,
                f"for {i} in (q * {e.make(FLOAT, 0)} for q in {e.leaf(INTS)}[:9] if q):",
                9,
                2,
                {i: FLOAT},
            )
        elif choice == 3:
            self.say(level, f"def {g}():")
            self.say(level + 1, f"for q in {e.leaf(FLOATS)}[:9]:")
            self.say(level + 2, f"yield q + {e.make(INT, 0)}")
            self.assign(level, FLOATS, f"list({g}())")
        else:
            self.assign(level, FLOATS, f"[q for q in gen(4, {e.make(FLOAT, 1)})]")

    def walrus(self, level):
        n = self.fresh()
        if self.chance(0.5):
            self.say(level, f"if ({n} := {self.value(INT)}) > {self.make(INT, 0)}:")
            self.branch(level + 1, 1)
        else:
            i = f"i{self.fresh()}"
            self.say(level, f"{i} = 0")
            self.say(level, f"while ({n} := {i} * 2) < 9:")
            self.say(level + 1, f"{i} += 1")
            self.scope[i] = INT
            self.branch(level + 1, 1)
            self.scope.pop(i)
        self.scope[n] = INT

    def early(self, level):
        """A loop with an else, left early."""
        i = f"i{self.fresh()}"
        self.say(level, f"for {i} in {self.rng.choice(('range(9)', self.expressions.leaf(INTS) + '[:9]'))}:")
        self.say(level + 1, f"if {i} == {self.make(INT, 0)}: {self.rng.choice(('break', 'continue'))}")
        self.say(level + 1, f"if {i} > 5 and {self.make(BOOL, 1)}: break")
        self.say(level, "else:")
        self.branch(level + 1, 1)

    def risk(self, level):
        i, out = f"i{self.fresh()}", self.target(FLOAT)
        self.say(level, f"{out} = 0.0")
        self.say(level, f"for {i} in range({self.rng.choice(('5', '9', '20'))}):")
        self.say(level + 1, "try:")
        self.say(
            level + 2,
            f"{out} += {self.rng.choice((f'risky({i})', f'1 / ({i} % 3)', f'[1.5, 2][{i} & 3]', f'risky({i}) * 0.5'))}",
        )
        self.say(
            level + 1,
            f"except {self.rng.choice(('Exception', '(Own, ValueError, KeyError, ArithmeticError, IndexError)'))}:",
        )
        self.say(level + 2, self.rng.choice((f"{out} -= 1", "continue", "pass", f"{out} = {i}")))
        self.scope[out] = FLOAT

    def rebinding(self, level):
        i, out = f"i{self.fresh()}", self.target(FLOAT)
        self.say(level, f"{out} = 0")
        self.say(level, f"for {i} in range({self.rng.choice(('5', '12'))}):")
        self.say(
            level + 1,
            self.rng.choice(
                (
                    f"bump({i})",
                    f"if {i} == 3: bump(7)",
                    f"{out} += bump({i} & 3)",
                    f"if {i} == 4: globals()['K_FLOAT'] = {i} * 0.5",
                )
            ),
        )
        self.say(level + 1, f"{out} += {self.rng.choice(('G_INT', 'K_FLOAT', 'G_INT * 2', 'K_INT + G_INT'))}")
        self.scope[out] = FLOAT

    def recursion(self, level):
        i = f"i{self.fresh()}"
        name = self.target(FLOAT)
        self.say(level, f"{name} = 0")
        self.say(level, f"for {i} in range({self.rng.choice(('4', '9'))}):")
        self.say(
            level + 1,
            f"{name} += {self.rng.choice((f'rec({i}, {self.make(FLOAT, 0)})', f'other({i} & 7, {i})', f'opt({i}, {i} * 0.5, c={self.make(INT, 0)})', f'only({i}, {self.make(FLOAT, 0)})'))}",
        )
        self.scope[name] = FLOAT

    def undo(self, level):
        name = self.fresh()
        self.say(level, f"{name} = {self.make(INT, 1)}")
        self.say(level, "try:")
        self.say(level + 1, f"if {self.make(BOOL, 1)}: del {name}")
        self.say(level + 1, f"{name} += 1")
        self.say(level, "except UnboundLocalError:")
        self.say(level + 1, f"{name} = -1")
        self.scope[name] = INT

    def polymorphic(self, level):
        """A loop whose values change their type."""
        x, i = self.target(FLOAT), f"i{self.fresh()}"
        values = self.rng.sample(
            (
                "1",
                "2.5",
                "True",
                "np.float64(1.5)",
                "10**20",
                "Loud(1.5)",
                "Small(3)",
                "Fraction(1, 3)",
                "1j",
                "np.int64(3)",
                "-0.0",
                "2**62",
                "np.float32(0.5)",
                "Decimal(2)",
                "np.uint8(200)",
            ),
            3,
        )
        n = self.rng.choice(("2", "9", "40"))
        self.say(level, f"{x} = {self.rng.choice(('0', '0.0'))}")
        self.say(level, "try:")
        self.say(
            level + 1, f"for {i} in [{values[0]}] * {n} + [{values[1]}, {values[2]}] + [{values[0]}] * 2:"
        )
        self.say(
            level + 2,
            f"{x} = {self.rng.choice((f'{x} + {i}', f'{x} * 0 + {i}', f'{i} - {x}', f'max({x}, {i})', f'{i} + {i}', f'{x} + {i} * {i}', f'({i} < {x}) + {x}', f'-{i}', f'{i} // 2 + {x}', f'abs({i}) + {x}'))}",
        )
        self.say(level, f"except TypeError: {x} = 1.5")
        self.scope[x] = FLOAT

    def big(self, level):
        name, i = self.target(INT), f"i{self.fresh()}"
        self.say(level, f"{name} = {self.rng.choice(('1', '2**31', '3**39', '-7'))}")
        self.say(level, f"for {i} in range({self.rng.choice(('9', '40', '70'))}):")
        self.say(
            level + 1,
            f"{name} {self.rng.choice(('*= 3', '+= ' + name, '= ' + name + ' * 7 - ' + i, '<<= 1', '= ' + name + ' ** 2 % (2**61 - 1)', '= ' + name + ' * ' + name + ' & (2**64 - 1)', '-= 2**60'))}",
        )
        self.say(level, f"{name} %= 2**62" if self.chance(0.5) else f"note({name})")
        self.scope[name] = INT
