"""Calls of small functions run in place, unboxed, and nobody can tell: results, errors, frames, rebinding, recursion."""

import gc
import math
import sys
import threading
import time
import traceback
import types
import weakref

import numpy as np
import overdrive
import pytest
from overdrive import _core

from tests.settle import settle

from . import inlining_subjects
from .inlining_subjects import (
    SUBJECTS,
    in_a_condition,
    scaled,
    square,
    step,
    use_at_of_tuple,
    use_bounded,
    use_cell,
    use_clamp,
    use_defaults,
    use_dot,
    use_first,
    use_gcd,
    use_keywords,
    use_mandel,
    use_nested,
    use_pair,
    use_prime,
    use_step,
    use_total_of,
)
from .test_exits import same

SPACE = vars(inlining_subjects)


def frames_of(error):
    inside = [f for f in traceback.extract_tb(error.__traceback__) if f.name != "outcome"]
    return [(f.name, f.lineno, f.colno, f.end_colno) for f in inside]


def outcome(fn, args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), error.args, frames_of(error)


def fresh(fn, namespace=None):
    """The function anew, so that nothing of it was compiled yet."""
    return types.FunctionType(fn.__code__, namespace or fn.__globals__, fn.__name__, fn.__defaults__)


def inlined(fn):
    """What `explain` says of calls that were inlined."""
    return [why for line in _core.explain_data(fn)["lines"] for why in line["why"] if "inlined" in why]


def is_inlined(fn):
    return any("not inlined" not in why for why in inlined(fn))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("fn, make_args", SUBJECTS, ids=lambda x: getattr(x, "__name__", "args"))
def test_results_errors_and_frames_are_those_of_the_call(fn, make_args):
    want = outcome(fn, make_args())
    jitted = overdrive.jit(fresh(fn))
    for _ in range(6):
        assert same(outcome(jitted, make_args()), want)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("fn, make_args", SUBJECTS[::3], ids=lambda x: getattr(x, "__name__", "args"))
def test_each_exit_by_number(fn, make_args):
    want = outcome(fn, make_args())
    plain = overdrive.jit(fresh(fn))
    for _ in range(4):
        outcome(plain, make_args())
    for k in range(_core.debug_exit_count(plain)):
        _core.debug_force(k)
        forced = overdrive.jit(fresh(fn))
        for call in range(2):
            assert same(outcome(forced, make_args()), want), f"exit {k}, call {call}"


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("seed", range(4))
def test_exits_at_random(seed):
    _core.debug_force(("seed", seed, 0.08))
    for fn, make_args in SUBJECTS:
        want = outcome(fn, make_args())
        forced = overdrive.jit(fresh(fn))
        for _ in range(3):
            assert same(outcome(forced, make_args()), want), fn.__name__


@pytest.mark.parametrize(
    "fn, args",
    [
        (use_step, (50,)),
        (use_clamp, (60,)),
        (use_pair, (40,)),
        (use_keywords, (30,)),
        (use_defaults, (30,)),
        (use_nested, (30,)),
        (use_bounded, (50,)),
        (use_at_of_tuple, ((1.5, 2.5) * 9,)),
        (use_cell, (np.arange(81.0).reshape(9, 9),)),
        (use_first, (["ab"] * 9,)),
        (in_a_condition, (2000,)),
        (use_prime, (60,)),
        (use_gcd, (30,)),
        (use_mandel, (9,)),
        (use_dot, (4, np.arange(100.0), np.arange(100.0))),
        (use_total_of, ([[1, 2, 3], [4, 5], []],)),
    ],
    ids=lambda x: getattr(x, "__name__", "args"),
)
def test_these_are_inlined_whoever_the_callee_is(fn, args):
    want = fn(*args)
    for wrap in (lambda f: f, overdrive.jit):
        names = [
            n for n, v in SPACE.items() if isinstance(v, types.FunctionType) and n in fn.__code__.co_names
        ]
        space = dict(SPACE, **{n: wrap(fresh(SPACE[n])) for n in names})
        jitted = overdrive.jit(fresh(fn, space), strict=True)
        for _ in range(4):
            assert same(jitted(*args), want)
        assert is_inlined(jitted), _core.explain_data(jitted)["lines"]


