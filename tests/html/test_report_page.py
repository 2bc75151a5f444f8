"""The report of a run as a page: lanes, bars, what stayed in CPython, sources; and how the command writes it."""

import json
import os
import sys

import pytest

from ..cli.both import run, write
from ..promotion.test_report import report
from .parsing import Page

WINDOWS = [(0.5 * (n + 1), 100) for n in range(10)]
EVIL = "<script>alert('x')</script>"


def samples(before, after, since):
    return [(n, before if end <= since else after) for n, (end, _) in enumerate(WINDOWS)]


def measured(*rows, **more):
    return report(*rows, seconds=5.0, windows=WINDOWS, **more)


HOT = {
    "name": "hot",
    "promoted_at": 2.0,
    "events": [(1.9, "compiling"), (2.0, "promoted")],
    "samples": samples(80, 10, 2.0),
}


def test_shares_before_and_after():
    told = measured(HOT)
    assert told.shares(told.rows[0]) == (0.8, 0.1)
    data = json.loads(told.to_json())["rows"][0]
    assert (data["share_before"], data["share_after"]) == (0.8, 0.1)
    # A window in which it changed says nothing; neither does a session without samples.
    told = measured({**HOT, "events": [(0.1, "promoted")]})
    assert told.shares(told.rows[0])[0] is None
    assert report({}).shares(report({}).rows[0]) == (None, None)


def test_put_back_and_promoted_again():
    told = measured({**HOT, "events": [(1.0, "promoted"), (2.0, "put back"), (4.0, "promoted")]})
    # Native from 1 to 2 and from 4 on.
    native = (80 * 2 + 10 * 2) / 400
    cpython = (80 * 2 + 10 * 4) / 600
    assert told.shares(told.rows[0]) == (cpython, native)


def test_the_page_has_a_lane_and_a_row_for_each_function():
    other = {
        "name": EVIL,
        "file": f"/x/{EVIL}.py",
        "state": "put back",
        "promoted_at": None,
        "events": [(1.0, "promoted"), (3.0, "put back")],
        "samples": samples(5, 5, 1),
    }
    refused = {
        "name": "gen",
        "state": "refused",
        "before": None,
        "after": None,
        "promoted_at": None,
        "events": [(2.5, "refused")],
        "notes": ["a generator or coroutine: stays in CPython"],
    }
    others = [{"name": "<lambda>", "file": "m.py", "samples": [(0, 10), (3, 40)]}]
    page = Page(measured(HOT, other, refused, others=others).html([], title=f"overdrive run {EVIL}"))
    chart = page.tags("svg")[0]
    labels = [e.whole_text() for e in chart.children if e.attributes.get("text-anchor") == "end"]
    assert len(labels) == 3
    told = [e.whole_text() for e in chart.all() if e.tag == "title"]
    assert "hot: promoted at 2.00 s" in told and f"{EVIL}: put back at 3.00 s" in told
    assert "gen: refused at 2.50 s" in told
    paths = [e for e in chart.all() if e.tag == "path" and "od-s1" in e.classes]
    assert len(paths) == 2, "time since a function was native, of the two that were"
    text = page.root.whole_text()
    assert "80.0% in CPython" in text and "10.0% native" in text
    assert "a generator or coroutine: stays in CPython" in text
    assert "line 31 runs in CPython: re.sub" in text
    # 50 of 1000 samples.
    assert any("<lambda>" in row.whole_text() and "5.0%" in row.whole_text() for row in page.tags("tr"))


def test_a_session_in_which_nothing_happened_has_a_page():
    page = Page(report(trouble="a tracer is active", seconds=0.0).html([]))
    assert "a tracer is active" in page.root.whole_text()
    assert not page.tags("svg")
    Page(measured(HOT)._repr_html_())


PROGRAM = """\
import sys, time
import overdrive
def hot(n):
    s = 0
    for i in range(n):
        s += i * i
    return s
def lines(text):
    return text.split("</script>")
session = overdrive.start()  # joins the command's
def is_done():
    rows = {row.name: row for row in session.report().rows}
    return "hot" in rows and rows["hot"].state == "promoted" and rows["hot"].native_calls > 300
end = time.monotonic() + 90
while time.monotonic() < end and not is_done():
    pause = time.monotonic() + 0.3
    while time.monotonic() < pause:
        hot(3000)
# Some whole windows in which it is native.
pause = time.monotonic() + 1.8
while time.monotonic() < pause:
    hot(3000)
print("done")
sys.exit(7)
"""


