"""Loops that already run are entered in place and left like any other code."""

import subprocess
import sys
import textwrap

import overdrive
from overdrive import _core


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def hot(n, arm):
    s = 0
    for i in range(n):
        s += i * 2
        if i == 5:
            arm()
    return s, i


def test_a_function_called_once_is_entered():
    def arm():
        _core.debug_enter_loops(hot.__code__)

    assert hot(200_000, arm) == (sum(2 * i for i in range(200_000)), 199_999)
    assert _core.explain_data(hot)["loops_entered"] >= 1


def test_module_code_is_entered():
    program = """
        import sys
        from overdrive import _core
        total = 0
        out = []
        for i in range(300_000):
            total += i
            if i == 3:
                _core.debug_enter_loops(sys._getframe().f_code)
            if i % 100_000 == 0:
                out.append((i, total))
        print(total, out, i)
        data = _core.explain_data(sys._getframe().f_code)
        print(data["loops_entered"] > 0, [v["entry"] for v in data["versions"]][:1])
    """
    want = (sum(range(300_000)), [(i, sum(range(i + 1))) for i in range(0, 300_000, 100_000)], 299_999)
    assert run(program) == "{} {} {}\nTrue ['loop']\n".format(*want)


def test_an_exit_in_the_middle_leaves_the_frame_right():
    def f(n, arm):
        s = 1
        log = []
        for i in range(n):
            if i == 4:
                arm()
            s += s if i < 80 else 1
            if i % 50 == 0:
                log.append((i, s))
        return s, log

    want = f(3000, lambda: None)
    for _ in range(3):
        assert f(3000, lambda: _core.debug_enter_loops(f.__code__)) == want


def test_exceptions_inside_an_entered_loop():
    def f(n, arm):
        got = 0
        for i in range(n):
            if i == 4:
                arm()
            try:
                got += 1 // (i % 1000)
            except ZeroDivisionError:
                got -= 1
        return got

    want = f(20_000, lambda: None)
    assert f(20_000, lambda: _core.debug_enter_loops(f.__code__)) == want


def test_returning_from_an_entered_loop():
    def value(n, arm):
        for i in range(n):
            if i == 4:
                arm()
            if i == n - 2:
                return i * 1.5
        return None

    def nothing(n, arm, out):
        i = 0
        while i < n:
            if i == 4:
                arm()
            i += 1
        out.append(i)

    assert value(50_000, lambda: _core.debug_enter_loops(value.__code__)) == 49_998 * 1.5
    out = []
    assert nothing(50_000, lambda: _core.debug_enter_loops(nothing.__code__), out) is None
    assert out == [50_000]


def test_the_interpreted_rest_of_a_loop_comes_back():
    def f(n):
        bad, s = 0, 0
        for i in range(n):
            try:
                s += 10 // (i % 5000)
            except ZeroDivisionError:
                bad += 1
        return bad, s

    jitted = overdrive.jit(f)
    want = f(60_000)
    for _ in range(8):
        assert jitted(60_000) == want