def test_promoted_functions_inline_each_other():
    space = {"__builtins__": __builtins__, "step": fresh(step)}
    caller = fresh(use_step, space)
    want = use_step(400)
    overdrive.promote(caller)
    seen = {}
    for _ in range(4):
        assert caller(400) == want
        settle([caller], seen)
    assert is_inlined(caller)

    def leaves_nowhere():
        # A turn of CPython is an exit, too, but not of every call.
        for _ in range(5):
            exits = _core.explain_data(caller)["exits"]
            assert caller(400) == want
            if _core.explain_data(caller)["exits"] == exits:
                return True
        return False

    # The callee gets another code object, the stub of the same function: nothing changes for its callers.
    overdrive.promote(space["step"])
    assert all(leaves_nowhere() for _ in range(4))
    overdrive.demote(space["step"])
    assert leaves_nowhere()
    overdrive.demote(caller)


def test_the_right_reason_is_given_where_a_call_is_not_inlined():
    source = """
def starred(*x):
    return x

def changing(items):
    items[0] = items[1]
    return 0

def calling(x):
    return print

def formatting(x):
    return f"{x}"

def itself(n):
    return (n, itself(n - 1)) if n > 0 else (0, 0)
"""
    space = {}
    exec(source, space)
    reasons = {
        "starred": "parameters",
        "changing": "line 6",
        "formatting": "line 13",
        "itself": "it calls itself and returns no plain value",
    }
    for name, reason in reasons.items():
        arg = [0, 1] if name == "changing" else 3
        space["f"] = space[name]
        caller = overdrive.jit(eval("lambda x: f(x)", space))
        want = space[name](arg)
        for _ in range(3):
            assert caller(arg) == want
        (why,) = inlined(caller)
        assert "not inlined: " in why and reason in why, why


def test_a_callee_rebound_while_the_loop_runs_is_seen():
    space = {"__builtins__": __builtins__}
    source = """
def helper(x):
    return x + 1

def other(x):
    return x - 1000

def caller(n, at, hook):
    total = 0
    for i in range(n):
        total += helper(i)
        if i == at:
            hook()
    return total
"""
    exec(source, space)
    helper, other, hook_calls = space["helper"], space["other"], []

    def rebind():
        space["helper"] = other

    def recode():
        helper.__code__ = other.__code__

    def redefault():
        hook_calls.append(1)

    original = helper.__code__
    for hook in (rebind, recode, redefault):
        for wrapped in (False, True):
            space["helper"], helper.__code__ = helper, original
            want = space["caller"](300, 100, hook)
            space["helper"], helper.__code__ = helper, original
            called = overdrive.jit(helper) if wrapped and hook is not recode else helper
            space["helper"] = called
            jitted = overdrive.jit(fresh(space["caller"]))
            for _ in range(4):
                jitted(300, 1000, hook)
            assert is_inlined(jitted)
            assert jitted(300, 100, hook) == want, hook
            assert jitted(300, 100, lambda: None) == space["caller"](300, 100, lambda: None)


def test_new_code_of_a_jitted_callee_is_seen():
    space = {"__builtins__": __builtins__, "step": overdrive.jit(fresh(step))}
    caller = overdrive.jit(fresh(use_step, space))
    for _ in range(4):
        assert caller(50) == use_step(50)
    assert is_inlined(caller)
    space["step"].__code__ = (lambda state, i: state + i).__code__
    for _ in range(4):
        assert caller(50) == 1 + sum(range(50))


