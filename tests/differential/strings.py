"""Strings and bytes: methods, slices, formatting; statements that build and take them apart.

In: the scope of `Expressions` and `Function`. Out: text. Strings that are assigned in a loop are cut.
"""

from __future__ import annotations

from .containers import NAMES
from .expressions import BYTEARRAY, BYTES, FLOAT, INT, INTS, STR

KINDS = (STR, STR, STR, NAMES, BYTES, BYTEARRAY, INT)
PIECES = (
    "'a'",
    "'b'",
    "'ab'",
    "' '",
    "','",
    "''",
    "'é'",
    "'日'",
    "'\\U0001f600'",
    "'0'",
    "'\\x00'",
    "'ß'",
    "'\\n'",
)
SPECS = (
    "",
    ">8",
    "<5",
    "^7",
    "05",
    "x",
    "#b",
    ",",
    "+",
    " ",
    "_",
    "08.3f",
    ".2e",
    "g",
    ".3",
    "%",
    "n",
    "*^9",
)
INT_SPECS = (
    "",
    "d",
    ">6",
    "<6",
    "^7",
    "05",
    "x",
    "#x",
    "b",
    "o",
    ",",
    "+",
    "_",
    "08,",
    " d",
    "*^9d",
    "e",
    ".1f",
    "c",
)
FLOAT_SPECS = (
    "",
    ".2f",
    "10.3f",
    "+.1e",
    "g",
    ".3g",
    "%",
    ",.2f",
    "08.2f",
    "<9",
    "^12.4f",
    ".0f",
    "n",
    "_.3f",
)


