"""NumPy: arrays and scalars of every dtype, views, in-place operations that overlap, error states.

In: the scope of `Expressions` and `Function`. Out: text. Shapes are made to fit by construction (slices of one length,
scalars); arrays are never longer than their sources.
"""

from __future__ import annotations

from .expressions import ARRAY, BOOL, FLOAT, FLOATS, INT, INTS, MATRIX, SCALAR

CUBE, ZERO, COMPLEX = "cube", "zero", "complex"
KINDS = (ARRAY, ARRAY, MATRIX, MATRIX, SCALAR, SCALAR, CUBE, ZERO, COMPLEX)
DTYPES = (
    *("float64", "float64", "float32", "int64", "int32", "uint8", "bool_"),
    *("float16", "int8", "int16", "uint16", "uint32", "uint64", "complex64", "complex128"),
)
CLOSED = ("+", "-", "*", "+", "*")
INTEGER = ("//", "%", "&", "|", "^", "<<", ">>", "**")
ERRSTATES = (
    "over='ignore'",
    "all='ignore'",
    "divide='raise'",
    "invalid='raise', over='warn'",
    "under='warn'",
    "all='raise'",
)


class Arrays:
    """Expressions; for `Expressions`."""

    def dtype(self):
        """A dtype's name, the supported ones more often."""
        return self.rng.choice(DTYPES)

    def view(self):
        """What may stand in brackets behind a vector."""
        return self.pick("1:", ":-1", "::-1", "::2", "1::2", "-3:", ":3", "::-2", ":", "...")

    def make_scalar(self, depth):
        if "arrays" not in self.areas or self.chance(0.35):
            return super().make_scalar(depth)
        a, b = self.make(SCALAR, depth), self.make(self.pick(SCALAR, SCALAR, INT, FLOAT, BOOL), depth)
        names = self.names(ARRAY)
        x = self.rng.choice(names) if names else self.leaf(ARRAY)
        return self.pick(
            f"({a} {self.rng.choice(CLOSED)} {b})", f"({a} {self.rng.choice(CLOSED)} {b})",
            f"({b} {self.rng.choice(CLOSED)} {a})", f"({a} / ({b} or 3))",
            f"np.{self.dtype()}({self.make(INT, 0)} & 127)",
            f"(np.{self.pick('int64', 'int32', 'uint8', 'int8', 'uint64', 'uint16')}({self.make(INT, 0)} & 63) {self.rng.choice(INTEGER)} {self.pick('2', '3', 'np.int64(5)', 'np.uint8(7)', 'np.int32(1)')})",
            f"{x}[{self.index(x)}]", f"{x}[{self.index(x)}]",
            f"{x}.{self.pick('sum', 'min', 'max', 'mean', 'any', 'all', 'prod')}()" if self.chance(0.5) else f"np.{self.pick('sum', 'max')}({x})",
            f"np.{self.pick('sqrt', 'abs', 'sign', 'sin', 'exp', 'negative', 'square')}({a})",
            f"(-{a})" if self.chance(0.3) else f"abs({a})", f"({a} {self.pick('<', '<=', '==', '>')} {b})",
            f"{x}.dtype.type({self.make(INT, 0)} & 1)",
            f"np.{self.pick('float64', 'float32')}({self.make(FLOAT, 0)})", f"{self.leaf(ZERO)}[()]",
            f"({x}[0] if len({x}) else {a})", f"round({a}, 1)" if self.chance(0.3) else f"({a} ** 2)",
            f"np.dot({x}, {x})" if self.chance(0.3) else f"{x}.item({self.pick('0', '-1')})",
            f"({a} if {self.make(BOOL, 0)} else {b})",
        )  # fmt: skip

    def make_array(self, depth):
        if "arrays" not in self.areas or self.chance(0.2):
            return super().make_array(depth)
        x, s, m = self.leaf(ARRAY), self.make(self.pick(INT, FLOAT, SCALAR), 0), self.leaf(MATRIX)
        return self.pick(
            f"{x}[{self.view()}]", f"{x}[{self.view()}]", f"({x} {self.rng.choice(CLOSED)} {s})",
            f"({x}[1:] {self.rng.choice(CLOSED)} {x}[:-1])", f"{x}.astype(np.{self.dtype()})", f"{m}[{self.index()}]",
            f"{m}[:, {self.pick('0', '-1')}]",
            f"{m}.{self.pick('ravel()', 'reshape(-1)', 'flatten()', 'sum(axis=0)', 'max(axis=1)', 'T.ravel()')}",
            f"np.{self.pick('zeros', 'ones')}({self.pick('4', '7')}, np.{self.dtype()})", f"np.full(5, {s})",
            f"np.arange({self.pick('5', '2, 9', '9, 0, -2')}, dtype=np.{self.pick('int64', 'float32', 'uint8', 'int16')})",
            f"np.linspace(0, 1, {self.pick('3', '6')})", f"np.{self.pick('zeros', 'ones')}_like({x})",
            f"np.{self.pick('sqrt', 'abs', 'cumsum', 'sort', 'negative', 'flip')}({x} * 1.0)",
            f"np.where({x} > {s}, {x}, {self.pick('0', '1', 's')})".replace("s)", "1.5)"),
            f"{x}[{x} {self.pick('>', '<=', '!=')} {self.pick('1', '2')}]",
            f"np.array({self.leaf(self.pick(INTS, FLOATS))}[:9])" if self.chance(0.3) else f"np.array([{s}, 1.5])",
            f"{x}[[0, -1, 0]]" if self.chance(0.5) else f"np.concatenate(({x}[:4], {x}[:4]))",
            f"({x} {self.pick('<', '==', '>=')} {s})", f"{x}.copy()", f"np.broadcast_to({s}, 3)", f"{x}.view()",
            f"np.{self.pick('minimum', 'maximum', 'add')}({x}, {s})",
            f"np.frombuffer(b'\\x01\\x02\\x03\\xff', np.{self.pick('uint8', 'int8', 'int16')})",
        )  # fmt: skip

    def make_matrix(self, depth):
        if "arrays" not in self.areas or self.chance(0.2):
            return super().make_matrix(depth)
        m, c = self.leaf(MATRIX), self.leaf(CUBE)
        return self.pick(
            f"{m}[{self.pick('::2', '::-1', '1:', ':, 1:', ':, ::-1', '1:, :-1', '..., ::2')}]", f"{m}.T",
            f"({m} {self.rng.choice(CLOSED)} {self.make(self.pick(INT, FLOAT, SCALAR), 0)})", f"({m} + {m}[0])",
            f"{m}.astype(np.{self.dtype()})",
            f"np.zeros((3, 4), np.{self.dtype()})", f"{c}[{self.pick('0', '-1', ':, 0', '..., 1', ':, :, 0')}]",
            f"np.outer({self.leaf(ARRAY)}[:4], {self.leaf(ARRAY)}[:4])", f"np.asfortranarray({m})",
            f"({m} > {self.make(INT, 0)})", f"{self.leaf(ARRAY)}[None]", f"{m}.copy()",
        )  # fmt: skip

    def make_cube(self, depth):
        return self.pick(
            f"{self.leaf(CUBE)}[::-1]",
            f"{self.leaf(CUBE)}.transpose(2, 0, 1)",
            f"{self.leaf(CUBE)}.astype(np.{self.dtype()})",
            f"({self.leaf(CUBE)} * {self.make(INT, 0)})",
        )

    def make_zero(self, depth):
        return self.pick(
            f"np.array({self.make(self.pick(INT, FLOAT), depth)} % 100)",
            f"np.zeros((), np.{self.dtype()})",
            f"{self.leaf(ARRAY)}[:1].sum(keepdims=False)",
            f"np.asarray({self.leaf(SCALAR)})",
        )

    def make_complex(self, depth):
        a, b = self.make(COMPLEX, depth), self.make(self.pick(COMPLEX, INT, FLOAT), depth)
        return self.pick(
            f"({a} {self.pick('+', '-', '*')} {b})", f"({a} {self.pick('+', '-', '*')} {b})",
            f"complex({self.make(FLOAT, depth)}, {self.make(FLOAT, 0)})", f"({a}).conjugate()",
            f"({a} / (abs({b}) + 1))", f"(-{a})", f"({a} ** 2)",
        )  # fmt: skip

    def leaf(self, kind):
        names = self.names(kind)
        if kind in (CUBE, ZERO, COMPLEX) and not (names and self.chance(0.85)):
            return {
                CUBE: f"np.arange(12).reshape(2, 3, 2).astype(np.{self.dtype()})",
                ZERO: f"np.array({self.pick('3', '2.5', 'True', '-1')})",
                COMPLEX: self.pick("1j", "(2+1j)", "complex(0.5, -0.0)", "(-1.5-2j)", "complex(math.inf, 1)"),
            }[kind]
        if kind in (ARRAY, MATRIX, SCALAR) and "arrays" in self.areas and not (names and self.chance(0.85)):
            return {
                ARRAY: f"np.arange({self.pick('4', '7', '-3, 5')}).astype(np.{self.dtype()})",
                MATRIX: f"np.arange(12).reshape(3, 4).astype(np.{self.dtype()})",
                SCALAR: f"np.{self.dtype()}({self.pick('0', '1', '3', '100')})",
            }[kind]
        return super().leaf(kind)

    def make_float(self, depth):
        if "arrays" not in self.areas or self.chance(0.7):
            return super().make_float(depth)
        return self.pick(
            f"float({self.leaf(ARRAY)}[:3].sum().real)", f"abs({self.make(COMPLEX, depth)})",
            f"({self.make(COMPLEX, depth)}).{self.pick('real', 'imag')}", f"float({self.make(ZERO, 0)})",
            f"{self.leaf(ARRAY)}.mean().item()", f"float({self.make(SCALAR, depth)}.real)",
        )  # fmt: skip

    def make_int(self, depth):
        if "arrays" not in self.areas or self.chance(0.7):
            return super().make_int(depth)
        x = self.leaf(self.pick(ARRAY, MATRIX, CUBE, ZERO))
        return self.pick(
            f"{x}.ndim",
            f"{x}.size",
            f"sum({x}.shape)",
            f"int({self.leaf(ARRAY)}[:2].argmax())",
            f"{x}.itemsize",
            f"{x}.nbytes",
            f"len({self.leaf(self.pick(ARRAY, MATRIX, CUBE))})",
            f"{x}.strides[-1]" if self.chance(0.2) else f"int(({x} > 1).sum())",
        )

    def make_bool(self, depth):
        if "arrays" not in self.areas or self.chance(0.7):
            return super().make_bool(depth)
        x, s = self.leaf(ARRAY), self.make(SCALAR, depth)
        return self.pick(
            f"({s} {self.pick('<', '<=', '==', '!=', '>')} {self.make(self.pick(SCALAR, INT, FLOAT), depth)})",
            f"({x} > 1).any()", f"({x} == {x}).all()", f"bool({s})", f"np.isnan({self.make(FLOAT, 0)})",
            f"({self.leaf(COMPLEX)} == {self.make(self.pick(COMPLEX, INT), 0)})", f"np.array_equal({x}, {x})",
            f"({s} is {s})" if self.chance(0.1) else f"isinstance({s}, np.floating)", f"({x}.base is None)",
            f"{x}.flags.c_contiguous",
        )  # fmt: skip


