"""Methods of objects that no argument leads to: made in the function, or given by a call. Their class is known by a picture
that an earlier version took, which keeps neither object nor class alive."""

from __future__ import annotations

import gc
import math
import weakref

import overdrive
import pytest
from overdrive import _core

from .test_exits import fresh, same


class Sum:
    def __init__(self, x=0.0):
        self.x = x
        self.n = 0

    def add(self, a):
        self.x += a
        self.n += 1

    def mean(self):
        return self.x / self.n

    def both(self, other):
        return self.x + other.x


class Slotted:
    __slots__ = ("x", "n")

    def __init__(self, x=0.0):
        self.x = x
        self.n = 0

    add, mean, both = Sum.add, Sum.mean, Sum.both


class Below(Slotted):
    __slots__ = ("more",)


class Heir(Sum):
    def mean(self):
        return -self.x / self.n


CLASSES = [Sum, Slotted, Below, Heir]


def made(cls, xs):
    total = cls()
    for x in xs:
        total.add(x)
    return total.mean(), total.x, total.n


def given(make, xs):
    s = 0.0
    for x in xs:
        a = make(x)
        a.add(x)
        s += a.both(a)
    return s


def held(cls, xs):
    totals = [cls(), cls(), cls()]
    for i, x in enumerate(xs):
        totals[i % 3].add(x)
    return [t.x for t in totals], [t.n for t in totals]


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error).__name__, str(error)


def alike(f, *args, times=8, compiled=None):
    compiled = compiled or fresh(f)
    for _ in range(times):
        assert same(outcome(compiled, *args), outcome(f, *args))
    return compiled


VALUES = [[0.5, 1.5, -2.0], [1, 2, 3], [2**62, 2**62, 1], [True, 1.5, math.nan], [], ["a"], [1.0] * 50]


@pytest.fixture(autouse=True)
def unforced():
    yield
    _core.debug_force(None)


@pytest.mark.parametrize("f", [made, given, held])
@pytest.mark.parametrize("cls", CLASSES)
def test_all(f, cls):
    compiled = fresh(f)
    for xs in VALUES:
        alike(f, cls, xs, compiled=compiled)
    for xs in VALUES:
        alike(f, cls, xs)


@pytest.mark.parametrize("cls", CLASSES)
def test_they_are_translated_in_place(cls):
    text = str(overdrive.explain(alike(made, cls, [0.5] * 30)))
    assert "add inlined" in text, text


@pytest.mark.parametrize("f", [made, given, held])
@pytest.mark.parametrize("cls", [Sum, Slotted])
def test_each_exit_by_number(f, cls):
    for k in range(_core.debug_exit_count(alike(f, cls, [0.5] * 5))):
        _core.debug_force(k)
        alike(f, cls, [0.5] * 5, times=4)


@pytest.mark.parametrize("seed", range(5))
def test_exits_at_random(seed):
    _core.debug_force(("seed", seed, 0.1))
    for f in (made, given, held):
        for cls in CLASSES:
            alike(f, cls, [0.5] * 5, times=4)


def test_objects_of_several_classes():
    compiled = fresh(made)
    for i in range(24):
        cls = CLASSES[i // 3 % 4]
        assert same(compiled(cls, [1.5] * 4), made(cls, [1.5] * 4))


def test_the_class_changes():
    class Own(Sum):
        pass

    compiled = alike(made, Own, [0.5, 1.0])
    Own.add = lambda self, a: setattr(self, "x", 10.0 + a) or setattr(self, "n", 7)
    alike(made, Own, [0.5, 1.0], compiled=compiled)
    Own.mean = property(lambda self: lambda: "a property")
    alike(made, Own, [0.5, 1.0], compiled=compiled)
    del Own.add, Own.mean
    alike(made, Own, [0.5, 1.0], compiled=compiled)


def test_the_class_changes_in_the_middle():
    def f(cls, act):
        a = cls()
        for i in range(6):
            act(cls, i)
            a.add(1.0)
        return a.x, a.n

    def act(cls, i):
        if i == 3:
            cls.add = lambda self, a: None

    results = []
    for g in (f, fresh(f)):
        runs = []
        for _ in range(6):

            class Own(Sum):
                pass

            runs.append([g(Own, lambda cls, i: None) for _ in range(3)] + [g(Own, act)])
        results.append(runs)
    assert results[0] == results[1]


def test_an_object_hides_the_method():
    def f(cls, hide):
        a = cls()
        if hide:
            a.add = lambda x: None
        for x in (0.5, 1.5):
            a.add(x)
        return a.x, a.n

    class Own(Sum):
        pass

    compiled = alike(f, Own, False)
    alike(f, Own, True, compiled=compiled)
    alike(f, Own, False, compiled=compiled)


def test_other_types_come_by_after_the_picture():
    def f(cls, x, xs):
        a = cls(x)
        for y in xs:
            a.add(y)
        return a.x, a.n

    compiled = fresh(f)
    for x in (0.5, 1, 2**63, "a", None, 0.5, True):
        for xs in ([1.5, 2.5], [1, 2], ["b"], [2**63]):
            alike(f, Sum, x, xs, compiled=compiled, times=3)


def test_neither_object_nor_class_is_kept():
    compiled = fresh(made)
    dead = []
    for _ in range(12):

        class Own(Sum):
            def __init__(self):
                super().__init__()
                dead.append(weakref.ref(self))

        compiled(Own, [0.5, 0.25])
        assert dead[-1]() is None
        dead.append(weakref.ref(Own))
        del Own
    gc.collect()
    assert all(ref() is None for ref in dead)


def test_a_metaclass_s_own_list_of_classes_is_not_asked():
    class Meta(type):
        def __subclasses__(cls):
            raise AssertionError("asked")

    class Base(Sum, metaclass=Meta):
        pass

    class Own(Base):
        pass

    alike(made, Own, [0.5, 1.5])
