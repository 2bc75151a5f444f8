"""An explanation as a page: every line once, in its colour, with its types, exits and machine code behind it."""

import linecache
import re
import sys

import overdrive
import pytest
from overdrive import _core
from overdrive.html import page as pages

from ..cli.both import run, write
from .parsing import Page


def made(source, name, file="made.py"):
    """Functions of a text, jitted; the text is found like that of a notebook's cell."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"overdrive": overdrive}
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    return overdrive.jit(namespace[name])


MIXED = """\
import re
def mixed(xs, word):
    # a comment
    total = 0.0
    for x in xs:
        total = total + x * x

    word = re.sub("a", "b", word)
    try:
        raise KeyError
    except KeyError:
        pass
    return total, word
"""


def test_each_line_is_there_once_with_the_status_that_the_data_tells():
    mixed = made(MIXED, "mixed")
    for _ in range(4):
        mixed([1.0, 2.0], "aa")
    explained = overdrive.explain(mixed)
    page = Page(explained.html())
    lines = page.lines()
    source = MIXED.splitlines()
    assert {number: text for number, (_, text) in lines.items()} == {
        number: source[number - 1] for number in range(2, 14)
    }
    told = {row["line"]: row["status"] for row in explained.functions[0]["lines"]}
    for number, status in told.items():
        assert lines[number][0] == status
    assert told[6] == "native" and told[8] == "cpython"
    # No instruction, no colour; instructions that no version reaches are interpreted.
    assert lines[3][0] is None and lines[7][0] is None
    assert lines[11][0] == "not compiled"
    letters = {
        n: next(c for c in page.line(n).children if "od-mark" in c.classes).whole_text()
        for n in (3, 6, 8, 11)
    }
    assert letters == {3: " ", 6: "N", 8: "C", 11: "I"}


def test_types_show_where_the_variables_stand():
    source = "def f(n, x):\n    x = x * 2.0\n    for i in range(n):\n        x = x + obj(x=i)\n    return x\ndef obj(x): return x\n"
    f = made(source, "f")
    f(3, 1.5)
    page = Page(overdrive.explain(f).html())
    typed = {}
    for element in page.find("od-type"):
        number = element.parent.parent.attributes["data-line"]
        typed.setdefault(int(number), []).append((element.whole_text(), element.attributes["title"]))
    assert ("x", "x: float") in typed[2]
    assert ("i", "i: int") in typed[3] and ("n", "n: int") in typed[3]
    # The keyword's name is no variable.
    assert [name for name, _ in typed[4]].count("x") == 2
    assert "float" in page.behind(2).whole_text()


def test_exits_are_counted_at_their_line_over_all_versions():
    source = "def f(a, b):\n    c = a + 1\n    return c // b\n"
    f = made(source, "f")
    f(7, 2)
    n = 40
    for _ in range(n):
        with pytest.raises(ZeroDivisionError):
            f(7, 0)
    data = overdrive.explain(f).functions[0]
    # The version whose check failed so often was replaced by one without it.
    assert data["compiles"] > 1
    assert {row["line"] for row in data["left"]} == {3}
    assert len(data["left"]) == 2, "a failed check, then a raised exception"
    assert sum(row["count"] for row in data["left"]) == data["exits"] == n
    page = Page(overdrive.explain(f).html())
    badge = next(c for c in page.line(3).children if "od-left" in c.classes)
    assert badge.whole_text() == f"left {n}×"
    assert "division by zero" in page.behind(3).whole_text()


def test_forced_exits_are_all_counted():
    source = "def f(a, b):\n    c = a + 1\n    return c * b\n"
    plain = made(source, "f")
    plain(3, 4)
    lines = []
    for k in range(_core.debug_exit_count(plain)):
        _core.debug_force(k)
        f = made(source, "f")
        for _ in range(25):
            assert f(3, 4) == 16
        data = overdrive.explain(f).functions[0]
        counts = [(row["line"], row["count"]) for row in data["left"]]
        assert sum(count for _, count in counts) == data["exits"]
        # Arguments of other types are no exit: another version, or none, is called.
        assert counts in ([], [(2, 25)], [(3, 25)])
        lines += [line for line, _ in counts]
    assert set(lines) == {2, 3}


def instructions(text):
    """The mnemonics and operands of an assembler text, without directives, labels and comments."""
    out = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line and not line.startswith(".") and not line.endswith(":"):
            out.append(re.sub(r"\s+", " ", line))
    return out


def test_machine_code_lies_at_its_line():
    source = "def f(x, y):\n    a = x + y\n    b = a * y\n    return b - x\n"
    f = made(source, "f")
    f(1.5, 2.5)
    page = Page(overdrive.explain(f).html())
    wanted = {2: "addsd|fadd", 3: "mulsd|fmul", 4: "subsd|fsub"}
    for line, pattern in wanted.items():
        assert re.search(pattern, page.assembly(line)), (line, page.assembly(line))
        others = "".join(page.assembly(other) for other in wanted if other != line)
        assert not re.search(pattern, others)


def test_the_listing_is_the_code_that_runs():
    """Debug locations change nothing of it, in scalar, vector and recursive code, and `emit` shows the same."""
    np = pytest.importorskip("numpy")
    source = """\
