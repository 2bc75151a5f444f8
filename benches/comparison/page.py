"""The page: a measurement's data as Markdown, and the part of it that the README shows.

In: data. Out: `page`, `block`. What a tool refused, and where its result differs, stands where its time would.
"""

from __future__ import annotations

import statistics

from comparison import rounds, summary

BEGIN = "<!-- from docs/benchmarks.md, written by make bench -->"
END = "<!-- end of what make bench writes -->"


def table(header, rows, left=1):
    """A Markdown table whose first columns are text."""
    marks = ["---"] * left + ["---:"] * (len(header) - left)
    lines = [header, marks, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def measured(data):
    """The tools that were there."""
    return [tool for tool in data["tools"] if "absent" not in tool]


def title(tool):
    return f"{tool['title']} {tool['version']}"


def duration(seconds):
    """Three digits, with a unit."""
    for unit, scale in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds * 1e9)} ns"


def digits(value):
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def instead(row):
    """What stands where a row has no time."""
    return "refused" if "refused" in row else "–"


def speed_ups(data):
    """Times faster than CPython. The fastest tool is bold if what it gave is CPython's."""
    base, *others = measured(data)
    rows = []
    for function, entry in data["functions"].items():
        own, times = summary.steady(data, base["name"], function), {}
        for tool in others:
            times[tool["name"]] = summary.steady(data, tool["name"], function)
        found = {name: own / time for name, time in times.items() if own and time}
        exact = {name: r for name, r in found.items() if not entry["tools"][name].get("different")}
        best = max(exact.values(), default=0)
        cells = []
        for tool in others:
            row = entry["tools"].get(tool["name"], {})
            if tool["name"] not in found:
                cells.append(instead(row))
                continue
            ratio = found[tool["name"]]
            text = f"{digits(ratio)}×"
            if row.get("different"):
                text += " different"
            elif ratio == best > 1:
                text = f"**{text}**"
            cells.append(text)
        rows.append([f"`{function}`", entry["kind"], duration(own) if own else "–", *cells])
    return table(["function", "works on", title(base), *map(title, others)], rows, 2)


def first_calls_in_short(data):
    """Medians over the functions, and the slowest."""
    parts = []
    for tool in first_callers(data)[1:]:
        found = summary.firsts(data, tool["name"])
        if found:
            slowest = max(found, key=found.get)
            median = statistics.median(found.values())
            parts.append(
                f"{tool['title']} {duration(median)} in the median and {duration(found[slowest])} at worst"
                f" (`{slowest}`)"
            )
    return f"First call, in a fresh process, compile and run: {'; '.join(parts)}.\n" if parts else ""


def busy(data):
    """Whether other work kept the cores from what was measured."""
    return max(data["load"]) > data["machine"]["cores"]


BUSY = """
Other work kept the cores busy meanwhile. Long calls, CPython's above all, suffer more from that than short ones: times faster than
CPython are too high rather than too low. Tools beside each other, whose calls are of like length, suffer alike.
"""


def block(data):
    """What the README shows."""
    return "\n".join([speed_ups(data), first_calls_in_short(data)]) + (BUSY if busy(data) else "")


def in_short(data):
    rows = []
    for line in summary.lines(data):
        met = "" if line.met is None else "yes" if line.met else "**no**"
        rows.append([line.what, line.value or "not measured", line.target, met])
    return table(["what", "measured", "target", "met"], rows)


def behind(data):
    """Where another tool is faster."""
    titles = {tool["name"]: tool["title"] for tool in data["tools"]}
    by_tool = {}
    for function, tool, ratio in summary.behind(data):
        by_tool.setdefault(tool, []).append(f"`{function}` {ratio:.1f}×")
    if not by_tool:
        return "On none of these functions is another tool more than 5 % faster.\n"
    lines = [f"* {titles[tool]} is faster on {', '.join(found)}." for tool, found in by_tool.items()]
    return "\n".join(lines) + "\n"


def remarks(data):
    """What was refused, and where a result differs."""
    titles = {tool["name"]: tool["title"] for tool in data["tools"]}
    lines = []
    for function, entry in data["functions"].items():
        for name, row in entry["tools"].items():
            for key, verb in (("refused", "refused by"), ("different", "differs with")):
                if row.get(key):
                    lines.append(f"* `{function}` {verb} {titles[name]}: `{row[key].replace('`', chr(39))}`")
    for tool in measured(data):
        n = sum("absent" in entry["tools"].get(tool["name"], {}) for entry in data["functions"].values())
        if n:
            lines.append(
                f"* {n} functions on arrays have no time with {tool['title']}: it has no NumPy here."
            )
    return "\n".join(lines) + "\n" if lines else "Nothing was refused, and no result differs.\n"