class Strings:
    """Expressions; for `Expressions`."""

    def piece(self):
        """A short string."""
        return self.rng.choice(PIECES)

    def formatted(self):
        if "strings" not in self.areas:
            return super().formatted()
        parts = []
        for _ in range(1 + self.rng.randrange(3)):
            choice = self.rng.randrange(7)
            if choice < 2:
                spec = self.rng.choice(INT_SPECS)
                a = self.make(INT, 0)
                parts.append(f"{{{f'{a} % 1000' if spec == 'c' else a}:{spec}}}")
            elif choice < 4:
                parts.append(f"{{{self.make(FLOAT, 0)}:{self.rng.choice(FLOAT_SPECS)}}}")
            elif choice == 4:
                names = self.names(INT, FLOAT, STR)
                parts.append(f"{{{self.rng.choice(names)}={self.pick('', '!r', '!s')}}}" if names else "-")
            elif choice == 5:
                names = self.names(STR, BYTES, INTS)
                parts.append(
                    f"{{{self.rng.choice(names)}!{self.pick('r', 's', 'a')}:{self.pick('', '>12', '.5')}}}"
                    if names
                    else "-"
                )
            else:
                parts.append(f"{{{self.make(INT, 0)}:{{{self.pick('3', '7', '1')}}}}}")
        return 'f"' + self.pick("-", "", "{{}}").join(parts).replace('"', "'") + '"'

    def make_str(self, depth):
        if "strings" not in self.areas or self.chance(0.25):
            return super().make_str(depth)
        a, i = self.make(STR, depth), self.make(INT, 0)
        p, q = self.piece(), self.piece()
        return self.pick(
            f"({a} + {p})", f"({p} + {a})", f"({a})[{i} % 5:]", f"({a})[:{i}]",
            f"({a})[{i}:{self.make(INT, 0)}:{self.pick('1', '2', '-1', '-2')}]",
            f"({a})[{i} % len({a} or 'x') if {a} else 0:][:1]",
            f"({a}).{self.pick('upper', 'lower', 'title', 'swapcase', 'capitalize', 'casefold', 'strip', 'lstrip', 'rstrip', 'expandtabs')}()",
            f"({a}).replace({p}, {q})[:60]", f"({a}).replace({p}, {q}, 1)[:60]", f"({a}).strip({p} or None)",
            f"({a}).{self.pick('center', 'ljust', 'rjust', 'zfill')}({self.pick('3', '6', '9')})",
            f"{p}.join({self.leaf(NAMES)})[:60]", f"({a} * ({i} % 3))[:40]",
            f"''.join(q for q in {a} if q {self.pick('!=', '>', '<')} {p})", f"''.join(sorted({a}))",
            f"''.join([q.upper() if q < 'm' else q for q in {a}])",
            f"({a}).partition({p} or 'a')[{self.pick('0', '1', '2')}]",
            f"({a}).rpartition({p} or 'a')[{self.pick('0', '2')}]",
            f"chr({i} % 1000 + 32)", f"repr({self.make(self.pick(FLOAT, INT, STR, BYTES), 0)})", f"ascii({a})",
            f"'%s-%d-%.2f' % ({p}, {i}, {self.make(FLOAT, 0)})" if self.chance(0.3) else f"'%5s|%-4s' % ({a}, {i})",
            f"'{{}}{{:>4}}'.format({a}, {i})", f"str({self.make(self.pick(INT, FLOAT), depth)})",
            f"format({self.make(FLOAT, depth)}, {self.rng.choice(FLOAT_SPECS)!r})",
            f"format({i}, {self.pick('', 'x', '05', ',')!r})",
            f"({a}).translate({{97: 'z', 98: None}})", f"({a}).removeprefix({p})", f"({a}).removesuffix({p})",
            f"({self.make(BYTES, 0)}).decode('latin-1')", f"({self.make(BYTES, 0)}).hex()",
            f"max({a}, {p})", f"min({a} or 'x')", f"({a})[::-1]", self.formatted(), self.formatted(), f"({a} or {p})",
            f"({a}).encode().decode('utf-8', 'replace')",
            f"(({a}).split({p} or None) or [''])[{self.pick('0', '-1')}]",
        )  # fmt: skip

    def make_bytes(self, depth):
        if "strings" not in self.areas or self.chance(0.2):
            return super().make_bytes(depth)
        a, i = self.make(BYTES, depth), self.make(INT, 0)
        p = self.pick("b'a'", "b'\\xff'", "b''", "b'ab'")
        return self.pick(
            f"({a} + {p})[-40:]", f"({a})[{i}:]", f"({a})[::-1]", f"({self.make(STR, depth)}).encode()",
            f"({a}).replace(b'a', {p})[:40]",
            f"({i} % 65536).to_bytes(2, {self.pick('big', 'little')!r})",
            f"bytes(q ^ {self.pick('1', '85', '255')} for q in {a})", f"bytes([q for q in {a} if q > 64])",
            f"{p}.join([{a}, {p}])", f"({a}).strip({p})", f"({a}).upper()", f"bytes({i} % 6)",
            f"b'%d:%s' % ({i}, {a})", f"bytes(memoryview({a})[::2])", f"({a} * 2)[:30]",
        )  # fmt: skip

    def make_int(self, depth):
        if "strings" not in self.areas or self.chance(0.6):
            return super().make_int(depth)
        a, b = self.make(STR, depth), self.make(BYTES, 0)
        return self.pick(
            f"len({a})", f"({a}).count({self.piece()})", f"({a}).find({self.piece()})",
            f"({a}).rfind({self.piece()})", f"ord(({a} or 'q')[0])", f"ord(({a} or 'q')[-1])",
            f"sum(map(ord, {a}))", f"sum(ord(q) for q in {a})",
            f"int('0' + ''.join(q for q in {a} if '0' <= q <= '9')[:15])", f"len(({a}).split())", f"({b} or b'x')[0]",
            f"sum({b})", f"({b}).find(b'a')", f"int.from_bytes(({b})[:7], 'little')", f"len({b})", f"({b}).count(97)",
            f"({self.make(INT, depth)}).bit_length()", f"len(str({self.make(INT, depth)}))",
            f"int({self.make(INT, 0)!r}.strip('()').replace('10**30', '5').replace('*', ''), 0)" if self.chance(0.02) else f"len({self.formatted()})",
        )  # fmt: skip

    def make_bool(self, depth):
        if "strings" not in self.areas or self.chance(0.6):
            return super().make_bool(depth)
        a, b = self.make(STR, depth), self.make(STR, 0)
        return self.pick(
            f"({a} {self.pick('<', '<=', '==', '!=', '>', '>=')} {b})",
            f"({self.piece()} {self.pick('in', 'not in')} {a})", f"({a}).startswith({self.piece()})",
            f"({a}).endswith(({self.piece()}, {self.piece()}))",
            f"({a}).{self.pick('isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'isalnum', 'isidentifier', 'isascii')}()",
            f"({self.make(BYTES, 0)} {self.pick('<', '==', '>')} {self.make(BYTES, 0)})",
            f"(97 in {self.make(BYTES, 0)})", f"('a' <= {a} <= 'z')",
            f"({a} is {a})" if self.chance(0.05) else f"bool({a})",
            f"(({a} or 'x')[0] == {self.piece()})", f"(({a} or 'x')[-1] < 'm')",
        )  # fmt: skip


