"""Processes of `worker.py`: started, asked, ended.

In: a tool and where the interpreters are. Out: `Asked`, whose answers are a worker's. A worker that dies or says nothing
for too long is a result as well, {"refused": how it ended}, and the next order gets a new one.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile

WORKER = pathlib.Path(__file__).with_name("worker.py")
PATIENCE = 180  # seconds; Numba compiles levenshtein in 3


def environment(caches=None):
    """What workers inherit: nothing that steers an interpreter or a tool, and strings that hash alike in each run.

    `caches` is where a tool may keep what it compiled.
    """
    dropped = ("PYTHON", "OVERDRIVE", "NUMBA", "PYPY")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    where = {} if caches is None else {"XDG_CACHE_HOME": str(caches)}
    return {**kept, **where, "PYTHONHASHSEED": "0"}


class Asked:
    """A worker for one tool. A context manager: at its end the process ends.

    What the tool keeps of its compiles lies in `caches`, or is gone with the process.
    """

    worker = WORKER  # the script that answers

    def __init__(self, tool, interpreter, patience=PATIENCE, caches=None):
        self.tool, self.interpreter, self.patience = tool, interpreter, patience
        self.process, self.caches, self.own_caches = None, caches, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self):
        if self.caches is None:
            self.own_caches = tempfile.TemporaryDirectory(prefix="bench-caches-")
        # A session of its own: Ctrl-C on the terminal reaches this process only, which then ends the workers.
        self.process = subprocess.Popen(
            [self.interpreter, self.worker, self.tool.accelerate],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(self.caches or self.own_caches.name),
            start_new_session=True,
        )

    def end(self):
        """Ends the process, whatever it does, and says how it had ended if it had."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        code = process.poll()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        if self.own_caches is not None:
            self.own_caches.cleanup()
            self.own_caches = None
        return code

    def finish(self):
        """Lets the process end in its own time, if it has any."""
        if self.process is not None:
            self.process.stdin.close()
            try:
                self.process.wait(self.patience)
            except subprocess.TimeoutExpired:
                pass  # `end` does not wait

    def ask(self, do, **order):
        """The answer to an order."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.ended()
        if not select.select([self.process.stdout], [], [], self.patience)[0]:
            self.end()
            return {"refused": f"no answer in {self.patience} s"}
        line = self.process.stdout.readline()  # a worker writes a line at once
        return json.loads(line) if line.endswith(b"\n") else self.ended()

    def ended(self):
        self.process.wait()
        code = self.end()
        try:
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        except ValueError:
            how = f"signal {-code}"
        return {"refused": f"the process ended: {how}"}


def once(tool, interpreter, do, caches=None, **order):
    """The answer of a process that is asked nothing else, and ends by itself: tools keep what they compiled until then."""
    with Asked(tool, interpreter, caches=caches) as worker:
        answer = worker.ask(do, **order)
        worker.finish()
        return answer
