"""What was measured, as rows, as a page and as plots.

In: the data of `bench.measure`. Out: `lines`, the summary with its targets; `page`; `draw`. A figure that is missing says so
instead of passing. Rates are the best of the rounds, for every engine alike: what disturbs a round only makes it slower.
"""

from __future__ import annotations

import importlib.util
import statistics

from comparison import page as paper
from comparison.summary import Line, at_least, at_most

OURS, NO_AMX, PEER = "overdrive", "overdrive-avx512", "llama.cpp"
TITLES = {"smollm2": "SmolLM2-135M", "1b": "1b shape", "8b": "8b shape"}
MIB = 1 << 20


def short(name, n_threads, found):
    """A line while it is measured."""
    parts = []
    for side, row in found["sides"].items():
        if row.get("refused"):
            parts.append(f"{side} refused: {row['refused'][:60]}")
        else:
            parts.append(f"{side} {max(row['prompt']):.0f} / {max(row['generate']):.1f}")
    return f"{name}, {n_threads} threads, prompt / generation: {', '.join(parts)}; {max(found['bandwidth'], default=0) / 1e9:.1f} GB/s"


def rate(found, side, what):
    """Tokens a second, or None."""
    row = found["sides"].get(side, {})
    return max(row[what]) if row.get(what) and "refused" not in row else None


def over(found, side, what, other=PEER):
    """Times faster than the other."""
    ours, theirs = rate(found, side, what), rate(found, other, what)
    return ours / theirs if ours and theirs else None


def of_bandwidth(entry, found, side):
    """The part of the measured rate at which weights are read in a generation."""
    ours = rate(found, side, "generate")
    return (
        ours * entry["file"]["per_token"] / max(found["bandwidth"]) if ours and found["bandwidth"] else None
    )


def load_time(found, side, when, what="first_token"):
    """The median in seconds, or None."""
    times = [answer[what] for answer in found["loads"].get(side, {}).get(when, []) if what in answer]
    return statistics.median(times) if times else None


def taken(found, side, what="now"):
    """Bytes that a model added to its process when it had done everything, or None."""
    row = found["sides"].get(side, {})
    return row["memory"][what] - row["before"]["now"] if row.get("memory") and row.get("before") else None


def room(entry, n_ctx):
    """Bytes of a file and of the cache for a context."""
    return entry["file"]["bytes"] + entry["file"]["cache_per_position"] * n_ctx


def lines(data):
    """All rows of the summary."""
    return [line for part in (speed_lines, other_lines, right_lines) for line in part(data)]


def threads_of(data):
    for name, entry in data["models"].items():
        for n, found in entry["threads"].items():
            yield name, entry, f"{TITLES[name]}, {n} thread{'s' if n != '1' else ''}", found


def speed_lines(data):
    for name, entry, where, found in threads_of(data):
        asked = name != "8b"
        for side, title, limit in ((OURS, "", 3.0), (NO_AMX, " without AMX", 1.3)):
            line = at_least(
                f"{where}: prompt{title}, times llama.cpp's speed", over(found, side, "prompt"), limit
            )
            yield line if asked else Line(line.what, line.value)
        line = at_least(f"{where}: generation, times llama.cpp's speed", over(found, OURS, "generate"), 1.5)
        yield line if name == "smollm2" else Line(line.what, line.value)
        if name != "smollm2":
            value = of_bandwidth(entry, found, OURS)
            yield at_least(f"{where}: generation, part of the rate at which memory is read", value, 0.7)


def other_lines(data):
    for _, entry, where, found in threads_of(data):
        ours, theirs = load_time(found, OURS, "second"), load_time(found, PEER, "second")
        value = ours / theirs if ours and theirs else None
        yield at_most(f"{where}: second load with its first token, time of Overdrive / llama.cpp", value, 1.0)
        bytes_taken = taken(found, OURS)
        value = bytes_taken / room(entry, data["n_ctx"]) if bytes_taken else None
        yield at_most(f"{where}: resident memory / (file + cache of {data['n_ctx']} positions)", value, 1.15)


