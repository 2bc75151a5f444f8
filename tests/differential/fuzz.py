"""Runs generated programs under Overdrive and under CPython, and reports what differs.

    python tests/differential/fuzz.py --start 0 --count 2000              as exits come
    python tests/differential/fuzz.py --start 0 --count 2000 --forced     and with exits forced at random

`make fuzz` does both; `--progress` says on standard error how far it is.

Programs run in worker processes, so that a crash or a hang is a finding with a seed, not the end of the run. The
last line reads 'N programs, N differences, N skipped'; the exit status is 1 when something differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.differential.program import source  # noqa: E402
from tests.differential.run import MODES  # noqa: E402

HANG_SECONDS = 60
REFERENCE_SECONDS = 15


@dataclasses.dataclass
class Finding:
    """A program that behaves differently: the seed, the mode, and what differs."""

    seed: int
    mode: str
    text: str

    def __str__(self):
        return f"seed {self.seed}, {self.mode}:\n{self.text}"


@dataclasses.dataclass
class Result:
    """What a run of many programs found; `say` hears of each finding at once."""

    say: object = None
    n_programs: int = 0
    n_skipped: int = 0
    findings: list = dataclasses.field(default_factory=list)

    def add(self, finding):
        """One more."""
        self.findings.append(finding)
        if self.say:
            self.say(finding)


def run_worker(seeds, modes, takes_turns, result, lock, stop):
    """Runs the seeds in worker processes, a new one after each that died."""
    seeds = list(seeds)
    while seeds and not stop.is_set():
        current, mode, done = one_process(seeds, modes, takes_turns, result, lock, stop)
        if not done and current is not None:
            seeds = seeds[seeds.index(current) + 1 :]
        else:
            return


def one_process(seeds, modes, takes_turns, result, lock, stop):
    """Runs seeds until the end or a death: (seed it was at, mode it was in, whether it came to the end)."""
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "tests.differential.worker",
        ",".join(modes),
        "turns" if takes_turns else "all",
    ]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = queue.SimpleQueue()
    errors = []

    def pump(stream, sink):
        with stream:
            for line in stream:
                sink(line)
        sink(None)

    threads = [
        threading.Thread(target=pump, args=(process.stdout, lines.put), daemon=True),
        threading.Thread(target=pump, args=(process.stderr, errors.append), daemon=True),
    ]
    for thread in threads:
        thread.start()
    process.stdin.write("\n".join(map(str, seeds)))
    process.stdin.close()
    seed, mode, hung = None, "plain", False
    while not stop.is_set():
        try:
            line = lines.get(timeout=REFERENCE_SECONDS if mode == "plain" else HANG_SECONDS)
        except queue.Empty:
            hung = True
            break
        if line is None:
            break
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "seed":
            seed, mode = int(rest), "plain"
            with lock:
                result.n_programs += 1
        elif word == "mode":
            mode = rest
        elif word == "skip":
            with lock:
                result.n_skipped += 1
        elif word == "differs":
            for where, number, text in json.loads(rest):
                with lock:
                    result.add(Finding(seed, where, f"call {number}\n{text}"))
        elif word == "end":
            process.wait()
            for thread in threads:
                thread.join(5)
            return seed, mode, True
    process.kill()
    status = process.wait()
    for thread in threads:
        thread.join(5)
    if stop.is_set():
        return seed, mode, True
    with lock:
        if mode == "plain" and hung:
            result.n_skipped += 1
        else:
            what = "no end" if hung else f"died with status {status}"
            tail = "".join(e for e in errors if e)[-3000:]
            result.add(Finding(seed if seed is not None else -1, mode, f"  {what}\n{tail}"))
    return seed, mode, False


def show_progress(result, count, done, every=10.0):
    """Says how far it is, until `done`."""
    begin = time.monotonic()
    while not done.wait(every):
        print(
            f"{result.n_programs} of {count} programs after {time.monotonic() - begin:.0f} s,"
            f" {len(result.findings)} differences",
            file=sys.stderr,
            flush=True,
        )


def fuzz(start, count, modes=MODES, n_workers=2, say=None, takes_turns=False, progress=False):
    """Runs `count` programs from seed `start` on, and returns the result."""
    result, lock, stop = Result(say), threading.Lock(), threading.Event()
    workers = [
        threading.Thread(
            target=run_worker,
            args=(range(start + k, start + count, n_workers), modes, takes_turns, result, lock, stop),
        )
        for k in range(n_workers)
    ]
    done = threading.Event()
    if progress:
        threading.Thread(target=show_progress, args=(result, count, done), daemon=True).start()
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    finally:
        stop.set()  # interrupted: the workers end their processes
        done.set()
    return result


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--forced", action="store_true", help="also with exits forced at random")
    parser.add_argument("--turns", action="store_true", help="each program in one mode only, by turns")
    parser.add_argument("--modes", default="", help=f"some of {','.join(MODES)}")
    parser.add_argument("--progress", action="store_true", help="say every 10 seconds how far it is")
    parser.add_argument("--source", action="store_true", help="print the programs that differ")
    o = parser.parse_args(arguments)
    modes = tuple(filter(None, o.modes.split(","))) or (MODES if o.forced else MODES[:2])

    def say(finding):
        print(finding, flush=True)
        if o.source:
            print(source(finding.seed).partition("@jit")[2], flush=True)

    result = fuzz(o.start, o.count, modes, o.workers, say, o.turns, o.progress)
    print(f"{result.n_programs} programs, {len(result.findings)} differences, {result.n_skipped} skipped")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