def total(n):
    s = 0
    for i in range(n):
        s += i * i
    return s
def scale(xs, ys, k):
    for i in range(len(xs)):
        ys[i] = xs[i] * k + ys[i]
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
"""
    xs, ys = np.ones(1000), np.zeros(1000)
    for name, args in [("total", (1000,)), ("scale", (xs, ys, 2.0)), ("fib", (12,))]:
        f = made(source, name)
        for _ in range(6):
            f(*args)
        [(types, size, rows), *_] = _core.listings(f)
        version = overdrive.explain(f).functions[0]["versions"][0]
        assert (types, size) == (version["types"], version["code_size"])
        listed = [text for _, _, text in rows if not text.endswith(":")]
        assert listed == instructions(overdrive.explain(f).emit("asm")), name
        lines = {line for line, is_out, _ in rows if line and not is_out}
        assert lines, name


def test_recursion_and_vector_code_have_lines():
    source = "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n"
    fib = made(source, "fib")
    for _ in range(5):
        fib(10)
    lines = {line for _, _, rows in _core.listings(fib) for line, _, _ in rows}
    assert {2, 4} <= lines <= {None, 1, 2, 3, 4}


def test_several_versions_are_told_apart():
    f = made("def f(x):\n    y = x + x\n    return y\n", "f")
    for x in (1, 1, 1.5, 1.5, 1.5, 1, 1.5):
        f(x)
    explained = overdrive.explain(f)
    assert len(explained.functions[0]["versions"]) == 2
    page = Page(explained.html())
    titles = {e.attributes["title"] for e in page.find("od-type") if e.whole_text() == "y"}
    assert any("version 1: " in title and "version 2: " in title for title in titles)
    heads = [e.whole_text() for e in page.behind(2).all() if e.tag == "summary"]
    assert [head.partition(" (")[0] for head in heads] == [
        "Machine code of version 1",
        "Machine code of version 2",
    ]


EVIL = "</script><script>alert(1)</script>\"'&amp;<b>"


def test_nothing_of_a_program_becomes_html():
    source = f"def f(x):\n    y = x + 1  # {EVIL}\n    return y, '''{EVIL} \x0c\x00'''\n".replace("\x00", "")
    f = made(source, "f", file="<script>.py")
    f(1)
    page = Page(overdrive.explain(f).html())
    assert page.lines()[2][1].endswith(f"# {EVIL}")
    assert EVIL in page.lines()[3][1] and "␌" in page.lines()[3][1]
    assert page.tags("title")[0].whole_text() == "f of <script>.py"
    assert not page.tags("b") and not page.tags("script")


def test_a_notebook_gets_a_part_whose_style_stays_inside():
    f = made("def f(x):\n    return x + 1\n", "f")
    f(1)
    text = overdrive.explain(f)._repr_html_()
    page = Page(text)
    assert not page.tags("html") and not page.tags("title")
    assert set(page.lines()) == {1, 2}
    style = page.tags("style")[0].whole_text()
    bare = re.sub(r"\{[^{}]*\}", ";", re.sub(r"@media[^{]*\{", "", style))
    for selector in re.split(r"[;},]", bare):
        if selector.strip():
            assert "od" in selector, selector
    assert len(text) < 20_000
    assert not [e for e in page.root.all() if "id" in e.attributes]


def test_what_is_refused_is_interpreted_line_by_line():
    f = made("def g(n):\n    for i in range(n):\n        yield i\n", "g")
    list(f(3))
    page = Page(overdrive.explain(f).html())
    assert {status for status, _ in page.lines().values()} == {"not compiled"}
    assert "it is a generator or coroutine" in page.find("od-head")[0].whole_text()


FILE = """\
import re

