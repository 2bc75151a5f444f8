"""A function that runs through a stub is the function it was."""

import copy
import ctypes
import gc
import inspect
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
import traceback
import types
import weakref

import pytest
from overdrive import _core

from . import subjects

MANNERS = [False, True]


def duplicate(function):
    """The same function, to be changed."""
    twin = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = copy.copy(function.__kwdefaults__)
    return twin


def promoted(function, leave):
    twin = duplicate(function)
    _core._null_promote(twin, leave)
    return twin


def result_of(function):
    log = []
    try:
        return function(log), log
    except Exception as error:
        frames = [
            (f.name, f.lineno, f.end_lineno, f.colno, f.end_colno)
            for f in traceback.extract_tb(error.__traceback__)
        ]
        return type(error), str(error), frames[1:], log


@pytest.mark.parametrize("leave", MANNERS)
@pytest.mark.parametrize("subject", subjects.SUBJECTS, ids=lambda s: s.__name__)
def test_same_results_and_tracebacks(subject, leave):
    expected = result_of(subject)
    twin = promoted(subject, leave)
    for _ in range(30):  # long enough for the stub to be specialised
        assert result_of(twin) == expected


@pytest.mark.parametrize("leave", MANNERS)
def test_without_variables(leave):
    twin = promoted(subjects.nothing, leave)
    assert [twin() for _ in range(30)] == [0] * 30
    assert "".join(map(repr, twin.__code__.co_varnames)) in ("", "'.overdrive'")


@pytest.mark.parametrize("leave", MANNERS)
def test_signature_and_source_are_kept(leave):
    subject = subjects.keyword_only
    twin = promoted(subject, leave)
    assert inspect.signature(twin) == inspect.signature(subject)
    assert inspect.getsource(twin) == inspect.getsource(subject)
    assert twin.__code__.co_qualname == subject.__code__.co_qualname
    assert twin([], 5, 6, 7, b=8, c=9) == subject([], 5, 6, 7, b=8, c=9)
    with pytest.raises(TypeError) as ours:
        twin()
    with pytest.raises(TypeError) as theirs:
        subject()
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("leave", MANNERS)
def test_frame_is_the_functions_own(leave):
    def look(a):
        b = a
        frame = sys._getframe()
        names = frame.f_code.co_name, frame.f_lineno - frame.f_code.co_firstlineno, sorted(frame.f_locals)
        outer = frame.f_back
        return names, outer.f_code.co_name, frame.f_code, len(traceback.extract_stack()), b

    expected = look(1)
    _core._null_promote(look, leave)
    seen = look(1)
    assert seen[:2] == expected[:2] and seen[3:] == expected[3:]
    assert seen[2] is look.__code__


@pytest.mark.parametrize("leave", MANNERS)
def test_tracers_see_the_same_events(leave):
    def subject(n):
        total = 0
        for i in range(n):
            total += helper(i)
        try:
            total / 0
        except ZeroDivisionError:
            total = -total
        return total

    def helper(i):
        return i * 2

    def events(function):
        seen = []

        def trace(frame, event, argument):
            if frame.f_code.co_name in ("subject", "helper"):
                argument = argument[0] if event == "exception" else argument
                seen.append((frame.f_code.co_name, event, frame.f_lineno, argument))
            return trace

        sys.settrace(trace)
        try:
            function(3)
        finally:
            sys.settrace(None)

        def profile(frame, event, argument):
            if frame.f_code.co_name in ("subject", "helper"):
                seen.append((frame.f_code.co_name, event, frame.f_lineno, str(argument)))

        sys.setprofile(profile)
        try:
            function(3)
        finally:
            sys.setprofile(None)
        return seen

    expected = events(subject)
    assert len(expected) > 30
    _core._null_promote(subject, leave)
    _core._null_promote(helper, leave)
    assert events(subject) == expected


@pytest.mark.parametrize("leave", MANNERS)
def test_values_die_when_they_should(leave):
    class Value:
        pass

    def subject(value, observed):
        observe = weakref.ref(value, lambda _: observed.append("dead"))
        other = value
        del value
        observed.append("first")
        del other
        observed.append("second")
        return observe() is None

    expected = []
    subject(Value(), expected)
    _core._null_promote(subject, leave)
    seen = []
    is_dead = subject(Value(), seen)  # inside an assert, pytest would keep the argument
    assert is_dead and seen == expected == ["first", "dead", "second"]


def test_continuation_owns_its_values_alone():
    class Value:
        pass

    def subject(value):
        observe = weakref.ref(value)
        del value
        return observe() is None

    import dis

    first = next(i.offset for i in dis.get_instructions(subject) if i.opname == "LOAD_GLOBAL")
    is_dead = _core._resume(subject, first, [Value(), _core._NULL], [])
    assert is_dead


