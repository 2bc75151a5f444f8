"""References: finalisers run when a frame would run them, nothing leaks, nothing is kept from dying."""

import gc
import os
import resource
import subprocess
import sys
import time
import weakref

import numpy as np
import overdrive
import pytest
from overdrive import _core


class Tracked:
    log = []

    def __init__(self, name):
        self.name = name

    def __del__(self):
        Tracked.log.append(self.name)


def events(fn, *args):
    Tracked.log.clear()
    fn(Tracked.log.append, *args)
    gc.collect(0)
    Tracked.log.append("end")
    return list(Tracked.log)


def rebinding(mark):
    a = Tracked("a1")
    mark("one")
    a = Tracked("a2")
    mark("two")
    del a
    mark("three")
    b = Tracked("b")
    c = [b]
    b = None
    mark("four")
    c.clear()
    mark("five")


def in_loop(mark):
    for i in range(3):
        t = Tracked(f"t{i}")  # noqa: F841 (bound, so that rebinding ends it)
        mark(i)
    mark("end of loop")


def in_exception(mark):
    def raiser(y):
        z = Tracked("z")  # noqa: F841 (alive while the exception passes)
        return y.missing

    try:
        raiser(Tracked("y"))
    except AttributeError:
        mark("caught")
    mark("left")


@pytest.mark.parametrize("fn", [rebinding, in_loop, in_exception])
def test_finalisers_run_in_order(fn):
    want = events(fn)
    jitted = overdrive.jit(fn)
    for _ in range(4):
        assert events(jitted) == want


def test_an_argument_of_a_promoted_function_dies_when_it_is_dropped():
    def drop(x, log):
        x = 1
        log(len(Tracked.log))
        return x

    overdrive.promote(drop)
    seen = []
    for _ in range(60):
        Tracked.log.clear()
        drop(Tracked("x"), seen.append)
        time.sleep(0.001)
    assert seen == [1] * 60 and _core.explain_data(drop)["versions"]


def add(a, b):
    return a + b


def overflow(n):
    total = 1
    for i in range(n):
        total += total
    return total


def collect(items):
    out = []
    for x in items:
        out.append(x)
    return len(out)


def fails(items, i):
    t = [items, i]
    return items[i], t


def grow(fn, *args):
    """Resident memory that a hundred thousand calls add, in KiB."""

    def run(n):
        for _ in range(n):
            try:
                fn(*args)
            except Exception:
                pass

    run(20_000)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(100_000)
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


@pytest.mark.parametrize(
    "fn, args",
    [
        (add, (1e9, 1)),
        (add, (2**62, 2**62)),
        (add, ("a" * 100, "b")),
        (add, (1, "b")),
        (overflow, (70,)),
        (collect, ([object(), 1.5, "x", None],)),
        (fails, ([1, 2], 9)),
    ],
)
def test_memory_is_flat(fn, args):
    jitted = overdrive.jit(fn)
    assert grow(jitted, *args) < 2000


def test_reference_counts_come_back():
    things = [object(), [1.0, 2.0], "text" * 3, 12345678901, 2.5, {}, (1, 2)]
    functions = [
        lambda a, b: (a, b),
        lambda a, b: [a, b, a],
        lambda a, b: a if a is b else b,
        lambda a, b: a == b,
        lambda a, b: [x for x in (a, b)],
        lambda a, b: {1: a, 2: b}[1],
    ]
    for fn in functions:
        jitted = overdrive.jit(fn)
        for _ in range(8):
            for a in things:
                jitted(a, things[0])
        before = [sys.getrefcount(t) for t in things]
        for _ in range(50):
            for a in things:
                jitted(a, things[0])
        assert [sys.getrefcount(t) for t in things] == before


def run_in(source, namespace=None):
    namespace = {"overdrive": overdrive} if namespace is None else namespace
    exec(source, namespace)
    return namespace


def test_a_namespace_with_compiled_functions_dies():
    source = """
class Marker: pass
marker = Marker()
table = [1.0, 2.0, 3.0]
def helper(x): return x + table[0]
@overdrive.jit
def f(x):
    s = 0.0
    for v in table:
        s += helper(v) + x
    return s
def g(x):
    return helper(x) + len(table)
overdrive.promote(g)
for _ in range(5):
    f(1.5), g(1.5)
"""
    namespace = run_in(source)
    marker = weakref.ref(namespace["marker"])
    f = weakref.ref(namespace["f"])
    del namespace
    gc.collect()
    assert f() is None and marker() is None


def test_globals_are_not_kept_alive():
    namespace = run_in("""
class Thing:
    pass
def helper(x): return x
table = [Thing()]
@overdrive.jit
def f(x):
    for v in table:
        x = helper(x)
    return x
""")
    f = namespace["f"]
    for _ in range(4):
        assert f(3) == 3
    thing = weakref.ref(namespace["table"][0])
    helper = weakref.ref(namespace["helper"])
    del namespace["table"], namespace["helper"]
    assert thing() is None and helper() is None
    with pytest.raises(NameError):
        f(3)


def test_changed_globals_are_seen():
    namespace = run_in("""
k = 2
def helper(x): return x + 1
@overdrive.jit
def f(x):
    return helper(x) * k
""")
    f = namespace["f"]
    for _ in range(4):
        assert f(3) == 8
    namespace["k"] = 2.5
    assert f(3) == 10.0
    namespace["helper"] = lambda x: x - 1
    assert f(3) == 5.0
    namespace["helper"] = 3
    with pytest.raises(TypeError):
        f(3)
    namespace["helper"] = len
    namespace["k"] = 1
    assert [f("abc"), f([])] == [3, 0]


