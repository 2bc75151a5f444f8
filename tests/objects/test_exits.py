"""Exits rebuild exactly the objects that the interpreter would have, and own exactly what they are given."""

import gc
import sys
import weakref

import numpy as np
import pytest
from overdrive import _core

from .support import NULL, leaks_nothing


class Thing:
    pass


def rebuild(*slots):
    return _core._exit(list(slots))


def test_objects_are_moved_or_shared():
    thing = Thing()
    before = sys.getrefcount(thing)
    state = rebuild(("obj", thing, True), ("obj", thing, False), ("obj", NULL, False), ("empty",), ("none",))
    assert [s is thing for s in state] == [True, True, False, False, False]
    assert state[2:] == [NULL, NULL, None]
    assert sys.getrefcount(thing) == before + 2
    del state
    assert sys.getrefcount(thing) == before


def test_constants_and_numbers():
    literal = ("a", 1)
    assert rebuild(("const", literal))[0] is literal
    for flavour, value, expected in [
        ("int", 2**62, 2**62),
        ("float", 0.5, 0.5),
        ("bool", True, True),
        ("np.float64", 0.5, np.float64(0.5)),
        ("np.float32", 0.5, np.float32(0.5)),
        ("np.int64", -3, np.int64(-3)),
        ("np.int32", -3, np.int32(-3)),
        ("np.uint8", 200, np.uint8(200)),
        ("np.bool", False, np.False_),
    ]:
        (made,) = rebuild(("number", flavour, value))
        assert type(made) is type(expected) and made == expected


@pytest.mark.parametrize("owned", [True, False])
def test_a_number_keeps_the_box_it_came_from(owned):
    nan = float("nan")
    before = sys.getrefcount(nan)
    (made,) = rebuild(("number", "float", nan, nan, owned))
    assert made is nan
    del made
    assert sys.getrefcount(nan) == before
    (made,) = rebuild(("number", "float", 1.5, NULL, owned))
    assert made == 1.5


def test_either():
    then, els = Thing(), Thing()
    for cond in (True, False):
        state = rebuild(
            ("either", cond, ("obj", then, False), ("number", "int", 7)),
            (
                "either",
                cond,
                ("number", "int", 1, NULL, True),
                ("tuple", [("obj", els, False), ("number", "int", 2)]),
            ),
            ("number", "int", 99),
        )
        assert state[0] is then if cond else state[0] == 7
        assert state[1] == (1 if cond else (els, 2))
        assert state[2] == 99


def test_tuples():
    thing = Thing()
    (made,) = rebuild(("tuple", [("obj", thing, True), ("number", "int", 3), ("tuple", []), ("none",)]))
    assert made == (thing, 3, (), None)
    assert gc.is_tracked(made)


def test_an_unset_part_is_refused_and_leaks_nothing():
    thing = Thing()
    before = sys.getrefcount(thing)
    for _ in range(5):
        with pytest.raises(SystemError):
            rebuild(("obj", thing, True), ("tuple", [("obj", thing, True), ("empty",)]), ("obj", thing, True))
    assert sys.getrefcount(thing) == before


def test_range_iterators():
    assert [list(i) for i in rebuild(("range", 3, 10, 2), ("range", 5, 5, 1), ("range", 3, -10, -4))] == [
        [3, 5, 7, 9],
        [],
        [3, -1, -5, -9],
    ]


@pytest.mark.parametrize(
    "source", [[1, 2, 3], (1, 2, 3), b"abc", bytearray(b"abc"), np.arange(3)], ids=lambda v: type(v).__name__
)
def test_sequence_iterators(source):
    for position in range(5):
        expected = iter(source)
        for _ in range(position):
            next(expected, None)
        (made,) = rebuild(("seq", ("obj", source, False), position))
        assert type(made) is type(expected)
        assert list(made) == list(expected)
        assert next(made, "end") == "end"
    (exhausted,) = rebuild(("seq", ("obj", source, False), -1))
    assert list(exhausted) == []


def test_a_list_may_still_grow_under_its_iterator():
    items = [1, 2]
    (at_end,) = rebuild(("seq", ("obj", items, False), 2))
    items.append(3)
    assert list(at_end) == [3]
    (beyond,) = rebuild(("seq", ("obj", items, False), 5))
    items += range(4, 8)
    assert list(beyond) == [6, 7]


def test_a_sequence_without_positions_is_refused():
    for source in [{1: 2}, {1}, 5]:
        with pytest.raises((SystemError, TypeError)):
            rebuild(("seq", ("obj", source, False), 0))


def test_enumerate_and_zip():
    letters, numbers = ["a", "b", "c"], (1, 2, 3)
    counted, zipped = rebuild(
        ("enumerate", 2**40, ("seq", ("obj", letters, False), 1)),
        (
            "zip",
            [("seq", ("obj", letters, False), 1), ("seq", ("obj", numbers, False), 1), ("range", 7, 100, 5)],
        ),
    )
    assert type(counted) is enumerate and list(counted) == [(2**40, "b"), (2**40 + 1, "c")]
    assert type(zipped) is zip and list(zipped) == [("b", 2, 7), ("c", 3, 12)]


SLOTS = [
    lambda t: ("obj", t, True),
    lambda t: ("obj", t, False),
    lambda t: ("tuple", [("obj", t, True), ("obj", t, False)]),
    lambda t: ("either", True, ("obj", t, True), ("obj", NULL, True)),
    lambda t: ("either", False, ("obj", NULL, True), ("obj", t, True)),
    lambda t: ("zip", [("seq", ("tuple", [("obj", t, True)]), 0), ("seq", ("obj", [t], True), 0)]),
    lambda t: ("enumerate", 3, ("seq", ("obj", [t], True), 0)),
    lambda t: ("number", "float", 1.5, 2.5 if t else None, True),
]


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("make", SLOTS)
def test_owned_references_are_released_once(make, drop):
    thing = Thing()
    before = sys.getrefcount(thing)
    for _ in range(10):
        _core._exit([make(thing), ("obj", thing, True), ("range", 1, 2, 1), ("obj", thing, True)], drop)
    assert sys.getrefcount(thing) == before
    leaks_nothing(lambda: _core._exit([make(thing)], drop))


def test_dropping_goes_from_the_top_of_the_stack():
    log = []

    def made(n):
        thing = Thing()
        weakref.finalize(thing, log.append, n)
        return thing

    _core._exit([("obj", thing, True) for thing in map(made, range(3))] and [], True)
    things = [made(n) for n in range(3, 6)]
    slots = [("obj", things.pop(0), True) for _ in range(3)]
    holder = [slots.pop(0) for _ in range(3)]
    log.clear()
    while holder:
        _core._exit([holder.pop()], True)
    assert log == [5, 4, 3]
