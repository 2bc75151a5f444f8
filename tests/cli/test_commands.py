"""The commands themselves: help, statuses, the report, ``explain`` and ``info``."""

import json
import sys

import pytest

from .both import run, write

SCRIPT = """\
import sys
def hot(n):
    s = 0
    for i in range(n):
        s += i * i
    return s
import time
import overdrive
session = overdrive.start()  # joins the command's
def is_found():
    report = session.report()
    return report.samples > 50 and any(row.name == 'hot' and row.before for row in report.rows)
# On a loaded machine windows take longer: run until it is found, not for a time.
end = time.monotonic() + 60
while time.monotonic() < end and not is_found():
    pause = time.monotonic() + 0.2
    while time.monotonic() < pause:
        hot(2000)
print('done')
"""


def overdrive(directory, *arguments, env=None):
    return run([sys.executable, "-m", "overdrive", *arguments], directory, env=env)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["explain", "--help"],
        ["info", "--help"],
        ["cache", "--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_help_is_status_0(arguments, tmp_path):
    outcome = overdrive(tmp_path, *arguments)
    assert outcome.status == 0
    assert b"overdrive" in outcome.stdout
    assert outcome.stderr == b""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run"],
        ["run", "--policy"],
        ["run", "--policy", "fast", "x.py"],
        ["run", "--report=xml", "x.py"],
        ["run", "--nonsense", "x.py"],
        ["run", "-m"],
        ["explain"],
        ["info", "x"],
        ["cache"],
        ["cache", "x"],
        ["explain", "x.py", "--emit", "c"],
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_wrong_usage_is_status_2(arguments, tmp_path):
    outcome = overdrive(tmp_path, *arguments)
    assert outcome.status == 2
    assert outcome.stdout == b""
    assert b"usage: overdrive" in outcome.stderr


def test_the_report_is_the_last_thing_on_stderr(tmp_path):
    write(tmp_path, {"script.py": "import sys, atexit\natexit.register(sys.stderr.write, 'at exit\\n')\n1/0"})
    outcome = overdrive(tmp_path, "run", "script.py")
    assert outcome.status == 1
    head, _, report = outcome.stderr.partition(b"overdrive:")
    assert head.endswith(b"ZeroDivisionError: division by zero\nat exit\n")
    assert report.startswith(b" 0 promotions in ")


def test_what_would_be_promoted_as_a_table(tmp_path):
    write(tmp_path, {"script.py": SCRIPT})
    outcome = overdrive(tmp_path, "run", "--policy", "observe", "script.py")
    assert outcome.stdout == b"done\n"
    lines = outcome.stderr.decode().splitlines()
    assert lines[0].startswith("overdrive: 0 promotions in ")
    assert lines[1].split() == ["function", "calls", "before", "after", "speed-up", "promoted", "at", "note"]
    hot = next(line for line in lines if line.startswith("hot (script.py:2)"))
    assert " s)" in hot


def test_report_as_json_in_a_file(tmp_path):
    write(tmp_path, {"script.py": SCRIPT})
    outcome = overdrive(
        tmp_path,
        "run",
        "--policy=observe",
        "--report",
        "json",
        "--report-file",
        "out.json",
        "--skip",
        "<module>",
        "script.py",
    )
    assert outcome.stderr == b""
    report = json.loads((tmp_path / "out.json").read_text())
    assert [(row["name"], row["state"]) for row in report["rows"]] == [("hot", "would promote")]
    assert report["rows"][0]["score"] >= 85
    assert report["rows"][0]["before"] > 0
    assert report["samples"] > 50


def test_eager_swaps_functions_of_the_project_at_their_second_call(tmp_path):
    write(
        tmp_path,
        {
            "helper.py": "def helped(x):\n    return x - 1\n",
            "script.py": """\
import textwrap, helper
def f(x):
    return x + 1
class C:
    def m(self, x):
        return x * 2
def outer():
    def inner(x):
        return x * 3
    return inner(2), inner(3), inner(4)
def once():
    return 1
def generator():
    yield 1
c = C()
print(f(1), f(2), f(3.5), c.m(2), c.m(3), outer(), outer(), once(), list(generator()), list(generator()))
print(textwrap.dedent('  a'), textwrap.dedent('  b'), helper.helped(3), helper.helped(4), f.__name__, f.__code__.co_argcount)
""",
        },
    )
    plain = run([sys.executable, "script.py"], tmp_path)
    outcome = overdrive(
        tmp_path, "run", "--policy", "eager", "--report", "json", "--report-file", "r.json", "script.py"
    )
    assert (outcome.stdout, outcome.stderr) == (plain.stdout, b"")
    rows = {row["name"]: row for row in json.loads((tmp_path / "r.json").read_text())["rows"]}
    assert {"f", "C.m", "outer", "outer.<locals>.inner", "helped", "once"} <= set(rows)
    assert not {"generator", "dedent"} & set(rows)
    # Its second call waited for it.
    assert rows["f"]["state"] == "promoted"


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    write(tmp_path, {"script.py": "print(1)"})
    outcome = overdrive(tmp_path, "run", "--report-file", "nowhere/out.txt", "script.py")
    assert outcome.status == 0
    assert b"cannot write the report" in outcome.stderr


def test_a_forked_child_prints_no_report(tmp_path):
    write(tmp_path, {"script.py": "import os, sys\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n"})
    outcome = overdrive(tmp_path, "run", "script.py")
    assert outcome.stderr.count(b"overdrive:") == 1


def test_info(tmp_path):
    text, data = overdrive(tmp_path, "info"), overdrive(tmp_path, "info", "--json")
    assert (text.status, data.status) == (0, 0)
    facts = json.loads(data.stdout)
    assert facts["python"] == sys.version.split()[0]
    assert facts["on"] is True
    assert set(facts["self-test"].values()) == {"as expected"}
    assert facts["llvm"].startswith("22.") and facts["processor"]
    assert facts["overdrive"].encode() in text.stdout
    off = json.loads(overdrive(tmp_path, "info", "--json", env={"OVERDRIVE": "0"}).stdout)
    assert (off["on"], off["why not"]) == (False, "switched off by OVERDRIVE=0")


def test_explain_a_file(tmp_path):
    write(
        tmp_path,
        {
            "mod.py": "import re\ndef f(n):\n    s = 0\n    for i in range(n):\n        s += i\n    return s\nclass C:\n    def m(self):\n        return re.sub('a', 'b', 'c')\n"
        },
    )
    whole = json.loads(overdrive(tmp_path, "explain", "mod.py", "--json").stdout)
    assert {"f", "C.m"} <= {function["name"] for function in whole}
    one = overdrive(tmp_path, "explain", "mod.py::f")
    assert one.status == 0
    assert "for i in range(n):" in one.stdout.decode()
    for target, message in [("nowhere.py", b"No such file"), ("mod.py::g", b"has no function 'g'")]:
        outcome = overdrive(tmp_path, "explain", target)
        assert (outcome.status, outcome.stdout) == (1, b"")
        assert message in outcome.stderr
