"""Calls out of compiled code move their arguments into the callee's frame, as CPython's own calls do."""

import contextvars
import functools
import gc
import itertools
import math
import sys
import traceback
import weakref

import numpy as np
import overdrive
import pytest
from overdrive import _core

LOG = []
NOT_CALLABLE = None


class Thing:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        LOG.append(f"{self.name} gone")

    def method(self, other=None):
        LOG.append("method")
        other = self.name
        LOG.append(f"dropped {other}")
        return other

    def drop_self(self):
        del self
        LOG.append("behind del self")


def drops(x):
    LOG.append("called")
    del x
    LOG.append("behind del")


def drops_second(x, y=None, *rest, z=None, **others):
    LOG.append("called")
    y = z = 0
    rest = others = None
    LOG.append(f"dropped {y} {z} {rest} {others}")
    return x.name


def keeps(*things):
    LOG.append("kept")
    return len(things)


def raises(x, y):
    del x
    LOG.append("raises")
    raise ValueError(y.name)


def generator(x):
    LOG.append("started")
    yield x.name
    del x
    LOG.append("behind del in generator")


def one():
    drops(Thing("a"))


def two():
    return drops_second(Thing("a"), Thing("b"))


def keywords():
    return drops_second(Thing("a"), z=Thing("z"), y=Thing("y"))


def only_keywords():
    return drops_second(x=Thing("x"), other=Thing("other"))


def star():
    return drops_second(*[Thing("a"), Thing("b"), Thing("c")])


def star_and_keywords():
    return drops_second(*(Thing("a"),), **{"z": Thing("z"), "w": Thing("w")})


def methods():
    Thing("m").drop_self()
    return Thing("a").method(Thing("b"))


def bound_method():
    m = Thing("m").method
    m(Thing("a"))
    del m
    LOG.append("behind m")
    (lambda: Thing("n").method)()(Thing("b"))


def item_of_a_container():
    things = [Thing("a"), Thing("b")]

    def take(x):
        things.clear()
        LOG.append("cleared")
        del x
        LOG.append("behind del")

    take(things[0])


def held_by_a_local():
    x = Thing("a")
    drops(x)
    LOG.append("returned")
    del x
    LOG.append("behind local")


def through_c():
    print(Thing("a"), Thing("b"), file=type("Null", (), {"write": lambda self, text: None})())
    max(Thing("c"), Thing("d"), key=lambda t: t.name)
    return keeps(Thing("e"), Thing("f"))


def an_exception():
    try:
        raises(Thing("a"), Thing("b"))
    except ValueError as e:
        LOG.append(repr(e))


def wrong_arguments():
    try:
        drops(Thing("a"), Thing("b"))
    except TypeError as e:
        LOG.append(str(e))
    try:
        NOT_CALLABLE(Thing("c"))
    except TypeError as e:
        LOG.append(str(e))
    try:
        drops(**{"q": Thing("d")})
    except TypeError as e:
        LOG.append(str(e))


def a_generator():
    for name in generator(Thing("g")):
        LOG.append(name)
    return list(generator(Thing("h")))


def to_a_class():
    class Holder:
        def __init__(self, x):
            self.x = x.name
            LOG.append("made")

    return Holder(Thing("a")).x


def a_callable_that_dies():
    def make():
        t = Thing("closure")

        def inner(x):
            LOG.append(t.name)
            del x
            LOG.append("behind x")

        return inner

    make()(Thing("a"))
    LOG.append("end")


CALLS = [
    one,
    two,
    keywords,
    only_keywords,
    star,
    star_and_keywords,
    methods,
    bound_method,
    item_of_a_container,
    held_by_a_local,
    through_c,
    an_exception,
    wrong_arguments,
    a_generator,
    to_a_class,
    a_callable_that_dies,
]


def events(fn):
    LOG.clear()
    result = fn()
    gc.collect(0)
    LOG.append(f"result {result!r}")
    return list(LOG)


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_arguments_die_when_the_callee_drops_them(fn):
    want = events(fn)
    jitted = overdrive.jit(fn)
    for _ in range(4):
        assert events(jitted) == want
    assert _core.explain_data(jitted)["versions"]


def test_many_arguments():
    n = 300
    names = ", ".join(f"a{i}" for i in range(n))
    things = ", ".join(f"Thing('{i}')" for i in range(n))
    space = {"Thing": Thing}
    exec(
        f"def take({names}):\n    del a7\n    return a299.name\ndef f():\n    return take({things})\n", space
    )
    want = events(space["f"])
    jitted = overdrive.jit(space["f"])
    for _ in range(3):
        assert events(jitted) == want


def look(x):
    frame, seen = sys._getframe(), []
    while frame is not None and len(seen) < 3:
        seen.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return seen


def asks():
    return look([Thing("a")]), look(x=[1])


