"""A process that measures for one tool: an order is a line of JSON on standard input, its answer one on standard output.

In: the expression that accelerates a function. Out: answers to the methods of `Worker`, by name. It lives as long as
the measurement, so that tools take turns with everything compiled. It runs on every interpreter that is measured (PyPy
is a Python 3.9 without NumPy) and imports nothing before it is told to.
"""

from __future__ import annotations

import copy
import importlib
import json
import operator
import pathlib
import platform
import re
import sys
import threading
import timeit
from time import perf_counter, process_time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import kernels

from comparison import calls, digest

SHORT = 0.005  # seconds that functions without mutable arguments are called without a look at the clock
LONG = 0.02  # seconds of a call from which on what was computed counts


def reason(error):
    """The first line of an error that says something, without colours, addresses and paths."""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip(" -:") for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    line = re.sub(r" at 0x[0-9a-f]+|/\S*/", "", lines[0]) if lines else ""
    line = line if len(line) <= 100 else line[:100] + "…"
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def parts(result, arguments):
    """What a call gave and what it left in its arguments: (name, hash, text) of each."""
    named = [("result", result)] + [(f"argument {i}", a) for i, a in enumerate(arguments, 1)]
    return [(name, digest.digest(value), digest.text(value)) for name, value in named]


def passed(call, *arguments):
    """Seconds on the clock."""
    start = perf_counter()
    call(*arguments)
    return perf_counter() - start


def computed(call, *arguments):
    """Seconds that the process computed, or those on the clock where these are less, as with several threads at once.

    For calls so long that a busy machine interrupts each of them. Not for short ones, whose best meets no interruption: a
    virtual machine corrects what it counted of a process later, and a best would be the call that got the correction.
    """
    start = process_time()
    on_clock = passed(call, *arguments)
    return min(on_clock, process_time() - start)


