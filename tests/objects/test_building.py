"""Containers, strings, unpacking: the opcodes' results and the opcodes' messages."""

import sys
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .support import NULL, agree, leaks_nothing, outcome, table

keys = st.one_of(st.integers(-2, 2), st.text("ab", max_size=2), st.booleans(), st.floats(), st.just(()))
items = st.one_of(keys, st.lists(st.integers(), max_size=2))


@settings(deadline=None, max_examples=200)
@given(st.lists(items, max_size=9))
def test_tuple_list_set(values):
    agree(lambda v: table("build_tuple", *v), tuple, values)
    agree(lambda v: table("build_list", *v), list, values)

    def python(v):
        out = set()
        for item in v:
            out.add(item)
        return out

    agree(lambda v: table("build_set", *v), python, values)


def of_source(expression, n):
    names = [f"v{i}" for i in range(n)]
    return eval(f"lambda {', '.join(names)}: {expression(names)}")


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(items, st.integers()), max_size=9))
def test_dictionaries(pairs):
    flat = [x for pair in pairs for x in pair]
    python = of_source(
        lambda n: "{" + ", ".join(f"{n[i]}: {n[i + 1]}" for i in range(0, len(n), 2)) + "}", len(flat)
    )
    ours, theirs = outcome(lambda: table("build_map", *flat)), outcome(lambda: python(*flat))
    assert ours == theirs
    if ours[0] == "value":
        assert sys.getsizeof(table("build_map", *flat)) == sys.getsizeof(python(*flat))
        names = tuple(k for k, _ in pairs)
        assert outcome(lambda: table("build_const_key_map", names, *(v for _, v in pairs))) == theirs


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text(max_size=4), max_size=6))
def test_strings(parts):
    assert table("build_string", *parts) == "".join(parts)


def test_a_string_of_one_part_is_that_part():
    part = "".join(["long", "er"])
    assert table("build_string", part) is part


class Formats:
    def __init__(self, answer):
        self.answer = answer

    def __format__(self, spec):
        return self.answer if not spec else f"<{spec}>"

    def __str__(self):
        return "str"

    def __repr__(self):
        return "repré"


class StrKind(str):
    def __format__(self, spec):
        return "formatted"


def test_format():
    conversions = ["", "!s", "!r", "!a"]
    for value in [1, 1.5, "text", StrKind("x"), Formats("ok"), Formats(5), None, [1], 10**30]:
        for number, conversion in enumerate(conversions):
            python = eval(f"lambda v: f'{{v{conversion}}}'")
            assert outcome(lambda: table("format", value, number, NULL)) == outcome(python, value)
            for spec in ["", ">8", ".2f", "bad%"]:
                python = eval(f"lambda v, s: f'{{v{conversion}:{{s}}}}'")
                assert outcome(lambda: table("format", value, number, spec)) == outcome(python, value, spec)


def test_an_exact_string_is_formatted_to_itself():
    text = "".join(["no ", "copy"])
    assert table("format", text, 0, NULL) is text


def test_slices():
    assert table("build_slice", 1, 2, NULL) == slice(1, 2)
    assert table("build_slice", None, 2, -1) == slice(None, 2, -1)


class Iterates:
    def __init__(self, values, error=None):
        self.values, self.error = values, error

    def __iter__(self):
        yield from self.values
        if self.error:
            raise self.error


class BadIter:
    def __iter__(self):
        raise TypeError("my own")


class OldStyle:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10


ITERABLES = [
    [], [1, 2, 3], (1, 2, 3), "abc", {"a": 1}, range(3), range(5), Iterates([1, 2, 3]), Iterates([1]),
    Iterates([1], OSError("late")), Iterates([1, 2, 3], KeyError("end")), BadIter(), OldStyle(), 5, None, [[1], [2]],
]  # fmt: skip


@pytest.mark.parametrize("source", ITERABLES, ids=lambda v: type(v).__name__)
def test_extending(source):
    def extended(seq):
        return [0, *seq]

    def entry(seq):
        out = [0]
        table("list_extend", out, seq)
        return out

    assert outcome(entry, source) == outcome(extended, source)

    def updated(seq):
        return {0, *seq}

    def entry_set(seq):
        out = {0}
        table("set_update", out, seq)
        return out

    assert outcome(entry_set, source) == outcome(updated, source)
    partial, partial2 = [0], [0]
    outcome(lambda: table("list_extend", partial, source))
    outcome(lambda: partial2.extend(source))
    assert partial == partial2


