"""Native code that takes over a running frame at a loop head."""

import dis
import gc
import sys
import threading
import traceback

import pytest
from overdrive import _core

NEW = sys.version_info >= (3, 12)


def tools():
    return [sys.monitoring.get_tool(i) for i in range(6)] if NEW else []


@pytest.fixture(autouse=True)
def nothing_stays_behind():
    before = tools()
    yield
    assert sys.gettrace() is None and tools() == before


def offset_of(function, opname, index=0):
    return [i.offset for i in dis.get_instructions(function) if i.opname.startswith(opname)][index]


def test_an_offer_that_is_declined_changes_nothing():
    offers = []

    def decide(locals_, stack, offset):
        offers.append((offset, locals_[:3], [type(v).__name__ for v in stack]))

    def run(n):
        total = 0
        for i in range(n):
            if i == 3:
                assert _core._arm_loops(run.__code__, decide)
            total += i
        return total

    assert run(50) == sum(range(50))
    assert _core._disarm_loops(run.__code__)
    assert not _core._disarm_loops(run.__code__)
    # Where the jump lands: at the EXTENDED_ARG in front, when there is one.
    heads = {offset_of(run, "FOR_ITER") - 2}
    assert {offset for offset, _, _ in offers} == heads
    assert offers[0][1:] == ([50, 6, 3], ["range_iterator"])
    # 3.12 and later: every back edge. 3.11: one.
    assert len(offers) == (47 if NEW else 1)


def test_never_again():
    offers = []

    def decide(locals_, stack, offset):
        offers.append(offset)
        return NotImplemented

    def run(n):
        for i in range(n):
            if i == 3:
                _core._arm_loops(run.__code__, decide)
        return i

    assert run(50) == 49
    _core._disarm_loops(run.__code__)
    # Once for each jump that leads back.
    assert len(offers) <= 2


def test_leaving_at_any_offset_with_new_values():
    def run(n):
        total = 0
        for i in range(n):
            if i == 3:
                _core._arm_loops(run.__code__, decide)
            total += i
        return total, i

    def decide(locals_, stack, offset):
        # As if the loop had run to the end: the iterator is dropped.
        return next_offset, [locals_[0], 4950, 99, *locals_[3:]], [], None

    store = [i for i in dis.get_instructions(run) if i.opname == "FOR_ITER"][0]
    next_offset = store.argval + (2 if sys.version_info[:2] == (3, 12) else 4 if NEW else 0)
    assert run(100) == (4950, 99)
    _core._disarm_loops(run.__code__)


def test_leaving_in_the_middle_of_an_expression():
    def run(n):
        total = 0
        for i in range(n):
            if i == 3:
                _core._arm_loops(run.__code__, decide)
            total += i
        return total

    def decide(locals_, stack, offset):
        if done:
            return None
        done.append(True)
        return offset_of(run, "BINARY_OP"), locals_, [*stack, 1000, 1], None

    done = []
    assert run(10) == 1001 + sum(range(4, 10))
    _core._disarm_loops(run.__code__)


@pytest.mark.parametrize("is_covered", [False, True])
def test_an_exception_goes_to_the_handler_of_its_operation(is_covered):
    caught = []

    def plain(n):
        total = 0
        for i in range(n):
            if i == 3:
                _core._arm_loops(plain.__code__, decide)
            total = total + i
        return total

    def covered(n):
        total = 0
        for i in range(n):
            if i == 3:
                _core._arm_loops(covered.__code__, decide)
            try:
                total = total + i
            except ZeroDivisionError as error:
                entries = traceback.extract_tb(error.__traceback__)
                caught.append((str(error), [(e.name, e.line) for e in entries]))
        return total

    def decide(locals_, stack, offset):
        if done:
            return None
        done.append(True)
        return offset_of(run, "BINARY_OP"), locals_, [*stack, 1, 2], ZeroDivisionError("native")

    done = []
    run = covered if is_covered else plain
    if is_covered:
        # Iteration 3 fails once; what follows is as ever.
        assert run(10) == sum(range(10)) and len(caught) == 1
        assert caught == [("native", [("covered", "total = total + i")])]
    else:
        with pytest.raises(ZeroDivisionError, match="native") as error:
            run(10)
        assert error.traceback[-1].lineno + 1 - run.__code__.co_firstlineno == 5
    _core._disarm_loops(run.__code__)