def test_the_callee_sees_its_callers():
    want = asks()
    jitted = overdrive.jit(asks)
    for _ in range(4):
        got = jitted()
        # One level up is this function, at another line.
        assert [stack[:2] for stack in got] == [stack[:2] for stack in want]
        assert [stack[2][0] for stack in got] == [stack[2][0] for stack in want]


def fails():
    return raises(Thing("a"), y=Thing("b"))


def test_tracebacks_are_as_written():
    def lines(fn):
        try:
            fn()
        except ValueError as e:
            return [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)][1:]

    want = lines(fails)
    jitted = overdrive.jit(fails)
    for _ in range(4):
        assert lines(jitted) == want


def down(box, n):
    return n if n == 0 else down([n], n - 1)


def depth(fn):
    """How deep a recursion goes that gives its argument away."""
    low, high = 1, 5000
    while low < high:
        middle = (low + high + 1) // 2
        try:
            fn([], middle)
            low = middle
        except RecursionError:
            high = middle - 1
    return low


def test_the_recursion_limit_is_reached_at_the_same_depth():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        want = depth(down)
        overdrive.promote(down)
        for _ in range(3):
            assert depth(down) == want
    finally:
        overdrive.demote(down)
        sys.setrecursionlimit(limit)


def test_a_deep_failure_leaks_nothing():
    class Weak:
        pass

    def dive(box, n):
        return dive(Weak(), n + 1)

    overdrive.promote(dive)
    seen = []
    original = Weak.__init__

    def note(self):
        original(self)
        seen.append(weakref.ref(self))

    Weak.__init__ = note
    for _ in range(3):
        with pytest.raises(RecursionError):
            dive(None, 0)
    gc.collect()
    assert len(seen) > 100 and all(ref() is None for ref in seen)


def start_profile(box):
    sys.setprofile(lambda frame, event, arg: LOG.append((event, frame.f_code.co_name)))


def profiled():
    start_profile([1])
    sys.setprofile(None)


def test_a_profiler_that_starts_inside():
    want = events(profiled)
    jitted = overdrive.jit(profiled)
    for _ in range(3):
        got = events(jitted)
        assert not any("<" in entry[1] for entry in got if isinstance(entry, tuple)), got
        assert got[:1] == want[:1]


@overdrive.jit
def jitted_drops(x, y=None, *rest, z=None):
    LOG.append("called")
    x = y = z = None
    rest = ()
    LOG.append(f"dropped {x} {y} {z} {rest}")
    return len(LOG)


class Owner:
    method = jitted_drops

    @overdrive.jit
    def drop_self(self, x=None):
        del self
        LOG.append("behind del self")


def python_calls(drops, owner):
    drops(Thing("a"))
    drops(Thing("a"), Thing("b"), Thing("c"), z=Thing("z"))
    drops(x=Thing("a"), z=Thing("z"))
    owner().method(Thing("a"))
    owner().method(Thing("a"), z=Thing("z"))
    owner().drop_self()
    owner().drop_self(Thing("a"))
    bound = owner().drop_self
    bound(Thing("a"))
    del bound
    keep = Thing("kept")
    drops(keep, keep)
    LOG.append("behind kept")
    return [drops(Thing(name)) for name in "pq"]


def other_code_calls(drops, owner):
    functools.partial(drops, Thing("a"))(Thing("b"))
    functools.partial(drops)(Thing("b"))
    contextvars.Context().run(drops, Thing("a"), Thing("b"))
    list(map(drops, [Thing("a")], [Thing("b")]))
    drops(*[Thing("a"), Thing("b")])
    drops(functools.partial(drops, Thing("c"))(Thing("d")), Thing("e"))
    sorted([Thing("a")], key=drops)
    return functools.reduce(drops, [Thing("a"), Thing("b"), Thing("c")])


def test_a_jitted_callable_finds_its_arguments_unheld():
    class Plain:
        method = jitted_drops.__wrapped__
        drop_self = Owner.__dict__["drop_self"].__wrapped__

    want = events(lambda: python_calls(jitted_drops.__wrapped__, lambda: Plain()))
    for _ in range(60):  # the interpreter specialises its calls on the way
        assert events(lambda: python_calls(jitted_drops, Owner)) == want


def starred_calls(drops, owner):
    """Every way in which the interpreter makes a tuple and a dictionary for a call."""
    drops(*(Thing("a"), Thing("b")))
    drops(Thing("a"), *(Thing("b"), Thing("c")))
    drops(*[Thing("a"), Thing("b")])
    drops(*[Thing("a"), *[Thing("b")]])
    drops(**{"x": Thing("a"), "z": Thing("z")})
    drops(Thing("a"), **{"z": Thing("z")})
    drops(*(Thing("a"), Thing("b")), z=Thing("z"), **{})
    drops(*(Thing("a"),), **{"y": Thing("b")}, z=Thing("z"))
    owner().method(*(Thing("a"),), **{"z": Thing("z")})
    kept, named = (Thing("a"), Thing("b")), {"z": Thing("z")}
    drops(*kept, **named)
    drops(*kept)
    drops(*kept, *kept)
    LOG.append(f"still {[thing.name for thing in kept]} {named['z'].name}")
    del kept, named
    twice = Thing("twice")
    drops(*(twice, twice), **{"z": twice})
    del twice
    return [drops(Thing(name), *(Thing("b"),)) for name in "pq"]


