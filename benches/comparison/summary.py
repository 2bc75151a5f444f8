"""What the times say: ratios, their geometric means, targets, and where Overdrive is behind.

In: the data of a measurement. Out: numbers, and `lines`, the rows of the summary. Targets are the project's own; a row
whose times are missing says so instead of passing.
"""

from __future__ import annotations

import dataclasses
import math
import statistics

from comparison import rounds

OURS, CACHED, NUMBA, PYPY, CPYTHON = "overdrive", "overdrive-cached", "numba", "pypy", "cpython"

# Functions that Numba compiles, and what is asked of them.
NUMERIC = (
    *("fibonacci_iter", "matmul_array", "collatz_longest", "mandelbrot", "lcg_pi"),
    *("jacobi", "histogram", "box_blur", "kmeans_assign"),
)
LISTS = ("levenshtein", "black_scholes", "running_mean")
# PyPy is best at these two: what is asked of us there is less than to be faster.
PYPY_AT_LEAST = {"running_mean": 0.85, "word_count": 0.6}


def geometric_mean(values):
    """The geometric mean; of nothing, None."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def steady(data, tool, function):
    """The best time of a call in seconds, or None."""
    row = data["functions"].get(function, {}).get("tools", {}).get(tool, {})
    return min(row["rounds"]) if row.get("rounds") else None


def spread(data, tool, function):
    """How much slower the slowest round was than the fastest, as a fraction."""
    found = data["functions"][function]["tools"][tool]["rounds"]
    return max(found) / min(found) - 1


def ratios(data, above, below, functions):
    """Times of one tool over those of another, by function; where one is missing there is none."""
    pairs = {f: (steady(data, above, f), steady(data, below, f)) for f in functions}
    return {f: a / b for f, (a, b) in pairs.items() if a and b}


def firsts(data, tool):
    """The median first call of each function, in seconds."""
    rows = {f: row["tools"].get(tool, {}) for f, row in data["functions"].items()}
    usable = {f: [t for t in row.get("first", []) if t is not None] for f, row in rows.items()}
    return {f: statistics.median(times) for f, times in usable.items() if times}


def not_arrays(data):
    """The functions that run without NumPy."""
    return [f for f, row in data["functions"].items() if row["kind"] != "array"]


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of the summary. `value` is None where nothing could be measured, `met` where nothing is asked."""

    what: str
    value: str | None
    target: str = ""
    met: bool | None = None


def at_most(what, value, limit, shown="{:.2f}", note=""):
    return bounded(what, value, limit, shown, note, "≤", value is not None and value <= limit)


def at_least(what, value, limit, shown="{:.2f}", note=""):
    return bounded(what, value, limit, shown, note, "≥", value is not None and value >= limit)


def bounded(what, value, limit, shown, note, sign, met):
    target = f"{sign} {shown.format(limit)}"
    if value is None:
        return Line(what, None, target)
    return Line(what, shown.format(value) + (f" ({note})" if note else ""), target, met)


def mean_of(bound, what, found, functions, limit):
    """A geometric mean. Over fewer functions than it is asked of, it neither meets nor misses."""
    line = bound(what, geometric_mean(found.values()), limit)
    if line.value is None or len(found) == len(functions):
        return line
    value = f"{line.value} ({len(found)} of {len(functions)} functions)"
    return dataclasses.replace(line, value=value, met=None)


def exact(data):
    """Whether all of our results are CPython's."""
    rows = [row["tools"].get(OURS, {}) for row in data["functions"].values()]
    equal = sum(bool(row.get("rounds")) and not row.get("different") for row in rows)
    if any(t["name"] == OURS for t in data["tools"]):
        yield Line(
            "results of Overdrive that are CPython's", f"{equal} of {len(rows)}", "all", equal == len(rows)
        )


