"""``overdrive run --verify``: wrong native code stays out and fails the run; nothing happens twice."""

import json
import sys

import pytest

from tests.cli.both import run, write

WRONG = """\
import overdrive.verification
right = overdrive.verification.jit
def wrong(function):
    if function.__name__ != "bad":
        return right(function)
    return lambda *arguments: function(*arguments) + 1
overdrive.verification.jit = wrong
def bad(n):
    return n * 2
def good(n):
    s = 0
    for i in range(n):
        s += i
    return s
values = [(bad(i), good(i)) for i in range(8)]
assert values == [(2 * i, i * (i - 1) // 2) for i in range(8)], values
"""


def verified(directory, source, *options, policy="eager"):
    """The outcome, and the report's rows by name."""
    write(directory, {"program.py": source})
    file = directory / "report.json"
    command = [
        "run",
        "--verify",
        "--policy",
        policy,
        "--report",
        "json",
        "--report-file",
        str(file),
        *options,
    ]
    outcome = run([sys.executable, "-m", "overdrive", *command, "program.py"], directory)
    return outcome, {row["name"]: row for row in json.loads(file.read_text())["rows"]}


def test_wrong_native_code_is_found_and_stays_out(tmp_path):
    outcome, rows = verified(tmp_path, WRONG)
    assert (outcome.status, outcome.stderr) == (1, b"")
    assert rows["bad"]["state"] == "refused" and rows["bad"]["native_calls"] == 0
    assert rows["bad"]["differences"] == ["result: 2 in CPython, 3 native"]
    assert rows["good"]["state"] == "promoted" and rows["good"]["verified_calls"] == 3
    assert rows["good"]["native_calls"] > 0


@pytest.mark.parametrize(
    ("end", "status"), [("import sys; sys.exit(0)", 1), ("import sys; sys.exit(3)", 3), ("1/0", 1)]
)
def test_a_program_that_fails_keeps_its_status(tmp_path, end, status):
    outcome, _ = verified(tmp_path, WRONG + end)
    assert outcome.status == status


def test_without_differences_the_status_is_the_programs(tmp_path):
    outcome, rows = verified(tmp_path, WRONG.replace('!= "bad"', '!= "nobody"'))
    assert outcome.status == 0 and rows["bad"]["verified_calls"] == 3 and not rows["bad"]["differences"]


def test_a_number_of_calls(tmp_path):
    _, rows = verified(tmp_path, WRONG.replace('!= "bad"', '!= "nobody"'), "--verify-calls", "5")
    assert rows["good"]["verified_calls"] == 5


def test_nothing_happens_twice(tmp_path):
    source = """\
import sys, threading
class Log:
    def __init__(self):
        self.lines = []
        self.lock = threading.Lock()
    def add(self, line):
        self.lines.append(line)
        return len(self.lines)
class Plain:
    total = 0
    def __init__(self):
        self.n = 0
    def add(self, by):
        self.n += by
        Plain.total += by
        SEEN.append(by)
        return self.n
SEEN = []
def talk(x):
    print("talk", x)
def write(x):
    sys.stdout.write(f"write {x}\\n")
def raises(x):
    return 1 // x
def outer():
    n = 0
    def inner(by):
        nonlocal n
        n += by
        return n
    return inner
log, plain, inner = Log(), Plain(), outer()
for i in range(6):
    talk(i)
    write(i)
    log.add(i)
    plain.add(i)
    inner(i)
    try:
        raises(0)
    except ZeroDivisionError as error:
        entry = error.__traceback__.tb_next
print(log.lines, plain.n, Plain.total, SEEN, inner(0), entry.tb_frame.f_code.co_name, entry.tb_lineno, entry.tb_next)
"""
    write(tmp_path, {"program.py": source})
    plain = run([sys.executable, "program.py"], tmp_path)
    outcome, rows = verified(tmp_path, source)
    assert outcome == plain
    whole = {name: row["verified_calls"] for name, row in rows.items() if row["verified_calls"]}
    assert whole == {"Plain.add": 3, "outer.<locals>.inner": 3, "raises": 3}
    notes = {name: row["notes"] for name, row in rows.items()}
    assert "not verified: line 20 calls print" in notes["talk"]
    assert any(note.startswith("not verified: line 22 ") for note in notes["write"]), notes["write"]
    assert any(note.startswith("not verified: ") and "lock" in note for note in notes["Log.add"])


