"""Calls of every form end as the interpreter's: argument order, keywords, unpacking and its messages."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .support import NULL, leaks_nothing, outcome, table


def show(*args, **kwargs):
    return (args, list(kwargs.items()))


class Callable:
    def __call__(self, *args, **kwargs):
        return ("called", args, kwargs)

    def method(self, *args, **kwargs):
        return ("method", type(self), args, list(kwargs.items()))

    @classmethod
    def of_class(cls, *args, **kwargs):
        return ("class", cls, args, kwargs)

    @staticmethod
    def static(*args, **kwargs):
        return ("static", args, kwargs)

    def fails(self):
        raise OSError(5, "broken")

    @property
    def lazy(self):
        return show


names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=3)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(), max_size=12), names)
def test_positional_and_keyword(args, keywords):
    values = [*args, *(k * 2 for k in keywords)]
    kwargs = {k: k * 2 for k in keywords}
    given_names = tuple(keywords) if keywords else NULL
    this = Callable()
    for function in [show, this, this.method, lambda *a, **k: (a, k), dict, print and max, this.fails, 5]:
        ours = outcome(lambda: table("call", function, given_names, *values))
        assert ours == outcome(lambda: function(*args, **kwargs))
        assert ours == outcome(lambda: table("call_giving", given_names, function, *values))


def test_built_in_methods():
    items = [3, 1, 2]
    assert table("call_giving", ("key", "reverse"), items.sort, None, True) is None
    assert items == [3, 2, 1]
    assert table("call_giving", NULL, list.append, items, 9) is None
    assert table("call_giving", NULL, "a-b".split, "-") == ["a", "b"]
    assert table("call_giving", NULL, sys.getrecursionlimit) == sys.getrecursionlimit()
    ours = outcome(lambda: table("call_giving", NULL, items.append))
    assert ours == outcome(lambda: items.append())


class NotReallyAMapping:
    def keys(self):
        raise AttributeError("inner")


class RaisesKeyError:
    def keys(self):
        return ["a", "b"]

    def __getitem__(self, key):
        raise KeyError(key)


class Iterates:
    def __init__(self, error=None):
        self.error = error

    def __iter__(self):
        yield 1
        if self.error:
            raise self.error
        yield 2


class HasKeys:
    def keys(self):
        return iter(["x", "y"])

    def __getitem__(self, key):
        return key.upper()


ARGS = [
    (),
    (1, 2),
    [1, 2],
    "ab",
    range(2),
    {3},
    5,
    None,
    Iterates(),
    Iterates(TypeError("mine")),
    Iterates(KeyError(1)),
]
KEYWORDS = [
    None,
    {},
    {"a": 1},
    {"a": 1, 2: 3},
    5,
    [("a", 1)],
    HasKeys(),
    NotReallyAMapping(),
    RaisesKeyError(),
]


@pytest.mark.parametrize(
    "function",
    [show, Callable(), Callable().method, print, int, 5],
    ids=["function", "instance", "method", "builtin", "class", "number"],
)
def test_unpacked_arguments(function):
    if function is print:
        function = len
    for args in ARGS:
        ours = outcome(lambda: table("call_ex", function, args, NULL))
        assert ours == outcome(lambda: function(*args)), args
        for keywords in KEYWORDS[1:]:
            ours = outcome(lambda: table("call_ex", function, args, keywords))

            # The opcode sees keywords after they were merged, arguments before.
            def python():
                return function(*args, **keywords)

            merges = isinstance(keywords, (dict, HasKeys))
            iterates = outcome(lambda: (*args,))[0] == "value"
            if merges or iterates:
                assert ours == outcome(python), (args, keywords)


def test_a_failing_call_keeps_no_argument():
    marker = object()
    before = sys.getrefcount(marker)
    for _ in range(20):
        outcome(lambda: table("call", Callable().fails, NULL, marker))
        outcome(lambda: table("call_ex", show, 5, {"a": marker}))
        outcome(lambda: table("call_giving", NULL, Callable().fails, marker))
        outcome(lambda: table("call_giving", NULL, lambda: 0, marker, marker))
    assert sys.getrefcount(marker) == before


def test_nothing_leaks():
    leaks_nothing(lambda: table("call", show, ("k",), [1], [2]))
    leaks_nothing(lambda: table("call_giving", ("k",), show, [1], [2]))
    leaks_nothing(lambda: table("call_giving", ("k",), Callable().method, [1], [2]))
    leaks_nothing(lambda: table("call_giving", NULL, dict, [1], [2]))
    leaks_nothing(lambda: table("call_ex", show, (1, [2]), {"k": [3]}))
    leaks_nothing(lambda: table("call_ex", show, [1], HasKeys()))
    leaks_nothing(lambda: table("call_ex", show, 1, {}))
    leaks_nothing(lambda: table("call_ex", show, (), 7))