def beside_numba(data):
    for what, functions, mean, worst in (
        ("scalar and array functions", NUMERIC, 0.8, 1.15),
        ("list functions", LISTS, 0.5, None),
    ):
        found = ratios(data, OURS, NUMBA, functions)
        title = f"time of Overdrive / time of Numba, {what}"
        yield mean_of(at_most, f"{title}: geometric mean", found, functions, mean)
        last = max(found, key=found.get, default=None)
        if worst:
            yield at_most(f"{title}: worst", found.get(last), worst, note=last)
            yield at_most(f"{title}: matmul_array", found.get("matmul_array"), 0.35)


def beside_pypy(data):
    functions = not_arrays(data)
    found = ratios(data, PYPY, OURS, functions)
    title = "time of PyPy / time of Overdrive, scalar, list and object functions"
    yield mean_of(at_least, f"{title}: geometric mean", found, functions, 1.5)
    others = {f: ratio for f, ratio in found.items() if f not in PYPY_AT_LEAST}
    last = min(others, key=others.get, default=None)
    yield at_least(f"{title}: worst but of {' and '.join(PYPY_AT_LEAST)}", others.get(last), 1.0, note=last)
    for function, limit in PYPY_AT_LEAST.items():
        yield at_least(f"{title}: {function}", found.get(function), limit)


def starts(data):
    found = firsts(data, OURS)
    slowest = max(found, key=found.get, default=None)
    median = statistics.median(found.values()) * 1e3 if found else None
    yield at_most("first call, compile and run: median", median, 30, "{:.0f} ms")
    longest = found[slowest] * 1e3 if found else None
    yield at_most("first call, compile and run: slowest", longest, 100, "{:.0f} ms", slowest)
    found = firsts(data, CACHED)
    median = statistics.median(found.values()) * 1e3 if found else None
    yield at_most("first call, machine code from the cache: median", median, 4, "{:.1f} ms")
    imported = data["imports"].get(OURS)
    yield at_most(
        "`import overdrive`", statistics.median(imported) * 1e3 if imported else None, 40, "{:.0f} ms"
    )


def small(data):
    times = data["calls"].get(OURS) or {}
    found = {} if "refused" in times else rounds.per_call(times)
    for numbers in ("1, 2", "1.5, 2.5"):
        ours, theirs = found.get(f"add({numbers})"), found.get(f"operator.add({numbers})")
        yield at_most(f"`add({numbers})` / `operator.add({numbers})`", ours / theirs if ours else None, 1.25)
    yield at_most("`first(a)`, which returns `a[0]`", found.get("first(a)"), 35, "{:.0f} ns")
    yield at_most("a jitted function called by another", found.get("chain"), 1.5, "{:.1f} ns")


def gain(row):
    """How many times more two threads do than one, or None."""
    return 2 * min(row["one"]) / min(row["all"]) if row.get("all") else None


def beside_threads(data):
    found = {f: gain(rows.get("overdrive-nogil", {})) for f, rows in data["threads"].items()}
    found = {f: value for f, value in found.items() if value}
    last = min(found, key=found.get, default=None)
    yield at_least("two threads / one, `nogil=True`: worst", found.get(last), 1.8, note=last)


def while_it_runs(data):
    found = data["promotion"]
    ratio = min(found["decorated"]) / min(found["promoted"]) if found.get("promoted") else None
    yield at_least("a script of all functions, decorated / promoted while it runs", ratio, 0.9)
    idle = found.get("idle", {})
    ratio = min(idle["with"]) / min(idle["without"]) if idle.get("with") else None
    yield at_most("nothing to promote: time with a session / without", ratio, 1.01, "{:.3f}")


def lines(data):
    """All rows of the summary."""
    return [
        line
        for part in (exact, beside_numba, beside_pypy, starts, small, beside_threads, while_it_runs)
        for line in part(data)
    ]


def behind(data):
    """(function, tool, ratio) where another tool is more than 5 % faster than Overdrive, the worst first."""
    others = [t["name"] for t in data["tools"] if t["name"] != OURS]
    found = [(f, tool, r) for tool in others for f, r in ratios(data, OURS, tool, data["functions"]).items()]
    return sorted([entry for entry in found if entry[2] > 1.05], key=lambda entry: -entry[2])
