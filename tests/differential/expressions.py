"""Random Python expressions with a type in mind.

In: a random generator and the names in scope with their likely types. Out: source text. The type is a hope, not a
promise: in wild programs one choice in a hundred is of another type, because that is what compiled code must survive;
in tame ones types and indices mostly fit, so that they come to their end. Nothing here can grow without bound:
exponents and shifts are small, strings and lists are never added to themselves.
"""

from __future__ import annotations

INT, FLOAT, BOOL, STR, NONE = "int", "float", "bool", "str", "none"
INTS, FLOATS, MIXED, ROWS = "ints", "floats", "mixed", "rows"  # lists; ROWS is a list of lists of floats
TUPLE, BYTES, BYTEARRAY = "tuple", "bytes", "bytearray"
ARRAY, MATRIX, SCALAR = "array", "matrix", "scalar"  # NumPy: one axis, two axes, a scalar object

ALL = (INT, FLOAT, BOOL, STR, NONE, INTS, FLOATS, MIXED, ROWS, TUPLE, BYTES, BYTEARRAY, ARRAY, MATRIX, SCALAR)
INDEXED = (INTS, FLOATS, MIXED, TUPLE, BYTES, BYTEARRAY, ARRAY, STR)
ITERABLE = (*INDEXED, ROWS, MATRIX)
DTYPES = ("float64", "float32", "int64", "int32", "uint8", "bool_")

INTEGERS = (
    *("0", "1", "2", "3", "5", "-1", "-2", "7", "10", "255", "256", "300", "-5", "-6", "1000"),
    *("2147483647", "2147483648", "-2147483648", "4294967296", "1073741823"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "4611686018427387904", "10**30"),
)
REALS = (
    *("0.0", "-0.0", "1.0", "0.5", "-1.5", "2.0", "3.25", "1e-3", "0.1", "-7.0", "1e16", "1e308", "5e-324"),
    *(
        "2.2250738585072014e-308",
        "math.inf",
        "-math.inf",
        "math.nan",
        "9007199254740993.0",
        "9.3e18",
        "-9.3e18",
    ),
)
STRINGS = ("''", "'a'", "'ab'", "'xyz'", "'é日'", "'0'")


