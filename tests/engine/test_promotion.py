"""Swapping native code into a function that everybody already holds, and taking it out again."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import overdrive
import pytest
from overdrive import _core

from .subjects import SUBJECTS, collatz, fib


def twin(fn):
    return type(fn)(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def outcome(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as error:
        return repr(error)


def until_compiled(fn, *args):
    deadline = time.monotonic() + 20
    while not _core.explain_data(fn)["versions"]:
        fn(*args)
        assert time.monotonic() < deadline and not _core.explain_data(fn)["refused"]
        time.sleep(0.002)


def test_identity_is_kept_and_code_comes_back():
    f = twin(fib)
    code = f.__code__
    held = f
    assert overdrive.promote(f) is f
    assert f.__code__ is not code
    until_compiled(f, 50)
    assert held(90) == fib(90) and held(200) == fib(200)
    assert overdrive.demote(f) is f and f.__code__ is code
    assert f(90) == fib(90)


class Edge:
    FORWARD = 1

    def __init__(self, direction):
        self.direction, self.start, self.end = direction, 300, 400

    def goal(self):
        return self.end if self.direction == Edge.FORWARD else self.start


class Wall(Edge):
    pass


def test_what_calls_teach_while_the_next_version_is_compiled_is_heeded():
    # Objects of two classes come by from the first call on: the first version's exits go on while its successor, which was
    # translated before them, is in the making. Its own exits must not go on for ever.
    edges = [Edge(1), Wall(1), Wall(0)] * 4
    goals = [edge.goal() for edge in edges]
    goal = twin(Edge.goal)
    overdrive.promote(goal)
    deadline, quiet = time.monotonic() + 60, 0
    while quiet < 20:
        before = _core.explain_data(goal)["exits"]
        for _ in range(100):
            assert [goal(edge) for edge in edges] == goals
        data = _core.explain_data(goal)
        quiet = quiet + 1 if data["versions"] and data["exits"] == before else 0
        assert time.monotonic() < deadline, data
        time.sleep(0.002)


def test_promotion_is_idempotent():
    f = twin(fib)
    overdrive.promote(f)
    code = f.__code__
    overdrive.promote(f)
    assert f.__code__ is code
    overdrive.demote(f)
    overdrive.demote(f)


@pytest.mark.parametrize("fn, make_args", SUBJECTS, ids=lambda x: getattr(x, "__name__", "args"))
def test_results_before_during_and_after_the_compile(fn, make_args):
    f = twin(fn)
    want = outcome(fn, *make_args())
    overdrive.promote(f)
    for _ in range(100):
        assert outcome(f, *make_args()) == want
        time.sleep(0.001)


def test_what_cannot_be_compiled_stays():
    def generator():
        yield 1

    def reader():
        return locals()

    code = generator.__code__
    overdrive.promote(generator)
    assert generator.__code__ is code and list(generator()) == [1]
    code = reader.__code__
    overdrive.promote(reader)
    assert reader() == {} and reader() == {}
    assert reader.__code__ is code, "the original code is given back at the first call"
    with pytest.raises(TypeError):
        overdrive.promote(len)


def test_methods_of_a_class():
    class C:
        def f(self, x):
            return self.k + x

        k = 1

    overdrive.promote(C.f)
    c = C()
    for _ in range(50):
        assert c.f(2) == 3
        time.sleep(0.001)


def test_functions_of_one_def_share_a_stub():
    def make(k):
        def f(x):
            return x * k

        return f

    a, b = make(2), make(3)
    overdrive.promote(a)
    overdrive.promote(b)
    assert a.__code__ is b.__code__
    for _ in range(50):
        assert (a(5), b(5)) == (10, 15)
        time.sleep(0.001)


def test_a_promoted_function_pickles_by_name():
    overdrive.promote(collatz)
    try:
        until_compiled(collatz, 10)
        assert pickle.loads(pickle.dumps(collatz)) is collatz
    finally:
        overdrive.demote(collatz)


def test_explain_and_emit():
    f = twin(fib)
    overdrive.promote(f)
    until_compiled(f, 50)
    data = _core.explain_data(f)
    assert data["name"] == "fib" and data["file"].endswith("subjects.py")
    (version,) = data["versions"]
    assert version["entry"] == "call" and version["types"] == "n: int" and version["compile_ms"] > 0
    assert {line["status"] for line in data["lines"]} <= {"native", "cpython", "not compiled"}
    assert "exit0" in _core.emit(f, "ir")
    assert "define" in _core.emit(f, "llvm")
    assert "ret" in _core.emit(f, "asm")
    with pytest.raises(ValueError):
        _core.emit(f, "nonsense")
    with pytest.raises(LookupError):
        _core.emit(twin(fib).__code__.replace(co_name="other"), "ir")


def test_code_that_never_ran_is_explained():
    data = _core.explain_data(fib.__code__.replace(co_name="never"))
    assert data["versions"] == [] and data["lines"]


def test_threads_share_a_function():
    f = twin(collatz)
    want = collatz(300)
    overdrive.promote(f)
    wrong = []

    def work():
        for _ in range(60):
            if f(300) != want:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads_jit_one_function_at_once():
    f = overdrive.jit(twin(collatz))
    want = collatz(200)
    results = []
    threads = [threading.Thread(target=lambda: results.append(f(200))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [want] * 8


def run(program, **kw):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, **kw
    )


def test_fork_while_compiling():
    done = run("""
        import os, overdrive
        from overdrive import _core
        def f0(x):
            s = 0.0
            for i in range(20): s += x * i
            return s
        fs = [type(f0)(f0.__code__.replace(co_name=f"f{i}"), globals()) for i in range(8)]
        for f in fs: overdrive.promote(f)
        for f in fs: f(1.5)
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                ok = all(f(1.5) == f0(1.5) for f in fs for _ in range(50))
                g = overdrive.jit(lambda a: a + 1)
                os._exit(0 if ok and g(1) == 2 and g(2.5) == 3.5 else 1)
            _, status = os.waitpid(pid, 0)
            assert status == 0, status
            for f in fs: f(1.5)
        print("done")
    """)
    assert done.stdout == "done\n", done.stderr


def test_exit_while_compiling():
    for _ in range(5):
        done = run("""
            import overdrive
            def f0(x):
                s = 0.0
                for i in range(20): s += x * i
                return s
            fs = [type(f0)(f0.__code__.replace(co_name=f"f{i}"), globals()) for i in range(4)]
            for f in fs: overdrive.promote(f)
            for f in fs: f(1.5)
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_signals_interrupt_a_native_loop():
    @overdrive.jit
    def spin(n):
        s = 0
        for i in range(n):
            s = (s + i * i) & 0xFFFF
        return s

    spin(10)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError):
            spin(10**12)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_other_threads_run_during_a_native_loop():
    ticks = []
    stop = threading.Event()

    def ticker():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.005)

    @overdrive.jit
    def spin(n):
        s = 0
        for i in range(n):
            s = (s + i * i) & 0xFFFF
        return s

    spin(10)
    t = threading.Thread(target=ticker)
    t.start()
    before = len(ticks)
    began = time.monotonic()
    n = 10**7
    while time.monotonic() - began < 0.5:
        spin(n)
    got = len(ticks) - before
    stop.set()
    t.join()
    assert got >= 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_keeps_what_was_compiled():
    f = overdrive.jit(twin(fib))
    f(50)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if f(90) == fib(90) and f(100) == fib(100) else 1)
    assert os.waitpid(pid, 0)[1] == 0
