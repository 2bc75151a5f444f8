"""Measures the functions of `kernels` with Overdrive, CPython, Numba and PyPy, and writes docs/benchmarks.md.

`make bench` installs what this needs and runs it. The tools take turns, function by function; results are compared with
CPython's bit for bit. What is not installed is left out, and the page says so. Ctrl-C leaves the old page as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

import kernels  # noqa: E402
from comparison import asking, page, rounds, summary  # noqa: E402
from comparison.console import guarded, machine, tell_missed  # noqa: E402
from comparison.tools import CACHED, PEERS, PROMOTED, PYPY, THREADED, TOOLS  # noqa: E402
from comparison.tools import HERE as OUR_PYTHON  # noqa: E402

NO_PLOTS = "matplotlib is not installed: `pip install -r scripts/requirements/plot.txt`"
if importlib.util.find_spec("matplotlib"):
    from comparison import plots
else:
    plots = None

PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
QUICK = {"rounds": 2, "seconds": 0.02, "warm": 0.1, "firsts": 1, "script": 2.0}
FULL = {"rounds": 9, "seconds": 0.1, "warm": 0.3, "firsts": 5, "script": 20.0}
THREAD_CASES = ("matmul_array", "kmeans_assign", "mandelbrot")
N_THREADS = 2


def options(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    names, columns = ", ".join(kernels.CASES), ", ".join(tool.name for tool in TOOLS)
    parser.add_argument("--only", metavar="NAME,...", help=f"of {names}")
    parser.add_argument("--tools", metavar="NAME,...", help=f"columns beside CPython's, of {columns}")
    parser.add_argument("--rounds", type=int, help=f"turns of each tool ({FULL['rounds']})")
    parser.add_argument("--seconds", type=float, help=f"length of a turn ({FULL['seconds']})")
    parser.add_argument("--warm", type=float, help=f"seconds of calls before the first turn ({FULL['warm']})")
    parser.add_argument("--firsts", type=int, help=f"processes for each first call ({FULL['firsts']})")
    parser.add_argument(
        "--script", type=float, help=f"seconds that a script of all functions is watched ({FULL['script']})"
    )
    parser.add_argument("--quick", action="store_true", help="short turns, one first call: to try it out")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="PAGE.md",
        help="the page; plots go into a folder of its name beside it. Without --only, --tools and --quick it is"
        " docs/benchmarks.md, and the README's table is replaced too; with one of them the page is printed",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the raw data")
    parser.add_argument(
        "--from",
        type=pathlib.Path,
        metavar="FILE",
        dest="data",
        help="takes data of --json, measures nothing",
    )
    parser.add_argument(
        "--peers", default=sys.executable, metavar="PYTHON", help="the interpreter that has Numba"
    )
    parser.add_argument("--pypy", default="pypy3", metavar="PYPY", help="PyPy's interpreter")
    parser.add_argument("--command", help=argparse.SUPPRESS)  # what the page says made it
    chosen = parser.parse_args(arguments)
    chosen.names = listed(parser, chosen.only, list(kernels.CASES), "function")
    chosen.columns = listed(parser, chosen.tools, [tool.name for tool in TOOLS], "tool")
    for name, value in (QUICK if chosen.quick else FULL).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    if min(chosen.rounds, chosen.firsts) < 1 or min(chosen.seconds, chosen.warm, chosen.script) <= 0:
        parser.error("--rounds and --firsts must be 1 or more, --seconds, --warm and --script above 0")
    chosen.whole = not (chosen.only or chosen.tools or chosen.quick)
    return chosen


def listed(parser, asked, known, what):
    """The names that were asked for, in the order of `known`; all where none were."""
    names = [name for name in (asked or "").split(",") if name]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such {what}: {', '.join(unknown)}; there are {', '.join(known)}")
    return [name for name in known if name in names] or known


def present(tools, interpreters):
    """What each tool says of itself, or why it is absent."""
    found = []
    for tool in tools:
        said = {"name": tool.name, "title": tool.title}
        if interpreters[tool.interpreter] is None:
            answer = {"refused": None}
        else:
            answer = asking.once(tool, interpreters[tool.interpreter], "hello")
        if "refused" not in answer:
            found.append(said | answer)
        elif tool.missing:
            found.append(said | {"absent": tool.missing})
        else:
            sys.exit(
                f"{tool.title} cannot be measured: {answer['refused']}. `make bench` builds what is needed."
            )
    return found


def short(rows):
    """A function's row while it is measured."""
    base, parts = None, []
    for name, row in rows.items():
        if not row.get("rounds"):
            parts.append(f"{name} {page.instead(row)}")
            continue
        best = min(row["rounds"])
        base = base or best
        shown = page.duration(best) if base == best and not parts else f"{page.digits(base / best)}×"
        parts.append(f"{name} {shown}{' different' if row.get('different') else ''}")
    return ", ".join(parts)


