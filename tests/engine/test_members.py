"""Attributes of ordinary classes, read and written where their instances keep them: equal to CPython whatever happens to
the classes and the objects meanwhile."""

from __future__ import annotations

import copy
import dataclasses
import gc
import math
import random
import sys
import weakref

import overdrive
import pytest
from overdrive import _core

from .test_exits import fresh, same


class Point:
    """Two attributes and a class attribute that one of them may hide."""

    scale = 3

    def __init__(self, x, y):
        self.x = x
        self.y = y


class Slotted:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y


class Below(Slotted):
    """Slots from above, a dictionary of its own."""

    def __init__(self, x, y):
        super().__init__(x, y)
        self.z = x


@dataclasses.dataclass
class Data:
    x: object
    y: object


@dataclasses.dataclass(slots=True)
class SlottedData:
    x: object
    y: object


class Guarded:
    """Its attributes are computed, refused or counted: nothing of this may be skipped."""

    def __init__(self, x, y):
        self.__dict__["y"] = y
        self.seen = [x]

    @property
    def x(self):
        return self.seen[-1]

    @x.setter
    def x(self, value):
        self.seen.append(value)


class Answering:
    def __init__(self, x, y):
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)

    def __getattr__(self, name):
        raise AttributeError(f"no {name} here")

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value if value != 7 else 8)


CLASSES = [Point, Slotted, Below, Data, SlottedData, Guarded, Answering]
VALUES = [1.5, -0.0, math.nan, 2**62, 2**80, 7, True, None, "text", (1, 2.0), [1.0]]


def state(o):
    """What can be compared of an argument."""
    if isinstance(o, (list, tuple)):
        return [state(item) for item in o]
    if hasattr(o, "y"):
        return [type(o).__name__, getattr(o, "x", "no x"), o.y]
    return o.__name__ if callable(o) else o


def outcome(f, args):
    """What a call gives or raises, and what it leaves behind."""
    try:
        result = f(*args)
    except Exception as error:
        lines = []
        trace = error.__traceback__.tb_next
        while trace is not None:
            lines.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
            trace = trace.tb_next
        result = type(error), str(error), lines
    return result, [state(a) for a in args]


def alike(f, make, times=6, compiled=None):
    """Compares several calls, with new arguments each."""
    compiled = compiled or fresh(f)
    for _ in range(times):
        assert same(outcome(compiled, make()), outcome(f, make()))
    return compiled


def is_native(compiled):
    return "CPython" not in str(overdrive.explain(compiled))


def moves(points, steps, dt):
    for _ in range(steps):
        for p in points:
            p.x += p.y * dt
            if p.x > 1.0:
                p.y = -p.y
    s = 0.0
    for p in points:
        s += p.x * p.x
    return s


def doubles(points):
    n = 0
    for p in points:
        p.x = p.x + p.x
        if p.y:
            n += 1
    return n


def cloud(cls, n=20, seed=3):
    r = random.Random(seed)
    return [cls(r.random(), r.random() - 0.5) for _ in range(n)]


@pytest.mark.parametrize("cls", CLASSES)
def test_floats_in_place(cls):
    compiled = alike(moves, lambda: [cloud(cls), 10, 0.125])
    assert is_native(compiled) == (cls not in (Guarded, Answering))


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("x", VALUES, ids=repr)
def test_values_of_all_types(cls, x):
    compiled = fresh(doubles)
    for value in (x, *VALUES):
        alike(doubles, lambda value=value: [[cls(value, 1), cls(x, 0), cls(value, x)]], 2, compiled)


@pytest.mark.parametrize("cls", [Point, Slotted, Data, Guarded])
def test_each_exit_by_number(cls):
    def make():
        return [cloud(cls, 5), 3, 0.5]

    n_exits = _core.debug_exit_count(alike(moves, make, 3))
    assert n_exits > 3
    for k in range(n_exits):
        _core.debug_force(k)
        alike(moves, make, 2)


@pytest.mark.parametrize("seed", range(6))
def test_exits_at_random(seed):
    _core.debug_force(("seed", seed, 0.1))
    for cls in CLASSES:
        alike(moves, lambda cls=cls: [cloud(cls, 5), 3, 0.5], 3)