class ArrayStatements:
    """Statements; for `Function`."""

    def statement_arrays(self, level):
        self.rng.choice((
            self.element, self.element, self.row, self.in_place, self.in_place, self.sweep, self.sweep, self.sweep, self.error_state, self.flavours, self.flavours, self.new_array, self.new_array,
        ))(level)  # fmt: skip

    def new_array(self, level):
        kind = self.rng.choice((ARRAY, MATRIX, SCALAR, CUBE, ZERO, COMPLEX))
        self.assign(level, kind, self.make(kind))

    def number(self):
        """What is stored into an element."""
        return self.make(self.rng.choice((INT, INT, FLOAT, SCALAR, SCALAR, BOOL)), 1)

    def element(self, level):
        e = self.expressions
        names = e.names(ARRAY, MATRIX, CUBE)
        if not names:
            return self.new_array(level)
        x = self.rng.choice(names)
        place = {
            ARRAY: lambda: e.index(x),
            MATRIX: lambda: f"{e.index(x)}, {e.index()}",
            CUBE: lambda: f"{e.index(x)}, 0, {e.index()}",
        }[self.scope[x]]()
        value = (
            f"({self.number()}) % 100"
            if self.chance(0.4)
            else f"{x}[{place}] * {self.number()}"
            if self.chance(0.3)
            else self.number()
        )
        self.say(level, f"{x}[{place}] {self.rng.choice(('=', '=', '=', '+=', '-=', '*='))} {value}")

    def row(self, level):
        e = self.expressions
        x = e.leaf(MATRIX)
        if x not in self.scope:
            return self.new_array(level)
        i = e.index(x)
        self.say(level, self.rng.choice((
            f"{x}[{i}] = {self.number()}", f"{x}[{i}] = {x}[{e.index(x)}]", f"{x}[{i}] += {x}[0]",
            f"{x}[:, 0] = {self.number()}", f"{x}[{i}][0] = {self.number()}", f"{x}[...] = {x}[::-1]",
            f"{x}[{x} > 3] = 1", f"{x}[1:] = {x}[:-1]", f"{x}[[0, -1]] = {x}[[-1, 0]]",
            f"{self.target(ARRAY)} = {x}[{i}]",
        )))  # fmt: skip

    def in_place(self, level):
        x = self.expressions.leaf(self.rng.choice((ARRAY, ARRAY, MATRIX)))
        if x not in self.scope:
            return self.new_array(level)
        s = self.rng.choice(("1", "2", "0.5", "np.int64(3)", "np.uint8(3)", "True", "-1"))
        self.say(level, self.rng.choice((
            f"{x} += {s}", f"{x} *= {s}", f"{x} -= {x}", f"{x}[1:] += {x}[:-1]", f"{x}[:-1] -= {x}[1:]",
            f"{x}[::-1] += {x}", f"{x}[:] = {x}[::-1]", f"{x} //= 2", f"{x} /= 2", f"{x}[::2] *= {s}",
            f"{x}.fill({s})", f"{x}.sort()", f"np.add({x}, {s}, out={x}, casting='unsafe')", f"{x} %= 7", f"{x} |= 1",
            f"{x} **= 2",
        )))  # fmt: skip

    def sweep(self, level):
        """A loop over elements."""
        e, i, j = self.expressions, f"i{self.fresh()}", f"i{self.fresh()}"
        x, y, m = e.leaf(ARRAY), e.leaf(ARRAY), e.leaf(MATRIX)
        total = self.target(self.rng.choice((SCALAR, FLOAT, INT)))
        choice = self.rng.randrange(7)
        if choice < 2:
            self.say(
                level,
                f"{total} = {self.rng.choice(('0', '0.0', 'np.float32(0)', 'np.int64(0)', '0j', 'True'))}",
            )
            self.say(
                level,
                f"for {i} in {self.rng.choice((x, f'range(len({x}))', f'{m}.ravel()', f'{x}[::-1]', f'{x}.tolist()'))}:",
            )
            self.scope[total] = SCALAR
            self.scope[i] = SCALAR
            self.say(
                level + 1,
                f"{total} {self.rng.choice(('+=', '+=', '-=', '*=', '='))} {self.rng.choice((i, i, f'{i} * {i}', f'{i} + {total}', self.make(SCALAR, 1)))}",
            )
            del self.scope[i]
        elif choice < 4 and x in self.scope:
            self.say(level, f"for {i} in range({self.rng.choice(('', '1, '))}min(len({x}), len({y}))):")
            value = self.rng.choice(
                (
                    f"{y}[{i}]",
                    f"{x}[{i} - 1] + {y}[{i}]",
                    f"{x}[{i}] * 2 - {y}[{i}]",
                    f"{y}[-{i} - 1]",
                    f"{i} * {self.number()}",
                    f"{x}[{i}] {self.rng.choice(('<', '==', '>'))} {y}[{i}]",
                    f"max({x}[{i}], {y}[{i}])",
                    f"{x}[{i}] / 2",
                )
            )
            self.say(level + 1, f"{x}[{i}] {self.rng.choice(('=', '=', '=', '+='))} {value}")
        elif choice < 6 and m in self.scope:
            self.say(level, f"for {i} in range({m}.shape[0]):")
            self.say(level + 1, f"for {j} in range({m}.shape[{self.rng.choice(('1', '1', '1', '-1'))}]):")
            self.say(level + 2, self.rng.choice((
                f"{m}[{i}, {j}] += {i} * {j}", f"{m}[{i}, {j}] = {m}[{i} - 1, {j}] + {m}[{i}, {j} - 1]",
                f"{m}[{i}][{j}] = {self.number()}", f"note({m}[{i}, {j}])",
                f"if {m}[{i}, {j}] > 2: {m}[{i}, {j}] = {j}", f"{m}[{i}, {j}] *= {self.number()}",
            )))  # fmt: skip
        else:
            self.repeat(level, f"for {i}, {j} in zip({x}, {y}):", 9, 2, {i: SCALAR, j: SCALAR})

    def error_state(self, level):
        self.say(level, f"with np.errstate({self.rng.choice(ERRSTATES)}):")
        name, kind = self.fresh(), self.rng.choice((SCALAR, ARRAY))
        self.say(level + 1, f"{name} = {self.make(kind, 2)}")
        if self.chance(0.6):
            self.branch(level + 1, 1)

    def flavours(self, level):
        """A number whose type changes along a loop."""
        name, i = self.target(SCALAR), f"i{self.fresh()}"
        self.say(
            level,
            f"{name} = {self.rng.choice(('0', '0.0', '1', 'np.int8(1)', 'np.float16(0.5)', 'np.uint64(3)', 'np.float32(1)', 'True', 'np.bool_(True)', 'np.int32(7)', '1j', 'np.complex64(1)'))}",
        )
        self.scope[name] = SCALAR
        self.say(level, f"for {i} in range({self.rng.choice(('3', '5', '9'))}):")
        self.scope[i] = INT
        self.say(
            level + 1,
            f"{name} {self.rng.choice(('+=', '-=', '*=', '+='))} {self.make(self.rng.choice((INT, FLOAT, SCALAR, SCALAR)), 1)}",
        )
        if self.chance(0.3):
            self.say(level + 1, f"if {self.make(BOOL, 1)}: {name} = {self.make(SCALAR, 1)}")
        del self.scope[i]