class Mapping:
    def __init__(self, error=None):
        self.error = error

    def keys(self):
        return ["a", "b"]

    def __getitem__(self, key):
        if self.error:
            raise self.error
        return key * 2


MAPPINGS = [
    {},
    {"a": 1},
    {1: 2},
    Mapping(),
    Mapping(KeyError("a")),
    Mapping(KeyError()),
    Mapping(OSError(1)),
    5,
    [1],
    None,
]


def target(*args, **kwargs):
    return list(kwargs.items())


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda v: type(v).__name__)
def test_merging(mapping):
    def entry():
        out = {"x": 0}
        table("dict_update", out, mapping)
        return out

    assert outcome(entry) == outcome(lambda: {"x": 0, **mapping})

    def merge():
        out = {"b": 0}
        table("dict_merge", target, out, mapping)
        return target(**out)

    assert outcome(merge) == outcome(lambda: target(b=0, **mapping))


def test_adding_one():
    out = []
    assert table("list_append", out, [1]) == 0 and out == [[1]]
    group = set()
    assert table("set_add", group, 1) == 0 and group == {1}
    agree(lambda s: table("set_add", s, []), lambda s: s.add([]), set())
    names = {}
    assert table("map_add", names, "k", [2]) == 0 and names == {"k": [2]}
    agree(lambda d: table("map_add", d, [], 1), lambda d: d.__setitem__([], 1), {})
    assert table("list_to_tuple", [1, [2]]) == (1, [2])


@pytest.mark.parametrize("source", ITERABLES, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_unpacking(source, n):
    names = [f"v{i}" for i in range(n)]
    scope = {}
    exec(f"def f(s):\n    [{', '.join(names)}] = s\n    return ({', '.join(names)}{',' if n else ''})", scope)
    assert outcome(lambda: table("unpack", source, n)) == outcome(scope["f"], source)
    for before in range(n + 1):
        after = n - before
        targets = [*names[:before], "*rest", *names[before:]]
        listed = ", ".join(t.lstrip("*") for t in targets)
        exec(f"def g(s):\n    [{', '.join(targets)}] = s\n    return ({listed},)", scope)
        assert outcome(lambda: table("unpack_ex", source, before, after)) == outcome(scope["g"], source)


def test_a_tuple_of_the_right_length_is_unpacked_to_itself():
    pair = ([1], [2])
    assert table("unpack", pair, 2) is pair


def test_failed_unpacking_releases_last_first():
    class Item:
        pass

    def releases(unpacks):
        log = []

        def source():
            for i in range(3):
                item = Item()
                weakref.finalize(item, log.append, i)
                yield item
                del item

        outcome(lambda: unpacks(source()))
        return log

    def python(source):
        a, b, c, d, e = source

    assert releases(lambda s: table("unpack", s, 5)) == releases(python)


def test_nothing_leaks():
    leaks_nothing(lambda: table("build_map", "a", [1], "b", [2]))
    leaks_nothing(lambda: table("build_map", [], [1]))
    leaks_nothing(lambda: table("build_set", 1, []))
    leaks_nothing(lambda: table("unpack", iter([[1], [2]]), 2))
    leaks_nothing(lambda: table("unpack", iter([[1], [2]]), 5))
    leaks_nothing(lambda: table("unpack", iter([[1], [2]]), 1))
    leaks_nothing(lambda: table("unpack_ex", iter([[1], [2], [3], [4]]), 1, 2))
    leaks_nothing(lambda: table("unpack_ex", iter([[1], [2], [3], [4]]), 3, 2))
    leaks_nothing(lambda: table("format", Formats(5), 0, NULL))
    leaks_nothing(lambda: table("list_extend", [], 5))
    leaks_nothing(lambda: table("dict_merge", target, {"a": 1}, {"a": 2}))


def test_a_float_in_a_list_is_overwritten_only_when_nobody_else_holds_it():
    items = [float("1.25"), float("2.25")]
    held = items[1]
    address = id(items[0])
    assert table("list_set_float", items, 0, 7.5) == 0 and table("list_set_float", items, 1, 8.5) == 0
    assert items == [7.5, 8.5] and held == 2.25
    assert id(items[0]) == address and items[1] is not held
    leaks_nothing(lambda: table("list_set_float", items, 1, 9.5))


def test_an_int_in_a_list_is_replaced():
    items = [int("1000"), int("2000")]
    held = items[1]
    for value in (7, 1 << 40, -(1 << 63)):
        assert table("list_set_int", items, 1, value) == 0
        assert items == [1000, value] and held == 2000
    leaks_nothing(lambda: table("list_set_int", items, 0, 1 << 50))