def test_a_shared_float_is_not_overwritten():
    def f(p, q):
        p.x = 1.0 + p.y
        q.x = p.x
        kept = p.x
        p.x += 1.0
        p.x += 1.0
        same_box = q.x is kept
        q.x += 0.5
        return p.x, q.x, kept, same_box

    alike(f, lambda: [Point(0.0, 2.0), Point(5.0, 5.0)])

    def outside(p):
        held = p.x
        for _ in range(3):
            p.x += 1.0
        return held, p.x

    for cls in (Point, Slotted):
        alike(outside, lambda cls=cls: [cls(0.25, 0)])
        value = float("1.75")
        o = cls(value, 0)
        fresh(outside)(o)
        assert value == 1.75 and o.x == 4.75


def test_the_same_object_twice():
    def f(points):
        for p in points:
            for q in points:
                p.x += q.x
                q.x -= 0.5
        return points[0].x

    def make():
        p, q = Point(1.0, 0), Point(2.0, 0)
        return [[p, q, p]]

    alike(f, make)


def test_what_is_known_of_an_attribute_ends_with_a_store_to_another():
    def f(p, q):
        p.x = p.x + 1.0
        q.x = q.x * 2.0
        a = p.x
        p.y = a
        q.y = q.y + a
        p.x += p.y
        return p.x, p.y, q.x, q.y, a

    def g(p, q):
        p.x = p.x + 1
        q.x = 0.5
        return p.x + 1, q.x

    for h in (f, g):
        for cls in (Point, Slotted):

            def make(cls=cls):
                p = cls(3.0, 4.0) if h is f else cls(3, 4)
                return [p, p]

            compiled = alike(h, make)
            alike(h, lambda cls=cls: [cls(3.0, 4.0), cls(5.0, 6.0)], 3, compiled)
            alike(h, make, 3, compiled)


def test_what_is_known_of_an_attribute_ends_with_a_call():
    def f(p, act):
        p.x = 1.0
        act(p)
        a = p.x
        p.x = a + 1.0
        b = p.x
        act(p)
        return a, b, p.x

    alike(f, lambda: [Point(0.0, 0), lambda p: setattr(p, "x", p.x * 10.0)])


def test_an_attribute_that_is_known_is_one_object():
    def f(p, a, b):
        p.x = a * b
        kept = [p.x, p.x]
        p.y = p.x
        return p.x is kept[0], kept[0] is kept[1], p.y is p.x, p.x in kept

    alike(f, lambda: [Point(1.5, 2.5), math.inf, 0.0])


def test_nan_keeps_its_identity():
    def f(p, q, items):
        q.x = p.x
        return p.x is q.x, p.x in items, q.x == p.x

    nan = float("nan")
    alike(f, lambda: [Point(nan, 0), Point(1.0, 0), (nan,)])


class TestMissing:
    def test_never_set(self):
        def f(p):
            return p.z

        def g(p):
            p.z = 1
            p.z += 1
            return p.z

        for cls in CLASSES:
            alike(f, lambda cls=cls: [cls(1, 2)])
            alike(g, lambda cls=cls: [cls(1, 2)])

    def test_deleted_meanwhile(self):
        def drop(p, i):
            if i == 3:
                del p.x

        def f(p, drop):
            s = 0
            for i in range(5):
                drop(p, i)
                s += p.x
            return s

        for cls in (Point, Slotted, Data):
            compiled = fresh(f)
            for _ in range(4):
                for g in (f, compiled):
                    o = cls(2, 1)
                    with pytest.raises(AttributeError, match="x"):
                        g(o, drop)

    def test_a_class_attribute_behind_it(self):
        def f(points):
            s = 0
            for p in points:
                s += p.scale
            return s

        def make():
            points = [Point(1, 1) for _ in range(6)]
            points[4].scale = 10
            return [points]

        alike(f, make)
        assert Point.scale == 3