def measure(chosen, progress):
    """All data of the page."""
    interpreters = {
        OUR_PYTHON: sys.executable,
        PEERS: shutil.which(chosen.peers),
        PYPY: shutil.which(chosen.pypy),
    }
    start, load = time.monotonic(), os.getloadavg()[0]
    asked = [tool for tool in TOOLS if tool is TOOLS[0] or tool.name in chosen.columns]
    said = {t["name"]: t for t in present(asked, interpreters)}
    for tool in said.values():
        progress.line(
            f"{tool['title']}: {'absent, ' + tool['absent'] if 'absent' in tool else tool['version']}"
        )
    tools = [tool for tool in asked if "absent" not in said[tool.name]]
    modules = {tool.module for tool in tools if tool.module}
    modes = [tool for tool in THREADED if tool.module in modules]

    functions = {}
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(asking.Asked(t, interpreters[t.interpreter])) for t in tools]
        for i, name in enumerate(chosen.names, 1):
            progress(f"{i} of {len(chosen.names)}: {name}")
            rows = rounds.steady(workers, name, chosen.rounds, chosen.seconds, chosen.warm)
            functions[name] = {"kind": kernels.CASES[name].kind, "tools": rows}
            progress.line(f"{name}: {short(rows)}")
    progress("small calls")
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(asking.Asked(t, interpreters[t.interpreter])) for t in tools]
        small = rounds.small_calls(workers, chosen.rounds, 5 * chosen.seconds)
    progress.line("small calls measured")
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(asking.Asked(t, interpreters[t.interpreter])) for t in modes]
        cases = [name for name in THREAD_CASES if name in chosen.names]
        threaded = rounds.threads(workers, cases, N_THREADS, chosen.rounds, chosen.seconds)
    progress.line("threads measured")
    promotion = {}
    if own := [tool for tool in tools if tool.name == summary.OURS]:
        progress("a script that is promoted while it runs")
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(asking.Asked(t, interpreters[t.interpreter])) for t in (PROMOTED, *own)
            ]
            turn = 5 * chosen.seconds
            promotion = rounds.promotion(*workers, chosen.names, chosen.script, chosen.rounds, turn)
        progress.line("promotion measured")
    imported = [(t.module, interpreters[t.interpreter]) for t in tools if t.module]
    imported.append(("numpy", interpreters[OUR_PYTHON]))
    imported = rounds.imports(list(dict.fromkeys(imported)), 2 * chosen.firsts)  # modes share a module
    progress.line("imports measured; first calls, a process each")
    rounds.first_calls(tools, interpreters, functions, chosen.firsts, progress)
    progress.line("first calls measured")
    return {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "command": chosen.command or " ".join(["python benches/bench.py", *sys.argv[1:]]),
        "minutes": (time.monotonic() - start) / 60,
        "load": [load, os.getloadavg()[0]],
        "options": {name: getattr(chosen, name) for name in FULL},
        "tools": list(said.values()),
        "cached": [
            {"name": t.name, "title": t.title, "version": said[own.name]["version"]}
            for own in tools
            for t in CACHED
            if own.accelerate == t.accelerate
        ],
        "threaded": [{"name": t.name, "title": t.title} for t in modes],
        "functions": functions,
        "calls": small,
        "threads": threaded,
        "promotion": promotion,
        "imports": imported,
    }


def write(data, out, readme=None):
    """Replaces page, plots and the README's block, when all of them are made."""
    data = {**data, "plots": out.stem if plots else None, "no_plots": NO_PLOTS}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=out.parent) as made:
        made = pathlib.Path(made)
        (made / "page").write_text(page.page(data))
        drawn = plots.draw(data, made) if plots else ()
        if readme:
            (made / "readme").write_text(page.with_block(readme.read_text(), data))
        if drawn:
            (out.parent / out.stem).mkdir(exist_ok=True)
        for path in drawn:
            os.replace(path, out.parent / out.stem / path.name)
        os.replace(made / "page", out)
        if readme:
            os.replace(made / "readme", readme)


def run(chosen, progress):
    """Measures, or takes what was measured, and writes what was asked for."""
    data = json.loads(chosen.data.read_text()) if chosen.data else measure(chosen, progress)
    if chosen.json:
        chosen.json.write_text(json.dumps(data, indent=1) + "\n")
    out = chosen.out or (PAGE if chosen.whole else None)
    if out is None:
        print(page.page({**data, "plots": None, "no_plots": "a printed page has none"}))
        return
    write(data, out.resolve(), README if out.resolve() == PAGE and chosen.whole else None)
    progress.line(f"wrote {os.path.relpath(out)}")
    tell_missed(summary.lines(data))


def main(arguments=None):
    """The command."""
    guarded(run, options(arguments))


if __name__ == "__main__":
    main()