def test_arguments_that_have_no_copy_or_a_large_one(tmp_path):
    _, rows = verified(
        tmp_path,
        "def first(x):\n    return x[0]\nlarge = [bytes(80 << 20)]\nfor i in range(4):\n    first(large)\n",
    )
    assert rows["first"]["notes"] == ["not verified: args[0] holds more than 64 MiB"]
    assert rows["first"]["state"] == "promoted"


def test_recursion_and_keywords(tmp_path):
    source = """\
def fact(n):
    return 1 if n < 2 else n * fact(n - 1)
def call(a, /, b=2, *more, c, d=4, **rest):
    return a + b * 10 + sum(more) + c + d + sum(rest.values())
print([fact(n) for n in range(30)], [call(1, 2, 3, c=i, x=5) for i in range(5)], call(1, c=2))
"""
    write(tmp_path, {"program.py": source})
    plain = run([sys.executable, "program.py"], tmp_path)
    outcome, rows = verified(tmp_path, source)
    assert outcome == plain
    assert rows["fact"]["verified_calls"] == rows["call"]["verified_calls"] == 3


def test_what_is_not_repeatable_is_promoted_unverified(tmp_path):
    source = """\
class Key:
    def __init__(self, n):
        self.n = n
def order(keys):
    return [hash(k) % 100003 for k in keys]
for i in range(5):
    order([Key(1), Key(2)])
"""
    _, rows = verified(tmp_path, source)
    assert [
        note
        for note in rows["order"]["notes"]
        if note.startswith("not verified: two calls in CPython differ")
    ]
    assert not rows["order"]["differences"]


def test_the_default_policy(tmp_path):
    source = """\
import time
import overdrive
session = overdrive.start()  # joins the command's
def hot(n):
    s = 0
    for i in range(n):
        s += i * i
    return s
def is_promoted():
    return any(row.name == "hot" and row.state == "promoted" for row in session.report().rows)
end = time.monotonic() + 60
while time.monotonic() < end and not is_promoted():
    pause = time.monotonic() + 0.2
    while time.monotonic() < pause:
        assert hot(2000) == 2664667000
"""
    outcome, rows = verified(tmp_path, source, policy="default")
    assert not {"deepcopy", "_deepcopy_dict"} & set(rows)
    assert outcome.status == 0 and rows["hot"]["verified_calls"] == 3 and rows["hot"]["native_calls"] > 0


def test_the_table_names_it(tmp_path):
    write(tmp_path, {"program.py": WRONG})
    outcome = run(
        [sys.executable, "-m", "overdrive", "run", "--verify", "--policy", "eager", "program.py"], tmp_path
    )
    lines = outcome.stderr.decode().splitlines()
    assert lines[1] == "overdrive: 1 function differed from CPython and got no native code"
    bad = next(line for line in lines if line.startswith("bad (program.py:8)"))
    assert bad.endswith("refused; differs from CPython: result: 2 in CPython, 3 native")
    assert any(line.startswith("good (program.py:10)") and "3 calls verified" in line for line in lines)


def test_from_python(tmp_path):
    source = """\
import overdrive
session = overdrive.start("eager", verify=True, verify_calls=2)
from helper import double
for i in range(6):
    double(i)
report = session.stop()
row = next(row for row in report.rows if row.name == "double")
print(row.verified_calls, report.n_differences)
for i in range(6):
    double(i)
"""
    write(tmp_path, {"program.py": source, "helper.py": "def double(x):\n    return x * 2\n"})
    assert run([sys.executable, "program.py"], tmp_path).stdout == b"2 0\n"


def test_a_session_that_ends_first_leaves_functions_as_they_were(tmp_path):
    source = """\
import overdrive
session = overdrive.start("eager", verify=True)
from helper import double
def has_native_code():
    return type(double.__code__.co_consts[-1]).__name__ == "Native"
for i in range(3):
    double(i)
assert has_native_code()
session.stop()
print(double(4), has_native_code())
"""
    write(tmp_path, {"program.py": source, "helper.py": "def double(x):\n    return x * 2\n"})
    assert run([sys.executable, "program.py"], tmp_path).stdout == b"8 False\n"


def test_ctrl_c_while_copies_run(tmp_path):
    source = """\
import signal, threading, time
def spin(n):
    s = 0
    for i in range(n):
        s += i % 7
    return s
spin(1)
threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
try:
    while True:
        spin(20_000_000)
except KeyboardInterrupt:
    print("stopped", spin(10))
"""
    outcome, _ = verified(tmp_path, source)
    assert (outcome.status, outcome.stdout) == (0, b"stopped 24\n")