def test_same_code_with_other_globals():
    code = compile("def f(x):\n    return x * k\n", "shared", "exec")
    spaces = []
    for k in (2, 10, "ab"):
        namespace = {"k": k}
        exec(code, namespace)
        spaces.append(namespace)
    for namespace in spaces:
        overdrive.promote(namespace["f"])
    for _ in range(30):
        assert [n["f"](3) for n in spaces] == [6, 30, "ababab"]


def test_builtins_can_be_patched(monkeypatch):
    import builtins

    @overdrive.jit
    def f(x):
        return abs(x) + len("ab")

    assert f(-2) == f(-2) == 4
    monkeypatch.setattr(builtins, "abs", lambda x: 100)
    assert f(-2) == 102
    monkeypatch.undo()
    assert f(-2) == 4


def test_compiled_code_is_given_back():
    def once():
        f = overdrive.jit(lambda a, b: a * b + 1.0)
        f(1.5, 2.5)
        return f

    once()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(60):
        once()
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 12_000
    assert _core.explain_data(once)["versions"] == []


def remainder_of(a, last):
    for item in last:
        if list(b"xyz"):
            pass
        a %= item or 3
    return a


def test_a_value_outlives_the_variable_that_held_it():
    """The variable is overwritten next, so its box goes on the way to a branch while the operand still needs it."""
    cells = np.arange(4.0)
    f = overdrive.jit(remainder_of)
    for _ in range(20):
        for k in range(4):
            for divisors in ([1, 2, 3], [7, 0], [], [2.5, 0.75]):
                got, want = f(cells[k], divisors), remainder_of(cells[k], divisors)
                assert (type(got), got.tobytes()) == (type(want), want.tobytes())


AT_EXIT = """
import overdrive

class Noisy:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("gone", self.name)

@overdrive.jit
def total(n, noisy):
    s = 0
    for i in range(n):
        s += i
    return s, noisy.name

def double(x, noisy=Noisy("default")):
    return x + x

overdrive.promote(double)
plain, cycle = Noisy("plain"), Noisy("cycle")
cycle.itself = cycle
for _ in range(200):
    total(100, plain)
    double(3)
overdrive.explain(total)
print("end")
"""


def test_objects_of_the_program_are_finalised_at_its_end():
    def output(switch):
        env = {**os.environ, "OVERDRIVE": switch}
        done = subprocess.run([sys.executable, "-c", AT_EXIT], env=env, capture_output=True, timeout=120)
        return done.returncode, sorted(done.stdout.split(b"\n")), done.stderr

    assert output("1") == output("0")
    assert b"gone plain" in output("1")[1]


def divided(n, d):
    s = 0
    for i in range(n):
        s += len([i]) // d
    return s


def promoted(fn, *args):
    overdrive.promote(fn)
    deadline = time.perf_counter() + 60
    while not _core.explain_data(fn)["versions"] and time.perf_counter() < deadline:
        fn(*args)
    assert _core.explain_data(fn)["versions"]


def test_exits_keep_no_reference_to_the_stub():
    """An exit writes over the stub's own entry of the stack; it was a leak, and the code outlived its function."""
    promoted(divided, 3, 2)
    try:
        for wrong in (0, "x"):
            for _ in range(20):
                with pytest.raises((ZeroDivisionError, TypeError)):
                    divided(3, wrong)
            for _ in range(20):
                assert divided(3, 2**70) == 0
        native = divided.__code__.co_consts[-1]
        assert type(native).__name__ == "Native"
        # The tuple of constants, the variable, the argument, and what offers the loops of armed code.
        assert sys.getrefcount(native) <= 4
    finally:
        overdrive.demote(divided)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="small ints are immortal")
def test_counts_of_small_ints_stay():
    """One that stands in the code and one that is looked up by its value are the same object."""

    def f(items, n):
        items[0] = n
        return (5, n + 0, 5, n + 1, 6), items[0]

    compiled = overdrive.jit(f)
    for _ in range(10):
        assert compiled([1], 5) == ((5, 5, 5, 6, 6), 5)
    before = [sys.getrefcount(5), sys.getrefcount(6)]
    for _ in range(2000):
        compiled([1], 5)
    after = [sys.getrefcount(5), sys.getrefcount(6)]
    assert all(abs(a - b) < 50 for a, b in zip(after, before))


def test_a_stub_dies_with_its_demotion_whatever_exits_there_were():
    promoted(divided, 3, 2)
    for _ in range(10):
        with pytest.raises(ZeroDivisionError):
            divided(3, 0)
    stub = weakref.ref(divided.__code__)
    overdrive.demote(divided)
    gc.collect()
    assert stub() is None


def test_constants_that_somebody_keeps_do_not_bring_a_dead_stub_back():
    for _ in range(5):
        promoted(divided, 3, 2)
        kept = divided.__code__.co_consts
        overdrive.demote(divided)
        gc.collect()
        assert divided(3, 2) == 0
        promoted(divided, 3, 2)
        assert divided(3, 1) == 3
        overdrive.demote(divided)
        del kept
