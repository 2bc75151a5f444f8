"""Calls without a frame: what may run Python code finds a frame there, and the call goes on exactly."""

import gc
import signal
import sys
import threading
import time
import traceback

import overdrive
import pytest
from overdrive import _core


def lcg(n, out):
    """Writes into `out` as it goes, so that a second start from the beginning would be seen."""
    x = 1
    for i in range(n):
        x = (x * 1103515245 + 12345) % 2147483648
        if x < 4096:
            out.append(x)
    return x


def lcg_plain(n):
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) % 2147483648
    return x


def jitted(fn, *args):
    """A callable whose leaf version is published."""
    f = overdrive.jit(fn)
    for _ in range(40):
        f(*args)
    return f


def leaf(f):
    return [v["leaf"] for v in _core.explain_data(f)["versions"] if v["entry"] == "call"]


def test_a_loop_needs_no_frame():
    f = jitted(lcg_plain, 50)
    assert True in leaf(f)
    assert [f(n) for n in (0, 1, 2, 1000)] == [lcg_plain(n) for n in (0, 1, 2, 1000)]


def test_a_signal_is_handled_inside_the_loop():
    f = jitted(lcg_plain, 50)
    assert True in leaf(f)
    seen = []

    def handler(_, frame):
        seen.append((frame.f_code.co_name, time.perf_counter()))

    n = 400_000
    want = lcg_plain(n)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        end = time.perf_counter() + 1.0
        while time.perf_counter() < end and sum(name == "lcg_plain" for name, _ in seen) < 3:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            assert f(n) == want
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sum(name == "lcg_plain" for name, _ in seen) >= 3


def test_an_exception_from_a_signal_has_the_frame():
    f = jitted(lcg, 50, [])

    def handler(_, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, handler)
    n_rounds = n_seen = 0
    try:
        # A busy machine may not come to the first item in the time.
        while n_rounds < 5 or n_seen == 0:
            out = []
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(KeyboardInterrupt) as caught:
                f(1_000_000_000, out)
            frames = traceback.extract_tb(caught.tb)
            assert [entry.name for entry in frames][1:] == ["lcg", "handler"]
            # 3.11 gives no line to the jump back behind a branch that was not taken.
            first = lcg.__code__.co_firstlineno
            assert frames[1].lineno is None or first < frames[1].lineno <= first + 7
            want = []
            lcg(200_000, want)
            assert out[: len(want)] == want[: len(out)]
            n_rounds, n_seen = n_rounds + 1, n_seen + len(out)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_get_their_turn_and_the_rest_stays_native():
    f = jitted(lcg, 50, [])
    n = 20_000_000
    ticks, stop = [], threading.Event()

    def other():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            for _ in range(1000):
                pass

    thread = threading.Thread(target=other)
    thread.start()
    try:
        out = []
        begin = time.perf_counter()
        value = f(n, out)
        end = time.perf_counter()
    finally:
        stop.set()
        thread.join()
    want = []
    assert value == jitted(lcg, 50, [])(n, want) and out == want
    during = [t for t in ticks if begin < t < end]
    assert len(during) > 3
    # Interpreted, it would be some hundred times as many seconds as native code needs.
    data = _core.explain_data(f)
    assert data["loops_entered"] >= 1


def test_a_call_that_often_gets_a_frame_is_made_with_one():
    f = jitted(lcg_plain, 50)
    stop = threading.Event()

    def other():
        while not stop.is_set():
            for _ in range(1000):
                pass

    thread = threading.Thread(target=other)
    thread.start()
    try:
        want = lcg_plain(300_000)
        end = time.perf_counter() + 20
        while True in leaf(f) and time.perf_counter() < end:
            assert f(300_000) == want
    finally:
        stop.set()
        thread.join()
    assert True not in leaf(f)
    assert f(300_000) == want


def helper(x, d):
    s = 0
    for i in range(x):
        s += i // d
    return s


def halve(x):
    return x // 2