def steady_times(data):
    tools = measured(data)
    rows = []
    for function, entry in data["functions"].items():
        cells = []
        for tool in tools:
            time = summary.steady(data, tool["name"], function)
            row = entry["tools"].get(tool["name"], {})
            more = f" (+{summary.spread(data, tool['name'], function) * 100:.0f} %)" if time else ""
            cells.append(duration(time) + more if time else instead(row))
        rows.append([f"`{function}`", *cells])
    return table(["function", *map(title, tools)], rows)


def first_callers(data):
    """The tools that were there, and once more those that find machine code on the disk."""
    return measured(data) + data.get("cached", [])


def first_times(data):
    tools = first_callers(data)
    rows = []
    for function, entry in data["functions"].items():
        cells = []
        for tool in tools:
            row = entry["tools"].get(tool["name"], {})
            times = [t for t in row.get("first", []) if t is not None]
            if not times:
                cells.append(instead(row))
                continue
            low, high = duration(min(times)), duration(max(times))
            cells.append(f"{duration(statistics.median(times))} ({low} – {high})")
        rows.append([f"`{function}`", *cells])
    return table(["function", *map(title, tools)], rows)


def small_calls(data):
    tools = [t for t in measured(data) if data["calls"].get(t["name"])]
    found = {}
    for tool in tools:
        times = data["calls"][tool["name"]]
        found[tool["name"]] = {} if "refused" in times else rounds.per_call(times)
    names = {
        **{f"operator.add({n})": f"`operator.add({n})`" for n in ("1, 2", "1.5, 2.5")},
        **{f"add({n})": f"`add({n})`: `return a + b`" for n in ("1, 2", "1.5, 2.5")},
        "first(a)": "`first(a)`: `return a[0]` of an array",
        "chain": "a function called by another in a loop, both accelerated",
    }
    rows = []
    for name, shown in names.items():
        cells = [found[t["name"]].get(name) for t in tools]
        rows.append([shown, *(f"{max(value, 0):.1f} ns" if value is not None else "–" for value in cells)])
    return table(["call", *map(title, tools)], rows)


def threads(data):
    tools, rows = data["threaded"], []
    for function, found in data["threads"].items():
        gains = [summary.gain(found.get(t["name"], {})) for t in tools]
        rows.append([f"`{function}`", *(f"{g:.2f}×" if g else "refused" for g in gains)])
    if not rows:
        return "Not measured: none of its functions was.\n"
    lines = {
        f"* {t['title']}: `{row['refused']}`"
        for t in tools
        for row in (found.get(t["name"], {}) for found in data["threads"].values())
        if "refused" in row
    }
    refusals = "\nRefused:\n\n" + "\n".join(sorted(lines)) + "\n" if lines else ""
    warning = "\nWith other work on the cores (see the load average above) these figures say little.\n"
    return (
        table(["function", *(t["title"] for t in tools)], rows) + (warning if busy(data) else "") + refusals
    )


def promotion(data):
    """What a session makes of a script, and what it costs one that it can do nothing for."""
    found = data["promotion"]
    if "refused" in found:
        return f"Refused: `{found['refused']}`\n"
    if not found.get("promoted"):
        return "Not measured: Overdrive was not.\n"
    course = found["course"]
    shown = plot(data, "promotion", "Time of a round of the script while it runs, on a logarithmic scale")
    text = f"""{shown}
A script that knows nothing of Overdrive calls the functions above in turn, under `overdrive.start()`. Its first round took
{duration(course[0][1])}, its last one {duration(course[-1][1])}, after {course[-1][0]:.0f} s. Then it took turns with a script
whose functions are decorated with `overdrive.jit`: the best round of the first took {duration(min(found["promoted"]))}, that of
the second {duration(min(found["decorated"]))}.
"""
    idle = found["idle"]
    if idle.get("with"):
        text += f"""
Work that is none of Python's (`json` and `sorted`), which a session can do nothing for, took {duration(min(idle["without"]))} without
one and {duration(min(idle["with"]))} with one.
"""
    return text