def test_module_level_code():
    offers = []
    source = "total = 0\nfor i in range(20):\n    if i == 3: arm(sys._getframe().f_code)\n    total += i\n"
    codes = []

    def arm(code):
        codes.append(code)
        _core._arm_loops(code, lambda locals_, stack, offset: offers.append((locals_, len(stack))))

    namespace = {"sys": sys, "arm": arm}
    exec(compile(source, "<module>", "exec"), namespace)
    _core._disarm_loops(codes[0])
    assert namespace["total"] == 190 and offers[0] == ([], 1)


@pytest.mark.parametrize("leave", [False, True])
def test_loops_of_a_stub(leave):
    def run(n):
        total = 0
        while n:
            if n == 90:
                _core._arm_loops(run.__code__)
            total += n
            n -= 1
            for _ in "ab":
                total += 1
        return total

    _core._null_promote(run, leave)
    assert run(100) == 5050 + 200
    _core._disarm_loops(run.__code__)


def test_a_loop_in_another_thread():
    offers = []
    started, go = threading.Event(), threading.Event()

    def run():
        total = 0
        started.set()
        go.wait()
        for i in range(100_000):
            total += i
        return total

    results = []
    thread = threading.Thread(target=lambda: results.append(run()))
    thread.start()
    started.wait()
    _core._arm_loops(run.__code__, lambda *state: offers.append(threading.get_ident()))
    go.set()
    thread.join()
    _core._disarm_loops(run.__code__)
    assert results == [sum(range(100_000))] and offers[0] == thread.ident


def test_a_tracer_keeps_native_code_away():
    offers = []

    def run(n):
        for i in range(n):
            if i == 3:
                _core._arm_loops(run.__code__, lambda *state: offers.append(state))
        return i

    sys.settrace(lambda *_: None)
    try:
        assert run(50) == 49
    finally:
        sys.settrace(None)
    _core._disarm_loops(run.__code__)
    assert offers == []


def test_code_that_native_code_calls_can_be_traced():
    """A trace function that is set from below an offer sees the calls that follow."""
    seen = []

    def called():
        return 1

    def decide(locals_, stack, offset):
        sys.settrace(lambda frame, event, argument: seen.append((frame.f_code.co_name, event)))
        called()
        sys.settrace(None)
        return NotImplemented

    def run(n):
        for i in range(n):
            if i == 3:
                _core._arm_loops(run.__code__, decide)
        return i

    assert run(9) == 8
    _core._disarm_loops(run.__code__)
    assert ("called", "call") in seen


def test_line_numbers_inside_an_offer():
    lines = []

    def run(n):
        for i in range(n):
            if i == 3:
                _core._arm_loops(run.__code__, decide)
            i += 1
        return i

    def decide(locals_, stack, offset):
        lines.append(sys._getframe(1).f_lineno - run.__code__.co_firstlineno)
        return NotImplemented

    run(9)
    _core._disarm_loops(run.__code__)
    assert len(lines) == 1 and lines[0] in (1, 2, 3, 4)


def test_nothing_leaks():
    class Value:
        alive = 0

        def __init__(self):
            Value.alive += 1

        def __del__(self):
            Value.alive -= 1

    def run(n):
        value = Value()
        for i in [Value() for _ in range(n)]:
            if i is not None and not armed:
                armed.append(True)
                _core._arm_loops(run.__code__, decide)
        return value

    def decide(locals_, stack, offset):
        return offset_of(run, "RETURN_VALUE", -1), [_core._NULL] * len(locals_), [Value()], None

    armed = []
    for _ in range(5):
        armed.clear()
        run(10)
        _core._disarm_loops(run.__code__)
    gc.collect()
    assert Value.alive == 0
