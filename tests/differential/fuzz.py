"""Runs generated programs under Overdrive and under CPython, and reports what differs.

    python tests/differential/fuzz.py                         until Ctrl-C, from a random seed
    python tests/differential/fuzz.py --start 0 --count 2000  these

Each program runs in one mode, by turns: decorated or promoted, with exits as they come or forced at random. Programs
run in worker processes, so that a crash or a hang is a finding with a seed, not the end of the run. A finding is
reduced, printed and kept in a directory. The last line says how many programs ran; the exit status is 1 when something
differs.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import os
import pathlib
import queue
import random
import signal
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
REFERENCE_SECONDS = 60  # it has 2 s of a processor; the machine may be busy
CHUNK = 100  # programs of one process: what it has compiled stays in its memory
REDUCE_SECONDS = 120


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
    n_compiled: int = 0  # programs whose `f` has compiled code in the end
    n_lines: int = 0  # of `f` that are compiled
    n_native: int = 0  # of these, without an operation through CPython
    n_in_mode: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    findings: list = dataclasses.field(default_factory=list)

    def __str__(self):
        modes = ", ".join(f"{n} {mode}" for mode, n in self.n_in_mode.items())
        compiled = f"{self.n_compiled} with compiled code, {100 * self.n_native // max(self.n_lines, 1)} % of its lines native"
        return f"{self.n_programs} programs ({modes}; {compiled}), {len(self.findings)} differences, {self.n_skipped} skipped"


class Campaign:
    """Seeds, handed out in chunks to threads that each keep a worker process busy."""

    def __init__(self, seeds, modes, takes_turns, result):
        self.seeds = iter(seeds)
        self.modes = modes
        self.takes_turns = takes_turns
        self.result = result
        self.lock, self.stop = threading.Lock(), threading.Event()

    def run(self):
        """Until there are no seeds, or `stop` is set."""
        while not self.stop.is_set():
            with self.lock:
                seeds = list(itertools.islice(self.seeds, CHUNK))
            if not seeds:
                return
            while seeds and not self.stop.is_set():
                seeds = self.one_process(seeds)

    def add(self, finding):
        """One more finding; another thread goes on meanwhile."""
        with self.lock:
            self.result.findings.append(finding)
        if self.result.say:
            self.result.say(finding)

    def one_process(self, seeds):
        """Runs seeds until the end or a death; the seeds that are left."""
        turns = "turns" if self.takes_turns else "all"
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.differential.worker"]
        process = subprocess.Popen(
            [*command, ",".join(self.modes), turns],
            cwd=ROOT,
            env=dict(os.environ, OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process alone
        )
        lines = queue.SimpleQueue()
        errors = collections.deque(maxlen=60)

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
        try:
            process.stdin.write("\n".join(map(str, seeds)))
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; what it printed says why
        seed, mode, how = self.follow(lines)
        if how == "end":
            process.wait()
        else:
            process.kill()
        status = process.wait()
        for thread in threads:
            thread.join(5)
        if how in ("end", "stopped"):
            return []
        if how == "hung" and seed is None:  # the machine is too busy to start a process: try once more
            return seeds
        if how == "hung" and mode == "plain":
            with self.lock:
                self.result.n_skipped += 1
        else:
            what = "no end" if how == "hung" else f"died with status {status}"
            tail = "".join(e for e in errors if e)[-3000:]
            self.add(Finding(-1 if seed is None else seed, mode, f"  {what}\n{tail}"))
        return [] if seed is None else seeds[seeds.index(seed) + 1 :]

    def follow(self, lines):
        """Takes a worker's lines: (the last seed, the mode it was in, how it ended)."""
        seed, mode, result = None, "plain", self.result
        while not self.stop.is_set():
            try:
                is_reference = seed is not None and mode == "plain"
                line = lines.get(timeout=REFERENCE_SECONDS if is_reference else HANG_SECONDS)
            except queue.Empty:
                return seed, mode, "hung"
            if line is None:
                return seed, mode, "died"
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "seed":
                seed, mode = int(rest), "plain"
                with self.lock:
                    result.n_programs += 1
            elif word == "mode":
                mode = rest
                with self.lock:
                    result.n_in_mode[mode] += 1
            elif word == "ran":
                n_lines, n_native = map(int, rest.split())
                with self.lock:
                    result.n_compiled += n_lines > 0
                    result.n_lines += n_lines
                    result.n_native += n_native
            elif word == "skip":
                with self.lock:
                    result.n_skipped += 1
            elif word == "differs":
                for where, number, text in json.loads(rest):
                    self.add(Finding(seed, where, f"call {number}\n{text}"))
            elif word == "end":
                return seed, mode, "end"
        return seed, mode, "stopped"


