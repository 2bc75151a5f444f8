"""A jitted function is called as the function is: arguments, methods, recursion, errors."""

import subprocess
import sys
import traceback

import overdrive
import pytest
from overdrive import _core


def both(fn):
    return fn, overdrive.jit(fn)


def outcome(fn, *args, **kw):
    try:
        value = fn(*args, **kw)
    except Exception as error:
        return type(error), error.args
    return type(value), value


def add(a, b):
    return a + b


def defaults(a, b=2, *, c=3):
    return a * 100 + b * 10 + c


def star(a, *rest, k=1, **named):
    return a, rest, k, sorted(named.items())


def only_positional(a, b=5, /):
    return a - b


def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


CALLS = [
    (add, (1, 2), {}),
    (add, (1.5, 2), {}),
    (add, ("a", "b"), {}),
    (add, ([1], [2]), {}),
    (add, (1, "b"), {}),
    (add, (1,), {}),
    (add, (1, 2, 3), {}),
    (add, (), {"a": 1, "b": 2}),
    (add, (1,), {"b": 2}),
    (add, (1,), {"a": 2}),
    (add, (1, 2), {"z": 3}),
    (add, (2**63 - 1, 1), {}),
    (add, (True, True), {}),
    (defaults, (1,), {}),
    (defaults, (1, 4), {}),
    (defaults, (1,), {"c": 9}),
    (defaults, (1, 2, 3), {}),
    (defaults, (1.5,), {"b": 2.5}),
    (star, (1, 2, 3), {}),
    (star, (1,), {"k": 4, "z": 5, "y": 6}),
    (star, (), {}),
    (only_positional, (9,), {}),
    (only_positional, (9, 1), {}),
    (only_positional, (), {"a": 9}),
    (fib, (90,), {}),
    (fib, (93,), {}),
    (fib, (300,), {}),
    (fib, (2.0,), {}),
    (fib, (-1,), {}),
]


@pytest.mark.parametrize("fn, args, kw", CALLS)
def test_calls_give_what_the_function_gives(fn, args, kw):
    jitted = overdrive.jit(fn)
    want = outcome(fn, *args, **kw)
    for _ in range(5):
        assert outcome(jitted, *args, **kw) == want


def test_one_callable_serves_many_types_in_any_order():
    plain, jitted = both(add)
    pairs = [(1, 2), (1.5, 2.5), ("a", "b"), (1, 2.5), ((1,), (2,)), (None, 1), (b"a", b"b"), (True, 2)]
    for _ in range(6):
        for pair in pairs:
            assert outcome(jitted, *pair) == outcome(plain, *pair)


def test_defaults_may_be_changed():
    _, jitted = both(lambda a, b=1: a + b)
    assert jitted(1) == 2
    jitted.__defaults__ = (10,)
    assert jitted(1) == 11 and jitted.__wrapped__(1) == 11
    jitted.__kwdefaults__ = None
    del jitted.__defaults__
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        jitted(1)


class Base:
    def __init__(self, x):
        self.x = x

    def scaled(self, k):
        return self.x * k


class Derived(Base):
    @overdrive.jit
    def __init__(self, x):
        super().__init__(x + 1)

    @overdrive.jit
    def scaled(self, k):
        return super().scaled(k) + 0.5

    @classmethod
    @overdrive.jit
    def made(cls, x):
        return cls(x)

    @staticmethod
    @overdrive.jit
    def twice(x):
        return x + x

    @overdrive.jit
    @staticmethod
    def thrice(x):
        return x * 3

    @property
    @overdrive.jit
    def half(self):
        return self.x / 2


def test_methods_bind_and_super_works():
    for _ in range(4):
        d = Derived(1)
        assert d.x == 2 and d.scaled(3) == 6.5 and Derived.scaled(d, 3) == 6.5
        assert Derived.made(4).x == 5 and d.made(4).x == 5
        assert d.twice(4) == 8 and Derived.twice("a") == "aa" and Derived.thrice(2) == 6
        assert d.half == 1.0
        bound = d.scaled
        assert bound(1) == 2.5 and bound.__self__ is d and bound.__func__ is Derived.__dict__["scaled"]


def test_closures_see_their_cells():
    def outer(k):
        total = 0

        @overdrive.jit
        def inner(x):
            nonlocal total
            total += x * k
            return total

        return inner

    a, b = outer(2), outer(10)
    assert [a(1), a(2), b(1), a(3), b(2)] == [2, 6, 10, 12, 30]


