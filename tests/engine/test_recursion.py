"""Functions that call themselves, directly or through others, do so natively: results, errors, limits, turns."""

import signal
import sys
import threading
import time
import traceback
import types

import overdrive
import pytest
from overdrive import _core

from tests.settle import settle

from .test_exits import same
from .test_inlining import is_inlined

SOURCE = """
def fib(n):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)

def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))

def power(x, n):
    return 1.0 if n == 0 else x * power(x, n - 1)

def even(n):
    return True if n == 0 else odd(n - 1)

def odd(n):
    return False if n == 0 else even(n - 1)

def search(items, x, low, high):
    if low >= high:
        return -1
    middle = (low + high) // 2
    if items[middle] == x:
        return middle
    if items[middle] < x:
        return search(items, x, middle + 1, high)
    return search(items, x, low, middle)

def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

def down(n):
    return 0 if n == 0 else 1 + down(n - 1)

def nothing(n):
    if n > 0:
        nothing(n - 1)
        nothing(n - 2)

def given(x, n):
    return x if n == 0 else given(x, n - 1)

def kinds(n):
    return n if n == 0 else kinds(n - 1) / 2 if n % 2 else kinds(n - 1) + 1

def turned(x, n):
    return x if n <= 0 else turned(n - 1, x - 1) if n > x else turned(x * 0.5, n - 1)

def total(items, i):
    return 0 if i == len(items) else items[i] + total(items, i + 1)

def deep_error(n):
    if n == 0:
        return 1 // n
    return deep_error(n - 1) + 1

def late_error(n):
    if n < 2:
        return 1
    return late_error(n - 1) + late_error(n - 2) // (n - 9)

def missing(n):
    return 0 if n == 0 else missing(n - 1, 1) if n == 3 else missing(n - 1)

def by_keyword(n, step=1):
    return 0 if n <= 0 else n + by_keyword(n=n - step, step=step) + by_keyword(n - 5)

SCALE = 3

def limited(n):
    return SCALE if n == 0 else limited(n - 1) + 1

def climbing(n):
    return 0 if n < 0 else 1 + climbing(n + 1)
"""

CALLS = [
    ("fib", (15,)),
    ("fib", (True,)),
    ("fib", (6.0,)),
    ("ackermann", (2, 9)),
    ("power", (1.5, 30)),
    ("power", (3, 5)),
    ("power", (2.0, 2.0)),
    ("even", (31,)),
    ("odd", (31,)),
    ("search", (list(range(0, 300, 3)), 99, 0, 100)),
    ("search", (tuple(range(0, 300, 3)), 98, 0, 100)),
    ("search", ([0.5, 1.5, 2.5], 1.5, 0, 3)),
    ("search", ([0.5, "a", 2.5], 1.5, 0, 3)),
    ("factorial", (15,)),
    ("factorial", (40,)),
    ("down", (200,)),
    ("nothing", (8,)),
    ("given", (2.5, 4)),
    ("given", ("text", 4)),
    ("kinds", (9,)),
    ("turned", (5.0, 9)),
    ("turned", (3, 3)),
    ("total", ([1, 2, 3.5], 0)),
    ("total", ([1, 2, "x"], 0)),
    ("deep_error", (20,)),
    ("late_error", (14,)),
    ("missing", (9,)),
    ("by_keyword", (20,)),
]


def namespace(wrap):
    space = {}
    exec(compile(SOURCE, "recursion", "exec"), space)
    for name, value in list(space.items()):
        if isinstance(value, types.FunctionType):
            space[name] = wrap(value)
    return space


