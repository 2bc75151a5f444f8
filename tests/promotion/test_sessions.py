"""Sessions in running programs: what is found, promoted, reported, and left alone."""

import sys

import pytest

from .programs import outcome


@pytest.fixture
def program(tmp_path):
    def run(source, **more):
        env = {"PROGRAM_DIRECTORY": str(tmp_path), **more.pop("env", {})}
        return outcome(source, env=env, **more)

    return run


def test_a_hot_function_is_promoted_while_the_program_runs(program):
    result = program("""
        before = sum_to.__code__
        with overdrive.start() as session:
            busy(lambda: sum_to(3000), lambda: 'sum_to' in rows(session) and rows(session)['sum_to'].state == 'promoted')
            first = sum_to(10)
            row = rows(session)['sum_to']
        print(json.dumps([row.state, row.score >= 85, row.calls > 0, row.before > 0, row.kind, first, sum_to(1000),
                          sum_to.__name__, session.report().rows[0].promoted_at >= 1.0]))
    """)
    assert result == ["promoted", True, True, True, "function", 45, 499500, "sum_to", True]


def test_a_function_that_is_seldom_called_is_put_back_when_it_saves_too_little(program):
    # A hundred calls a second at most, of which one in 64 is one or two: no window alone has enough to judge by.
    result = program("""
        def work():
            total = sum_to(200_000)
            time.sleep(0.01)
            return total

        def is_put_back():
            return 'sum_to' in rows(session) and rows(session)['sum_to'].state == 'put back'

        code = sum_to.__code__
        policy = overdrive.Policy(least_gain=1, max_attempts=1)
        with overdrive.start(policy=policy, only=["*::sum_to"]) as session:
            busy(work, is_put_back)
            row = rows(session)['sum_to']
        print(json.dumps([row.state, sum_to.__code__ is code, row.notes[0].split(":")[0], work()]))
    """)
    assert result == ["put back", True, "put back", 19999900000]


def test_functions_of_phases_are_promoted(program):
    # A phase touches two windows at most, and the pause behind them fills two more: neither function is seen in three in a
    # row. `step` has no loop, so that its calls must be counted in its own phase.
    result = program("""
        def step(x):
            return (x * 5 + 3) % 1000003

        def alone():
            while time.monotonic() < pause:
                sum_to(3000)

        def steps():
            x = 1
            while time.monotonic() < pause:
                for _ in range(1000):
                    x = step(x)
            return x

        def both(found):
            return all(name in found and found[name].state == "promoted" for name in ("sum_to", "step"))

        policy = overdrive.Policy(window=0.2)
        with overdrive.start(policy=policy, only=["program.py::sum_to", "program.py::step"]) as session:
            end = time.monotonic() + 60
            while not both(rows(session)) and time.monotonic() < end:
                for phase in alone, steps:
                    pause = time.monotonic() + 0.15
                    phase()
                time.sleep(0.5)
            found = rows(session)
        print(json.dumps([both(found), found["step"].calls > 0, sum_to(1000), step(7)]))
    """)
    assert result == [True, True, 499500, 38]


@pytest.mark.parametrize(
    ("definition", "call", "name"),
    [
        (
            "class C:\n    def method(self, n): return sum(i for i in [n]) + loop(n)\n    @staticmethod\n    def st(n):\n        s = 0\n"
            "        for i in range(n): s += i\n        return s",
            "C.st(3000)",
            "C.st",
        ),
        (
            "class C:\n    @classmethod\n    def cl(cls, n):\n        s = 0\n        for i in range(n): s += i\n        return s",
            "C.cl(3000)",
            "C.cl",
        ),
        (
            "class C:\n    class D:\n        def m(self, n):\n            s = 0\n            for i in range(n): s += i\n            return s\n"
            "d = C.D()",
            "d.m(3000)",
            "C.D.m",
        ),
        (
            "class C:\n    n = 3000\n    @property\n    def p(self):\n        s = 0\n        for i in range(self.n): s += i\n        return s\n"
            "c = C()",
            "c.p",
            "C.p",
        ),
        (
            "def make(k):\n    def inner(n):\n        s = k\n        for i in range(n): s += i\n        return s\n    return inner\n"
            "inner = make(1)",
            "inner(3000)",
            "make.<locals>.inner",
        ),
        (
            "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def wrapper(n): return f(n)\n    return wrapper\n@twice\ndef deco(n):\n"
            "    s = 0\n    for i in range(n): s += i\n    return s",
            "deco(3000)",
            "deco",
        ),
        (
            "import functools\n@functools.lru_cache(1)\ndef cached(n, k):\n    s = 0\n    for i in range(n): s += i\n    return s",
            "cached(3000, object())",
            "cached",
        ),
        (
            "import functools\nfold = lambda n: functools.reduce(lambda a, b: a + b, range(n))\nloop = lambda xs: [x * x for x in xs]",
            "[loop(range(3000)) for loop in [loop]]",
            "<lambda>",
        ),
    ],
    ids=[
        "static method",
        "class method",
        "nested class",
        "property",
        "closure",
        "decorated",
        "cached",
        "lambda",
    ],
)
def test_functions_are_found_wherever_they_live(program, definition, call, name):
    # Policy observe: finding is what is tested, not compiling.
    result = program(
        definition
        + f"""
with overdrive.start('observe') as session:
    busy(lambda: {call}, lambda: any(n.startswith({name!r}) for n in rows(session)))
print(json.dumps(sorted(rows(session))))
"""
    )
    if name == "<lambda>" and sys.version_info < (3, 12):
        name = "<lambda>.<locals>.<listcomp>"  # a frame of its own there
    assert name in result


