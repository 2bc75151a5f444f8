"""The measurement: tools take turns, so that a machine that is slow for a while is so for all of them.

In: tools with a worker each. Out: data for `summary`, `page` and `plots`: times in seconds, as they were found, one for
each round. A tool that differs from the first one, or refuses, has `different` or `refused` beside or instead of times.
"""

from __future__ import annotations

import subprocess
import tempfile

from comparison import asking, calls
from comparison.tools import CACHED

IMPORT = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def turns(tools, n_rounds):
    """(round, tool) in the order of measuring: each round begins with another tool."""
    for i in range(n_rounds):
        for j in range(len(tools)):
            yield i, tools[(i + j) % len(tools)]


def difference(want, got):
    """What differs between two calls' parts, for people, or None."""
    for (name, expected, shown), (_, found, instead) in zip(want, got):
        if expected != found:
            return f"{name}: {instead}, CPython {shown}" if instead != shown else f"{name} (within {shown})"
    return None


def steady(workers, case, n_rounds, seconds, warm):
    """Rows by tool's name for one function; `workers` begins with what others are compared with."""
    rows, wanted = {}, None
    for worker in workers:
        answer = worker.ask("open", case=case, warm=warm)
        wanted = wanted or answer.get("parts")
        rows[worker.tool.name] = row = {k: v for k, v in answer.items() if k != "parts"}
        if "parts" in answer:
            row.update(rounds=[], different=difference(wanted, answer["parts"]))
    for _, worker in turns([w for w in workers if "rounds" in rows[w.tool.name]], n_rounds):
        row = rows[worker.tool.name]
        if "refused" not in row:
            answer = worker.ask("window", seconds=seconds)
            row.update(answer) if "refused" in answer else row["rounds"].append(answer["best"])
    for worker in workers:
        row = rows[worker.tool.name]
        if "rounds" in row and "refused" not in row:  # compiled again since the first call, perhaps
            answer = worker.ask("check")
            row.update(
                answer
                if "refused" in answer
                else {"different": row["different"] or difference(wanted, answer["parts"])}
            )
        if "refused" in row:
            row.pop("rounds", None)
    return rows


def first_calls(tools, interpreters, functions, n_repeats, progress):
    """Adds `first` to the rows of `functions`: the time of a first call, each in a fresh process.

    With nothing kept of earlier ones; for a tool that keeps machine code, its row in `CACHED` gets that of a process which
    finds what another one has kept that made a few calls.
    """
    for i in range(n_repeats):
        for j, (case, entry) in enumerate(functions.items()):
            progress(f"first calls, {i + 1} of {n_repeats}: {case}")
            for k in range(len(tools)):
                tool = tools[(i + j + k) % len(tools)]
                row = entry["tools"][tool.name]
                if "rounds" in row:
                    interpreter = interpreters[tool.interpreter]
                    answer = asking.once(tool, interpreter, "first", case=case)
                    row.setdefault("first", []).append(answer.get("first"))
                    for kept in (kept for kept in CACHED if kept.accelerate == tool.accelerate):
                        found = entry["tools"].setdefault(kept.name, {}).setdefault("first", [])
                        with tempfile.TemporaryDirectory(prefix="bench-caches-") as caches:
                            asking.once(tool, interpreter, "open", caches, case=case, warm=0.1)
                            answer = asking.once(tool, interpreter, "first", caches, case=case)
                        found.append(answer.get("first"))


def small_calls(workers, n_rounds, seconds):
    """Times of `calls.STATEMENTS` by tool's name."""
    found = {}
    for worker in workers:
        answer = worker.ask("open_calls")
        found[worker.tool.name] = answer if "refused" in answer else {}
    for _, worker in turns([w for w in workers if not found[w.tool.name]], n_rounds):
        answer = worker.ask("calls", seconds=seconds)
        for statement, best in answer.get("best", {}).items():
            found[worker.tool.name].setdefault(statement, []).append(best)
    return found


def threads(workers, cases, n_threads, n_rounds, seconds):
    """Rows by function and tool: `one` and `all`, lists of seconds for the same calls by one thread and by each of several."""
    found = {}
    for case in cases:
        rows = found[case] = {}
        for worker in workers:
            answer = worker.ask("open_threads", case=case, n_threads=n_threads, seconds=seconds)
            rows[worker.tool.name] = answer or {"one": [], "all": []}
        for _, worker in turns([w for w in workers if "one" in rows[w.tool.name]], n_rounds):
            answer = worker.ask("threads")
            for key, value in answer.items():
                row = rows[worker.tool.name]
                if key == "refused":
                    row[key] = value
                elif "refused" not in row:
                    row[key].append(value)
    return found


def promotion(promoted, decorated, cases, seconds, n_rounds, turn):
    """A script that calls functions in turn, while a session promotes them and with all of them decorated.

    `course` is (seconds since the start, seconds of the round) of its first `seconds`; then both scripts take turns, and
    `promoted` and `decorated` are their best rounds in each. `idle` is what a session costs a program that it can do nothing for.
    """
    found = {"promoted": [], "decorated": []}
    idle = promoted.ask("idle", seconds=turn, n_pairs=3 * n_rounds)
    for worker, watched in ((promoted, True), (decorated, False)):
        answer = worker.ask("open_script", cases=cases, watched=watched)
        answer = answer or worker.ask("rounds", seconds=seconds if watched else 0)
        if "refused" in answer:
            return answer
        if watched:
            found["course"] = thinned(answer["rounds"], seconds / 200)
    both = [("promoted", promoted), ("decorated", decorated)]
    for _, (name, worker) in turns(both, n_rounds):
        answer = worker.ask("rounds", seconds=turn)
        if "refused" in answer:
            return answer
        found[name].append(min(took for _, took in answer["rounds"]))
    return {**found, "idle": idle}


def thinned(course, step):
    """The first round, and the last one of every `step` seconds."""
    kept = course[:1]
    for here, following in zip(course[1:], [*course[2:], None]):
        if following is None or following[0] > kept[-1][0] + step:
            kept.append(here)
    return kept


def imports(modules, n_rounds):
    """Seconds that `import` takes in a fresh process, by module's name; `modules` are (name, interpreter)."""
    found = {}
    for i, (name, interpreter) in turns(modules, n_rounds + 1):
        command = [interpreter, "-c", IMPORT.format(name)]
        done = subprocess.run(command, capture_output=True, text=True, env=asking.environment(), timeout=60)
        if done.returncode == 0 and i > 0:  # the first reads files and compiles them
            found.setdefault(name, []).append(float(done.stdout))
    return found


def per_call(times):
    """Nanoseconds by statement: the best of each, without the loop. A chain counts per call, and without what it does besides."""
    best = {statement: min(found) * 1e9 for statement, found in times.items()}
    result = {
        name: t - best[calls.EMPTY] for name, t in best.items() if "chain" not in name and name != calls.EMPTY
    }
    if "chain" in best:
        result["chain"] = (best["chain"] - best["chain, written out"]) / calls.N_CHAINED
    return result