def show_progress(result, done, every=10.0):
    """Says how far it is, until `done`."""
    begin = time.monotonic()
    while not done.wait(every):
        print(f"{result} after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def fuzz(start, count, modes=MODES, n_workers=2, say=None, takes_turns=False, progress=False, first=None):
    """Runs `count` programs from seed `start` on, or until Ctrl-C where it is None, and returns the result.

    The line `first` is printed when Ctrl-C would end it.
    """
    seeds = itertools.count(start) if count is None else range(start, start + count)
    result = Result(say)
    campaign = Campaign(seeds, modes, takes_turns, result)
    workers = [threading.Thread(target=campaign.run) for _ in range(n_workers)]
    done = threading.Event()
    if progress:
        threading.Thread(target=show_progress, args=(result, done), daemon=True).start()
    for worker in workers:
        worker.start()
    try:
        if first is not None:
            print(first, flush=True)
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        if count is not None:
            raise
    finally:
        campaign.stop.set()  # interrupted: the workers end their processes
        done.set()
        for worker in workers:
            worker.join()
    return result


class Keeper:
    """Reduces findings, prints them and keeps them in a directory."""

    def __init__(self, directory, seconds):
        self.directory = directory
        self.seconds = seconds
        self.lock = threading.Lock()

    def __call__(self, finding):
        report = str(finding)
        with self.lock:
            print(report, flush=True)
        if finding.seed < 0:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        place = self.directory / f"{finding.seed}-{finding.mode}"
        place.with_suffix(".py").write_text(source(finding.seed))
        place.with_suffix(".txt").write_text(report + "\n")
        if self.seconds:
            smallest = self.smallest(finding)
            place.with_suffix(".txt").write_text(f"{report}\n\n{smallest}\n")
            with self.lock:
                print(
                    f"the smallest program found that fails as seed {finding.seed} does:\n{smallest}",
                    flush=True,
                )

    def smallest(self, finding):
        """What the reducer prints."""
        command = [
            sys.executable,
            "-m",
            "tests.differential.reduce",
            str(finding.seed),
            "--mode",
            finding.mode,
        ]
        done = subprocess.run(
            [*command, "--seconds", str(self.seconds)],
            cwd=ROOT,
            env=dict(os.environ, OPENBLAS_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1"),
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        return done.stdout if done.returncode == 0 else f"not reduced: {done.stderr[-300:]}"


def main(arguments=None):
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=int, help="the first seed (a random one)")
    parser.add_argument("--count", type=int, help="how many programs (until Ctrl-C)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--modes", default=",".join(MODES), help="some of them (%(default)s)")
    parser.add_argument("--all", action="store_true", help="each program in all modes, not in one by turns")
    parser.add_argument("--progress", action="store_true", help="say every 10 seconds how far it is")
    parser.add_argument(
        "--findings",
        type=pathlib.Path,
        default=ROOT / ".make" / "findings",
        help="where they are kept (%(default)s)",
    )
    parser.add_argument(
        "--reduce",
        type=float,
        default=REDUCE_SECONDS,
        metavar="SECONDS",
        help="for each finding; 0 for none (%(default)s)",
    )
    o = parser.parse_args(arguments)
    modes = tuple(o.modes.split(","))
    if set(modes) - set(MODES):
        parser.error(f"the modes are {', '.join(MODES)}")
    for ends_it in (signal.SIGINT, signal.SIGTERM):  # a run in the background has SIGINT ignored
        signal.signal(ends_it, signal.default_int_handler)
    start = random.SystemRandom().randrange(10**9) if o.start is None else o.start
    first = f"programs from seed {start} on{'' if o.count else '; Ctrl-C ends it'}"
    keeper = Keeper(o.findings, o.reduce)
    result = fuzz(start, o.count, modes, o.workers, keeper, not o.all, o.progress, first)
    print(result)
    if result.findings:
        print(f"kept in {o.findings}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