def right_lines(data):
    row = data["right"].get(OURS)
    if row is None:
        return
    row = {} if "refused" in row else row
    ours, theirs = row.get("divergence"), row.get("peer_divergence")
    yield at_most("KL divergence from float64, Overdrive / llama.cpp", ours / theirs if ours else None, 1.0)
    what = "greedy steps that differ from float64, where it is ahead by more than llama.cpp errs"
    yield at_most(
        f"{what} anywhere ({row.get('steps_ahead_anywhere')})", row.get("steps_differ_anywhere"), 0, "{:.0f}"
    )
    yield at_most(
        f"{what} at that step ({row.get('steps_ahead_here')})", row.get("steps_differ_here"), 0, "{:.0f}"
    )
    ours, theirs = row.get("perplexity"), row.get("peer_perplexity")
    yield at_most(
        "perplexity, Overdrive / llama.cpp - 1", abs(ours / theirs - 1) if ours else None, 0.005, "{:.4f}"
    )


def present(data):
    return [side for side in data["sides"] if "absent" not in side]


def cell(value, shown="{:,.0f}"):
    return "–" if value is None else shown.format(value)


def page(data, plots):
    """The page; `plots` is the folder beside it that has them, if any."""
    parts = [
        "# Benchmarks of language models\n",
        "This page is written by `make bench-llm`; what is measured is in [benches/llm](../benches/llm/bench.py), what results are"
        " compared with in [tests/llm/reference](../tests/llm/reference/measures.py).\n",
        *head(data),
        "## In short\n",
        summary(data),
        "A prompt is of {n_prompt} tokens into an empty cache, a generation one token after the other behind a first one; both as"
        " logits, without choosing a token and making text. Figures are the best of the rounds.\n".format(
            **data
        ),
        "## Tokens per second\n",
        *pictures(plots),
        speed_table(data),
        "## Loading and memory\n",
        "A load ends when the logits of a first token are there (an engine that maps a file reads it only then). First: the file is"
        " not in the system's cache; second: it is. Memory is what the process has more than before the load, after all rounds.\n",
        load_table(data),
    ]
    if data["right"]:
        parts += ["## Right\n", right_text(data), right_table(data)]
    return "\n".join(parts)


def head(data):
    machine, load = data["machine"], data["load"]
    yield (
        f"* Machine: {machine['cpu']}, {machine['cores']} cores, {machine['system']}; load average {load[0]:.1f} at the start"
        f" and {load[1]:.1f} at the end."
    )
    for side in data["sides"]:
        if "absent" in side:
            yield f"* {side['title']} is absent: {side['absent']}"
        else:
            features = f" ({side['features'].strip()})" if side.get("features") else ""
            yield f"* {side['title']} {side['version']} on CPython {side['python']}{features}"
    for name, entry in data["models"].items():
        file = entry["file"]
        yield (
            f"* {TITLES[name]}: {file['bytes'] / 1e6:,.0f} MB, {file['parameters'] / 1e6:,.0f} million parameters;"
            f" {file['per_token'] / 1e6:,.0f} MB of weights for a token"
        )
    yield f"* Date: {data['date']}. Command: `{data['command']}` ({data['rounds']} rounds; it took {data['minutes']:.0f} minutes).\n"
    if data["note"]:
        yield f"{data['note']}\n"


def summary(data):
    rows = []
    for line in lines(data):
        met = (
            "–" if line.met is None else "yes" if line.met and line.value else "**no**" if line.value else "–"
        )
        rows.append([line.what, line.value or "not measured", line.target, met])
    return paper.table(["what", "measured", "target", "met"], rows)


def pictures(plots):
    if plots is None:
        yield "There are no plots: matplotlib is not installed, or the page was printed.\n"
        return
    for name, title in (
        ("prompt", "Tokens of a prompt per second"),
        ("generation", "Generated tokens per second"),
    ):
        yield f"![{title}, by model, threads and engine, on a logarithmic scale]({plots}/{name}.svg)\n"


