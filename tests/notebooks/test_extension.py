"""``%load_ext overdrive`` in IPython and in a Jupyter kernel: what the magics do, print, and refuse."""

import re

import pytest

from .sessions import SHELLS, run

DEFINE = """\
def total(n):
    s = 0
    for i in range(n):
        s += i
    return s
"""
# Returns when the report has it, so that the test takes no longer than it must.
BUSY = """\
import time, overdrive.session
def is_native(name):
    rows = overdrive.session.active().report().rows
    return any(row.name == name and row.state == 'promoted' for row in rows)
def until_native(name, work):
    end = time.monotonic() + 60
    while not is_native(name) and time.monotonic() < end:
        pause = time.monotonic() + 0.2
        while time.monotonic() < pause:
            work()
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_hot_function_of_a_cell_is_promoted_reported_and_explained(shell, tmp_path):
    cells = [
        "%load_ext overdrive",
        BUSY,
        DEFINE,
        "%overdrive status",
        "%overdrive --only total",
        "until_native('total', lambda: total(3000))",
        "%overdrive",
        "%overdrive report",
        "print(total(10**6), total(2**40 - 2**40))",
        "%overdrive explain total",
        "%overdrive off",
        "print(total(10**6))",
        "%overdrive status",
    ]
    outcomes = dict(zip(cells, run(shell, cells, tmp_path), strict=True))
    assert all(outcome["ok"] and not outcome["errors"] for outcome in outcomes.values()), outcomes
    text = {cell: outcome["text"] for cell, outcome in outcomes.items()}
    assert text["%overdrive status"] == "overdrive: off; %overdrive starts it\n"
    assert "overdrive: on, policy default" in text["%overdrive --only total"]
    assert re.fullmatch(r"overdrive: on for \d+ s, policy default; promoted: total\n", text["%overdrive"])
    assert re.search(r"^total \(In\[3\]:1\) ", text["%overdrive report"], re.M)
    assert text["print(total(10**6), total(2**40 - 2**40))"] == "499999500000 0\n"
    explained = text["%overdrive explain total"]
    assert explained.startswith("total (In[3]:1)\n  compiled for (n: int")
    assert re.search(r"^  3  native +for i in range\(n\):", explained, re.M)
    assert "overdrive: off, 1 function put back" in text["%overdrive off"]
    assert text["print(total(10**6))"] == "499999500000\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_cell_runs_as_itself_and_then_shows_the_report(shell, tmp_path):
    cells = [
        "%load_ext overdrive",
        "%%overdrive --policy eager\n" + DEFINE + "results = [total(k) for k in (10, 20, 30)]\nresults",
        "print(results, _2)",
        "%%overdrive\n\n1 / 0",
        "%%overdrive\nx = 1\nif x",
        "%%overdrive\nx: int = 4; x;",
        "print(x)",
        "%overdrive report",
    ]
    outcomes = run(shell, cells, tmp_path)
    eager, printed, error, syntax, quiet, last, _ = outcomes[1:]
    assert "[45, 190, 435]" in eager["text"]
    if shell == "kernel":
        assert re.search(r"^total \(In\[2\]:1\) +\d+ ", eager["text"], re.M), eager["text"]
    assert printed["text"] == "[45, 190, 435] [45, 190, 435]\n"
    assert not error["ok"]
    assert "ZeroDivisionError" in error["text"] + error["errors"]
    assert re.search(r"1 ?/ ?0", error["text"])
    # What is ours is hidden from the traceback.
    assert "_execute" not in error["text"]
    assert not syntax["ok"]
    assert "SyntaxError" in syntax["text"] + syntax["errors"]
    assert quiet["ok"]
    assert last["text"] == "4\n"


REFUSED = {
    "%overdrive nonsense": "no such command; use start, status, report, explain, stop, off",
    "%overdrive --policy fast": "--policy is one of default, eager, observe, not 'fast'",
    "%overdrive start fast": "unknown option 'fast': use --policy, --only, --skip",
    "%overdrive --only": "--only needs a value",
    "%overdrive --only 'x": "No closing quotation",
    "%overdrive stop now": "takes nothing behind it, not 'now'",
    "%overdrive explain": "takes a function: %overdrive explain f, or Class.method",
    "%overdrive explain missing": "name 'missing' is not defined",
    "%overdrive explain 3": "explain takes a function, a code object or a path, not int",
    "%overdrive explain 3 +": "invalid syntax",
    "%%overdrive --policy\npass": "--policy needs a value",
}


def test_mistakes_are_said_in_a_line(tmp_path):
    cells = ["%load_ext overdrive", *REFUSED]
    for cell, outcome in zip(cells[1:], run("terminal", cells, tmp_path)[1:], strict=True):
        assert outcome["errors"].startswith("UsageError: "), cell
        assert REFUSED[cell] in outcome["errors"], cell
        assert outcome["errors"].count("\n") == 1, cell


def test_options_and_a_running_session(tmp_path):
    cells = [
        "%load_ext overdrive",
        "%overdrive start --policy observe --skip a --skip 'b*'",
        "import overdrive.session\nprint(overdrive.session.active().skip, overdrive.session.active().policy.observe)",
        "%overdrive --policy eager",
        "%%overdrive\npass",
        "%overdrive status",
        "%overdrive stop",
        "%overdrive stop",
        "%unload_ext overdrive",
        "%overdrive",
        "%reload_ext overdrive",
        "%overdrive status",
    ]
    outcomes = run("terminal", cells, tmp_path)
    assert outcomes[2]["text"] == "('a', 'b*') True\n"
    assert "promotion runs already: %overdrive stop ends it" in outcomes[3]["errors"]
    # A cell does not end what was on before.
    assert outcomes[5]["text"].startswith("overdrive: on for")
    assert "policy observe" in outcomes[5]["text"]
    assert outcomes[6]["text"].startswith("overdrive: 0 promotions")
    assert "not found" in outcomes[9]["errors"]
    assert outcomes[11]["text"] == "overdrive: off; %overdrive starts it\n"


def test_switched_off_it_says_so(tmp_path):
    cells = ["%load_ext overdrive", "%overdrive", "%overdrive status", "%%overdrive\n6 * 7", "%overdrive off"]
    outcomes = run("terminal", cells, tmp_path, env={"OVERDRIVE": "0"})
    assert all(outcome["ok"] for outcome in outcomes)
    assert outcomes[1]["text"] == "overdrive: nothing is promoted here: switched off by OVERDRIVE=0\n"
    assert outcomes[2]["text"] == "overdrive: off: switched off by OVERDRIVE=0\n"
    assert "42" in outcomes[3]["text"]
    assert "switched off by OVERDRIVE=0" in outcomes[3]["text"]