def imports(data):
    rows = []
    for name, times in data["imports"].items():
        rows.append([f"`import {name}`", duration(statistics.median(times)), duration(min(times))])
    return table(["in a fresh process", "median", "best"], rows)


def plot(data, name, alternative):
    if not data["plots"]:
        return f"(There is no plot: {data['no_plots']}.)\n"
    return f"![{alternative}]({data['plots']}/{name}.svg)\n"


def versions(data):
    """Machine and tools, as a list."""
    machine, options = data["machine"], data["options"]
    lines = [
        f"* Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; load average"
        f" {data['load'][0]:.1f} at the start and {data['load'][1]:.1f} at the end.",
        *(
            f"* {title(tool)}"
            + (f" on {tool['python']}" if tool["name"] in (summary.OURS, summary.NUMBA) else "")
            + (f" with NumPy {tool['numpy']}" if tool.get("numpy") else "")
            for tool in measured(data)
        ),
        *(f"* {tool['title']} is absent: {tool['absent']}." for tool in data["tools"] if "absent" in tool),
        f"* Date: {data['date']}. Command: `{data['command']}` ({options['rounds']} rounds of"
        f" {options['seconds']} s, {options['firsts']} processes for each first call; it took"
        f" {data['minutes']:.0f} minutes).",
    ]
    return "\n".join(lines) + "\n"


def page(data):
    """The whole page."""
    options = data["options"]
    return f"""# Benchmarks

This page is written by `{data["command"]}`; the functions are in [benches/kernels.py](../benches/kernels.py).

{versions(data)}
## In short

{in_short(data)}
Ratios of times are below 1 where Overdrive is faster, except where the other tool's time stands first. Geometric means are over
the functions that both sides run, whether or not the results are equal.

## Times faster than CPython

{plot(data, "steady", "Times faster than CPython, by function and tool, on a logarithmic scale")}
{block(data)}
The fastest tool whose result is CPython's is bold; *different* means that the result, or what the call left in its arguments, is
not CPython's.

### Where Overdrive is behind

{behind(data)}
[support.md](support.md) says what runs through CPython's own functions: there is little to gain there, and compiling costs. All times are
of ordinary inputs; an array with a NaN or an infinity, or a last axis that is not contiguous, sends a loop to code with all tests
inside ([what that costs](adr/0010-nests-are-tested-once.md)).

### Refused or different

{remarks(data)}
## Steady time

The best time of a call, and how much more it was in the slowest round.

{steady_times(data)}
## First call

{plot(data, "first-call", "Time of the first call, by function and tool, on a logarithmic scale")}
The first call of a function in a fresh process, where everything else is imported: compile and run. Median (fastest – slowest);
number of processes: {options["firsts"]}. CPython's and PyPy's is the call as it is. From the cache: of a process that finds what
another one, which called the function for 0.1 s, has kept on the disk.

{first_times(data)}
## Small calls

Time of a call as `timeit` makes it, without the loop around it.

{small_calls(data)}
## Two threads

How many times more calls two threads make at once than one makes alone, without the GIL.

{threads(data)}
## Promotion while a program runs

{promotion(data)}
## Import

{imports(data)}
## How it was measured

Each tool has a process of its own that lives as long as the measurement. For one function after the other the tools take turns:
{options["rounds"]} rounds, in each of which every tool calls the function for {options["seconds"]} s, and each round begins with
another tool. So all times of a row are of the same seconds, however the machine's speed changes. Before that every tool calls the
function for {options["warm"]} s, twice at least. Each call gets fresh arguments, made outside the time; functions of numbers and strings
alone are called in a loop. Shown is the best call.

Times are those on the clock. Where a call of a tool takes 20 ms or more, as most of CPython's do, and for first calls, it is what the
process computed if that is less: such calls are interrupted on a busy machine, and would seem slower beside short ones than they are.

The first result, and one after the last round, with the arguments as the call left them, are compared with CPython's by a hash over
types and bits; any NaN equals any NaN. Strings hash alike in all runs (`PYTHONHASHSEED=0`).

`python benches/bench.py --help` lists the options: fewer functions, fewer or longer rounds, raw data as JSON.
"""


def with_block(readme, data):
    """The README with today's block between its marks."""
    before, mark, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"README.md has no '{BEGIN}' … '{END}'")
    return f"{before}{BEGIN}\n\n{block(data)}\n{END}{after}"