def test_changed_defaults_and_globals_of_a_callee_are_seen():
    space = {"__builtins__": __builtins__, "SCALE": 3, "scaled": fresh(scaled)}
    # The callee's globals are another module's than the caller's.
    callee = fresh(scaled, space)
    caller_space = {"__builtins__": __builtins__, "scaled": callee}
    plain = fresh(use_defaults, caller_space)
    caller = overdrive.jit(fresh(use_defaults, caller_space))

    def agree():
        for _ in range(4):
            assert same(outcome(caller, (40,)), outcome(plain, (40,)))

    agree()
    assert is_inlined(caller)
    callee.__defaults__ = (7, 1.25)
    agree()
    space["SCALE"] = 1.5
    agree()
    del space["SCALE"]
    assert outcome(caller, (40,))[0] is NameError
    agree()
    space["SCALE"] = 2
    callee.__defaults__ = None
    assert outcome(caller, (40,))[0] is TypeError
    agree()


def test_a_callee_changed_by_another_thread_is_seen():
    space = {"__builtins__": __builtins__, "step": fresh(step)}
    caller = overdrive.jit(fresh(use_step, space))
    for _ in range(4):
        caller(50)
    assert is_inlined(caller)
    done = threading.Event()

    def rebind():
        time.sleep(0.05)
        space["step"] = lambda state, i: "changed"
        done.set()

    thread = threading.Thread(target=rebind)
    thread.start()
    result = caller(300_000_000)
    thread.join()
    assert done.is_set() and result == "changed"


def test_an_exit_taken_often_gives_the_inlining_up():
    source = """
def half(x):
    return x / (x % 2)

def caller(n):
    good = 0
    for i in range(n):
        try:
            half(i)
            good += 1
        except ZeroDivisionError:
            pass
    return good
"""
    space = {}
    exec(source, space)
    jitted = overdrive.jit(space["caller"])
    for _ in range(6):
        assert jitted(100) == 50
    data = _core.explain_data(jitted)
    assert data["compiles"] < 12
    assert any("not inlined: it left often" in why for why in inlined(jitted)), inlined(jitted)


def test_the_recursion_limit_counts_calls_that_are_inlined():
    source = """
def leaf(x):
    return x + 1

def down(n):
    return leaf(n) if n == 0 else down(n - 1)
"""
    space = {}
    exec(source, space)
    plain = space["down"]

    def deepest(fn, space_of):
        space_of["down"] = fn
        lowest, highest = 0, 2 * sys.getrecursionlimit()
        while lowest < highest:
            middle = (lowest + highest + 1) // 2
            try:
                fn(middle)
                lowest = middle
            except RecursionError:
                highest = middle - 1
        return lowest

    want = deepest(plain, space)
    seen = {}
    promoted = space["down"] = fresh(plain, space)
    overdrive.promote(promoted)
    for _ in range(5):
        promoted(3)
        settle([promoted], seen)
    assert is_inlined(promoted)
    assert deepest(promoted, space) == want
    overdrive.demote(promoted)


def test_tracers_and_profilers_see_every_call():
    space = {"__builtins__": __builtins__, "step": fresh(step)}
    caller = overdrive.jit(fresh(use_step, space))
    for _ in range(4):
        caller(50)
    assert is_inlined(caller)
    for setter, getter in ((sys.settrace, sys.gettrace), (sys.setprofile, sys.getprofile)):
        seen = []

        def hook(frame, event, arg, seen=seen):
            if event == "call":
                seen.append(frame.f_code.co_name)

        before = getter()
        setter(hook)
        try:
            caller(5)
        finally:
            setter(before)
        assert seen.count("step") == 5 and seen.count("use_step") == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring")
def test_local_events_of_a_callee_are_seen():
    space = {"__builtins__": __builtins__, "step": fresh(step)}
    caller = overdrive.jit(fresh(use_step, space))
    for _ in range(4):
        caller(50)
    seen = []
    tool, events = 4, sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "test")
    try:
        sys.monitoring.register_callback(tool, events.PY_START, lambda code, _: seen.append(code.co_name))
        sys.monitoring.set_local_events(tool, space["step"].__code__, events.PY_START)
        caller(5)
        sys.monitoring.set_local_events(tool, space["step"].__code__, 0)
        caller(5)
    finally:
        sys.monitoring.free_tool_id(tool)
    assert seen == ["step"] * 5