def test_observe_changes_nothing(program):
    result = program("""
        code = sum_to.__code__
        with overdrive.start('observe') as session:
            busy(lambda: sum_to(3000), lambda: 'sum_to' in rows(session))
        row = rows(session)['sum_to']
        print(json.dumps([row.state, sum_to.__code__ is code, row.promoted_at > 0, row.native_calls]))
    """)
    assert result == ["would promote", True, True, 0]


def test_only_and_skip(program):
    source = """
        def other(n):
            s = 1
            for i in range(n):
                s += i
            return s
        def work():
            sum_to(2000); other(2000)
        {}
        with session:
            busy(work, lambda: {!r} in rows(session))
            busy(work, lambda: False, most=1.0)
        print(json.dumps(sorted(rows(session))))
    """
    assert program(
        source.format("session = overdrive.start('observe', only='program.py::sum*')", "sum_to")
    ) == ["sum_to"]
    skipped = program(source.format("session = overdrive.start('observe', skip=['sum_*'])", "other"))
    assert "other" in skipped
    assert "sum_to" not in skipped


def test_nothing_is_promoted_under_a_tracer(program):
    result = program("""
        sys.setprofile(lambda frame, event, argument: None)
        with overdrive.start() as session:
            busy(lambda: sum_to(3000), lambda: False, most=4.0)
        sys.setprofile(None)
        print(json.dumps([sorted(row.name for row in session.report().rows if row.state == 'promoted')]))
    """)
    assert result == [[]]


def test_a_second_session_joins_the_first(program):
    result = program("""
        outer = overdrive.start('observe')
        with overdrive.start() as inner:
            pass
        busy(lambda: sum_to(3000), lambda: 'sum_to' in rows(outer))
        report = overdrive.stop()
        again = overdrive.start('observe')
        again.stop()
        print(json.dumps([len(report.rows) > 0, outer.report() == report, len(again.report().rows), inner.policy.observe]))
    """)
    assert result == [True, True, 0, False]


def test_a_forked_child_has_no_session(program):
    result = program("""
        import os
        session = overdrive.start()
        busy(lambda: sum_to(3000), lambda: 'sum_to' in rows(session))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            report = session.report()
            os.write(write, json.dumps([report.trouble, sum_to(100), overdrive.stop().rows == ()]).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(os.read(read, 1000).decode())
    """)
    assert result == ["no session in this process", 4950, True]


def test_a_fork_is_not_warned_of_our_threads(program):
    """From 3.12 on `os.fork` counts threads: ours must be gone, also while hooks in Python still run behind the fork."""
    result = program("""
        import os, warnings
        warnings.simplefilter('error')
        def hook():
            for _ in range(3):
                sum_to(10)
        os.register_at_fork(before=hook, after_in_parent=hook)
        session = overdrive.start()
        os.register_at_fork(before=hook, after_in_parent=hook)
        busy(lambda: sum_to(3000), lambda: 'sum_to' in rows(session))
        def children():
            for round in range(150):
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)
                sum_to(30)
        children()
        before = session.report().samples
        busy(lambda: sum_to(3000), lambda: session.report().samples > before)
        print(json.dumps(session.report().trouble))
    """)
    assert result is None


def test_a_session_left_open_ends_with_the_program(program):
    assert (
        program("""
        session = overdrive.start()
        busy(lambda: sum_to(100), lambda: False, most=0.3)
        print(json.dumps('end'))
    """)
        == "end"
    )


def test_switched_off(program):
    result = program(
        """
        def f(): pass
        with overdrive.start() as session:
            pass
        print(json.dumps([overdrive.jit(f) is f, overdrive.promote(f) is f, overdrive.demote(f) is f,
                          session.report().trouble, overdrive.info()['on']]))
        """,
        env={"OVERDRIVE": "0"},
    )
    assert result == [True, True, True, "switched off by OVERDRIVE=0", False]


def test_import_is_light(program):
    result = program("""
        import subprocess
        code = 'import sys, overdrive; print(*(m for m in sys.modules if m in {"numpy", "dataclasses", "inspect", "argparse", "re", "typing", "collections"}))'
        print(json.dumps(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout.strip()))
    """)
    assert result == ""
