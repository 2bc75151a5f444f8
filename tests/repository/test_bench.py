"""What `make bench` does apart from measuring: taking turns, comparing results, the page, the plots, Ctrl-C."""

import copy
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "benches/bench.py"
sys.path.insert(0, str(ROOT / "benches"))

from comparison import asking, calls, digest, page, rounds, summary, tools, worker  # noqa: E402


def row(*times, different=None, first=()):
    return {"rounds": list(times), "different": different, "first": list(first)}


def measured():
    """Data as bench.py makes them, with times that are easy to follow."""
    small = {name: [2e-8, 3e-8] for name in calls.STATEMENTS} | {calls.EMPTY: [1e-8]}
    return {
        "machine": {"cpu": "A Processor", "cores": 2, "system": "Debian GNU/Linux 12, x86_64"},
        "date": "2026-12-01",
        "command": "make bench",
        "minutes": 7.4,
        "load": [0.5, 1.25],
        "options": {"rounds": 2, "seconds": 0.1, "warm": 0.3, "firsts": 3, "script": 20.0},
        "tools": [
            {"name": "cpython", "title": "CPython", "version": "3.11.7", "python": "CPython 3.11.7"},
            {"name": "overdrive", "title": "Overdrive", "version": "0.1.0", "python": "CPython 3.11.7"},
            {"name": "numba", "title": "Numba", "version": "0.68.1", "python": "CPython 3.11.7"},
            {"name": "pypy", "title": "PyPy", "version": "7.3.11", "python": "PyPy 7.3.11"},
        ],
        "cached": [{"name": "overdrive-cached", "title": "Overdrive, from the cache", "version": "0.1.0"}],
        "threaded": [{"name": "overdrive-nogil", "title": "Overdrive, `nogil=True`"}],
        "functions": {
            "lcg_pi": {
                "kind": "scalar",
                "tools": {
                    "cpython": row(0.08, 0.088, first=[0.09]),
                    "overdrive": row(0.0004, 0.0002, first=[0.03, 0.02, 0.07]),
                    "overdrive-cached": {"first": [0.0031, 0.003, 0.0035]},
                    "numba": row(0.0004, 0.0004, first=[0.5]),
                    "pypy": row(0.0001, 0.0001, first=[0.005]),
                },
            },
            "word_count": {
                "kind": "object",
                "tools": {
                    "cpython": row(0.002, 0.002, first=[0.002]),
                    "overdrive": row(0.004, 0.004, first=[0.2]),
                    "numba": {"refused": "TypingError: non-precise type pyobject"},
                    "pypy": row(0.001, 0.001, first=[0.004]),
                },
            },
            "jacobi": {
                "kind": "array",
                "tools": {
                    "cpython": row(0.1, 0.1, first=[0.1]),
                    "overdrive": row(0.0002, 0.0002, first=[0.1]),
                    "numba": row(
                        0.0001, 0.0001, different="result: float 1.0, CPython float64 1.0", first=[0.4]
                    ),
                    "pypy": {"absent": "needs NumPy, which this interpreter does not have"},
                },
            },
        },
        "calls": {"cpython": small, "overdrive": small, "numba": {"refused": "Error: no"}},
        "threads": {"mandelbrot": {"overdrive-nogil": {"one": [0.2, 0.1], "all": [0.3, 0.125]}}},
        "promotion": {
            "course": [[1.5, 1.5], [3.0, 1.2], [20.0, 0.014]],
            "promoted": [0.0125, 0.013],
            "decorated": [0.012, 0.01],
            "idle": {"without": [0.003, 0.002], "with": [0.004, 0.00203]},
        },
        "imports": {"overdrive": [0.012, 0.01, 0.02], "numpy": [0.09]},
        "plots": "benchmarks",
        "no_plots": "matplotlib is not installed",
    }