def test_a_tracer_that_an_operation_of_the_loop_switches_on():
    source = """
def helper(x):
    return x + 1

def caller(n, at, hook):
    total = 0
    for i in range(n):
        total += helper(i)
        if i == at:
            hook()
    return total
"""
    space = {}
    exec(source, space)
    caller = overdrive.jit(space["caller"])
    for _ in range(4):
        caller(50, 100, None)
    seen = []

    def hook(frame, event, arg):
        if event == "call":
            seen.append(frame.f_code.co_name)

    before = sys.getprofile()
    try:
        assert caller(50, 40, lambda: sys.setprofile(hook)) == sum(range(51)) - 0
    finally:
        sys.setprofile(before)
    assert seen.count("helper") == 9


class Tracked:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("gone")


def test_an_argument_dies_when_the_callee_drops_it():
    source = """
def dropping(x, log):
    x = None
    return len(log)

def caller(n, make, log):
    seen = []
    for i in range(n):
        seen.append(dropping(make(log), log))
    return seen
"""
    space = {"Tracked": Tracked}
    exec(source, space)
    want = space["caller"](9, Tracked, [])
    caller = overdrive.jit(space["caller"])
    for _ in range(4):
        assert caller(9, Tracked, []) == want


def test_callees_and_their_modules_can_die():
    def made():
        module = types.ModuleType("made")
        exec("SCALE = 3\ndef scaled(x): return x * SCALE\n", module.__dict__)
        space = {"__builtins__": __builtins__, "scaled": module.scaled}
        exec("def caller(n):\n    t = 0\n    for i in range(n): t += scaled(i)\n    return t\n", space)
        caller = space["caller"] = overdrive.jit(space["caller"])
        for _ in range(4):
            assert caller(50) == 3 * sum(range(50))
        assert is_inlined(caller)
        return caller, [weakref.ref(x) for x in (module.scaled, caller, module)]

    caller, refs = made()
    gc.collect()
    assert caller(50) == 3 * sum(range(50))
    # The callee goes while its caller stays.
    caller.__globals__["scaled"] = lambda x: -x
    gc.collect()
    assert refs[0]() is None
    assert caller(50) == -sum(range(50))
    del caller
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_functions_that_inline_each_other_can_die():
    def made():
        space = {"__builtins__": __builtins__}
        exec(
            "def low(x): return x + 1\n"
            "def up(n):\n    t = 0\n    for i in range(n): t += low(i)\n    return t\n"
            "def down(n):\n    t = 0\n    for i in range(n): t += low(i) + low(t & 1)\n    return t\n",
            space,
        )
        for name in ("low", "up", "down"):
            space[name] = overdrive.jit(space[name])
        for _ in range(4):
            space["low"](1), space["up"](20), space["down"](20)
        return [weakref.ref(space[name]) for name in ("low", "up", "down")]

    refs = made()
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


def test_fastmath_is_not_mixed_with_exact_code():
    for mine, theirs, expected in ((True, False, False), (False, True, False), (True, True, True)):
        space = {"__builtins__": __builtins__, "math": math}
        space["square"] = overdrive.jit(fresh(square), fastmath=theirs)
        space["f"] = overdrive.jit(eval("lambda n: square(n) + square(n + 0.5)", space), fastmath=mine)
        for _ in range(4):
            assert space["f"](1.5) == 6.25
        assert is_inlined(space["f"]) is expected


def test_a_loop_of_a_module_that_rebinds_what_the_callee_reads():
    """The loop keeps its variable in a register, which the callee does not know of."""
    source = """
def helper(x):
    return x + total

def around(x):
    return helper(x) + 1

total = 0
arm()
for i in range(20000):
    total = (around(i) + helper(i) + i) & 0xffff
"""
    code = compile(source, "module", "exec")
    plain, entered = {"arm": lambda: None}, {}
    exec(code, plain)
    entered["arm"] = lambda: _core.debug_enter_loops(code)
    exec(code, entered)
    assert entered["total"] == plain["total"]
    assert _core.explain_data(code)["loops_entered"] > 0