@pytest.mark.parametrize("leave", MANNERS)
def test_no_leaks(leave):
    def subject(n):
        values = [object() for _ in range(n)]
        return lambda: values

    def cycle():
        twin = promoted(subject, leave)
        code = weakref.ref(twin.__code__)
        native = twin.__code__.co_consts[-1]
        twin(5)()
        _core._null_demote(twin)
        return code, sys.getrefcount(native)

    gc.collect()
    for _ in range(3):
        code, references = cycle()
        gc.collect()
        assert code() is None and references <= 3
    before = len(gc.get_objects())
    for _ in range(200):
        cycle()
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_demotion_gives_the_code_back():
    twin = duplicate(subjects.loops)
    original = twin.__code__
    _core._null_promote(twin)
    assert twin.__code__ is not original and _core._original_code(twin.__code__) is original
    assert _core._null_demote(twin) is True
    assert twin.__code__ is original
    assert _core._null_demote(twin) is False


def test_generators_are_refused_with_a_reason():
    def generator():
        yield 1

    async def coroutine():
        pass

    for function in (generator, coroutine):
        with pytest.raises(ValueError, match="generator or coroutine"):
            _core._null_promote(function)
    _core._null_promote(test_generators_are_refused_with_a_reason.__globals__["duplicate"])
    with pytest.raises(ValueError, match="stub already"):
        _core._null_promote(duplicate)
    _core._null_demote(duplicate)


def test_inner_functions_come_promoted():
    def outer(n):
        def inner(k):
            return n + k

        class Local:
            def method(self):
                return n, inner(1)

        return inner, Local, lambda: n

    outer.__code__ = _core._null_promote_code(outer.__code__)
    inner, local, small = outer(5)
    assert inner(1) == 6 and local().method() == (5, 6) and small() == 5
    for function in (inner, local.method, small):
        assert _core._original_code(function.__code__) is not function.__code__


@pytest.mark.parametrize("leave", MANNERS)
def test_recursion_error_at_the_same_depth(leave):
    def depth():
        deepest = 0

        def descend(n):
            nonlocal deepest
            deepest = n
            descend(n + 1)

        if is_promoted:
            _core._null_promote(descend, leave)
        with pytest.raises(RecursionError):
            descend(0)
        return deepest

    is_promoted = False
    expected = depth()
    is_promoted = True
    assert depth() == expected


def test_calls_from_native_code_count_as_the_interpreters():
    def subject():
        return _core._recursion_left()

    def call():
        return subject()

    def resume():
        return _core._resume(subject, 0, [], [])

    def through_stub():
        return promoted(subject, True)()

    python, c = call()
    assert through_stub() == (python, c)
    # The built-in function that starts the continuation is itself a call from 3.12 on.
    assert resume() == (python, c - (sys.version_info >= (3, 12)))


@pytest.mark.parametrize("leave", MANNERS)
def test_deep_recursion(leave):
    def descend(n):
        return 0 if n == 0 else 1 + descend(n - 1)

    _core._null_promote(descend, leave)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        assert descend(200_000) == 200_000
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("leave", MANNERS)
def test_deep_recursion_on_a_small_stack(leave):
    def descend(n):
        return 0 if n == 0 else 1 + max(descend(n - 1), 0)

    results = []
    _core._null_promote(descend, leave)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=lambda: results.append(descend(100_000)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
        sys.setrecursionlimit(limit)
    assert results == [100_000]


def test_signals_interrupt_stubs():
    def spin():
        while True:
            small()

    def small():
        return None

    _core._null_promote(small, True)
    _core._null_promote(spin, True)

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            spin()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_polls_deliver_signals_and_switch_threads():
    turns = []

    def other():
        end = time.monotonic() + 0.2
        count = 0
        while time.monotonic() < end:
            count += 1
        turns.append(count)

    thread = threading.Thread(target=other)
    thread.start()
    assert _core._poll_until(0.4) > 1
    thread.join()
    assert turns[0] > 1000

    def stop(*_):
        raise KeyboardInterrupt("from the handler")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt, match="from the handler") as caught:
            _core._poll_until(5)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [f.name for f in caught.traceback] == ["test_polls_deliver_signals_and_switch_threads", "stop"]


def test_threads_share_a_stub():
    def work(n):
        total = 0
        for i in range(n):
            total += step(i)
        return total

    def step(i):
        return [i][0] + 1

    _core._null_promote(work, True)
    _core._null_promote(step, True)
    results = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=lambda: results.append(work(5000))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert results == [sum(range(1, 5001))] * 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # 3.12 and later warn about fork with threads