@pytest.mark.parametrize("code", [starred_calls, overdrive.jit(starred_calls)], ids=["interpreted", "jitted"])
def test_a_jitted_callable_finds_starred_arguments_unheld(code):
    class Plain:
        method = jitted_drops.__wrapped__

    want = events(lambda: starred_calls(jitted_drops.__wrapped__, Plain))
    for _ in range(60):
        assert events(lambda: code(jitted_drops, Owner)) == want


def test_starred_arguments_that_others_hold():
    """C code that passes arguments on in a tuple of its own keeps it, also while a starred call is being prepared."""

    class Name(str):
        pass

    def calls(drops):
        again = functools.partial(drops, Thing("a"), z=Thing("z"))
        again()
        again(*(Thing("b"),))
        LOG.append(f"still {again.args[0].name} {again.keywords['z'].name}")
        ends = functools.partial(drops, Thing("c"))
        drops(*[value for value, _ in zip(iter(ends, None), range(2), strict=False)])
        drops(*map(drops, [Thing("d"), Thing("e")]))
        drops(*itertools.starmap(drops, [(Thing("f"), Thing("g"))]))
        drops(**{Name("x"): Thing("h"), Name("z"): Thing("i")})
        LOG.append(f"still {ends.args[0].name}")

    wanted = events(lambda: calls(jitted_drops.__wrapped__))
    for _ in range(60):
        # When what C code holds is released is the same; a name of another type is not looked up without running code.
        got = events(lambda: calls(jitted_drops))
        assert [e for e in got if e[0] not in "hi"] == [e for e in wanted if e[0] not in "hi"]
        assert sorted(got) == sorted(wanted)


def test_many_callers_of_starred_calls_come_and_go():
    for round_ in range(300):
        scope = {"f": jitted_drops, "Thing": Thing}
        exec(compile(f"def call():\n    f(*(Thing('{round_}'),))\n", f"<{round_}>", "exec"), scope)
        got = events(scope["call"])
        scope["f"] = jitted_drops.__wrapped__
        assert got == events(scope["call"]) and len(got) >= 3


def test_a_tool_that_watches_a_starred_call_sees_its_first_argument():
    if sys.version_info < (3, 12):
        pytest.skip("3.11 has no sys.monitoring")
    seen = []
    sys.monitoring.use_tool_id(3, "watcher")
    try:
        sys.monitoring.register_callback(
            3, sys.monitoring.events.CALL, lambda c, o, f, a: seen.append(type(a))
        )
        sys.monitoring.register_callback(
            3, sys.monitoring.events.C_RETURN, lambda c, o, f, a: seen.append(type(a))
        )

        def call():
            jitted_drops(*(Thing("a"), Thing("b")))

        sys.monitoring.set_local_events(3, call.__code__, sys.monitoring.events.CALL)
        events(call)
    finally:
        sys.monitoring.free_tool_id(3)
    assert Thing in seen and type(None) not in seen


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_compiled_code_gives_a_jitted_callable_its_arguments(fn, monkeypatch):
    want = events(fn)
    for name in ("drops", "drops_second", "keeps", "raises", "generator"):
        monkeypatch.setitem(globals(), name, overdrive.jit(globals()[name]))
    for method in ("method", "drop_self"):
        monkeypatch.setattr(Thing, method, overdrive.jit(Thing.__dict__[method]))
    compiled = overdrive.jit(fn)
    for _ in range(60):
        assert events(compiled) == want


def test_compiled_code_and_a_jitted_method():
    class Plain:
        method = jitted_drops.__wrapped__
        drop_self = Owner.__dict__["drop_self"].__wrapped__

    want = events(lambda: python_calls(jitted_drops.__wrapped__, Plain))
    compiled = overdrive.jit(python_calls)
    for _ in range(60):
        assert events(lambda: compiled(jitted_drops, Owner)) == want


def test_compiled_code_calls_a_jitted_callable_that_dies_meanwhile():
    def make():
        @overdrive.jit
        def inner(x, again):
            LOG.append("inner")
            del x
            LOG.append("behind x")
            return 1 if again else 2

        return inner

    def calls(make):
        return make()(Thing("a"), True) + make()(Thing("b"), False)

    want = events(lambda: calls(lambda: make().__wrapped__))
    compiled = overdrive.jit(calls)
    for _ in range(30):
        assert events(lambda: compiled(make)) == want