def test_signal_handlers_run_while_inlined_calls_do():
    import signal

    space = {"__builtins__": __builtins__, "step": fresh(step)}
    caller = overdrive.jit(fresh(use_step, space))
    want = caller(3_000_000)
    assert is_inlined(caller)
    seen = []

    def handler(_, frame):
        while frame is not None:
            seen.append(frame.f_code.co_name)
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while seen.count("use_step") < 5:
            assert caller(3_000_000) == want
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "step" not in seen


SLOW = """
def helper(n):
    x = 1
    for i in range(n):
        x = (x * 1103515245 + i) & 2147483647
    return x

def caller(n, m):
    total = 0
    for i in range(n):
        total ^= helper(m)
    return total
"""


def slow_pair():
    space = {}
    exec(compile(SLOW, "slow", "exec"), space)
    plain = space["caller"]
    jitted = overdrive.jit(fresh(plain))
    for _ in range(4):
        assert jitted(3, 1000) == plain(3, 1000)
    assert is_inlined(jitted)
    return plain, jitted


def test_a_signal_in_the_loop_of_a_callee_finds_its_frame():
    import signal

    plain, jitted = slow_pair()
    want = jitted(40, 100_000)
    chains = []

    def handler(_, frame):
        chain = []
        while frame is not None and len(chain) < 3:
            chain.append((frame.f_code.co_name, frame.f_code.co_filename))
            frame = frame.f_back
        chains.append([name for name, file in chain if file == "slow"])

    before = signal.signal(signal.SIGALRM, handler)
    try:
        end = time.monotonic() + 20
        while ["helper", "caller"] not in chains and time.monotonic() < end:
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            assert jitted(40, 100_000) == want
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ["helper", "caller"] in chains


def test_an_exception_in_the_loop_of_a_callee_has_both_frames():
    import signal

    _, jitted = slow_pair()

    class Stop(Exception):
        pass

    def handler(_, frame):
        raise Stop

    before = signal.signal(signal.SIGALRM, handler)
    shapes = set()
    try:
        for _ in range(10):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(Stop) as caught:
                while True:
                    jitted(100, 200_000)
            frames = traceback.extract_tb(caught.value.__traceback__)
            shapes.add(tuple(f.name for f in frames if f.filename == "slow"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert shapes <= {("caller", "helper"), ("caller",)} and ("caller", "helper") in shapes


def test_other_threads_run_while_the_loop_of_a_callee_does():
    plain, jitted = slow_pair()
    want = jitted(200, 100_000)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = len(ticks)
        end = time.monotonic() + 20
        while len(ticks) < before + 20 and time.monotonic() < end:
            assert jitted(200, 100_000) == want
    finally:
        done.set()
        thread.join()
    assert len(ticks) >= before + 20
    # That CPython had its turn is no reason to give the inlining up.
    assert is_inlined(jitted) and jitted(40, 1000) == plain(40, 1000)


def test_functions_of_another_module_are_inlined_too():
    module = types.ModuleType("helpers")
    exec("SCALE = 3\ndef scaled(x, by=2):\n    return x * SCALE * by\n", module.__dict__)
    space = {"__builtins__": __builtins__, "helpers": module}
    exec(
        "def caller(n):\n    t = 0\n    for i in range(n): t += helpers.scaled(i) - helpers.scaled(i, by=1)\n    return t\n",
        space,
    )
    plain, jitted = space["caller"], overdrive.jit(fresh(space["caller"]))
    for _ in range(4):
        assert jitted(50) == plain(50)
    assert is_inlined(jitted)
    module.SCALE = 2.5
    for _ in range(4):
        assert jitted(50) == plain(50)
    module.scaled = lambda x, by=0: x + by
    for _ in range(4):
        assert jitted(50) == plain(50)