def test_fork():
    def work(n):
        return sum([i for i in range(n)])

    _core._null_promote(work, True)
    child = os.fork()
    if child == 0:
        os._exit(0 if work(10) == 45 else 1)
    assert os.waitpid(child, 0)[1] == 0 and work(10) == 45


EVALUATOR = """
#define Py_BUILD_CORE 1
#include <Python.h>
#include "internal/pycore_frame.h"
static long n_frames;
static PyObject *evaluate(PyThreadState *thread, struct _PyInterpreterFrame *frame, int throw)
{
    n_frames++;
    return _PyEval_EvalFrameDefault(thread, frame, throw);
}
long install(int on)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), on ? evaluate : _PyEval_EvalFrameDefault);
    return n_frames;
}
"""


@pytest.mark.parametrize("leave", MANNERS)
def test_with_another_frame_evaluator(leave, tmp_path):
    """As torch.compile and some debuggers install one."""
    compiler, include = shutil.which("cc"), pathlib.Path(sysconfig.get_path("include"))
    if compiler is None or not (include / "internal").exists():
        pytest.skip("no C compiler or no internal headers")
    source, library = tmp_path / "evaluator.c", tmp_path / "evaluator.so"
    source.write_text(EVALUATOR)
    flags = ["-shared", "-fPIC", f"-I{include}", f"-I{include / 'internal'}"]
    subprocess.run([compiler, *flags, source, "-o", library], check=True)
    install = ctypes.PyDLL(str(library)).install
    twins = [promoted(subject, leave) for subject in subjects.SUBJECTS]
    expected = [result_of(subject) for subject in subjects.SUBJECTS]
    before = install(1)
    try:
        seen = [result_of(twin) for twin in twins]
    finally:
        n_frames = install(0) - before
    assert seen == expected and n_frames > len(twins)


def test_many_constants():
    source = (
        "def f(a):\n    x = 0\n" + "".join(f"    x += a * {k}.5\n" for k in range(400)) + "    return x\n"
    )
    namespace = {}
    exec(source, namespace)
    f = namespace["f"]
    expected = f(2)
    for leave in MANNERS:
        _core._null_promote(f, leave)
        assert [f(2) for _ in range(20)] == [expected] * 20
        _core._null_demote(f)


def scaled(values, factor=2, *, offset=1):
    """Taken apart by the pickling test: needs nothing of this module."""
    total = 0
    for value in values:
        total += value * factor
    counter = lambda: total + offset  # noqa: E731
    return counter()


def test_pickled_into_a_process_without_overdrive(tmp_path):
    cloudpickle = pytest.importorskip("cloudpickle")
    twin = promoted(scaled, True)
    twin.__module__ = "__main__"
    data = cloudpickle.dumps(twin)
    assert b"overdrive._core" not in data
    (tmp_path / "function").write_bytes(data)
    script = """
        import pickle, sys
        f = pickle.load(open('function', 'rb'))
        print([f([1, 2, 3], offset=k) for k in range(40)][-1], f.__code__.co_varnames[:2], 'overdrive' in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(pathlib.Path(cloudpickle.__file__).parents[1])},
    )
    assert done.stdout.strip() == "51 ('values', 'factor') False", done.stderr
    assert pickle.loads(pickle.dumps(scaled)) is scaled


def test_native_object_is_harmless():
    twin = duplicate(scaled)
    _core._null_promote(twin)
    native = twin.__code__.co_consts[-1]
    assert list(native) == [] and native.original is scaled.__code__
    assert "native code" in repr(native)
    with pytest.raises(TypeError):
        type(native)()
    assert list(pickle.loads(pickle.dumps(native))) == []


def test_f_locals_and_post_mortem():
    def fails(a, b):
        c = a + b
        return (lambda: c)() / 0

    _core._null_promote(fails, True)
    with pytest.raises(ZeroDivisionError) as caught:
        fails(1, 2)
    frame = caught.tb.tb_next.tb_frame
    assert frame.f_code is fails.__code__ and dict(frame.f_locals) == {"a": 1, "b": 2, "c": 3}
    frame.clear()


def test_a_debugger_that_starts_below_sees_the_frame():
    seen = []

    def outer():
        value = 1
        start()
        value = 2
        value = 3
        return value

    def start():
        frame = sys._getframe(1)

        def local(frame, event, argument):
            seen.append((event, frame.f_lineno - frame.f_code.co_firstlineno))
            return local

        frame.f_trace = local
        sys.settrace(lambda *_: None)

    def run():
        seen.clear()
        try:
            outer()
        finally:
            sys.settrace(None)
        return list(seen)

    expected = run()
    assert len(expected) >= 4
    _core._null_promote(outer, True)
    _core._null_promote(start, True)
    assert run() == expected
