"""Interpreters for which nothing is compiled: programs run all the same, and are told why where they ask."""

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json
import overdrive

@overdrive.jit
def square(x):
    return x * x

def double(x):
    return x + x

session = overdrive.start()
facts = overdrive.info()
try:
    overdrive.jit(strict=True)(double)
except overdrive.NotCompiledError as error:
    strict = error.reasons
else:
    strict = None
answer = {
    "values": [square(7), overdrive.promote(double)(4), overdrive.demote(double)(5)],
    "is_plain": type(square).__name__,
    "on": facts["on"],
    "why": facts["why not"],
    "trouble": session.stop().trouble,
    "strict": strict,
    "explained": str(overdrive.explain(double)).splitlines()[1:],
    "version": overdrive.__version__,
}
"""


def run(program):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(answer, why):
    assert answer["values"] == [49, 8, 10]
    assert answer["is_plain"] == "function"
    assert answer["on"] is False
    assert answer["why"] == answer["trouble"] == why
    assert answer["strict"] == [why]
    assert answer["explained"] == [f"  not compiled: {why}"]


IN_SUB_INTERPRETER = """
import json, os, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "run_string", None) or interpreters.exec
{first}
inner = interpreters.create()
reader, writer = os.pipe()
source = "import sys; sys.path[:] = " + repr(sys.path) + "\\n" + {program!r}
source += f"\\nimport os; os.write({{writer}}, json.dumps(answer).encode())"
problem = run(inner, source)
assert problem is None, problem
os.close(writer)
print(os.read(reader, 1 << 20).decode())
"""


@pytest.mark.parametrize("first", ["import overdrive", "pass"], ids=["second", "first"])
def test_a_sub_interpreter(first):
    answer = run(IN_SUB_INTERPRETER.format(first=first, program=PROGRAM))
    check(answer, "this is a sub-interpreter; Overdrive works in the main interpreter only")


NO_EXTENSION = "import sys\nsys.modules['overdrive._core'] = None\n"


def test_a_build_without_the_gil():
    without = NO_EXTENSION + "sys._is_gil_enabled = lambda: False\n"
    answer = run(without + PROGRAM + "print(json.dumps(answer))")
    check(answer, "this CPython is built to run without the GIL, which Overdrive does not support")


def test_a_version_that_it_is_not_built_for():
    old = (
        NO_EXTENSION
        + "sys.version_info = (3, 9, 1, 'final', 0)\nsys.version = '3.9.1 (main, Dec  1 2020, 00:00:00) [GCC 10.2.1]'\n"
    )
    answer = run(old + PROGRAM + "print(json.dumps(answer))")
    check(answer, "there is no extension for cpython 3.9.1: it is built for CPython 3.11, 3.12, 3.13")


def test_a_damaged_installation_is_an_error():
    done = subprocess.run(
        [sys.executable, "-c", NO_EXTENSION + "import overdrive"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "overdrive._core" in done.stderr.splitlines()[-1]
