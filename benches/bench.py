"""Measures the functions of `kernels` against CPython: Overdrive, and Numba and PyPy where they are.

    python benches/bench.py [--only NAME,...] [--seconds S] [--out TABLE.md]

Per function: the first call (compile and run), steady time (the best of many), times faster than CPython,
and whether the result is CPython's, value and type, bit for bit. Everything is measured in one run, so the
rows belong together.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import kernels  # noqa: E402

# Run by PyPy, which has none of our test code.
PYPY = """
import sys, json, time, copy
sys.path.insert(0, sys.argv[1])
import bench
print(json.dumps(bench.measure(lambda f: f, sys.argv[2].split(","), float(sys.argv[3]), False)))
"""


def steady(function, arguments, seconds):
    """The best time of a call, in seconds; every call gets fresh arguments."""
    pristine, best, n = arguments(), float("inf"), 0
    end = time.perf_counter() + seconds
    while n < 3 or time.perf_counter() < end:
        fresh = copy.deepcopy(pristine)
        start = time.perf_counter()
        function(*fresh)
        best = min(best, time.perf_counter() - start)
        n += 1
    return best


def measure(accelerate, names, seconds, compares=True):
    """Rows by name: `first` and `steady` in seconds, `equal`, or `refused` with the reason."""
    rows = {}
    for name in names:
        case = kernels.CASES.get(name)
        if case is None:
            continue
        try:
            fast, got = accelerate(case.function), case.arguments()
            start = time.perf_counter()
            result = fast(*got)
            row = {"first": time.perf_counter() - start}
            if compares:
                from tests.differential.compare import same

                want = case.arguments()
                row["equal"] = same(case.function(*want), result) and all(map(same, want, got))
            row["steady"] = steady(fast, case.arguments, seconds)
        except Exception as error:  # that an accelerator refuses a function is a result
            row = {"refused": type(error).__name__}
        rows[name] = row
    return rows


def columns(names, seconds):
    """(title, rows) of everything that is installed, CPython first."""
    yield f"CPython {platform.python_version()}", measure(lambda f: f, names, seconds)
    import overdrive

    yield f"Overdrive {overdrive.__version__}", measure(overdrive.jit, names, seconds)
    if importlib.util.find_spec("numba"):
        import numba

        yield f"Numba {numba.__version__}", measure(numba.njit, names, seconds)
    if pypy := shutil.which("pypy3"):
        command = [pypy, "-c", PYPY, str(HERE), ",".join(names), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            yield "PyPy (as is)", json.loads(done.stdout)


def cell(row, base):
    """One accelerator's entry in the table."""
    if row is None:
        return "-"
    if "refused" in row:
        return f"refused ({row['refused']})"
    times, us, ms = base["steady"] / row["steady"], row["steady"] * 1e6, row["first"] * 1e3
    text = f"{times:.1f}x ({us:,.0f} µs, first {ms:.0f} ms)"
    return text if row.get("equal", True) else text + " **different**"


def table(measured):
    """The Markdown table."""
    (base_title, base), *others = measured
    lines = [f"| function | {base_title}, µs | " + " | ".join(title for title, _ in others) + " |"]
    lines.append("|---|---:|" + "---:|" * len(others))
    for name, row in base.items():
        cells = [cell(rows.get(name), row) for _, rows in others]
        lines.append(f"| {name} | {row['steady'] * 1e6:,.0f} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args(arguments)
    names = [name for name in o.only.split(",") if name] or list(kernels.CASES)
    text = table(list(columns(names, o.seconds)))
    print(text, end="")
    if o.out:
        o.out.write_text(text)


if __name__ == "__main__":
    main()