class TestChangesOfTheClass:
    """Between calls, and in the middle of one."""

    @pytest.mark.parametrize("in_the_middle", [False, True])
    def test_a_property_comes(self, in_the_middle):
        def f(points, act):
            s = 0.0
            for i, p in enumerate(points):
                act(i)
                s += p.x
                p.x = s
            return s

        results = []
        for g in (f, fresh(f)):

            class Own(Point):
                pass

            def act(i, cls=Own):
                if i == 2 and in_the_middle:
                    cls.x = property(lambda self: 100.0, lambda self, v: None)

            points = [Own(float(i), 0.0) for i in range(5)]
            runs = [g(points, act) for _ in range(4)]
            Own.x = property(lambda self: -1.0, lambda self, v: None)
            results.append((runs, g(points, act), [p.__dict__["x"] for p in points]))
        assert results[0] == results[1]

    @pytest.mark.parametrize("hook", ["__getattribute__", "__setattr__", "__getattr__"])
    def test_a_hook_comes(self, hook):
        def f(p, n):
            for _ in range(n):
                p.x += 1.0
            return p.x

        def hooked(self, name, *value):
            if value:
                return object.__setattr__(self, name, value[0] * 2)
            return object.__getattribute__(self, name) + 0.5

        results = []
        for g in (f, fresh(f)):

            class Own(Point):
                pass

            p = Own(1.0, 0)
            runs = [g(p, 3) for _ in range(5)]
            setattr(Own, hook, hooked)
            results.append((runs, g(p, 3), object.__getattribute__(p, "__dict__")))
        assert results[0] == results[1]

    def test_a_base_changes(self):
        def f(p):
            return p.x

        results = []
        for g in (f, fresh(f)):

            class Base:
                pass

            class Own(Base):
                def __init__(self):
                    self.x = 1

            p = Own()
            runs = [g(p) for _ in range(5)]
            Base.x = property(lambda self: 2)
            runs.append(g(p))
            del Base.x
            results.append([*runs, g(p)])
        assert results[0] == results[1] == [1] * 5 + [2, 1]

    def test_another_class(self):
        def f(p, act):
            s = 0
            for i in range(6):
                act(p, i)
                s += p.x * 10 + p.y
            return s

        class Swapped:
            """The same names the other way round."""

            def __init__(self):
                self.y = 1
                self.x = 2

        other = Swapped()
        assert other.x == 2

        def act(p, i):
            if i == 3:
                p.__class__ = Swapped

        alike(f, lambda: [Point(3, 4), act])

    def test_classes_of_the_same_shape(self):
        def f(points):
            s = 0
            for p in points:
                s += p.x
                p.y = s
            return s

        class Other:
            def __init__(self, x, y):
                self.y = y
                self.x = x

        compiled = fresh(f)
        for classes in ([Point], [Point, Other], [Other], [Slotted, Point], [Other, Slotted, Point]):
            alike(f, lambda classes=classes: [[c(i, 1) for i in range(4) for c in classes]], 3, compiled)

    def test_a_class_that_dies(self):
        def f(p):
            return p.x

        compiled = fresh(f)
        dead = []
        for i in range(40):

            class Own:
                def __init__(self, x):
                    self.x = x

            assert compiled(Own(i)) == i
            dead.append(weakref.ref(Own))
            del Own
        gc.collect()
        assert [r() for r in dead] == [None] * 40


class TestDictionaries:
    @pytest.mark.parametrize("in_the_middle", [False, True])
    def test_one_that_is_asked_for(self, in_the_middle):
        def f(p, act):
            for i in range(6):
                act(p, i)
                p.x += p.y
            return p.x

        def act(p, i):
            if not in_the_middle or i == 3:
                vars(p)["y"] += 1.0

        compiled = fresh(f)
        for _ in range(6):
            for cls in (Point, Data):
                p, q = cls(1.0, 2.0), cls(1.0, 2.0)
                shown, other = vars(p), vars(q)
                assert compiled(p, act) == f(q, act)
                assert shown == other == vars(p)

    def test_one_that_is_held(self):
        """A dictionary that a program holds shows what is written, and is not written behind its back."""

        def f(p):
            for _ in range(3):
                p.x += 1.0
            return p.x

        compiled = fresh(f)
        for held in (False, True, True, False, True):
            p = Point(0.0, 0.0)
            shown = vars(p) if held else None
            before = p.x
            assert compiled(p) == 3.0 and p.x == 3.0 and before == 0.0
            if held:
                assert shown == {"x": 3.0, "y": 0.0}
                shown["x"] = 10.0
                assert compiled(p) == 13.0

    def test_one_that_is_replaced(self):
        def f(p, act):
            s = 0.0
            for i in range(5):
                act(p, i)
                s += p.x
            return s

        def act(p, i):
            if i == 2:
                p.__dict__ = {"y": 1.0, "x": 50.0}

        alike(f, lambda: [Point(1.0, 0), act])

    def test_copies(self):
        def f(p):
            p.x = p.x + p.y
            return p.x

        compiled = fresh(f)
        for _ in range(3):
            for copied in (copy.copy, copy.deepcopy):
                p, q = copied(Point(1.0, 2.0)), copied(Point(1.0, 2.0))
                assert compiled(p) == f(q) and vars(p) == vars(q)


