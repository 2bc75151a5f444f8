"""Nests of loops over long arrays and lists, as vector code is made for: sums, stencils, products, searches.

In: the scope of `Function`, with parameters that are long. Out: text. Containers hold 60 to 200 elements, so that checks
are hoisted and results tested in batches; each nest runs at most some thousand iterations.
"""

from __future__ import annotations

from .expressions import ARRAY, FLOAT, FLOATS, INT, INTS, MATRIX, ROWS

KINDS = ()
FLOATING = ("+", "-", "*", "*", "+", "/", "-")


class KernelStatements:
    """Statements; for `Function`."""

    def statement_kernels(self, level):
        if self.in_loop:
            return self.assign(level, INT, self.value(INT, 1))
        self.rng.choice(
            (
                self.total,
                self.total,
                self.stencil,
                self.stencil,
                self.nest,
                self.nest,
                self.escape,
                self.list_nest,
                self.search,
                self.multiply,
                self.histogram,
            )
        )(level)

    def source(self, *kinds):
        """A long thing of these kinds, or nothing."""
        names = [
            n for n in self.expressions.names(*kinds) if n in ("a", "b", "c", "last") or n.startswith("w")
        ]
        return self.rng.choice(names) if names else None

    def formula(self, terms, depth=2):
        """An arithmetic expression over the terms."""
        if depth == 0 or self.chance(0.2):
            return self.rng.choice(
                (*terms, *terms, self.rng.choice(("2", "0.5", "3", "-1", "1e-3", "7", "K_INT", "K_FLOAT")))
            )
        a, b = self.formula(terms, depth - 1), self.formula(terms, depth - 1)
        choice = self.rng.randrange(16)
        if choice < 11:
            op = self.rng.choice(FLOATING)
            return f"({a} / (abs({b}) + 1))" if op == "/" and self.is_tame else f"({a} {op} {b})"
        return self.rng.choice((
            f"abs({a})", f"max({a}, {b})", f"min({a}, {b})", f"({a} if {a} < {b} else {b})", f"(-{a})",
            f"math.sqrt(abs({a}))",
            f"math.{self.rng.choice(('sin', 'cos', 'tanh', 'fabs', 'atan', 'erf'))}({self.rng.choice(terms)})",
            f"({a} // 3)", f"({a} % 5)", f"math.exp(-abs({a}))", f"{self.rng.choice(('int', 'float'))}({a})",
            f"math.hypot({a}, {b})", f"({a} ** 2)",
        ))  # fmt: skip

    def span(self, x, i):
        """A range over the indices of `x`, and terms that lie inside it."""
        return self.rng.choice((
            (f"range(len({x}))", [f"{x}[{i}]", i]),
            (f"range(len({x}))", [f"{x}[{i}]", f"{x}[-{i} - 1]"]),
            (f"range(1, len({x}) - 1)", [f"{x}[{i}]", f"{x}[{i} - 1]", f"{x}[{i} + 1]"]),
            (f"range(0, len({x}), 2)", [f"{x}[{i}]", i]),
            (f"range(len({x}) - 1, -1, -1)", [f"{x}[{i}]", i]),
            (f"range(len({x}) - 1, 0, -1)", [f"{x}[{i}]", f"{x}[{i} - 1]"]),
            (f"range(len({x}) // 2)", [f"{x}[2 * {i}]", f"{x}[2 * {i} + 1]", f"{x}[{i}]"]),
        ))  # fmt: skip

    def total(self, level):
        x = self.source(ARRAY, FLOATS, INTS)
        if x is None:
            return self.nest(level)
        i, s, t = f"i{self.fresh()}", self.fresh(), self.fresh()
        head, terms = self.span(x, i)
        y = self.source(ARRAY, FLOATS)
        if y and self.chance(0.5):
            head, terms = f"range(min(len({x}), len({y})))", [f"{x}[{i}]", f"{y}[{i}]"]
        if self.chance(0.25):
            head, terms = x, [i]
        self.say(level, f"{s} = {self.rng.choice(('0', '0.0', '0.0', '1.0', f'{x}[0]'))}")
        self.say(level, f"{t} = {self.rng.choice(('0', '1', '-1e300', '0.0'))}")
        self.say(level, f"for {i} in {head}:")
        body = self.formula(terms)
        if self.chance(0.3):
            self.say(
                level + 1,
                f"if {self.formula(terms, 1)} {self.rng.choice(('<', '>', '==', '<='))} {self.formula(terms, 1)}:",
            )
            self.say(level + 2, self.rng.choice(("continue", f"{t} += 1", f"{t} = {i}", "break")))
        self.say(level + 1, f"{s} {self.rng.choice(('+=', '+=', '+=', '-='))} {body}")
        if self.chance(0.4):
            self.say(
                level + 1,
                self.rng.choice(
                    (
                        f"{t} = max({t}, {self.formula(terms, 1)})",
                        f"{t} += {self.formula(terms, 1)}",
                        f"if {terms[0]} > {t}: {t} = {terms[0]}",
                        f"{t} = {s}",
                    )
                ),
            )
        self.scope.update({s: FLOAT, t: FLOAT})

    def stencil(self, level):
        x, y = self.source(ARRAY), self.source(ARRAY)
        if x is None or y is None:
            return self.total(level)
        i = f"i{self.fresh()}"
        head, terms = self.span(x, i)
        to = self.rng.choice((y, y, x))
        if self.chance(0.5):
            head = f"range(1, min(len({x}), len({y})) - 1)"
            terms = [f"{x}[{i}]", f"{x}[{i} - 1]", f"{x}[{i} + 1]", f"{y}[{i}]"]
        elif to == y:
            head, terms = f"range(min(len({x}), len({y})))", [f"{x}[{i}]", f"{y}[{i}]"]
        if self.chance(0.3):  # a view that may overlap with what is read
            w = f"w{self.fresh()}"
            self.say(level, f"{w} = {x}[{self.rng.choice(('1:', '::-1', ':-1', '2:', ':'))}]")
            self.scope[w] = ARRAY
            head, to = f"range(1, len({w}) - 1)", w
            terms = [f"{x}[{i}]", f"{x}[{i} - 1]", f"{w}[{i}]"]
        self.say(level, f"for {i} in {head}:")
        at = i if self.chance(0.8) else self.rng.choice((f"{i} - 1", f"-{i} - 1"))
        if self.chance(0.25):
            self.say(
                level + 1,
                f"if {self.formula(terms, 1)} {self.rng.choice(('<', '>', '!='))} {self.formula(terms, 1)}:",
            )
            level += 1
        self.say(
            level + 1,
            f"{to}[{at}] {self.rng.choice(('=', '=', '=', '+=', '-=', '*='))} {self.formula(terms)}",
        )

    def nest(self, level):
        m = self.source(MATRIX)
        if m is None:
            return self.assign(level, FLOAT, self.value(FLOAT))
        i, j, s = f"i{self.fresh()}", f"i{self.fresh()}", self.fresh()
        other = self.source(MATRIX)
        inner = self.rng.choice(
            (
                f"range({m}.shape[1])",
                f"range(1, {m}.shape[1] - 1)",
                f"range({m}.shape[1] - 1)",
                f"range({m}.shape[1] - 1, -1, -1)",
            )
        )
        outer = self.rng.choice(
            (f"range({m}.shape[0])", f"range(1, {m}.shape[0] - 1)", f"range({m}.shape[0] - 1)")
        )
        terms = [
            f"{m}[{i}, {j}]",
            f"{m}[{i}, {j}]",
            f"{m}[{i} - 1, {j}]",
            f"{m}[{i}, {j} - 1]",
            f"{i}",
            f"{j}",
        ]
        if other != m and self.chance(0.3):
            terms.append(f"{other}[0, 0]")
        is_sum = self.chance(0.4)
        self.say(level, f"{s} = {self.rng.choice(('0.0', '0', '1.5'))}")
        self.say(level, f"for {i} in {outer}:")
        if self.chance(0.25):
            self.say(level + 1, f"{s} = {self.rng.choice(('0.0', f'{s} * 0.5', f'{m}[{i}, 0]'))}")
        self.say(level + 1, f"for {j} in {inner}:")
        if is_sum:
            self.say(level + 2, f"{s} {self.rng.choice(('+=', '-=', '+='))} {self.formula(terms)}")
        else:
            self.say(
                level + 2, f"{m}[{i}, {j}] {self.rng.choice(('=', '=', '+=', '*='))} {self.formula(terms)}"
            )
        if self.chance(0.2):
            self.say(level + 1, f"{m}[{i}, -1] = {s}")
        self.scope[s] = FLOAT

    def escape(self, level):
        """An inner loop that each iteration leaves at its own time."""
        i, x, y, k, out = f"i{self.fresh()}", self.fresh(), self.fresh(), self.fresh(), self.fresh()
        n = self.rng.choice(("9", "23", "64", "70"))
        self.say(level, f"{out} = 0")
        self.say(level, f"for {i} in range({n}):")
        self.say(
            level + 1, f"{x} = {self.rng.choice((f'{i} * 0.03 - 1.0', f'{i} / 7', f'K_FLOAT - {i} * 0.1'))}"
        )
        self.say(level + 1, f"{y} = {self.rng.choice(('0.0', f'{i} * 0.01', '1.0'))}")
        self.say(level + 1, f"{k} = 0")
        self.say(
            level + 1,
            f"while {self.rng.choice((f'{x} * {x} + {y} * {y} < 4.0', f'abs({x}) < 50.0', f'{x} < 9.5'))} and {k} < {self.rng.choice(('5', '20', '40'))}:",
        )
        self.say(level + 2, f"{x} = {self.formula([x, y, f'{x} * {x}'])}")
        self.say(level + 2, f"{y} = {self.formula([x, y])}")
        self.say(level + 2, f"{k} += 1")
        self.say(level + 1, f"{out} += {self.rng.choice((k, k, x, f'{k} * {i}', y))}")
        self.scope.update({out: INT})

    def list_nest(self, level):
        r = self.source(ROWS)
        if r is None:
            return self.total(level)
        i, j, s = f"i{self.fresh()}", f"i{self.fresh()}", self.fresh()
        self.say(level, f"{s} = 0.0")
        if self.chance(0.4):
            self.say(level, f"for {i} in {r}:")
            self.say(level + 1, f"for {j} in {self.rng.choice((f'range(len({i}))', i))}:")
            self.say(level + 2, f"{s} += {self.formula([f'{i}[0]', j])}")
        else:
            self.say(level, f"for {i} in range(len({r})):")
            self.say(level + 1, f"for {j} in range(len({r}[{i}])):")
            terms = [f"{r}[{i}][{j}]", f"{r}[0][{j}]", f"{r}[{i} - 1][{j}]"]
            self.say(
                level + 2,
                f"{s} += {self.formula(terms)}"
                if self.chance(0.5)
                else f"{r}[{i}][{j}] {self.rng.choice(('=', '+=', '*='))} {self.formula(terms)}",
            )
        self.scope[s] = FLOAT

    def search(self, level):
        x = self.source(ARRAY, INTS, FLOATS)
        if x is None:
            return self.escape(level)
        i, j, k = f"i{self.fresh()}", self.fresh(), self.fresh()
        self.say(level, f"{j}, {k} = 0, len({x}) - 1")
        self.say(level, f"while {j} < {k}:")
        self.say(level + 1, f"{i} = ({j} + {k}) // 2")
        self.say(level + 1, f"if {x}[{i}] < {self.make(self.rng.choice((INT, FLOAT)), 0)}:")
        self.say(level + 2, f"{j} = {i} + 1")
        self.say(level + 1, "else:")
        self.say(level + 2, f"{k} = {i}")
        self.scope[j] = INT

    def multiply(self, level):
        r = self.source(ROWS, MATRIX)
        if r is None:
            return self.escape(level)
        i, j, k, out = (f"i{self.fresh()}" for _ in range(4))
        n = self.rng.choice(("3", "4", f"min(len({r}), len({r}[0]))"))
        self.say(
            level,
            f"{out} = {self.rng.choice(('[[0.0] * 9 for _ in range(9)]', 'np.zeros((9, 9))', 'np.zeros((9, 9), np.float32)'))}",
        )
        self.say(level, f"n{out} = min({n}, 9)")
        self.say(level, f"for {i} in range(n{out}):")
        self.say(level + 1, f"for {j} in range(n{out}):")
        self.say(level + 2, "s = 0.0")
        self.say(level + 2, f"for {k} in range(n{out}):")
        self.say(level + 3, f"s += {r}[{i}][{k}] * {r}[{k}][{j}]")
        self.say(level + 2, f"{out}[{i}][{j}] = s")
        name = self.fresh()
        self.say(level, f"{name} = {out}")
        self.scope[name] = ROWS

    def histogram(self, level):
        x = self.source(ARRAY, INTS, FLOATS)
        if x is None:
            return self.escape(level)
        i, h = f"i{self.fresh()}", self.fresh()
        self.say(
            level,
            f"{h} = {self.rng.choice(('[0] * 9', 'np.zeros(9, np.int64)', 'np.zeros(9, np.uint8)', 'bytearray(9)', '[0.0] * 9', 'np.zeros(9, np.float32)'))}",
        )
        self.say(level, f"for {i} in {x}:")
        self.say(
            level + 1,
            f"{h}[int({i}) % 9] += {self.rng.choice(('1', '1', '2', i if not self.is_tame else '1'))}",
        )
        self.scope[h] = INTS