def test_compiled_code_calls_a_leaf_version_and_what_it_misses():
    @overdrive.jit
    def add(a, b):
        return a + b

    @overdrive.jit
    def sums(xs):
        return [add(x, y) for x, y in xs]

    values = [(1.5, 2.5), (1, 2), ("a", "b"), (10**30, 1), (1.5, 2), ([1], [2])]
    plain = [x + y for x, y in values]
    for _ in range(50):
        assert sums(values) == plain
        assert [add(x, y) for x, y in values] == plain
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        add(1, "b")
    assert [f.name for f in traceback.extract_tb(caught.tb)][-1] == "add"
    with pytest.raises(TypeError, match="unsupported operand"):
        sums([(1, "b")])
    before = sys.getrefcount(values[5][0])
    for _ in range(100):
        sums(values)
        add(*values[5])
    after = sys.getrefcount(values[5][0])
    assert after == before


def test_other_code_that_calls_a_jitted_callable_keeps_what_it_holds():
    def outcome(drops, owner):
        log = events(lambda: other_code_calls(drops, owner))
        return sorted(entry for entry in log if "gone" in entry), log[-1], len(log)

    want = outcome(jitted_drops.__wrapped__, None)
    for _ in range(60):
        assert outcome(jitted_drops, None) == want
    gc.collect()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring")
def test_a_tool_sees_the_argument_of_a_call_that_returned():
    seen = []
    tool, events = 2, sys.monitoring.events

    def note(code, offset, callable, first):
        if callable is jitted_drops:
            seen.append(type(first))

    def call():
        jitted_drops(Thing("a"))

    sys.monitoring.use_tool_id(tool, "test")
    try:
        sys.monitoring.register_callback(tool, events.C_RETURN, note)
        sys.monitoring.register_callback(tool, events.CALL, note)
        sys.monitoring.set_events(tool, events.CALL)  # and C_RETURN with it
        call()
        sys.monitoring.set_events(tool, 0)
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    assert seen == [Thing, Thing]


def test_a_generator_calls_a_jitted_callable():
    def calls(drops):
        for name in "abc":
            yield drops(Thing(name))

    want = events(lambda: list(calls(jitted_drops.__wrapped__)))
    for _ in range(30):
        assert events(lambda: list(calls(jitted_drops))) == want


def test_a_jitted_callable_with_many_arguments_is_called():
    n = 29  # CPython makes a tuple of more
    names = ", ".join(f"a{i}" for i in range(n))
    things = ", ".join(f"Thing('{i}')" for i in range(n))
    space = {"Thing": Thing}
    exec(
        f"def take({names}):\n    del a7\n    return a28.name\ndef f(take):\n    return take({things})\n",
        space,
    )
    want = events(lambda: space["f"](space["take"]))
    jitted = overdrive.jit(space["take"])
    for _ in range(3):
        assert events(lambda: space["f"](jitted)) == want


def give_up(box, last=None):
    raise NotImplementedError(len(box))


def fails_behind_a_failure(n):
    """The loop behind the handler is entered in place: what raises there is raised by the call, made once more."""
    caught = 0
    try:
        for c in str(n):
            n %= 0
    finally:
        for _ in range(3):
            try:
                give_up([n, 1.0], last=[n])
            except NotImplementedError as e:
                caught += e.args[0]
        caught = (give_up([Thing("a")], last=Thing("b")), caught)
    return caught


def test_a_call_that_fails_in_a_loop_entered_in_place():
    def outcome(fn):
        try:
            return fn(12)
        except NotImplementedError as e:
            return e.args, [f.lineno for f in traceback.extract_tb(e.__traceback__)][1:]

    want = events(lambda: outcome(fails_behind_a_failure))
    jitted = overdrive.jit(fails_behind_a_failure)
    for _ in range(30):
        assert events(lambda: outcome(jitted)) == want


def unfinished(a, last=3):
    last[-1] = missing + 2.0  # noqa: F821 (raises)


def handler_of_another_failure(a, b, c):
    try:
        for _, _c in enumerate(str((1, 2)), -2):
            a %= abs(b**1.5) + 1
    finally:
        _ = [unfinished([math.nan, 1.0], last=[math.nan, 1.0]), np.int64(b)]
    return [[b] * 3 for _ in range(3)] if c[True] != len(c) else None


def test_a_call_that_fails_while_another_exception_is_handled():
    jitted = overdrive.jit(handler_of_another_failure)
    for _ in range(8):
        with pytest.raises(NameError) as caught:
            jitted(math.inf, -8.4, [np.float64(1.5), "s", None, 1.5])
        assert [f.name for f in traceback.extract_tb(caught.tb)][1:] == [
            "handler_of_another_failure",
            "unfinished",
        ]