CONST = 3
class C:
    def m(self, x):
        return re.sub("a", "b", x)

square = lambda x: x * x

def f(n):
    def inner(k):
        return k + n
    return [inner(i) for i in range(n)]
"""


def overdrive_explain(directory, *arguments, env=None):
    return run([sys.executable, "-m", "overdrive", "explain", *arguments], directory, env=env)


def test_the_command_makes_a_page_of_a_file(tmp_path):
    write(tmp_path, {"<script>.py": FILE})
    outcome = overdrive_explain(tmp_path, "<script>.py", "--html")
    assert (outcome.status, outcome.stderr) == (0, b"")
    page = Page(outcome.stdout.decode())
    lines = page.lines()
    assert [lines[n][1] for n in sorted(lines)] == FILE.splitlines()
    names = [e.whole_text() for head in page.find("od-head") for e in head.all() if e.tag == "h3"]
    assert names[0] == "<module>" and {"C.m", "<lambda>", "f", "f.<locals>.inner"} <= set(names)
    assert lines[6][0] == "cpython" and lines[3][0] == "not compiled"


def test_the_command_writes_a_file_as_a_whole(tmp_path):
    write(tmp_path, {"mod.py": FILE, "out.html": "before"})
    outcome = overdrive_explain(tmp_path, "mod.py::f", "--html", "-o", "out.html")
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, b"", b"")
    assert set(Page((tmp_path / "out.html").read_text()).lines()) == set(range(10, 14))
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".py") == ["out.html"]
    failed = overdrive_explain(tmp_path, "mod.py::f", "--html", "-o", "nowhere/out.html")
    assert failed.status == 1 and b"No such file" in failed.stderr
    both = overdrive_explain(tmp_path, "mod.py", "--html", "--json")
    assert both.status == 2 and b"exclude each other" in both.stderr


def test_without_the_extension_a_page_says_why(tmp_path):
    write(tmp_path, {"mod.py": FILE})
    outcome = overdrive_explain(tmp_path, "mod.py", "--html", env={"OVERDRIVE": "0"})
    assert outcome.status == 0
    Page(outcome.stdout.decode())


def test_a_broken_source_is_shown_as_it_is():
    f = made("def f(x):\n    return x + 1\n", "f", file="gone.py")
    f(1)
    linecache.cache["gone.py"] = (0, None, ["def f(x:\n", "    return '''\n"], "gone.py")
    page = Page(overdrive.explain(f).html())
    assert page.lines()[1][1] == "def f(x:"
    linecache.cache["gone.py"] = (0, None, [], "gone.py")
    page = Page(overdrive.explain(f).html())
    assert page.lines()[2] == ("native", "")
    assert "its source is not to be had" in page.tags("h2")[0].whole_text()


def test_a_long_file_stays_reasonable(tmp_path):
    source = "".join(
        f"def f{n}(a, b):\n    c = a + b\n    for i in range(b):\n        c += i * a\n    return c\n"
        for n in range(400)
    )
    write(tmp_path, {"long.py": source})
    outcome = overdrive_explain(tmp_path, "long.py", "--html")
    assert len(Page(outcome.stdout.decode()).lines()) == 2000
    assert len(outcome.stdout) < 2_000_000


def test_write_keeps_what_was_there_when_it_fails(tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_text("before")
    target.chmod(0o640)
    monkeypatch.setattr(
        "os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space left"):
        pages.write(str(target), "after")
    assert target.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["page.html"]
    monkeypatch.undo()
    pages.write(str(target), "after")
    assert target.read_text() == "after" and target.stat().st_mode & 0o777 == 0o640
    link = tmp_path / "link.html"
    link.symlink_to(target)
    pages.write(str(link), "through")
    assert link.is_symlink() and target.read_text() == "through"