def command(directory, *arguments, env=None):
    return run([sys.executable, "-m", "overdrive", "run", *arguments], directory, env=env)


def test_a_program_that_was_promoted_in(tmp_path):
    write(tmp_path, {"script.py": PROGRAM})
    outcome = command(tmp_path, "--report", "html", "script.py")
    assert (outcome.status, outcome.stdout) == (7, b"done\n")
    file = tmp_path / "overdrive-report.html"
    assert outcome.stderr.decode() == f"overdrive: the report is in {file}\n"
    assert sorted(os.listdir(tmp_path)) == ["overdrive-report.html", "script.py"]
    page = Page(file.read_text())
    assert page.tags("title")[0].whole_text() == "overdrive run script.py"
    row = next(row for row in page.tags("tr") if row.children[0].whole_text().startswith("hot "))
    assert "promoted" in row.whole_text() and "% native" in row.whole_text()
    link = next(e for e in row.all() if e.tag == "a")
    assert "hot" in page.by_id(link.attributes["href"][1:]).whole_text()
    lines = page.lines()
    assert lines[6] == ("native", "        s += i * i")
    chart = page.tags("svg")[0]
    assert any(e.whole_text().startswith("hot: promoted at ") for e in chart.all() if e.tag == "title")


def test_eager_and_a_module(tmp_path):
    source = "def f(x):\n    return x + 1\nprint(f(1), f(2), f(3))\n"
    write(tmp_path, {"mod.py": source})
    outcome = command(tmp_path, "--policy", "eager", "--report=html", "--report-file", "r.html", "-m", "mod")
    assert outcome.stdout == b"2 3 4\n"
    page = Page((tmp_path / "r.html").read_text())
    assert page.tags("title")[0].whole_text() == "overdrive run -m mod"
    assert page.lines()[2] == ("native", "    return x + 1")


@pytest.mark.parametrize("shadow", ["html", "linecache", "tokenize", "json"])
def test_the_programs_own_modules_do_not_get_into_the_page(tmp_path, shadow):
    write(tmp_path, {f"{shadow}.py": "mine = 1\n", "script.py": f"import {shadow}\nprint({shadow}.mine)\n"})
    outcome = command(tmp_path, "--report", "html", "script.py")
    assert (outcome.status, outcome.stdout) == (0, b"1\n")
    Page((tmp_path / "overdrive-report.html").read_text())


def test_a_page_that_cannot_be_written_is_told_and_the_status_stays(tmp_path):
    write(tmp_path, {"script.py": "import sys\nsys.exit(3)\n"})
    outcome = command(tmp_path, "--report", "html", "--report-file", "nowhere/r.html", "script.py")
    assert outcome.status == 3
    assert b"cannot write the report to " in outcome.stderr and b"No such file" in outcome.stderr
    full = command(tmp_path, "--report", "html", "--report-file", "/dev/full", "script.py")
    assert full.status == 3 and b"No space left on device" in full.stderr


def test_a_report_replaces_a_file_as_a_whole(tmp_path):
    write(tmp_path, {"script.py": "", "old.html": "x" * 100_000})
    link = tmp_path / "link.html"
    link.symlink_to(tmp_path / "old.html")
    (tmp_path / "old.html").chmod(0o640)
    outcome = command(tmp_path, "--report", "html", "--report-file", "link.html", "script.py")
    assert outcome.status == 0 and link.is_symlink()
    Page((tmp_path / "old.html").read_text())
    assert (tmp_path / "old.html").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["link.html", "old.html", "script.py"]


def test_the_report_can_go_to_where_the_output_goes(tmp_path):
    write(tmp_path, {"script.py": "print('mine')"})
    outcome = command(tmp_path, "--report", "html", "--report-file", "/dev/stdout", "script.py")
    assert outcome.stdout.startswith(b"mine\n<!DOCTYPE html>")
