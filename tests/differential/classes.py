"""Classes and their objects: inheritance, slots, dataclasses, properties, operators, `super`, patches while loops run.

In: a random generator. Out: the classes of a program (`definitions`), and text that uses them. All classes of a program
have the attributes x (a float), n (an int) and items (a list), the methods `value` and `step` and the property `size`,
so that code meets objects of several classes at one place and mostly goes on.
"""

from __future__ import annotations

from .expressions import FLOAT, FLOATS, INT

OBJECT, OBJECTS = "object", "objects"
KINDS = (OBJECT, OBJECT, OBJECTS)
NAMES = ("P", "Q", "S", "D")


def formula(rng, terms, depth=2):
    """An arithmetic expression over the terms, of a float."""
    if depth == 0:
        return rng.choice((*terms, *terms, "2", "0.5", "3", "K_FLOAT"))
    a, b = formula(rng, terms, depth - 1), formula(rng, terms, depth - 1)
    return rng.choice(
        (
            f"({a} + {b})",
            f"({a} - {b})",
            f"({a} * 0.5 + {b})",
            f"({a} if {a} < {b} else {b})",
            f"max({a}, {b})",
            a,
            f"({a} % 97 * {b})",
            f"abs({a})",
            f"({a} / (abs({b}) + 1))",
        )
    )


def methods(rng, base):
    """Lines of the methods every class has."""
    jit = lambda: ["    @jit"] if rng.random() < 0.35 else []
    lines = [*jit(), "    def value(self, k):"]
    if base and rng.random() < 0.6:
        lines.append(f"        return super().value(k) {rng.choice('+-')} {formula(rng, ['self.n', 'k'], 1)}")
    else:
        if rng.random() < 0.3:
            lines += ["        if k > 3:", f"            return {formula(rng, ['self.x', 'k'], 1)}"]
        lines.append(f"        return {formula(rng, ['self.x', 'self.n', 'k'])}")
    lines += [
        *jit(),
        "    def step(self, k):",
        f"        self.x = {formula(rng, ['self.x', 'self.x', 'k', 'self.n'])} % 1e6",
    ]
    lines.append(f"        self.n {rng.choice(('+= 1', '+= k & 3', '= (self.n * 3 + 1) % 1000', '-= 1'))}")
    if rng.random() < 0.3:
        lines.append("        if len(self.items) < 20: self.items.append(self.x)")
    lines.append(f"        {rng.choice(('return self', 'return self.x', 'return None', 'pass'))}")
    lines += [
        "    @property",
        *jit(),
        "    def size(self):",
        f"        return {formula(rng, ['self.x', 'self.n'], 1)}",
    ]
    if rng.random() < 0.6:
        lines += ["    @size.setter", "    def size(self, new):", "        self.x = new * 0.5"]
    return lines


def operators(rng):
    """Some special methods."""
    made = [
        ["def __add__(self, other):", "    return self.x + (other.x if hasattr(other, 'x') else other)"],
        ["def __radd__(self, other):", "    return other + self.x"],
        ["def __mul__(self, k):", "    return type(self)(self.x * k, self.n)"],
        ["def __iadd__(self, k):", "    self.x += k", "    return self"],
        ["def __lt__(self, other):", "    return self.x < other.x"],
        [
            "def __eq__(self, other):",
            "    return isinstance(other, P) and self.n == other.n",
            "def __hash__(self):",
            "    return self.n",
        ],
        ["def __len__(self):", "    return len(self.items) + 1"],
        ["def __getitem__(self, i):", "    return self.items[i] if i < len(self.items) else self.x"],
        ["def __iter__(self):", "    yield self.x", "    yield from self.items"],
        ["def __contains__(self, x):", "    return x == self.n"],
        ["def __call__(self, k):", "    return self.value(k) + 1"],
        ["def __bool__(self):", "    return self.n % 2 == 0"],
        ["def __neg__(self):", "    return -self.x"],
        ["def __float__(self):", "    return float(self.x)"],
        ["def __index__(self):", "    return self.n & 7"],
        ["def __del__(self):", "    NOTES.append(('gone', self.n))"],
        [
            "def __getattr__(self, name):",
            "    if name.startswith('_'): raise AttributeError(name)",
            "    NOTES.append(name)",
            "    return 2.5",
        ],
        [
            "def __setattr__(self, name, value):",
            "    NOTES.append(name)",
            "    object.__setattr__(self, name, value)",
        ],
    ]
    return ["    " + line for lines in rng.sample(made, rng.randrange(5)) for line in lines]