class TestLifetimes:
    def test_what_is_replaced_is_finalised_then(self):
        log = []

        class Noisy:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                log.append(self.name)

        def f(p, q, log):
            p.x = Noisy("second")
            log.append("between")
            q.x = p.x
            p.x = None
            log.append("still there")
            q.x = 1
            return q.x

        for cls in (Point, Slotted):
            compiled = fresh(f)
            for _ in range(5):
                logs = []
                for g in (f, compiled):
                    log.clear()
                    p, q = cls(Noisy("first"), 0), cls(0, 0)
                    g(p, q, log)
                    logs.append([*log])
                assert logs[0] == logs[1]
                assert logs[0] == ["first", "between", "still there", "second"]

    def test_a_finaliser_that_writes(self):
        class Noisy:
            def __init__(self, owner):
                self.owner = owner

            def __del__(self):
                self.owner.y = 99
                del self.owner.x

        def f(p):
            p.x = 1
            p.y += 1
            return p.y

        results = []
        for g in (f, fresh(f)):
            runs = []
            for _ in range(5):
                p = Point(0, 0)
                p.x = Noisy(p)
                runs.append((g(p), hasattr(p, "x")))
            results.append(runs)
        assert results[0] == results[1]

    def test_counts_stay(self):
        def f(points, o):
            for p in points:
                p.x = o
                p.y = p.x
                p.x = p.y
            return len(points)

        compiled = fresh(f)
        o = object()
        points = [cls(1.0, 2) for cls in (Point, Slotted, Data)]
        before = sys.getrefcount(o)
        for _ in range(10):
            compiled(points, o)
        assert sys.getrefcount(o) == before + 6
        del points
        assert sys.getrefcount(o) == before

    def test_memory_stays_flat(self):
        compiled = fresh(moves)
        points = cloud(Point)
        compiled(points, 5, 0.1)
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(50):
            compiled(points, 20, 0.1)
        assert abs(sys.getallocatedblocks() - before) < 200


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the collector runs at allocations on 3.11 only")
def test_making_a_tuple_may_run_the_collector():
    """The place of a store is looked at after the value was made: a finaliser in between may have taken it away."""

    class Noisy:
        def __init__(self, act):
            self.act, self.me = act, self

        def __del__(self):
            self.act()

    def into_list(items, i, a, b):
        items[i] = (a, b)
        return len(items)

    def into_attribute(p, i, a, b):
        p.x = (a, b)
        return i

    gc.disable()
    before = gc.get_threshold()
    # What other tests have left is not looked at in each of the 1,200 collections.
    gc.collect()
    gc.freeze()
    try:
        for f in (into_list, into_attribute):
            compiled = fresh(f)
            for k in range(300):
                results = []
                for g in (f, compiled):
                    items, p = [0] * 40, Point(0, 0)
                    target = items if f is into_list else p
                    if k >= 5:
                        Noisy(items.clear if f is into_list else lambda p=p: vars(p).clear())
                        gc.set_threshold(1 + k // 10)
                        gc.enable()
                    try:
                        results.append(g(target, 30, 1.5, 2))
                    except IndexError as error:
                        results.append(str(error))
                    gc.disable()
                    gc.collect()
                assert k >= 5 or results[0] == results[1]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
        gc.enable()