class Worker:
    """What can be ordered. A refusal is an answer, {"refused": reason}, and not an error."""

    def __init__(self, accelerate):
        self.expression = accelerate
        self.function = self.case = self.pristine = self.timer = self.script = None
        self.seconds_of = passed

    def accelerate(self, function):
        if not self.expression:
            return function
        module = self.expression.partition(".")[0]
        return eval(self.expression, {module: importlib.import_module(module)})(function)

    def hello(self):
        """Who answers, after the tool was imported."""
        version = platform.python_version()
        if platform.python_implementation() == "PyPy":
            version = ".".join(map(str, sys.pypy_version_info[:3]))
        found = {"python": f"{platform.python_implementation()} {version}", "version": version}
        if self.expression:
            module = importlib.import_module(self.expression.partition(".")[0])
            found["version"] = module.__version__
        if calls.np is not None:
            found["numpy"] = calls.np.__version__
        return found

    def open(self, case, warm):
        """Takes up a function: compares its first call, then calls it for `warm` seconds, twice at least."""
        if case not in kernels.CASES:
            return {"absent": "needs NumPy, which this interpreter does not have"}
        self.case = kernels.CASES[case]
        self.pristine, self.timer, self.seconds_of = self.case.arguments(), None, passed
        self.function = self.accelerate(self.case.function)
        answer = self.check()
        if self.window(warm, 2)["best"] >= LONG:
            self.seconds_of = computed
        if all(isinstance(a, (int, float, str)) for a in self.pristine):
            self.timer = timer(self.function, self.pristine)
        return answer

    def check(self):
        """What a call gives and does to its arguments."""
        arguments = self.case.arguments()
        return {"parts": parts(self.function(*arguments), arguments)}

    def arguments(self):
        """Arguments that no call has changed. Objects are made as a program makes them: a copy by `copy` has its attributes
        in a dictionary."""
        return self.case.arguments() if self.case.kind == "object" else copy.deepcopy(self.pristine)

    def window(self, seconds, at_least=1):
        """The best time of a call within some seconds."""
        best, n, end = float("inf"), 0, perf_counter() + seconds
        number = 1
        while n < at_least or perf_counter() < end:
            if self.timer is None:
                best = min(best, self.seconds_of(self.function, *self.arguments()))
            else:
                best = min(best, self.seconds_of(self.timer.timeit, number) / number)
                number = max(1, int(SHORT / best))
            n += 1
        return {"best": best}

    def open_script(self, cases, watched):
        """A program that calls functions in turn, with the same arguments each time. It may be one that a session watches."""
        chosen = [kernels.CASES[case] for case in cases]
        self.script = [(self.accelerate(case.function), case.arguments()) for case in chosen]
        if watched:
            importlib.import_module("overdrive").start()
        return {}

    def rounds(self, seconds):
        """Goes on with the script for some seconds: when each round ended, and how long it took."""
        start, found = perf_counter(), []
        while not found or found[-1][0] < seconds:
            took = sum(passed(function, *arguments) for function, arguments in self.script)
            found.append((perf_counter() - start, took))
        return {"rounds": found}

    def idle(self, seconds, n_pairs):
        """Seconds for the same work that nothing of is Python's, without a session and with one, in turns."""
        overdrive = importlib.import_module("overdrive")
        records = [{"name": f"n{i % 97}", "values": [i * 7 % 101, i / 3, None]} for i in range(300)]

        def work():
            json.dumps(sorted(json.loads(json.dumps(records)), key=operator.itemgetter("name")))

        number = max(1, int(seconds / min(timeit.repeat(work, number=1, repeat=5))))
        found = {"without": [], "with": []}
        for _ in range(n_pairs):
            found["without"].append(timeit.timeit(work, number=number) / number)
            with overdrive.start():
                timeit.timeit(work, number=number // 4)  # it finds its way first
                found["with"].append(timeit.timeit(work, number=number) / number)
        return found

    def first(self, case):
        """The time of the first call of a function in this process: compile and run."""
        case = kernels.CASES[case]
        arguments, function = case.arguments(), self.accelerate(case.function)
        return {"first": computed(function, *arguments)}  # the median of several counts

    def open_calls(self):
        """Makes the smallest functions and calls each until it is compiled."""
        available = calls.names(self.accelerate)
        self.timers = {
            name: timeit.Timer(statement, globals=available)
            for name, statement in calls.STATEMENTS.items()
            if "(a)" not in statement or "a" in available
        }
        for name, t in self.timers.items():
            t.timeit(20 if "chain" in name else 2000)
        return {}

    def calls(self, seconds):
        """The best time of each statement, taking turns, in seconds for each statement."""
        best = {}
        for name, t in self.timers.items():
            number = max(1, int(SHORT / 5 / max(t.timeit(10) / 10, 1e-9)))
            best[name] = (t, number, [])
        end = perf_counter() + seconds
        while perf_counter() < end:
            for t, number, found in best.values():
                found.append(t.timeit(number) / number)
        return {"best": {name: min(found) for name, (_, _, found) in best.items()}}

    def open_threads(self, case, n_threads, seconds):
        """Takes up a function for runs of about `seconds` by one thread and by several."""
        self.case = kernels.CASES[case]
        self.function = self.accelerate(self.case.function)
        self.inputs = [self.case.arguments() for _ in range(n_threads)]
        best = min(timeit.repeat(lambda: self.function(*self.inputs[0]), number=1, repeat=5))
        self.number = max(1, int(seconds / best))
        return {}

    def threads(self):
        """Seconds for a number of calls by one thread, and for as many by each of several at once."""
        return {"one": self.at_once(1), "all": self.at_once(len(self.inputs))}

    def at_once(self, n_threads):
        gate = threading.Barrier(n_threads + 1)

        def work(arguments):
            gate.wait()
            for _ in range(self.number):
                self.function(*arguments)

        threads = [threading.Thread(target=work, args=(self.inputs[i],)) for i in range(n_threads)]
        for thread in threads:
            thread.start()
        gate.wait()
        start = perf_counter()
        for thread in threads:
            thread.join()
        return perf_counter() - start


def timer(function, arguments):
    """Calls with these arguments as a program would write them, timed in a loop."""
    values = {f"a{i}": value for i, value in enumerate(arguments)}
    return timeit.Timer(f"f({', '.join(values)})", globals={"f": function, **values})


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # what else is printed must not be taken for an answer
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception as error:  # that a tool refuses a function is a result
            answer = {"refused": reason(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