def definitions(rng):
    """The text of the classes, and of `patch`, which changes them."""
    lines = [
        *("class P(Named):", f"    total = {rng.randrange(5)}", "    def __init__(self, x, n=1):"),
        *("        self.x = x", "        self.n = n", "        self.items = []"),
        *(methods(rng, False) + operators(rng)),
        *("    @classmethod", "    def make(cls, x):", "        return cls(x, cls.total)"),
        *("    @staticmethod", "    def twice(k):", "        return k * 2"),
        *("", "class Q(P):", f"    total = {rng.randrange(5)}"),
        *(["    def __init__(self, x, n=2):", "        super().__init__(x, n)", "        self.more = n"] if rng.random() < 0.6 else []),
        *(methods(rng, True) + operators(rng)),
        *("", "class S(Named):", "    __slots__ = ('x', 'n', 'items')", "    total = 3", "    def __init__(self, x, n=1):"),
        *("        self.x, self.n, self.items = x, n, []",),
        *methods(rng, False),
        *("", f"@dataclass{rng.choice(('', '', '(order=True)', '(slots=True)', '(eq=False)'))}", "class D:"),
        *("    x: float", "    n: int = 1", "    items: list = field(default_factory=list)"),
        *methods(rng, False),
        *("", "def patched(self, k):", f"    return {formula(rng, ['self.n', 'k', 'self.x'], 1)}"),
        *("", "def patch(what):", "    cls = (P, Q, D)[what % 3]"),
        *("    if what % 4 == 0: cls.value = patched", "    elif what % 4 == 1: cls.size = property(lambda self: 7.5)"),
        *("    elif what % 4 == 2: cls.total = what * 1.5", "    else: cls.step = lambda self, k: k"),
        *("", "def peek(o):", "    return sorted(vars(o)) if hasattr(o, '__dict__') else None", ""),
    ]  # fmt: skip
    return lines


class Objects:
    """Expressions; for `Expressions`."""

    def leaf(self, kind):
        if kind not in (OBJECT, OBJECTS):
            return super().leaf(kind)
        names = self.names(kind)
        if names and self.chance(0.9):
            return self.rng.choice(names)
        if kind == OBJECTS:
            one = self.pick(
                "P(q, 1)", "P(q * 0.5, 2)", "Q(q)", "S(q, 3)", "D(q * 1.0)", "(P(q) if q & 1 else Q(q, 3))"
            )
            return f"[{one} for q in range({self.pick('3', '5')})]"
        return f"{self.pick('P', 'P', 'Q', 'S', 'D')}({self.make(FLOAT, 0)}, {self.make(INT, 0)} % 100)"

    def make_object(self, depth):
        return self.pick(
            self.leaf(OBJECT),
            self.leaf(OBJECT),
            f"{self.leaf(OBJECTS)}[{self.pick('0', '-1')}]",
            f"{self.pick('P', 'Q')}.make({self.make(FLOAT, depth)})",
            f"{self.pick('P', 'Q', 'S', 'D')}({self.make(FLOAT, depth)})",
            f"copy({self.leaf(OBJECT)})",
        )

    def make_objects(self, depth):
        return self.pick(
            f"[{self.leaf(OBJECT)}, {self.leaf(OBJECT)}]", f"[{self.leaf(OBJECT)}] * 2",
            f"sorted({self.leaf(OBJECTS)}, key=lambda q: q.{self.pick('x', 'n', 'size')})",
            f"[q for q in {self.leaf(OBJECTS)} if q.x > {self.make(FLOAT, 0)}]", f"{self.leaf(OBJECTS)}[::-1]",
        )  # fmt: skip

    def make_float(self, depth):
        if "classes" not in self.areas or self.chance(0.5):
            return super().make_float(depth)
        o, k = self.leaf(OBJECT), self.make(INT, 0)
        return self.pick(
            f"{o}.x", f"{o}.x", f"({o}.x * {o}.n)", f"{o}.value({k} & 7)", f"{o}.value({self.make(FLOAT, depth)})",
            f"{o}.size", f"sum(q.x for q in {self.leaf(OBJECTS)})",
            f"sum([q.value({k}) for q in {self.leaf(OBJECTS)}])",
            f"max(q.x for q in {self.leaf(OBJECTS)} or [{o}])", f"getattr({o}, 'x', 1.5)",
            f"P.value({o}, 2)" if self.chance(0.1) else f"P.twice({self.make(FLOAT, 0)})",
            f"(lambda q: q.x + 1)({o})", f"{self.pick('P', 'Q')}.total",
            f"({o} + {self.make(FLOAT, 0)})" if self.chance(0.2) else f"{o}.x",
        )  # fmt: skip

    def make_int(self, depth):
        if "classes" not in self.areas or self.chance(0.6):
            return super().make_int(depth)
        o = self.leaf(OBJECT)
        return self.pick(
            f"{o}.n",
            f"{o}.n",
            f"len({o}.items)",
            f"sum(q.n for q in {self.leaf(OBJECTS)})",
            f"({o}.n + {self.make(INT, depth)}) % 1009",
            f"len({self.leaf(OBJECTS)})",
            "P.total",
            f"getattr({o}, 'n')",
        )

    def make_bool(self, depth):
        if "classes" not in self.areas or self.chance(0.7):
            return super().make_bool(depth)
        o = self.leaf(OBJECT)
        return self.pick(
            f"isinstance({o}, {self.pick('P', 'Q', '(S, D)')})",
            f"(type({o}) is {self.pick('P', 'Q', 'S')})",
            f"({o}.x < {self.make(FLOAT, depth)})",
            f"({o} is {self.leaf(OBJECT)})",
            f"hasattr({o}, {self.pick('x', 'more', 'zzz')!r})",
            f"bool({o})",
            f"({o} == {self.leaf(OBJECT)})",
        )