class StringStatements:
    """Statements; for `Function`."""

    def statement_strings(self, level):
        e, rng = self.expressions, self.rng
        choice = rng.randrange(12)
        if choice < 4:
            kind = rng.choice((STR, STR, STR, BYTES, NAMES))
            return self.assign(level, kind, self.make(kind), "[:50]")
        names = [n for n in e.names(STR) if not n.startswith("i")]
        if choice < 6 and names:  # built up in place
            s = rng.choice(names)
            self.say(level, f"if len({s}) < 60:")
            self.say(level + 1, f"{s} += {rng.choice((e.piece(), e.formatted(), self.make(STR, 1)))}")
            return
        if choice < 9:
            a, b = f"i{self.fresh()}", f"i{self.fresh()}"
            text = self.make(STR, 1)
            head, defines = rng.choice((
                (f"for {a} in ({text})[:12]:", {a: STR}), (f"for {a} in ({text})[:12]:", {a: STR}),
                (f"for {a}, {b} in enumerate(({text})[:12]):", {a: INT, b: STR}),
                (f"for {a} in ({text}).split({e.piece()} or None)[:12]:", {a: STR}),
                (f"for {a} in {self.make(BYTES, 1)}[:12]:", {a: INT}),
                (f"for {a} in {e.leaf(NAMES)}[:12]:", {a: STR}),
                (f"for {a}, {b} in zip(({text})[:12], ({text})[1:]):", {a: STR, b: STR}),
                (f"for {a} in reversed(({text})[:12]):", {a: STR}), (f"for {a} in bytearray(b'a\\x80z'):", {a: INT}),
                (f"for {a} in range(min(len({text}), 9)):", {a: INT}),
            ))  # fmt: skip
            return self.repeat(level, head, 12, 1 + rng.randrange(3), defines)
        arrays = e.names(BYTEARRAY)
        if arrays and choice < 11:
            x, v = rng.choice(arrays), f"({self.make(INT, 1)}) & 255"
            self.say(level, rng.choice((
                f"if {x}: {x}[{e.index(x)}] = {v}", f"if len({x}) < 40: {x}.append({v})",
                f"if len({x}) < 40: {x} += {self.make(BYTES, 0)}", f"{x}[1:3] = {self.make(BYTES, 0)}[:4]",
                f"if {x}: {x}[0] ^= {v}", f"if {x}: note({x}.pop())", f"{x}.reverse()", f"del {x}[:1]",
                f"note(bytes({x}))", f"{x}[::2] = bytes(len({x}[::2]))", f"if {x}: memoryview({x})[0] = {v}",
            )))  # fmt: skip
            return
        self.assign(level, INT, self.make(INT, 2))