def test_recursion_to_the_limit():
    @overdrive.jit
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    assert down(300) == 300
    with pytest.raises(RecursionError):
        down(10 * sys.getrecursionlimit())
    assert down(10) == 10


def test_mutual_recursion_of_jitted_functions():
    @overdrive.jit
    def even(n):
        return True if n == 0 else odd(n - 1)

    @overdrive.jit
    def odd(n):
        return False if n == 0 else even(n - 1)

    assert even(100) is True and odd(100) is False


def broken(items, i):
    total = 0.0
    for _ in range(3):
        total += items[i]
    return total / (len(items) - 2)


@pytest.mark.parametrize("args", [([1.0, 2.0, 3.0], 7), ([1.0, 2.0], 1), ([1.0, "x"], 1), (None, 0)])
def test_tracebacks_are_those_of_the_function(args):
    def shape(fn):
        try:
            fn(*args)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[1:]
            return type(error), error.args, [(f.name, f.lineno, f.colno, f.end_colno) for f in frames]
        return None

    jitted = overdrive.jit(broken)
    jitted([1.0, 2.0, 3.0], 1)
    for _ in range(3):
        assert shape(jitted) == shape(broken)


def test_locals_of_a_raising_frame_are_complete():
    def f(n):
        half = n / 2
        parts = [half, n]
        return parts[n]

    jitted = overdrive.jit(f)
    jitted(1)
    for fn in (f, jitted):
        try:
            fn(5)
        except IndexError as error:
            frame = error.__traceback__.tb_next.tb_frame
            assert frame.f_locals == {"n": 5, "half": 2.5, "parts": [2.5, 5]}
            assert frame.f_lineno == f.__code__.co_firstlineno + 3


def generator(n):
    yield from range(n)


async def coroutine():
    return 1


@pytest.mark.parametrize("fn", [generator, coroutine, len, int])
def test_what_cannot_be_compiled_is_returned_unchanged(fn):
    assert overdrive.jit(fn) is fn
    with pytest.raises(overdrive.NotCompiledError):
        overdrive.jit(fn, strict=True)


def test_jit_of_a_jitted_function_is_itself():
    f = overdrive.jit(add)
    assert overdrive.jit(f) is f


def test_jit_takes_functions_only():
    with pytest.raises(TypeError):
        overdrive.jit(3)


@pytest.mark.parametrize("option", ["fastmath", "parallel", "nogil"])
def test_each_option_makes_a_callable_of_its_own(option):
    exact = overdrive.jit(add)
    other = overdrive.jit(exact, **{option: True})
    assert other is not exact and other(2, 3) == exact(2, 3) == 5
    assert overdrive.jit(other, **{option: True}) is other
    with pytest.raises(TypeError):
        overdrive.jit(add, **{option: "yes"})


def test_frame_readers_stay_interpreted():
    def f(a):
        b = a + 1
        return sorted(locals())

    jitted = overdrive.jit(f)
    for _ in range(3):
        assert jitted(1) == ["a", "b"]
    assert _core.explain_data(jitted)["refused"]


def test_strict_raises_with_the_reason():
    def f(a):
        return eval("a")

    jitted = overdrive.jit(f, strict=True)
    with pytest.raises(overdrive.NotCompiledError):
        jitted(1)


def test_a_tracer_sees_the_call():
    f = overdrive.jit(add)
    f(1.0, 2.0)
    f(1.0, 2.0)
    seen = []

    def tracer(frame, event, arg):
        seen.append((frame.f_code.co_name, event))
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        assert f(1.0, 2.0) == 3.0
    finally:
        sys.settrace(old)
    assert ("add", "call") in seen and ("add", "line") in seen


def test_recursion_beyond_a_small_stack_raises():
    """A jitted function that calls itself, and is no routine, needs C stack on each level; that of a thread is small."""
    program = """
import sys, threading
import overdrive
sys.setrecursionlimit(100_000)

@overdrive.jit
def down(n, items):
    if n == 0:
        return 0
    items.append(n)
    return 1 + down(n - 1, items)

def run(n):
    try:
        print(down(n, []) == n)
    except RecursionError as error:
        print("recursion depth exceeded" in str(error))

for _ in range(3):
    down(5, [])
threading.stack_size(2 << 20)
for n in (50, 50_000, 50):
    thread = threading.Thread(target=run, args=(n,))
    thread.start()
    thread.join()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout.split()) == (0, ["True"] * 3), ran