class ClassStatements:
    """Statements; for `Function`."""

    def statement_classes(self, level):
        e, rng = self.expressions, self.rng
        names = e.names(OBJECT)
        if not names or self.chance(0.15):
            kind = rng.choice((OBJECT, OBJECT, OBJECTS))
            return self.assign(level, kind, self.make(kind))
        o, choice = rng.choice(names), rng.randrange(20)
        v = self.make(FLOAT, 1)
        if choice < 7:
            self.say(level, rng.choice((
                f"{o}.x = {v}", f"{o}.x += {v}", f"{o}.x *= 0.5", f"{o}.n += 1",
                f"{o}.n = ({self.make(INT, 1)}) % 1000", f"{o}.step({e.make(INT, 0)} & 7)",
                f"note({o}.step(2.5) is {o})", f"{o}.x, {o}.n = {o}.x - 1, {o}.n + 2",
                f"if len({o}.items) < 20: {o}.items.append({v})", f"{o}.x = {o}.x", f"{o}.x -= {e.leaf(OBJECT)}.x",
                f"{o}.x += {o}.value({e.make(INT, 0)})",
            )))  # fmt: skip
        elif choice < 9:
            self.assign(
                level,
                FLOAT,
                rng.choice((f"{o}.value({v})", f"{o}.size", f"{o}.x * 2", f"{o}.step(1) and {o}.x")),
            )
        elif choice < 15:
            q, s = f"i{self.fresh()}", self.target(FLOAT)
            self.say(level, f"{s} = 0.0")
            self.scope[s] = FLOAT
            many = e.leaf(OBJECTS)
            head, defines = rng.choice((
                (f"for {q} in {many}:", {q: OBJECT}), (f"for {q} in {many}:", {q: OBJECT}),
                (f"for {q} in {many} * 3:", {q: OBJECT}), (f"for {q} in range(9):", {q: INT}),
                (f"for {q} in range({rng.choice(('30', '70'))}):", {q: INT}),
                (f"for {q}, _ in zip({many}, range(9)):", {q: OBJECT}),
            ))  # fmt: skip
            before = len(self.lines)
            self.repeat(level, head, 15, 1 + rng.randrange(2), defines)
            if len(self.lines) > before:
                it = q if OBJECT in defines.values() else o
                k = q if it == o else "2"
                self.say(level + 1, rng.choice((
                    f"{s} += {it}.x", f"{s} += {it}.value({k})", f"{it}.x += {it}.n * 0.5", f"{it}.step({k})",
                    f"{s} += {it}.size", f"{it}.x = {it}.x * 0.5 + {k}", f"{it}.n = ({it}.n + {k}) % 1000",
                    f"{s} += {it}.x * {o}.x - {it}.n",
                )))  # fmt: skip
        elif choice < 17:
            self.say(level, rng.choice((
                "P.total += 1", f"patch({rng.randrange(12)})", f"note(peek({o}))",
                f"if type({o}) is P: {o}.__class__ = Q", f"setattr({o}, 'x', {v})",
                f"if type({o}) is P: {o}.more = {v}", f"if isinstance({o}, P): {o}.__dict__['x'] = {v}",
                f"if isinstance({o}, P): {o}.value = lambda k: 1.25",
                f"{o}.__init__({v}, 3)", f"{o}.size = {v}" if self.chance(0.3) else f"{o}.n -= 1",
                "Q.value = P.value", f"if isinstance({o}, P): {o}.__dict__ = dict({o}.__dict__)",
            )))  # fmt: skip
        elif choice == 17:
            self.say(level, "try:")
            self.say(level + 1, f"del {o}.{rng.choice(('x', 'n', 'zzz'))}")
            self.say(level + 1, f"note({o}.x)")
            self.say(level, "finally:")
            self.say(level + 1, f"{o}.x, {o}.n = 1.5, 2")
        elif choice == 18:
            self.assign(level, FLOATS, f"[q.{rng.choice(('x', 'size'))} for q in {e.leaf(OBJECTS)}]")
        else:
            self.say(level, f"{o} = {self.make(OBJECT)}")