def cells(text, first):
    """The cells of the table rows that begin with this cell."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [found[1:] for found in rows if found[0] == first]


# --- taking turns


def test_each_round_has_each_tool_once_and_begins_with_another():
    order = list(rounds.turns(["a", "b", "c"], 4))
    assert [tool for _, tool in order] == [*"abc", *"bca", *"cab", *"abc"]
    assert [i for i, _ in order] == sorted([0, 1, 2, 3] * 3)


class Scripted:
    """A worker whose answers are given, and which notes its orders in a list that all share."""

    def __init__(self, name, log, answers):
        self.tool, self.log, self.answers = tools.Tool(name, name, tools.HERE), log, iter(answers)

    def ask(self, do, **_):
        self.log.append((self.tool.name, do))
        return next(self.answers)


def test_a_function_is_measured_by_all_tools_in_turn():
    log, same = [], {"parts": [("result", "h", "int 1")]}
    bests = [{"best": t} for t in (3.0, 1.0, 2.0)]
    workers = [
        Scripted("cpython", log, [same, *bests, same]),
        Scripted("fast", log, [same, *bests, {"parts": [("result", "other", "int 2")]}]),
        Scripted("weak", log, [same, bests[0], {"refused": "the process ended: SIGSEGV"}]),
        Scripted("none", log, [{"refused": "TypingError: no"}]),
    ]
    rows = rounds.steady(workers, "lcg_pi", 3, 0.1, 0.1)
    windows = [name for name, do in log if do == "window"]
    # `weak` ended in its second turn, and has no third.
    assert windows == ["cpython", "fast", "weak", "fast", "weak", "cpython", "cpython", "fast"]
    assert rows["cpython"] == {"rounds": [3.0, 1.0, 2.0], "different": None}
    assert rows["fast"] == {"rounds": [3.0, 1.0, 2.0], "different": "result: int 2, CPython int 1"}
    assert rows["weak"]["refused"] == "the process ended: SIGSEGV" and "rounds" not in rows["weak"]
    assert rows["none"] == {"refused": "TypingError: no"}


# --- workers: real processes, with accelerators that are wrong in some way

LATE = "(lambda n: lambda *a: f(*a) if next(n) < 1 else 7)(itertools.count())"
WRONG = {
    "type": ("fractions.Fraction and (lambda f: lambda *a: float(f(*a)))", "different", "result: float 2.8"),
    "argument": ("copy.deepcopy and (lambda f: lambda *a: f(*copy.deepcopy(a)))", "different", "argument 1"),
    "later": (f"itertools.count and (lambda f: {LATE})", "different", "result: int 7"),
    "refusal": ("operator.attrgetter('nothing')", "refused", "AttributeError"),
    "crash": ("os.abort and (lambda f: lambda *a: os.abort())", "refused", "the process ended: SIGABRT"),
    "hang": ("time.sleep and (lambda f: lambda *a: time.sleep(99))", "refused", "no answer in 2 s"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_tool_does_wrong_is_seen(wrong):
    accelerate, key, text = WRONG[wrong]
    name = "nbody" if wrong == "argument" else "fibonacci_iter"
    patience = 2 if wrong == "hang" else 60
    plain = tools.Tool("cpython", "CPython", tools.HERE)
    with (
        asking.Asked(plain, sys.executable) as right,
        asking.Asked(
            tools.Tool("wrong", "Wrong", tools.HERE, accelerate), sys.executable, patience
        ) as worker,
    ):
        rows = rounds.steady([right, worker], name, 2, 0.01, 0.001)
    assert not rows["cpython"]["different"] and len(rows["cpython"]["rounds"]) == 2
    assert rows["wrong"][key].startswith(text)


def test_a_worker_that_ended_is_replaced():
    tool = tools.Tool("crash", "Crash", tools.HERE, WRONG["crash"][0])
    with asking.Asked(tool, sys.executable) as worker:
        assert "refused" in worker.ask("first", case="fibonacci_iter")
        assert worker.ask("open_threads", case="nbody", n_threads=1, seconds=0.1) == {
            "refused": "the process ended: SIGABRT"
        }


@pytest.mark.parametrize(("seconds", "counts"), [(0.008, True), (0.05, False)])
def test_waiting_counts_in_short_calls_and_not_in_long_ones(seconds, counts):
    accelerate = f"time.sleep and (lambda f: lambda *a: time.sleep({seconds}))"
    with asking.Asked(tools.Tool("waits", "Waits", tools.HERE, accelerate), sys.executable) as asked:
        asked.ask("open", case="nbody", warm=0.1)
        assert (asked.ask("window", seconds=0.1)["best"] >= seconds) is counts


def test_a_script_is_watched_first_and_then_takes_turns():
    said = []

    class Script:
        def __init__(self, name):
            self.tool, self.n = name, 0

        def ask(self, do, **order):
            said.append((self.tool, do, *order.values()))
            if do == "open_script":
                return {}
            if do == "idle":
                return {"without": [1.0], "with": [1.5]}
            self.n += 1
            return {"rounds": [[i / 10, (9 if self.n == 1 else 3 + self.n) - i / 100] for i in range(11)]}

    found = rounds.promotion(Script("watched"), Script("decorated"), ["jacobi"], 20, 2, 0.5)
    assert said[:3] == [
        ("watched", "idle", 0.5, 6),
        ("watched", "open_script", ["jacobi"], True),
        ("watched", "rounds", 20),
    ]
    assert [s[0] for s in said[5:]] == ["watched", "decorated", "decorated", "watched"]
    assert found["promoted"] == [4.9, 5.9] and found["decorated"] == [4.9, 5.9]
    assert found["course"][0] == [0.0, 9.0] and found["course"][-1] == [1.0, 8.9]
    assert found["idle"] == {"without": [1.0], "with": [1.5]}


def test_a_course_is_thinned():
    assert rounds.thinned([[1, 5], [2, 4], [2.1, 3], [2.2, 2], [9, 1]], 1) == [
        [1, 5],
        [2, 4],
        [2.2, 2],
        [9, 1],
    ]
    assert rounds.thinned([[1, 5]], 1) == [[1, 5]]


def test_threads_at_once_count_once():
    def at_once():
        threads = [threading.Thread(target=hashlib.sha256, args=(bytes(60_000_000),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    start = time.perf_counter()
    assert 0 < worker.computed(at_once) <= time.perf_counter() - start


class Thing:
    def __init__(self, **attributes):
        vars(self).update(attributes)


SHARED = [1]
DIFFERENT = [
    *[(1, True), (1, 1.0), (0.0, -0.0), ("1", b"1"), ([1], (1,)), (1.0, np.float64(1)), ({1: 2}, {1.0: 2})],
    *[({1: 1, 2: 2}, {2: 2, 1: 1}), ([[1], [1]], [SHARED, SHARED]), (np.zeros(2), np.zeros((2, 1)))],
    *[
        (np.zeros(2), -np.zeros(2)),
        (np.zeros((2, 2)), np.zeros((2, 2), order="F")),
        (["ab", "c"], ["a", "bc"]),
    ],
    *[
        (Thing(a=1), Thing(a=2)),
        (np.zeros(2, "f4"), np.zeros(2, "f8")),
        (bytearray(b"a"), b"a"),
        ([1, [2]], [1, 2]),
        ([[1], 2], [[1, 2]]),
    ],
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_values_that_can_be_told_apart_have_other_hashes(a, b):
    assert digest.digest(a) == digest.digest(copy.deepcopy(a))
    assert digest.digest(a) != digest.digest(b)


def test_any_nan_is_any_nan_and_what_is_not_known_is_an_error():
    other = -np.array([np.nan])
    assert digest.digest(other) == digest.digest(np.array([np.nan]))
    assert digest.digest(float("nan")) == digest.digest(-float("nan"))
    for value in (object(), {1}, np.zeros(1, object)):
        with pytest.raises(TypeError, match="cannot be compared"):
            digest.digest(value)


# --- what the times say


def test_geometric_mean():
    assert summary.geometric_mean([1, 4]) == pytest.approx(2)
    assert summary.geometric_mean([0.5, 0.5, 4]) == pytest.approx(1)
    assert summary.geometric_mean([]) is None


def test_targets_are_met_missed_or_not_measured():
    lines = {line.what: line for line in summary.lines(measured())}
    numba = "time of Overdrive / time of Numba, scalar and array functions"
    pypy = "time of PyPy / time of Overdrive, scalar, list and object functions"
    assert lines[f"{numba}: geometric mean"].value == "1.00 (2 of 9 functions)"
    assert lines[f"{numba}: geometric mean"].met is None  # seven were not measured
    assert lines[f"{numba}: worst"] == summary.Line(f"{numba}: worst", "2.00 (jacobi)", "≤ 1.15", False)
    assert lines[f"{numba}: matmul_array"].value is None and lines[f"{numba}: matmul_array"].met is None
    assert lines[f"{pypy}: geometric mean"].value == "0.35" and lines[f"{pypy}: geometric mean"].met is False
    assert lines[f"{pypy}: worst but of running_mean and word_count"].value == "0.50 (lcg_pi)"
    assert lines[f"{pypy}: word_count"] == summary.Line(f"{pypy}: word_count", "0.25", "≥ 0.60", False)
    assert lines["first call, compile and run: median"].value == "100 ms"
    assert lines["first call, compile and run: slowest"].value == "200 ms (word_count)"
    assert lines["first call, machine code from the cache: median"].value == "3.1 ms"
    assert lines["`import overdrive`"] == summary.Line("`import overdrive`", "12 ms", "≤ 40 ms", True)
    assert lines["`add(1, 2)` / `operator.add(1, 2)`"].met is True
    assert lines["two threads / one, `nogil=True`: worst"].value == "1.60 (mandelbrot)"
    assert lines["results of Overdrive that are CPython's"].met is True
    promoted = "a script of all functions, decorated / promoted while it runs"
    assert lines[promoted] == summary.Line(promoted, "0.80", "≥ 0.90", False)
    assert lines["nothing to promote: time with a session / without"].value == "1.015"


def test_a_result_of_ours_that_differs_is_a_missed_target():
    data = measured()
    data["functions"]["lcg_pi"]["tools"]["overdrive"]["different"] = "result: int 3, CPython float 3.0"
    assert summary.lines(data)[0] == summary.Line(
        "results of Overdrive that are CPython's", "2 of 3", "all", False
    )
    assert cells(page.page(data), "`lcg_pi`")[0][2] == "400× different"


def test_where_another_tool_is_faster_is_said():
    found = summary.behind(measured())
    assert {(function, tool) for function, tool, _ in found} == {
        *(("word_count", "pypy"), ("lcg_pi", "pypy"), ("jacobi", "numba"), ("word_count", "cpython"))
    }
    text = page.behind(measured())
    assert "* PyPy is faster on `word_count` 4.0×, `lcg_pi` 2.0×." in text
    assert "* CPython is faster on `word_count` 2.0×." in text


# --- the page


def test_the_page_shows_times_refusals_and_differences():
    text = page.page(measured())
    faster, times, first = cells(text, "`lcg_pi`")
    assert faster == ["scalar", "80.0 ms", "400×", "200×", "**800×**"]
    assert times == ["80.0 ms (+10 %)", "200 µs (+100 %)", "400 µs (+0 %)", "100 µs (+0 %)"]
    assert first[1] == "30.0 ms (20.0 ms – 70.0 ms)"
    assert first[-1] == "3.10 ms (3.00 ms – 3.50 ms)"
    assert cells(text, "`word_count`")[0][2:] == ["0.50×", "refused", "**2.00×**"]
    assert cells(text, "`jacobi`")[0][2:] == ["**500×**", "1,000× different", "–"]
    assert "* `word_count` refused by Numba: `TypingError: non-precise type pyobject`" in text
    assert "* `jacobi` differs with Numba: `result: float 1.0, CPython float64 1.0`" in text
    assert cells(text, "`add(1, 2)`: `return a + b`") == [["10.0 ns", "10.0 ns", "–"]]
    assert cells(text, "`mandelbrot`") == [["1.60×"]]
    assert (
        "A Processor, 2 cores, Debian GNU/Linux 12" in text
        and "Date: 2026-12-01. Command: `make bench`" in text
    )
    assert page.page(json.loads(json.dumps(measured()))) == text


def test_page_and_readme_say_that_the_machine_was_busy():
    for data, said in ((measured(), False), ({**measured(), "load": [0.5, 2.5]}, True)):
        assert (page.BUSY in page.block(data)) is said and (page.BUSY in page.page(data)) is said
        assert ("these figures say little" in page.page(data)) is said


def test_a_tool_that_is_absent_has_no_column_and_the_page_says_why():
    data = measured()
    data["tools"][3] = {"name": "pypy", "title": "PyPy", "absent": tools.PYPY_MISSING}
    data["plots"] = None
    text = page.page(data)
    assert f"* PyPy is absent: {tools.PYPY_MISSING}." in text
    assert cells(text, "function")[0] == ["works on", "CPython 3.11.7", "Overdrive 0.1.0", "Numba 0.68.1"]
    assert "(There is no plot: matplotlib is not installed.)" in text and ".svg" not in text


def test_the_readme_gets_the_table_and_keeps_the_rest():
    readme = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"
    made = page.with_block(readme, measured())
    assert made.startswith("before\n") and made.endswith("\nafter\n") and "old" not in made
    assert page.block(measured()) in made
    assert page.with_block(made, measured()) == made
    with pytest.raises(ValueError, match="has no"):
        page.with_block("nothing", measured())


def test_the_readme_shows_what_the_page_says():
    shown = (ROOT / "README.md").read_text().partition(page.BEGIN)[2].partition(page.END)[0].strip()
    assert shown and shown in (ROOT / "docs/benchmarks.md").read_text()


def test_plots_are_the_same_bytes_for_the_same_data(tmp_path):
    pytest.importorskip("matplotlib")
    from comparison import plots

    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        texts.append([path.read_text() for path in plots.draw(measured(), tmp_path / name)])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 3 and "promoted while it runs" in texts[0][2]
    for text in texts[0][:2]:
        drawn = xml.etree.ElementTree.fromstring(text)
        words = ["".join(e.itertext()) for e in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert {"lcg_pi", "word_count", "jacobi", "Overdrive", "Numba", "PyPy", "refused"} <= set(words)
        assert any(word.endswith("different") for word in words)
        colours = set(re.findall(r"#[0-9a-f]{6}\b", text))
        assert colours <= {plots.INK, *plots.COLOURS.values(), plots.MORE_COLOURS[0]}, (
            "a colour that one of two grounds may hide"
        )
        assert len(text) < 60_000
    assert "400×" in texts[0][0] and "30.0 ms" in texts[0][1]


# --- the command


def bench(*arguments):
    command = [sys.executable, BENCH, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_without_peers_the_command_writes_a_page_that_says_so(tmp_path):
    out, data = tmp_path / "pages/benchmarks.md", tmp_path / "data.json"
    where = ["--peers", tmp_path / "no-python", "--pypy", tmp_path / "no-pypy"]
    short = ["--quick", "--only", "fibonacci_iter", "--tools", "cpython,numba,pypy"]
    before = (ROOT / "README.md").read_bytes()
    done = bench(*short, *where, "--out", out, "--json", data)
    assert done.returncode == 0, done.stderr
    assert re.search(r"fibonacci_iter: cpython [0-9.]+ µs", done.stderr)
    text = out.read_text()
    assert tools.NUMBA_MISSING in text and tools.PYPY_MISSING in text
    assert len(cells(text, "`fibonacci_iter`")[0]) == 2
    again = bench("--from", data, "--out", tmp_path / "again/benchmarks.md")
    assert again.returncode == 0 and (tmp_path / "again/benchmarks.md").read_text() == text
    assert (ROOT / "README.md").read_bytes() == before
    assert not list(tmp_path.rglob(".bench-*"))


def runs(pid):
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_leaves_the_page_and_no_process(tmp_path):
    out = tmp_path / "benchmarks.md"
    out.write_text("the old page\n")
    command = [sys.executable, BENCH, "--tools", "cpython", "--rounds", "100000", "--out", out]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert "CPython: " in process.stderr.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (workers := children.read_text().split()):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.stderr.read()
    assert process.returncode == 130 and "the page is what it was" in said and "Traceback" not in said
    assert out.read_text() == "the old page\n" and list(tmp_path.iterdir()) == [out]
    # One that Ctrl-C met while it was being started ends by itself: nobody gives it orders.
    while any(runs(pid) for pid in workers):
        time.sleep(0.1)  # the test's time limit ends this


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "nothing"], "no such function: nothing; there are fibonacci_iter, "),
        (["--tools", "rust"], "no such tool: rust; there are cpython, overdrive, numba, pypy"),
        (["--rounds", "0"], "--rounds and --firsts must be 1 or more"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, said):
    done = bench(*arguments)
    assert done.returncode == 2 and said in " ".join(done.stderr.split())