class Expressions:
    """Makes expressions over ``self.scope``, a dict from name to likely type."""

    def __init__(self, rng, scope, callees=(), areas=(), is_tame=False):
        self.rng = rng
        self.scope = scope
        self.areas = areas  # of the language, which the program is about
        self.is_tame = is_tame
        self.callees = callees  # (name, types of its parameters)
        self.n_calls_left = 2

    def pick(self, *choices):
        """One of the choices."""
        return self.rng.choice(choices)

    def chance(self, p):
        """True with probability p."""
        return self.rng.random() < p

    def names(self, *types):
        """The names in scope of one of these types."""
        return [name for name, kind in self.scope.items() if kind in types]

    def make(self, kind, depth=2):
        """An expression that is likely of this type."""
        if not self.is_tame and self.chance(0.01):
            kind = self.pick(*ALL)
        if depth <= 0 or self.chance(0.25):
            return self.leaf(kind)
        return getattr(self, "make_" + kind)(depth - 1)

    def leaf(self, kind):
        """A name or a literal."""
        names = self.names(kind)
        if names and self.chance(0.8):
            return self.rng.choice(names)
        if kind == INT and self.chance(0.1):
            return self.pick("K_INT", "K_BIG")
        if kind == FLOAT and self.chance(0.1):
            return "K_FLOAT"
        match kind:
            case "int":
                is_small = self.chance(0.9 if self.is_tame else 0.75)
                return self.rng.choice(INTEGERS[:15]) if is_small else f"({self.rng.choice(INTEGERS)})"
            case "float":
                return self.rng.choice(REALS[:10]) if self.chance(0.75) else self.rng.choice(REALS)
            case "bool":
                ints = self.names(INT, FLOAT)
                if ints and self.chance(0.7):
                    return f"({self.rng.choice(ints)} {self.pick('<', '>', '!=')} {self.pick('1', '2.5', '-3', '7')})"
                return self.pick("True", "False")
            case "str":
                return self.rng.choice(STRINGS)
            case "none":
                return "None"
            case "ints":
                return self.pick("[6]", "[1, 2, 3]", "[4, 2**31, -2**63, 7]", "list(range(5))")
            case "floats":
                return self.pick("[1.0, 2.5, -0.0]", "([0.5] * 4)", "[math.nan, 1.0]", "[3.0]")
            case "mixed":
                tame = ("[1, 2.0, False]", "[True, 2, 3.5]", "[np.float64(2.0), 1.0]", "[2**70, 1]")
                return self.pick(*tame, *(() if self.is_tame else ("[1, None, 'a']",)))
            case "rows":
                return self.pick(
                    "[[1.0, 2.0], [3.0, 4.0]]", "[[0.5] * 3 for _ in range(3)]", "[[1.0], [2, 3.0]]"
                )
            case "tuple":
                tame = ("(1, 2)", "(1.5, 2)", "(True, 2, 3)")
                return self.pick(*tame, *(() if self.is_tame else ("(1.5, 2, 'z')", "()", "(1, (2, 3.0))")))
            case "bytes":
                return self.pick("b'abc'", "b''", "b'\\x00\\xff\\x80'")
            case "bytearray":
                return self.pick("bytearray(4)", "bytearray(b'\\x01\\xfe\\xff')")
            case "array":
                dtype = self.rng.choice(DTYPES)
                return self.pick(f"np.zeros(4, np.{dtype})", f"np.arange(6).astype(np.{dtype})[::-2]")
            case "matrix":
                return f"np.arange(6).reshape(2, 3).astype(np.{self.rng.choice(DTYPES)})"
            case _:
                kind = self.pick("float64", "float32", "int64", "int32", "uint8", "bool_")
                return f"np.{kind}({self.rng.choice(INTEGERS[:5])})"

    def index(self, container=None):
        """An index that mostly hits."""
        ints = self.names(INT)
        if self.is_tame and container:
            start = self.rng.choice(ints) if ints and self.chance(0.6) else self.pick("0", "-1", "1", "7")
            return self.pick("0", "-1", f"{start} % len({container})", f"{start} % len({container})")
        if ints and self.chance(0.45):
            name = self.rng.choice(ints)
            if container and self.chance(0.8):
                return f"{name} % len({container})"
            return self.pick(name, f"{name} - 1", f"{name} + 1", f"-{name}", f"{name} & 3")
        if self.chance(0.9):
            return self.pick("0", "0", "0", "-1", "-1", "1", "1", "-2", "True")
        return self.pick("2", "-3", "9", "-2**63", "2**63") if self.chance(0.8) else self.make(SCALAR, 0)

    def item(self, *types):
        """An element of something indexable of these types, or nothing when there is none."""
        names = self.names(*types)
        if not names:
            return None
        name = self.rng.choice(names)
        return f"{name}[{self.index(name)}]"

    def call(self, depth):
        """A call of another generated function, or nothing."""
        if not self.callees or self.n_calls_left == 0:
            return None
        self.n_calls_left -= 1
        name, parameters = self.rng.choice(self.callees)
        arguments = [self.make(kind, depth) for kind in parameters]
        if self.chance(0.2):
            arguments[-1] = f"last={arguments[-1]}"
        elif self.chance(0.2):
            arguments.pop()  # the last one has a default
        return f"{name}({', '.join(arguments)})"

    # --- numbers

    def make_int(self, depth):
        a = self.make(INT, depth)
        choice = self.rng.randrange(22)
        if choice < 9:
            op = self.pick("+", "+", "-", "*", "//", "%", "&", "|", "^", "+", "-")
            b = self.make(self.pick(INT, INT, INT, INT, BOOL), depth)
            if op in ("//", "%") and self.chance(0.7):
                b = self.pick("2", "3", f"(abs({b}) + 1)", "-5", "7")
            elif op in ("//", "%") and self.is_tame:
                b = f"({b} or 3)"
            return f"({a} {op} {b})"
        match choice:
            case 9:
                return (
                    f"({a} << ({self.make(INT, 0)} & 7))"
                    if self.chance(0.8)
                    else f"(1 << {self.pick('31', '62', '63', '64')})"
                )
            case 10:
                return f"({a} >> {self.pick('1', '3', '63', '64', f'({a} & 5)')})"
            case 11:
                return (
                    f"({a} ** {self.pick('2', '3', '0', '2')})"
                    if self.chance(0.8)
                    else f"({self.make(INT, 0)} ** ({a} & 3))"
                )
            case 12:
                return f"{self.pick('-', '~', '+', 'abs')}({a})"
            case 13:
                names = self.names(*INDEXED, ROWS, MATRIX)
                return f"len({self.rng.choice(names)})" if names else f"len({self.make(STR, 0)})"
            case 14:
                floats = self.make(FLOAT, depth)
                floats = floats if self.chance(0.4) else f"max(-1e19, min(1e19, {floats}))"
                return f"{self.pick('int', 'round', 'math.floor', 'math.ceil', 'int')}({floats})"
            case 15:
                return f"{self.pick('min', 'max')}({a}, {self.make(self.pick(INT, INT, FLOAT), depth)})"
            case 16 | 17 | 18:
                return self.item(INTS, BYTES, BYTEARRAY, MIXED) or a
            case 19:
                return f"({a} if {self.make(BOOL, depth)} else {self.make(INT, depth)})"
            case 20:
                names = self.names(ARRAY, MATRIX)
                return (
                    f"{self.rng.choice(names)}.shape[{self.pick('0', '-1', '1')}]" if names else f"int({a})"
                )
            case _:
                return self.call(depth) or f"divmod({a}, {self.make(INT, depth)} or 9)[{self.pick('0', '1')}]"

    def make_float(self, depth):
        a = self.make(FLOAT, depth)
        choice = self.rng.randrange(20)
        if choice < 9:
            op = self.pick("+", "-", "*", "*", "/", "//", "%", "+", "-")
            b = self.make(self.pick(FLOAT, FLOAT, FLOAT, INT, BOOL), depth)
            if op in ("/", "//", "%") and self.chance(0.7):
                b = self.pick("2.0", "3", f"(abs({b}) + 1)", "-0.5", "7")
            elif op in ("/", "//", "%") and self.is_tame:
                b = f"({b} or 2.5)"
            return f"({a} {op} {b})"
        match choice:
            case 9:
                return f"({a} ** {self.pick('2', '0.5', '-1', '1.5', '3', '-0.5')})"
            case 10:
                return f"({self.make(INT, depth)} / ({self.make(INT, depth)} or 3))"
            case 11:
                return f"math.{self.pick('sqrt', 'log', 'exp', 'log2', 'log10')}(1.0 + abs({a}) % 9)"
            case 12:
                function = self.pick(
                    "sqrt",
                    "sin",
                    "exp",
                    "log",
                    "fabs",
                    "floor",
                    "tanh",
                    "atan",
                    "erf",
                    "log2",
                    "cbrt",
                    "expm1",
                )
                return f"math.{function}({a})"
            case 13:
                function = self.pick("atan2", "copysign", "fmod", "hypot", "pow")
                return f"math.{function}({a}, {self.make(self.pick(FLOAT, INT), depth)})"
            case 14:
                return f"{self.pick('min', 'max')}({a}, {self.make(self.pick(FLOAT, INT), depth)})"
            case 15:
                return f"{self.pick('-', 'abs', 'float', '+')}({a})"
            case 16 | 17:
                return self.item(FLOATS, FLOATS, MIXED) or f"float({self.make(INT, depth)})"
            case 18:
                names = self.names(ROWS)
                if names:
                    return f"{self.rng.choice(names)}[{self.index()}][{self.index()}]"
                return f"({a} if {self.make(BOOL, depth)} else {self.make(self.pick(FLOAT, INT), depth)})"
            case _:
                return self.call(depth) or f"round({a}, {self.pick('1', '2', '-1')})"

    def make_bool(self, depth):
        kind = self.pick(INT, INT, FLOAT, FLOAT, SCALAR, STR, MIXED)
        choice = self.rng.randrange(14)
        if choice < 6:
            op = self.pick("<", "<=", ">", ">=", "==", "!=")
            other = self.pick(INT, FLOAT) if kind in (INT, FLOAT, SCALAR) else kind
            if kind == MIXED:
                op = self.pick("==", "!=")
            return f"({self.make(kind, depth)} {op} {self.make(other, depth)})"
        a, b = self.make(BOOL, depth), self.make(BOOL, depth)
        match choice:
            case 6:
                return f"({a} {self.pick('and', 'or')} {b})"
            case 7:
                return f"(not {self.make(self.pick(BOOL, INT, FLOAT, INTS, STR), depth)})"
            case 8:
                middle = self.make(self.pick(INT, FLOAT), depth)
                return f"({self.make(INT, depth)} < {middle} <= {self.make(self.pick(INT, FLOAT), depth)})"
            case 9:
                names = self.names(INTS, FLOATS, MIXED, TUPLE, BYTES)
                return (
                    f"({self.make(self.pick(INT, FLOAT), depth)} {self.pick('in', 'not in')} {self.rng.choice(names)})"
                    if names
                    else a
                )
            case 10:
                return f"({self.make(self.pick(NONE, INT, FLOAT), depth)} {self.pick('is', 'is not')} None)"
            case 11:
                return f"isinstance({self.make(self.pick(*ALL), depth)}, {self.pick('int', 'float', 'bool', '(int, float)', 'np.generic')})"
            case 12:
                return f"math.{self.pick('isnan', 'isinf', 'isfinite')}({self.make(self.pick(FLOAT, INT), depth)})"
            case _:
                return f"bool({self.make(self.pick(INT, FLOAT, STR, INTS), depth)})"

    def make_none(self, depth):
        return f"(None if {self.make(BOOL, depth)} else {self.make(self.pick(INT, NONE, NONE), depth)})"

    def make_str(self, depth):
        a = self.make(STR, depth)
        kind = self.pick(INT, FLOAT, BOOL, NONE, SCALAR, TUPLE)
        return self.pick(
            f"({a} + {self.rng.choice(STRINGS)})",
            self.formatted(),
            f"({a})[{self.pick(':1', '::-1', '1:')}]"
            if self.is_tame
            else f"({a})[{self.pick('0', '-1', ':1')}]",
            f"({a} or 'x')[{self.pick('0', '-1')}]" if self.is_tame else f"({a})[{self.index()}]",
            f"str({self.make(kind, depth)})",
            f"({a}).upper()",
            f"({a} if {self.make(BOOL, depth)} else {self.rng.choice(STRINGS)})",
        )

    def formatted(self):
        names = self.names(INT, FLOAT, BOOL, NONE, SCALAR, STR)
        return f"f'{{{self.rng.choice(names)}}}!'" if names else "'none'"

    # --- containers

    def make_ints(self, depth):
        items = ", ".join(self.make(INT, depth) for _ in range(self.rng.randrange(4)))
        return self.pick(
            f"[{items}]",
            f"[{self.make(INT, 0)} + q for q in range({self.rng.randrange(6)})]",
            f"[q * q for q in {self.leaf(INTS)} if {self.pick('q', 'q > 1', 'q & 1')}]",
            f"{self.leaf(INTS)}[{self.pick('1:', '::-1', ':2', '::2')}]",
            f"({self.leaf(INTS)} + [1])",
            f"[{self.make(INT, 0)}] * {self.rng.randrange(5)}",
            f"list({self.leaf(self.pick(BYTES, BYTEARRAY, INTS))})",
        )

    def make_floats(self, depth):
        items = ", ".join(self.make(FLOAT, depth) for _ in range(self.rng.randrange(4)))
        return self.pick(
            f"[{items}]",
            f"[q * {self.make(FLOAT, 0)} for q in {self.leaf(FLOATS)}]",
            f"{self.leaf(FLOATS)}[{self.pick('1:', '::-1', ':2')}]",
            f"[{self.make(FLOAT, 0)}] * {self.rng.randrange(5)}",
            f"[float(q) for q in {self.leaf(self.pick(INTS, FLOATS, ARRAY))}]",
            f"sorted({self.leaf(FLOATS)})",
        )

    def make_mixed(self, depth):
        items = [
            self.make(self.pick(INT, FLOAT, BOOL, INT, FLOAT, SCALAR, self.pick(*ALL)), depth)
            for _ in range(1 + self.rng.randrange(3))
        ]
        return f"[{', '.join(items)}]"

    def make_rows(self, depth):
        return self.pick(
            f"[{self.make(FLOATS, depth)}, {self.make(FLOATS, depth)}]",
            f"[[{self.make(FLOAT, 0)}] * 3 for _ in range({self.rng.randrange(4)})]",
            f"[list(q) for q in {self.leaf(ROWS)}]",
        )

    def make_tuple(self, depth):
        items = [
            self.make(self.pick(INT, FLOAT, BOOL, STR, FLOATS, SCALAR), depth)
            for _ in range(1 + self.rng.randrange(3))
        ]
        return f"({', '.join(items)},)"

    def make_bytes(self, depth):
        return self.pick(
            f"{self.leaf(BYTES)}[1:]",
            f"bytes([{self.make(INT, 0)} & 255, 3])",
            f"bytes({self.leaf(BYTEARRAY)})",
        )

    def make_bytearray(self, depth):
        return self.pick(
            f"{self.leaf(BYTEARRAY)}[::-1]",
            f"bytearray([{self.make(INT, 0)} & 255] * 3)",
            f"bytearray({self.rng.randrange(5)})",
        )

    # --- NumPy

    def make_scalar(self, depth):
        choice = self.rng.randrange(8)
        if choice < 3:
            return self.item(ARRAY) or self.leaf(SCALAR)
        a = self.make(SCALAR, depth)
        match choice:
            case 3:
                names = self.names(MATRIX)
                return f"{self.rng.choice(names)}[{self.index()}, {self.index()}]" if names else a
            case 4:
                return f"np.{self.pick('float64', 'float32', 'int64')}({self.make(self.pick(INT, FLOAT), 0)})"
            case 5:
                names = self.names(ARRAY, MATRIX)
                return (
                    f"{self.rng.choice(names)}.{self.pick('sum()', 'max()', 'size', 'ndim')}"
                    if names
                    else f"abs({a})"
                )
            case _:
                op = self.pick("+", "-", "*", "/", "//", "%", "+", "*")
                return f"({a} {op} {self.make(self.pick(INT, FLOAT, SCALAR, SCALAR, BOOL), depth)})"

    def make_array(self, depth):
        names = self.names(MATRIX)
        row = f"{self.rng.choice(names)}[{self.index()}]" if names else self.leaf(ARRAY)
        return self.pick(
            row,
            f"{self.leaf(ARRAY)}[{self.pick('1:', '::-1', '::2', ':0')}]",
            f"({self.leaf(ARRAY)} {self.pick('+', '*')} {self.make(self.pick(INT, FLOAT), 0)})",
            f"{self.leaf(ARRAY)}.copy()",
        )

    def make_matrix(self, depth):
        return self.pick(
            f"{self.leaf(MATRIX)}.T",
            f"{self.leaf(MATRIX)}[::-1]",
            f"{self.leaf(MATRIX)}[:, ::-1]",
            f"{self.leaf(MATRIX)}.copy()",
        )
