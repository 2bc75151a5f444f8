"""Dicts, sets, lists of strings and pairs, deques: expressions over them, and statements that change them.

In: the scope of `Expressions` and `Function`. Out: text. Containers that are assigned in a loop are cut or bounded, so
that none doubles with each iteration; what is looked up is mostly there.
"""

from __future__ import annotations

from .expressions import FLOAT, FLOATS, INT, INTS, MIXED, ROWS, STR, TUPLE

DICT, WORDS, SET, NAMES, PAIRS, DEQUE = "dict", "words", "set", "names", "pairs", "deque"
KINDS = (DICT, DICT, WORDS, SET, NAMES, PAIRS, DEQUE, INTS, FLOATS)
KEYS = ("'a'", "'b'", "'ab'", "'xyz'", "''", "'é'")


class Containers:
    """Expressions; for `Expressions`."""

    def key(self):
        """A string that may be a key."""
        return self.rng.choice(KEYS) if self.chance(0.7) else self.leaf(STR)

    def make_dict(self, depth):
        k, v = self.make(INT, depth), self.make(FLOAT, depth)
        return self.pick(
            f"{{{k}: {v}, {self.make(INT, 0)}: {self.make(FLOAT, 0)}}}",
            f"{{q: q * {self.make(FLOAT, 0)} for q in {self.leaf(INTS)}}}",
            f"{{q: r for q, r in {self.leaf(PAIRS)} if {self.pick('q', 'r > 0', 'q != 2', 'q & 1')}}}",
            f"{{q % 4: r for q, r in zip({self.leaf(INTS)}, {self.leaf(FLOATS)})}}",
            f"dict(zip({self.leaf(INTS)}, {self.leaf(FLOATS)}))",
            f"{{**{self.leaf(DICT)}, {k}: {v}}}",
            f"({self.leaf(DICT)} | {{{k}: {v}}})",
            f"{self.leaf(DICT)}.copy()",
            f"dict({self.leaf(PAIRS)})",
            f"dict.fromkeys({self.leaf(self.pick(INTS, SET, DICT))}, {self.make(FLOAT, 0)})",
            f"dict(enumerate({self.leaf(FLOATS)}))",
            f"defaultdict(float, {self.leaf(DICT)})",
            f"OrderedDict({self.leaf(PAIRS)})",
        )

    def make_words(self, depth):
        return self.pick(
            f"{{{self.key()}: {self.make(INT, depth)}, {self.key()}: {self.make(INT, 0)}}}",
            f"{{q: len(q) for q in {self.leaf(NAMES)}}}",
            f"{{q: {self.leaf(NAMES)}.count(q) for q in {self.leaf(STR)}}}",
            f"Counter({self.leaf(self.pick(NAMES, STR))})",
            f"dict(a={self.make(INT, 0)}, **{{'b': {self.make(INT, 0)}}})",
            f"{{**{self.leaf(WORDS)}, {self.key()}: {self.make(INT, 0)}}}",
        )

    def make_set(self, depth):
        return self.pick(
            f"{{{self.make(INT, depth)}, {self.make(INT, 0)}}}",
            f"set({self.leaf(self.pick(INTS, DICT, SET))})",
            f"{{q % {self.pick('3', '5')} for q in {self.leaf(INTS)}}}",
            f"({self.leaf(SET)} {self.pick('&', '|', '-', '^')} {self.leaf(SET)})",
            f"({self.leaf(DICT)}.keys() {self.pick('&', '|', '-')} {self.leaf(SET)})",
            f"frozenset({self.leaf(INTS)})",
            "set()",
        )

    def make_names(self, depth):
        return self.pick(
            f"[{self.make(STR, depth)}, {self.key()}]",
            f"sorted({self.leaf(self.pick(WORDS, NAMES))})",
            f"list({self.leaf(self.pick(WORDS, STR))})",
            f"[str(q) for q in {self.leaf(INTS)}]",
            f"[q + {self.key()} for q in {self.leaf(NAMES)} if q][:20]",
            f"({self.make(STR, depth)}).split({self.pick('', repr(' '), repr('a'))})",
            f"[*{self.leaf(NAMES)}, {self.key()}][-20:]",
        )

    def make_pairs(self, depth):
        return self.pick(
            f"[({self.make(INT, depth)}, {self.make(FLOAT, depth)})]",
            f"list(zip({self.leaf(INTS)}, {self.leaf(FLOATS)}))",
            f"list({self.leaf(DICT)}.items())",
            f"[(q, q / 2) for q in {self.leaf(INTS)}]",
            f"sorted({self.leaf(PAIRS)}, key=lambda q: q[{self.pick('0', '1')}])",
            f"list(enumerate({self.leaf(FLOATS)}))",
            f"[(q, r) for q in {self.leaf(INTS)}[:4] for r in {self.leaf(FLOATS)}[:4] if {self.pick('q', 'r', 'q < r')}]",
            f"{self.leaf(PAIRS)}[{self.pick('1:', '::-1', ':3')}]",
        )

    def make_deque(self, depth):
        return self.pick(
            f"deque({self.leaf(self.pick(INTS, FLOATS, DEQUE))}, {self.pick('3', '5', '40')})",
            f"deque([{self.make(FLOAT, depth)}], maxlen=9)",
        )

    def leaf(self, kind):
        names = self.names(kind)
        if kind not in (DICT, WORDS, SET, NAMES, PAIRS, DEQUE) or (names and self.chance(0.85)):
            return super().leaf(kind)
        return {
            DICT: lambda: self.pick(
                "{1: 2.5, 3: -1.0}", "{}", "{0: 0.5, True: 1.5, 2: 3.0}", "{7: 1, -1: 2.5}"
            ),
            WORDS: lambda: self.pick("{'a': 1, 'b': 2}", "{'xyz': 7}", "{}"),
            SET: lambda: self.pick("{1, 2, 3}", "{5, 1}", "set()", "frozenset((0, 2, 4))", "{True, 2.0, 7}"),
            NAMES: lambda: self.pick("['a', 'b', 'ab']", "['', 'xyz']", "'a b ab'.split()"),
            PAIRS: lambda: self.pick("[(1, 2.5), (3, -0.5)]", "[(0, 1.0)]", "[(2, 2.0), (2, 1.0), (1, 9.0)]"),
            DEQUE: lambda: self.pick("deque((1, 2.0, 3), 5)", "deque(maxlen=4)"),
        }[kind]()

    def make_int(self, depth):
        if "containers" not in self.areas or self.chance(0.6):
            return super().make_int(depth)
        a, b = self.make(INT, depth), self.make(INT, 0)
        return self.pick(
            f"len({self.leaf(self.pick(DICT, WORDS, SET, NAMES, PAIRS, DEQUE))})",
            f"{self.leaf(WORDS)}.get({self.key()}, {a})",
            f"sum({self.leaf(WORDS)}.values())",
            f"{self.leaf(INTS)}.count({a})",
            f"max({self.leaf(self.pick(SET, INTS))}, default={a})",
            f"min({self.leaf(INTS)}, key=lambda q: q % 3, default={b})",
            f"sum(q for q in {self.leaf(self.pick(INTS, SET))} if q > {b})",
            f"sum(q * i for i, q in enumerate({self.leaf(INTS)}))",
            f"len({{q % 3 for q in {self.leaf(INTS)}}})",
            f"next((q for q in {self.leaf(INTS)} if q > {b}), {a})",
            f"reduce(lambda q, r: (q * 3 + r) % 1009, {self.leaf(INTS)}, {b})",
            f"sum(map(int, {self.leaf(FLOATS)}[:3]))" if self.chance(0.2) else f"sum(1 for q in {self.leaf(FLOATS)} if q > 0)",
        )  # fmt: skip

    def make_float(self, depth):
        if "containers" not in self.areas or self.chance(0.6):
            return super().make_float(depth)
        a, k = self.make(FLOAT, depth), self.make(INT, 0)
        some = self.leaf(DICT)
        return self.pick(
            f"{some}.get({k}, {a})",
            f"{some}.get({k}, {a})",
            f"({some}[{k}] if {k} in {some} else {a})",
            f"sum({some}.values())",
            f"max({some}.values(), default={a})",
            f"sum(r for q, r in {self.leaf(PAIRS)} if q != {k})",
            f"sum(q * r for q, r in {self.leaf(PAIRS)})",
            f"sum([q * q for q in {self.leaf(FLOATS)}], {a})",
            f"max({self.leaf(FLOATS)}, key=abs, default={a})",
            f"max([r for q, r in {self.leaf(PAIRS)}] or [{a}])",
            f"math.fsum({self.leaf(FLOATS)}[:3])" if self.chance(0.2) else f"sum({self.leaf(DEQUE)})",
        )  # fmt: skip

    def make_bool(self, depth):
        if "containers" not in self.areas or self.chance(0.6):
            return super().make_bool(depth)
        return self.pick(
            f"({self.make(INT, depth)} {self.pick('in', 'not in')} {self.leaf(self.pick(DICT, SET, INTS))})",
            f"({self.key()} {self.pick('in', 'not in')} {self.leaf(self.pick(WORDS, NAMES))})",
            f"({self.leaf(SET)} {self.pick('<=', '<', '==', '>=')} {self.leaf(SET)})",
            f"({self.leaf(DICT)} == {self.make(DICT, 0)})",
            f"({self.leaf(FLOATS)} {self.pick('<', '==', '<=')} {self.leaf(FLOATS)})",
            f"({self.leaf(PAIRS)} {self.pick('<', '==', '>=')} {self.leaf(PAIRS)})",
            f"any(q > {self.make(INT, 0)} for q in {self.leaf(INTS)})",
            f"all(q for q in {self.leaf(self.pick(FLOATS, NAMES))})",
            f"({self.leaf(self.pick(INTS, FLOATS))} is {self.leaf(self.pick(INTS, FLOATS))})",
            f"bool({self.leaf(self.pick(DICT, SET, DEQUE))})",
        )


