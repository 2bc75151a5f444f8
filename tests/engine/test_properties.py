"""Properties that only compute are translated in place, as calls of the function that reads them; equal to CPython whatever
becomes of class, property and object."""

from __future__ import annotations

import math

import overdrive
import pytest
from overdrive import _core

from .test_exits import fresh, same


class Circle:
    pi = 3.25

    def __init__(self, r, n=1):
        self.r = r
        self.n = n

    @property
    def area(self):
        return 3.25 * self.r * self.r

    @property
    def mean(self):
        return self.area / self.n

    @property
    def changing(self):
        self.n += 1
        return self.n

    @property
    def label(self):
        return f"{self.r}"

    @property
    def settable(self):
        return self.r

    @settable.setter
    def settable(self, value):
        self.r = value * 2


class Slotted:
    __slots__ = ("r", "n")
    __init__ = Circle.__init__
    area, mean, changing, label, settable = (
        Circle.__dict__[name] for name in ("area", "mean", "changing", "label", "settable")
    )


class Heir(Circle):
    @property
    def area(self):
        return -self.r


class Special(property):
    def __get__(self, obj, cls=None):
        return 7.5


class Other(Circle):
    area = Special(lambda self: 1.0)


class Plain(Circle):
    area = 0.5


CLASSES = [Circle, Slotted, Heir, Other, Plain]


def areas(objs):
    s = 0.0
    for o in objs:
        s += o.area + o.mean
    return s


def local(cls, xs):
    o = cls(1.5, 3)
    s = 0.0
    for x in xs:
        o.r = x
        s += o.area - o.mean
        o.settable = x
        s += o.settable
    return s


def counted(objs):
    s = 0
    for o in objs:
        s += o.changing
    return s, [o.n for o in objs]


def labels(objs):
    return [o.label for o in objs] + [o.area for o in objs]


def outcome(f, make):
    try:
        return f(*make())
    except Exception as error:
        return type(error).__name__, str(error)


def alike(f, make, times=8, compiled=None):
    compiled = compiled or fresh(f)
    for _ in range(times):
        assert same(outcome(compiled, make), outcome(f, make))
    return compiled


@pytest.fixture(autouse=True)
def unforced():
    yield
    _core.debug_force(None)


RADII = [[0.5, 1.5, 2.5], [1, 2, 3], [2**62, 2**40], [math.nan, -0.0], ["a"], []]


@pytest.mark.parametrize("f", [areas, counted, labels])
@pytest.mark.parametrize("cls", CLASSES)
def test_all(f, cls):
    compiled = fresh(f)
    for radii in RADII:
        alike(f, lambda radii=radii: [[cls(r, 2) for r in radii]], compiled=compiled)


@pytest.mark.parametrize("cls", CLASSES)
def test_of_objects_made_in_the_function(cls):
    compiled = fresh(local)
    for radii in RADII:
        alike(local, lambda radii=radii: [cls, radii], compiled=compiled)


def test_they_are_translated_in_place():
    for f, make in [(areas, lambda: [[Circle(1.5)] * 20]), (local, lambda: [Circle, [0.5] * 20])]:
        text = str(overdrive.explain(alike(f, make)))
        assert "area inlined" in text, text


@pytest.mark.parametrize(
    "f, make", [(areas, lambda: [[Circle(1.5)] * 4]), (local, lambda: [Circle, [0.5] * 4])]
)
def test_each_exit_by_number(f, make):
    for k in range(_core.debug_exit_count(alike(f, make))):
        _core.debug_force(k)
        alike(f, make, 4)
    for seed in range(5):
        _core.debug_force(("seed", seed, 0.1))
        alike(f, make, 4)


def test_objects_of_several_classes():
    compiled = fresh(areas)
    for n in range(1, 6):
        alike(areas, lambda n=n: [[CLASSES[i % n](1.5) for i in range(12)]], compiled=compiled)


def test_errors_have_their_places():
    def f(objs):
        s = 0
        for o in objs:
            s += o.mean
        return s

    compiled = alike(f, lambda: [[Circle(1.0)] * 5])
    for g in (f, compiled):
        with pytest.raises(ZeroDivisionError) as caught:
            g([Circle(1.0), Circle(1.0, 0)])
        trace, names = caught.tb.tb_next if caught.tb.tb_next else caught.tb, []
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        assert names[-1] == "mean"


class TestChanges:
    def own(self):
        class Own(Circle):
            @property
            def area(self):
                return self.r + 1.0

        return Own

    def test_of_the_class(self):
        cls = self.own()
        compiled = alike(areas, lambda: [[cls(0.5)] * 4])
        cls.area = property(lambda self: 100.0)
        alike(areas, lambda: [[cls(0.5)] * 4], compiled=compiled)
        cls.area = 3
        alike(areas, lambda: [[cls(0.5)] * 4], compiled=compiled)
        del cls.area
        alike(areas, lambda: [[cls(0.5)] * 4], compiled=compiled)

    def test_of_the_property_itself(self):
        """No version tells of this one."""
        cls = self.own()
        compiled = alike(areas, lambda: [[cls(0.5)] * 4])
        cls.__dict__["area"].__init__(lambda self: 41.0)
        alike(areas, lambda: [[cls(0.5)] * 4], compiled=compiled)

    def test_of_the_function(self):
        cls = self.own()
        compiled = alike(areas, lambda: [[cls(0.5)] * 4])
        cls.__dict__["area"].fget.__code__ = (lambda self: 17.0).__code__
        alike(areas, lambda: [[cls(0.5)] * 4], compiled=compiled)

    def test_in_the_middle(self):
        def f(objs, act):
            s = 0.0
            for i, o in enumerate(objs):
                act(i, type(o))
                s += o.area
            return s

        def act(i, cls):
            if i == 2:
                cls.area = property(lambda self: 1000.0)

        compiled = fresh(f)
        for _ in range(5):
            results = []
            for g in (f, compiled):
                cls = self.own()
                results.append([g([cls(0.5)] * 5, lambda i, cls: None), g([cls(0.5)] * 5, act)])
            assert results[0] == results[1]

    def test_a_hook_comes(self):
        cls = self.own()
        compiled = alike(areas, lambda: [[cls(0.5)] * 4])
        cls.__getattribute__ = lambda self, name: (
            5.0 if name == "area" else object.__getattribute__(self, name)
        )
        alike(areas, lambda: [[cls(0.5)] * 4], compiled=compiled)

    def test_an_entry_of_the_object_s_dictionary_does_not_hide_it(self):
        cls = self.own()

        def make():
            objs = [cls(0.5) for _ in range(4)]
            objs[1].__dict__["area"] = 99.0
            return [objs]

        alike(areas, make)
