"""Three plots: times faster than CPython, first calls, and a script that is promoted while it runs.

In: a measurement's data. Out: SVG files, the same bytes for the same data: text stays text, ids are salted, no date.
The ground is transparent and every colour can be told from white and from near-black, so that a page in either shows them.
"""

from __future__ import annotations

import matplotlib

from comparison import page, summary

matplotlib.use("svg")
from matplotlib import pyplot, ticker

INK = "#808080"  # 3.9 : 1 on white, 4.7 : 1 on GitHub's dark ground
COLOURS = {"cpython": "#8a8f98", "overdrive": "#e8710a", "numba": "#3b82f6", "pypy": "#10a37f"}
MORE_COLOURS = ("#a855f7", "#d6336c", "#b08900")  # of modes that are added
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "overdrive",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.labelcolor": INK,
}


def colour(tool, tools):
    others = [t["name"] for t in tools if t["name"] not in COLOURS]
    return COLOURS.get(tool["name"]) or MORE_COLOURS[others.index(tool["name"]) % len(MORE_COLOURS)]


def bars(path, data, tools, values, label, written, line=None):
    """Horizontal bars on a logarithmic scale: a group for each function, a bar for each tool, from `values[tool][function]`."""
    functions = list(data["functions"])
    height = 0.8 / max(len(tools), 1)
    every = [value for by_function in values.values() for value in by_function.values()]
    start = min(every, default=1) / 1.5
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(8, 1.1 + 0.16 * len(functions) * (len(tools) + 1)))
        axes.set_xscale("log")
        if line:
            axes.axvline(line, color=INK, linewidth=0.8, zorder=0)
        for i, tool in enumerate(tools):
            found, at = (
                values[tool["name"]],
                {f: j + (i - (len(tools) - 1) / 2) * height for j, f in enumerate(functions)},
            )
            widths = [value - start for value in found.values()]
            ground = [at[f] for f in found]
            axes.barh(ground, widths, height * 0.92, start, color=colour(tool, tools), label=tool["title"])
            for function, y in at.items():
                row = data["functions"][function]["tools"].get(tool["name"], {})
                if function in found:
                    text = written(found[function]) + (" different" if row.get("different") else "")
                else:
                    text = page.instead(row)
                x = found.get(function, start)
                axes.annotate(text, (x, y), (2, 0), textcoords="offset points", va="center", fontsize=6)
        axes.set_xlim(start, max(every, default=10) * 2.5)
        axes.set_yticks(range(len(functions)), functions)
        axes.set_ylim(len(functions) - 0.4, -0.6)
        axes.set_xlabel(label)
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.tick_params(left=False)
        axes.spines[["top", "right", "left"]].set_visible(False)
        if tools:
            figure.legend(loc="upper center", ncols=len(tools), frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / figure.get_figheight()))
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def course(path, found):
    """The time of each round of a script by when it ended, beside what the decorated script takes."""
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(8, 2.6))
        axes.set_yscale("log")
        ends, took = zip(*found["course"])
        axes.plot(
            ends,
            [t * 1e3 for t in took],
            color=COLOURS["overdrive"],
            linewidth=1.2,
            label="promoted while it runs",
        )
        axes.axhline(
            min(found["decorated"]) * 1e3,
            color=INK,
            linewidth=0.8,
            linestyle="--",
            label="decorated with jit",
        )
        axes.set_xlabel("seconds since the start")
        axes.set_ylabel("a round, ms")
        axes.set_xlim(0)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.tight_layout()
        figure.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(figure)


def draw(data, directory):
    """Writes the plots and returns the files."""
    base, *others = page.measured(data)
    faster = {t["name"]: summary.ratios(data, base["name"], t["name"], data["functions"]) for t in others}
    callers = page.first_callers(data)
    first = {t["name"]: summary.firsts(data, t["name"]) for t in callers}
    first = {name: {f: seconds * 1e3 for f, seconds in found.items()} for name, found in first.items()}
    paths = directory / "steady.svg", directory / "first-call.svg"
    bars(
        paths[0],
        data,
        others,
        faster,
        "times faster than CPython",
        lambda value: f"{page.digits(value)}×",
        line=1,
    )
    bars(paths[1], data, callers, first, "first call, ms", lambda ms: page.duration(ms / 1e3))
    if data["promotion"].get("promoted"):
        paths = (*paths, directory / "promotion.svg")
        course(paths[2], data["promotion"])
    return paths