class ContainerStatements:
    """Statements; for `Function`."""

    def statement_containers(self, level):
        self.rng.choice((
            self.change_dict, self.change_dict, self.change_set, self.change_list, self.change_list, self.slice_list,
            self.walk, self.walk, self.walk, self.unpack_more, self.share, self.count_words,
        ))(level)  # fmt: skip

    def change_dict(self, level):
        e = self.expressions
        names = e.names(DICT)
        if not names:
            return self.assign(level, DICT, self.make(DICT), "")
        d, k, v = self.rng.choice(names), e.make(INT, 1), self.make(FLOAT, 1)
        k = self.bounded(k) if self.in_loop else k
        self.say(level, self.rng.choice((
            f"{d}[{k}] = {v}", f"{d}[{k}] = {v}", f"{d}[({k}) % 7] = {d}.get(({k}) % 7, 0.0) + {v}",
            f"{d}.setdefault({k}, {v})", f"{d}.pop({k}, None)", f"{d}.update({{{k}: {v}}})",
            f"{d}.update({e.leaf(PAIRS)})",
            f"if {k} in {d}: {d}[{k}] += 1.5", f"if {k} in {d}: del {d}[{k}]", f"if {d}: note({d}.popitem())",
            f"{d} |= {{{k}: {v}}}", f"{self.target(FLOAT)} = {d}.pop({k}, {v})", f"{d}[{k}] = {d}[{k}] = {v}",
        )))  # fmt: skip

    def change_set(self, level):
        names = self.expressions.names(SET)
        if not names:
            return self.assign(level, SET, self.make(SET), "")
        s, v = self.rng.choice(names), self.make(INT, 1)
        v = self.bounded(v) if self.in_loop else v
        self.say(level, self.rng.choice((
            f"if isinstance({s}, set): {s}.add({v})", f"if type({s}) is set: {s}.discard({v})", f"{s} |= {{{v}}}",
            f"{s} = {s} - {{{v}}}", f"{s} ^= {{{v}, 1}}", f"if type({s}) is set and {s}: note({s}.pop())",
            f"if type({s}) is set: {s}.update({self.expressions.leaf(INTS)})",
        )))  # fmt: skip

    def change_list(self, level):
        e = self.expressions
        kind = self.rng.choice((INTS, FLOATS, FLOATS, MIXED, PAIRS, NAMES, DEQUE))
        names = e.names(kind)
        if not names:
            return self.assign(level, kind, self.make(kind), "")
        x = self.rng.choice(names)
        item = {INTS: INT, FLOATS: FLOAT, MIXED: FLOAT, NAMES: STR, DEQUE: FLOAT}.get(kind)
        v = f"({e.make(INT, 0)}, {e.make(FLOAT, 1)})" if item is None else self.make(item, 1)
        if item == INT and self.in_loop:
            v = self.bounded(v)
        choices = [
            f"if len({x}) < 40: {x}.append({v})",
            f"if {x}: note({x}.pop())",
            f"{x}.reverse()",
            f"note({x}.count({v}))",
        ]
        if kind == DEQUE:
            choices += [
                f"{x}.appendleft({v})",
                f"if {x}: {self.target(FLOAT)} = {x}.popleft()",
                f"{x}.rotate({e.make(INT, 0)} % 5)",
            ]
        else:
            choices += [
                f"if len({x}) < 40: {x}.insert({e.index(x)}, {v})", f"if {v} in {x}: {x}.remove({v})", f"{x}.sort()",
                f"{x}.sort(key=str, reverse=True)", f"if {x}: {x}[{e.index(x)}] = {v}",
                f"if len({x}) > 1: {x}[0], {x}[-1] = {x}[-1], {x}[0]",
                f"if len({x}) < 40: {x} += [{v}]", f"if {x}: del {x}[{e.index(x)}]",
                f"if {x}: note({x}.pop({e.index(x)}))",
                f"if {v} in {x}: note({x}.index({v}))", f"if len({x}) < 40: {x}.extend(q for q in list({x})[:3])",
            ]  # fmt: skip
        self.say(level, self.rng.choice(choices))

    def slice_list(self, level):
        names = self.expressions.names(INTS, FLOATS, MIXED)
        if not names:
            return
        x, i, j = self.rng.choice(names), self.rng.randrange(-3, 4), self.rng.randrange(-2, 5)
        item = self.make(INT if self.scope[x] == INTS else FLOAT, 1)
        item = self.bounded(item)
        self.say(level, self.rng.choice((
            f"{x}[{i}:{j}] = [{item}]", f"{x}[:0] = {x}[:2]" if not self.in_loop else f"{x}[:2] = {x}[:2]",
            f"del {x}[{i}:{j}]",
            f"{x}[::2] = [{item}] * len({x}[::2])", f"{x}[:] = {x}[::-1]", f"del {x}[::3]", f"{x}[{i}:] = ()",
            f"{self.target(self.scope[x])} = {x}[{i}:{j}]", f"{x} *= {self.rng.choice((0, 1, 1))}",
            f"{x}[{j}:{i}:-1] = {x}[{j}:{i}:-1]",
        )))  # fmt: skip

    def walk(self, level):
        e, a, b = self.expressions, f"i{self.fresh()}", f"i{self.fresh()}"
        head, defines = self.rng.choice((
            (f"for {a} in {e.leaf(DICT)}:", {a: INT}),
            (f"for {a}, {b} in {e.leaf(DICT)}.items():", {a: INT, b: FLOAT}),
            (f"for {a} in list({e.leaf(DICT)}.values()):", {a: FLOAT}), (f"for {a} in {e.leaf(SET)}:", {a: INT}),
            (f"for {a} in sorted({e.leaf(SET)}):", {a: INT}),
            (f"for {a}, {b} in {e.leaf(PAIRS)}:", {a: INT, b: FLOAT}),
            (f"for {a}, ({b}, _) in enumerate({e.leaf(PAIRS)}):", {a: INT, b: INT}),
            (f"for {a} in reversed({e.leaf(INTS)}):", {a: INT}),
            (f"for {a}, {b} in {e.leaf(WORDS)}.items():", {a: STR, b: INT}),
            (f"for {a} in {e.leaf(NAMES)}:", {a: STR}),
            (f"for {a} in map(abs, {e.leaf(FLOATS)}):", {a: FLOAT}),
            (f"for {a} in {e.leaf(DEQUE)}.copy():", {a: FLOAT}),
            (f"for {a} in accumulate({e.leaf(FLOATS)}):", {a: FLOAT}),
            (f"for {a} in chain({e.leaf(INTS)}, {e.leaf(SET)}):", {a: INT}),
            (f"for {a}, *{b} in {e.leaf(PAIRS)}:", {a: INT, b: FLOATS}),
            (f"for {a} in filter(None, {e.leaf(INTS)}):", {a: INT}),
            (f"for {a} in list({e.leaf(DICT)}):", {a: INT}),
            (f"for {a} in (q * 2 for q in {e.leaf(INTS)}):", {a: INT}),
            (f"for {a}, {b} in zip({e.leaf(INTS)}, {e.leaf(NAMES)}):", {a: INT, b: STR}),
            (f"for {a}, {b} in zip({e.leaf(FLOATS)}, {e.leaf(FLOATS)}, strict=False):", {a: FLOAT, b: FLOAT}),
        ))  # fmt: skip
        self.repeat(level, head, 8, 1 + self.rng.randrange(3), defines)

    def unpack_more(self, level):
        e = self.expressions
        a, b, c = self.target(INT), self.target(FLOATS), self.fresh()
        text, defines = self.rng.choice((
            (f"{a}, *{b} = {e.make(INT, 1)}, {e.make(FLOAT, 1)}, 2.5", {a: INT, b: FLOATS}),
            (f"*{b}, {a} = *{e.leaf(FLOATS)}[:20], {e.make(INT, 0)}", {a: INT, b: FLOATS}),
            (f"({a}, {c}), *_ = {e.leaf(PAIRS)} or [(1, 2.0)]", {a: INT, c: FLOAT}),
            (f"[{a}, {c}] = {e.make(INT, 1)}, {e.make(FLOAT, 1)}", {a: INT, c: FLOAT}),
            (f"{a} = {c} = {self.value(INT)}", {a: INT, c: INT}),
            (f"{a}, {c} = {c}, {a} = {e.make(INT, 0)}, {e.make(INT, 0)}", {a: INT, c: INT}),
            (f"{c} = [*{e.leaf(INTS)}[:9], *{e.leaf(SET)}]", {c: INTS}),
            (f"{c} = (*{e.leaf(FLOATS)}[:9], {e.make(FLOAT, 1)})", {c: TUPLE}),
        ))  # fmt: skip
        self.say(level, text)
        self.scope.update(defines)

    def share(self, level):
        """Two names for one object, or rows that are one object."""
        e, name = self.expressions, self.fresh()
        kind = self.rng.choice((INTS, FLOATS, DICT, SET, ROWS))
        if kind == ROWS:
            self.say(level, f"{name} = [{e.leaf(FLOATS)}] * 2")
        else:
            self.say(level, f"{name} = {e.leaf(kind)}")
        self.scope[name] = kind

    def count_words(self, level):
        e = self.expressions
        names = e.names(WORDS)
        if not names:
            return self.assign(level, WORDS, self.rng.choice(("{}", "{}", self.make(WORDS))), "")
        w, i = self.rng.choice(names), f"i{self.fresh()}"
        self.say(level, f"for {i} in {e.leaf(self.rng.choice((NAMES, STR)))}:")
        self.say(level + 1, self.rng.choice((
            f"{w}[{i}] = {w}.get({i}, 0) + 1", f"if {i} in {w}: {w}[{i}] += 1", f"{w}.setdefault({i}, len({w}))",
        )))  # fmt: skip
