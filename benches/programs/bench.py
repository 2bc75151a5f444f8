"""Runs the programs of `programs` plain and under `overdrive run`, in turn, and writes docs/benchmarks-programs.md.

`make bench-programs` installs what this needs and runs it. Each run is a process of its own that does the same work; results are
compared. A result that differs, or a run that fails, ends it with status 1 and leaves the old page.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

from comparison.console import guarded, machine  # noqa: E402
from comparison.page import duration, table  # noqa: E402
from programs import PROGRAMS  # noqa: E402

PAGE = ROOT / "docs/benchmarks-programs.md"
LEAST = 0.98
"""How many times as fast a program must be at least."""
N_FUNCTIONS = 5
"""Functions of a program that the page shows."""
SIDES = {"plain": [], "run": ["-m", "overdrive", "run", "--report", "json"]}


def options(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--packages", type=pathlib.Path, required=True, help="the directory of the packages")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(PROGRAMS)}; the page is printed")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual number of rounds (1)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes the raw data")
    parser.add_argument("--command", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    chosen.names = chosen.only.split(",") if chosen.only else list(PROGRAMS)
    if unknown := [name for name in chosen.names if name not in PROGRAMS]:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    if chosen.repeats < 1 or chosen.scale <= 0:
        parser.error("--repeats must be 1 or more, --scale above 0")
    return chosen


def once(side, name, rounds, packages):
    """One process; what it measured, and under `overdrive run` the report's rows."""
    with tempfile.TemporaryDirectory(prefix="overdrive-programs-") as made:
        out, report = pathlib.Path(made, "out.json"), pathlib.Path(made, "report.json")
        command = [sys.executable, *SIDES[side]]
        command += ["--report-file", str(report)] if side == "run" else []
        command += [str(HERE / "drive.py"), name, str(rounds), str(out)]
        env = {**os.environ, "PYTHONPATH": str(packages), "PYTHONHASHSEED": "0"}
        start = time.monotonic()
        done = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode:
            sys.exit(f"{name} ({side}) ended with status {done.returncode}:\n{done.stderr[-3000:]}")
        data = json.loads(out.read_text()) | {"seconds": seconds}
        if side == "run":
            data["report"] = json.loads(report.read_text())
        return data


def measure(chosen, progress):
    """All data of the page."""
    found, start, load = {}, time.monotonic(), os.getloadavg()[0]
    for name in chosen.names:
        rounds = max(3, round(PROGRAMS[name].rounds * chosen.scale))
        runs = {side: [] for side in SIDES}
        for repeat in range(chosen.repeats):
            for side in sorted(SIDES, reverse=repeat % 2 == 1):
                progress(f"{name}: {side}, {repeat + 1} of {chosen.repeats}")
                runs[side].append(once(side, name, rounds, chosen.packages))
        if len({run["result"] for side in runs.values() for run in side}) != 1:
            sys.exit(f"{name}: results differ under overdrive run")
        found[name] = {"rounds": rounds, **runs}
        progress.line(f"{name}: {best(runs, 'seconds')[2]:.2f}, own thread {best(runs, 'own_total')[2]:.2f}")
    return {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": versions(chosen.packages),
        "minutes": (time.monotonic() - start) / 60,
        "load": [load, os.getloadavg()[0]],
        "repeats": chosen.repeats,
        "command": chosen.command or "python benches/programs/bench.py",
        "programs": found,
    }


def versions(packages):
    """Versions of all packages in a directory."""
    return {d.name: d.version for d in importlib.metadata.distributions(path=[str(packages)])}


def best(runs, what):
    """The least of each side, and plain by `overdrive run`."""
    plain, run = (min(one[what] for one in runs[side]) for side in ("plain", "run"))
    return plain, run, plain / run


def steady(runs):
    """The best round of each side: what is left when everything is compiled, plain by `overdrive run`."""
    plain, run = (min(min(one["own"]) for one in runs[side]) for side in ("plain", "run"))
    return plain / run


def page(data):
    """The page as text."""
    programs, where = data["programs"], data["machine"]
    rows, said = [], []
    for name, runs in programs.items():
        program = PROGRAMS[name]
        plain, run, ratio = best(runs, "seconds")
        report = min(runs["run"], key=lambda one: one["seconds"])["report"]["rows"]
        states = [row["state"] for row in report]
        rows.append(
            [
                f"`{name}`",
                program.what,
                duration(plain),
                duration(run),
                f"{ratio:.2f}" if ratio >= LEAST else f"**{ratio:.2f}**",
                f"{best(runs, 'own_total')[2]:.2f}",
                f"{steady(runs):.2f}",
                str(states.count("promoted")),
                str(states.count("put back")),
            ]
        )
        said.append(f"### {name}\n\n{functions(report)}")
    met = sum(best(runs, "seconds")[2] >= LEAST for runs in programs.values())
    header = [
        "program",
        "kind",
        "plain",
        "`overdrive run`",
        "plain / run",
        "own thread",
        "best round",
        "promoted",
        "put back",
    ]
    packages = sorted({package for name in programs for package in PROGRAMS[name].packages})
    return f"""# Benchmarks of whole programs

This page is written by `make bench-programs`; the programs are those of [benches/programs](../benches/programs/programs.py), run as they
lie in their packages.

* Machine: {where["cpu"]}, {where["cores"]} cores, {where["system"]}; load average {data["load"][0]:.1f} at the start and {data["load"][1]:.1f} at the end.
* CPython {data["python"]}; {", ".join(f"{p} {data['versions'].get(p, '?')}" for p in packages)}
* Date: {data["date"]}. Command: `{data["command"]}` ({data["repeats"]} runs of each side; it took {data["minutes"]:.0f} minutes).

{met} of {len(programs)} programs are at least {LEAST} times as fast under `overdrive run` as plain; results are equal in all.

{table(header, rows, left=2)}
*plain* and *`overdrive run`*: the whole process, start, compilations and end included, on the clock: the best of its runs, which take turns.
*plain / run*: above 1 where Overdrive is faster; bold below {LEAST}. *own thread*: the same ratio of the processor time of the program's
own thread, which other processes on the machine disturb less; compilations run on another thread. *best round*: of the program's
work, once everything is compiled. *promoted*, *put back*: functions, in the best run.

## What stays in CPython, and why

The {N_FUNCTIONS} functions with the largest share of samples, as the report of `overdrive run` shows them.

{chr(10).join(said)}"""


def functions(report):
    """What the report says of the functions in which the time went."""
    rows = []
    for row in sorted(report, key=lambda row: -row["share"])[:N_FUNCTIONS]:
        speedup = row["before"] / row["after"] if row["before"] and row["after"] else None
        notes = [note.replace("|", "\\|") for note in row["notes"][:3]]
        rows.append(
            [
                f"`{row['name']}`",
                f"{100 * row['share']:.0f} %",
                row["state"],
                f"{speedup:.1f}×" if speedup else "–",
                "; ".join(notes) or "–",
            ]
        )
    if not rows:
        return "Nothing was hot enough.\n"
    header = ["function", "largest share", "state", "a call became faster", "notes"]
    return table(header, rows)


def run(chosen, progress):
    """Measure and write."""
    data = measure(chosen, progress)
    if chosen.json:
        chosen.json.write_text(json.dumps(data, indent=1) + "\n")
    if chosen.only:
        print(page(data))
        return
    PAGE.write_text(page(data))
    progress.line(f"wrote {os.path.relpath(PAGE)}")


if __name__ == "__main__":
    guarded(run, options(None))