def outcome(fn, args):
    try:
        return fn(*args)
    except Exception as error:
        frames = [
            (f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == "recursion"
        ]
        return type(error), error.args, frames


PLAIN = namespace(lambda f: f)


@pytest.mark.parametrize("name, args", CALLS)
def test_results_errors_and_frames_are_those_of_the_calls(name, args):
    want = outcome(PLAIN[name], args)
    jitted = namespace(overdrive.jit)[name]
    for _ in range(6):
        assert same(outcome(jitted, args), want)


@pytest.mark.parametrize("name, args", CALLS[::2])
def test_each_exit_by_number(name, args):
    want = outcome(PLAIN[name], args)
    plain = namespace(overdrive.jit)[name]
    for _ in range(4):
        outcome(plain, args)
    for k in range(_core.debug_exit_count(plain)):
        _core.debug_force(k)
        forced = namespace(overdrive.jit)[name]
        for call in range(2):
            assert same(outcome(forced, args), want), f"exit {k}, call {call}"


def test_these_are_native_all_the_way():
    for name, args in (
        ("fib", (15,)),
        ("ackermann", (2, 9)),
        ("power", (1.5, 30)),
        ("even", (30,)),
        ("search", (list(range(0, 300, 3)), 99, 0, 100)),
        ("factorial", (15,)),
        ("nothing", (8,)),
    ):
        jitted = namespace(overdrive.jit)[name]
        for _ in range(4):
            assert jitted(*args) == PLAIN[name](*args)
        assert is_inlined(jitted), name
        assert "call_routine" in _core.emit(jitted, "ir")
        # From CPython 3.12 on, code that never ran since tools were switched on or off is called once by the interpreter.
        assert _core.explain_data(jitted)["exits"] <= 1


def test_a_float_that_comes_back_is_the_same_object():
    jitted = namespace(overdrive.jit)["given"]
    for _ in range(6):
        nan = float("nan")
        assert jitted(nan, 5) in [nan]


def test_the_recursion_limit_is_cpythons():
    def deepest(fn):
        lowest, highest = 0, 2 * sys.getrecursionlimit()
        while lowest < highest:
            middle = (lowest + highest + 1) // 2
            try:
                fn(middle)
                lowest = middle
            except RecursionError:
                highest = middle - 1
        return lowest

    want = deepest(PLAIN["down"])
    space = namespace(lambda f: f)
    promoted, seen = space["down"], {}
    overdrive.promote(promoted)
    for _ in range(4):
        promoted(30)
        settle([promoted], seen)
    assert is_inlined(promoted)
    assert deepest(promoted) == want
    # Where no end comes, the limit does.
    overdrive.promote(space["climbing"])
    for _ in range(4):
        assert space["climbing"](-1) == 0
        with pytest.raises(RecursionError):
            space["climbing"](1)
    overdrive.demote(promoted)
    overdrive.demote(space["climbing"])


def test_a_limit_beyond_the_c_stack_does_no_harm():
    before = sys.getrecursionlimit()
    promoted, seen = namespace(lambda f: f)["down"], {}
    overdrive.promote(promoted)
    for _ in range(4):
        promoted(30)
        settle([promoted], seen)
    assert is_inlined(promoted)
    results = []
    try:
        sys.setrecursionlimit(2_000_000)
        threading.stack_size(2 << 20)
        thread = threading.Thread(target=lambda: results.append(promoted(100_000)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
        sys.setrecursionlimit(before)
        overdrive.demote(promoted)
    assert results == [100_000]


def test_signals_and_other_threads_have_their_turn():
    jitted = namespace(overdrive.jit)["fib"]
    for _ in range(4):
        jitted(10)
    want = jitted(30)
    in_the_middle, ticks, done = [], [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0.001)

    def handler(_, frame):
        while frame is not None:
            if frame.f_code.co_name == "fib":
                in_the_middle.append(1)
                return
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        end = time.monotonic() + 30
        while (len(in_the_middle) < 5 or len(ticks) < 20) and time.monotonic() < end:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            assert jitted(30) == want
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        done.set()
        thread.join()
    assert len(in_the_middle) >= 5 and len(ticks) >= 20
    # Turns are no reason to give the direct calls up.
    assert is_inlined(jitted) and "call_routine" in _core.emit(jitted, "ir")


def test_what_only_the_last_level_reads_is_tested_before_the_first():
    space = namespace(overdrive.jit)
    for scale in (3, 3, 3, 3, 5, 7.5, 3):
        space["SCALE"] = scale
        for _ in range(2):
            assert space["limited"](20) == scale + 20


def test_an_exception_of_a_handler_ends_the_recursion():
    jitted = namespace(overdrive.jit)["fib"]
    for _ in range(4):
        jitted(10)

    class Stop(Exception):
        pass

    def handler(_, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(Stop):
                while True:
                    jitted(25)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert jitted(15) == PLAIN["fib"](15)


def test_a_name_rebound_by_another_thread_is_seen_in_the_middle():
    space = namespace(overdrive.jit)
    jitted = space["fib"]
    for _ in range(4):
        jitted(10)
    done = threading.Event()

    def rebind():
        time.sleep(0.05)
        space["fib"] = lambda n: 0
        done.set()

    thread = threading.Thread(target=rebind)
    thread.start()
    end = time.monotonic() + 30
    while not done.is_set() and time.monotonic() < end:
        assert jitted(24) <= 46368
    thread.join()
    assert jitted(24) == 0
    space["fib"] = jitted
    assert jitted(15) == PLAIN["fib"](15)


def test_tracers_see_every_level():
    jitted = namespace(overdrive.jit)["fib"]
    for _ in range(4):
        jitted(10)
    seen = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: seen.append(event) if frame.f_code.co_name == "fib" else None)
    try:
        assert jitted(5) == 5
    finally:
        sys.setprofile(before)
    assert seen.count("call") == 15