def speed_table(data):
    sides = present(data)
    header = ["model", "threads", "memory read", *(f"{side['title']}: prompt / generation" for side in sides)]
    rows = []
    for name, entry in data["models"].items():
        for n, found in entry["threads"].items():
            cells = []
            for side in sides:
                prompt, generated = (rate(found, side["name"], what) for what in ("prompt", "generate"))
                text = f"{cell(prompt)} / {cell(generated, '{:.1f}')}"
                part = of_bandwidth(entry, found, side["name"])
                cells.append(text + (f" ({part:.0%} of the read rate)" if part and name != "smollm2" else ""))
            rows.append([TITLES[name], n, f"{max(found['bandwidth'], default=0) / 1e9:.1f} GB/s", *cells])
    return paper.table(header, rows, left=2)


def load_table(data):
    header = [
        "model",
        "threads",
        "engine",
        "first load",
        "second load",
        "until ready",
        "memory",
        "of it pages of files",
        "at most",
    ]
    rows = []
    for name, entry in data["models"].items():
        for n, found in entry["threads"].items():
            for side in present(data):
                times = [load_time(found, side["name"], when) for when in ("first", "second")]
                times.append(load_time(found, side["name"], "second", "load"))
                memory = found["sides"][side["name"]].get("memory", {})
                sizes = [taken(found, side["name"]), memory.get("files"), taken(found, side["name"], "peak")]
                rows.append(
                    [TITLES[name], n, side["title"]]
                    + [cell(t and t * 1e3, "{:,.0f} ms") for t in times]
                    + [cell(size and size / MIB, "{:,.0f} MiB") for size in sizes]
                )
    return paper.table(header, rows, left=3)


def right_text(data):
    return (
        "Logits of SmolLM2 beside a forward pass in float64 with the same dequantised weights: KL divergence over the first 512"
        " tokens of a fixed text; perplexity of the whole text in windows of 512; greedy continuations of 20 prompts by 64 tokens,"
        " each step behind the reference's own tokens. How far the reference's best token is ahead of the second says what can be"
        " asked: steps are counted where it is ahead by more than llama.cpp errs at any step, by more than it errs at that very"
        " step (which leaves llama.cpp itself none by definition), and all. Its error is the largest one of the distance between"
        " the best token and another, over the ten best.\n"
    )


def right_table(data):
    header = [
        "engine",
        "KL divergence",
        "perplexity",
        "steps that differ: certain anywhere",
        "certain at that step",
        "all",
    ]
    rows = []
    for side in present(data):
        row = data["right"].get(side["name"], {})
        if "refused" in row or not row:
            rows.append([side["title"], "refused", *["–"] * 4])
            continue
        shown = [f"{row['divergence']:.2e}", f"{row['perplexity']:.4f}"]
        for differ, of in (
            ("steps_differ_anywhere", "steps_ahead_anywhere"),
            ("steps_differ_here", "steps_ahead_here"),
            ("steps_differ", "steps"),
        ):
            shown.append(f"{row[differ]} of {row[of]:,}")
        rows.append([side["title"], *shown])
    reference = next((row for row in data["right"].values() if "refused" not in row), None)
    if reference:
        rows.append(["float64", "0", f"{reference['reference_perplexity']:.4f}", *["0"] * 3])
    return paper.table(header, rows)


def draw(data, directory):
    """Writes the plots and returns the files; none where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return ()
    from comparison import plots

    sides = present(data)
    made = []
    for what, title, file in (
        ("prompt", "tokens of a prompt per second", "prompt.svg"),
        ("generate", "tokens per second", "generation.svg"),
    ):
        values = {side["name"]: {} for side in sides}
        functions = {}
        for _, _, where, found in threads_of(data):
            functions[where] = {"tools": {}}
            for side in sides:
                if value := rate(found, side["name"], what):
                    values[side["name"]][where] = value
        plots.bars(directory / file, {"functions": functions}, sides, values, title, paper.digits)
        made.append(directory / file)
    return made