def halves(n, called=halve):
    """Calls nothing but one function: calls of C functions count for themselves on 3.11. As an argument it is not known
    which, so the call is made; that of a global would be translated in place."""
    total = 0
    while n > 0:
        total += called(n)
        n -= 1
    return total


def caller(n, d, called=helper):
    total = 0
    for i in range(n):
        total += called(i, d)
    return total


def promote(callee, calls):
    """Promotes both and calls until the callee has a leaf version and the caller is native."""
    overdrive.promote(callee)
    overdrive.promote(calls)
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        calls(60, 2) if calls is caller else calls(60)
        if True in leaf(callee) and leaf(calls) and _core.explain_data(callee)["calls"] > 500:
            return
    raise AssertionError("not native in time")


@pytest.fixture
def promoted():
    promote(helper, caller)
    yield
    overdrive.demote(helper)
    overdrive.demote(caller)


def test_promoted_functions_call_each_other_without_a_frame(promoted):
    assert True in leaf(helper)
    before = _core.explain_data(helper)["calls"]
    assert caller(100, 3) == sum(sum(i // 3 for i in range(n)) for n in range(100))
    assert _core.explain_data(helper)["calls"] - before == 100
    with pytest.raises(ZeroDivisionError) as caught:
        caller(10, 0)
    assert [entry.name for entry in traceback.extract_tb(caught.tb)][1:] == ["caller", "helper"]
    assert caller(10, 2**70) == 0
    with pytest.raises(TypeError) as caught:
        caller(10, "x")
    assert [entry.name for entry in traceback.extract_tb(caught.tb)][1:] == ["caller", "helper"]


@pytest.mark.parametrize("which", ["callee", "caller", "both"])
def test_the_functions_may_be_demoted_in_the_middle_of_a_call(promoted, which):
    """Nothing but the call itself holds its code then."""
    n_demoted = n_sums = of_one = of_all = 0
    while n_sums < 4000:
        of_all += of_one
        of_one += n_sums // 3
        n_sums += 1

    def handler(_, frame):
        nonlocal n_demoted
        n_demoted += 1
        if which != "caller":
            overdrive.demote(helper)
        if which != "callee":
            overdrive.demote(caller)
        gc.collect()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(6):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            assert caller(n_sums, 3) == of_all
            promote(helper, caller)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert n_demoted == 6


def test_a_tracer_sees_calls_between_promoted_functions(promoted):
    calls = []

    def tracer(frame, event, arg):
        calls.append((frame.f_code.co_name, event))
        return None

    sys.settrace(tracer)
    try:
        caller(5, 2)
    finally:
        sys.settrace(None)
    names = [name for name, event in calls if event == "call"]
    assert names == ["caller"] + ["helper"] * 5


def test_the_recursion_limit_counts_calls_without_a_frame():
    promote(halve, halves)

    def deep(n):
        return halves(3) if n == 0 else deep(n - 1)

    def limit():
        for n in range(1, 400):
            try:
                deep(n)
            except RecursionError:
                return n
        return None

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        native = limit()
        overdrive.demote(halve)
        overdrive.demote(halves)
        assert limit() == native
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring")
def test_monitoring_sees_calls_of_a_jitted_leaf():
    f = jitted(lcg_plain, 50)
    assert True in leaf(f)
    seen = []
    tool, events = 2, sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "test")
    try:
        sys.monitoring.register_callback(
            tool,
            events.PY_START,
            lambda code, at: seen.append(code.co_name) if code.co_name == "lcg_plain" else None,
        )
        f(3)
        sys.monitoring.set_events(tool, events.PY_START)
        for _ in range(4):
            f(3)
        sys.monitoring.set_events(tool, 0)
        f(3)
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.register_callback(tool, events.PY_START, None)
        sys.monitoring.free_tool_id(tool)
    assert seen == ["lcg_plain"] * 4
    for _ in range(3):
        assert f(1000) == lcg_plain(1000)
