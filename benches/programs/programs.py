"""Real programs, as they lie in packages of PyPI, and what each is asked to do.

In: the packages of scripts/requirements/programs.txt, in a directory that PYTHONPATH names. Out: `PROGRAMS`; `prepare` of each imports
its package and returns a function that does one round of work and returns what must be equal, as text. All inputs are made
here from fixed seeds. Knows nothing of Overdrive.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import io
import os
import random
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Program(NamedTuple):
    """What the page says of a program, and how it is begun."""

    what: str
    packages: tuple[str, ...]
    rounds: int
    """Number of rounds that take CPython some ten seconds."""
    prepare: Callable[[], Callable[[], str]]


def suite_program(name):
    """A module of pyperformance: a file in a directory of data, which no import finds."""
    found = importlib.util.find_spec("pyperformance")
    directory = os.path.dirname(found.origin)
    path = os.path.join(directory, "data-files", "benchmarks", f"bm_{name}", "run_benchmark.py")
    spec = importlib.util.spec_from_file_location(f"bm_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def constraints():
    """deltablue: a solver of constraints, of many small classes and methods."""
    solver = suite_program("deltablue")

    def work():
        with contextlib.redirect_stdout(io.StringIO()) as said:
            solver.delta_blue(4000)
        marks = solver.planner.current_mark
        return f"{marks} {said.getvalue()}"

    return work


def decompressor():
    """pyflate: bzip2 in Python."""
    pyflate = suite_program("pyflate")
    path = os.path.join(os.path.dirname(pyflate.__file__), "data", "interpreter.tar.bz2")

    def work():
        with open(path, "rb") as file:
            bits = pyflate.RBitfield(file)
            bits.readbits(16)
            return hashlib.sha256(pyflate.bzip2_main(bits)).hexdigest()

    return work


def puzzle():
    """hexiom: a search for the solution of a board."""
    hexiom = suite_program("hexiom")
    board, _ = hexiom.LEVELS[25]

    def work():
        out = io.StringIO()
        for _ in range(100):
            hexiom.solve_file(board.strip(), hexiom.Done.FIRST_STRATEGY, hexiom.DESCENDING, out)
        return out.getvalue()

    return work


def markdown():
    """markdown-it-py: a document of headings, lists, tables, links and code to HTML."""
    from markdown_it import MarkdownIt

    chance = random.Random(3)
    words = "the native layer *keeps* results **equal** to `CPython` [always](https://example.org/a?b=c) and & <b>says</b> why".split()

    def sentence():
        return " ".join(chance.choice(words) for _ in range(chance.randrange(6, 18))) + "."

    parts = []
    for number in range(150):
        parts.append(f"{'#' * (1 + number % 4)} Part {number}\n\n{sentence()} {sentence()}\n{sentence()}\n")
        parts.append("\n".join(f"{'  ' * (i % 3)}- {sentence()}" for i in range(8)) + "\n")
        parts.append(
            f"> {sentence()}\n> {sentence()}\n\n```python\ndef f(x):\n    return x + {number}\n```\n"
        )
        parts.append(
            "| name | value |\n| --- | ---: |\n"
            + "\n".join(f"| {sentence()} | {i} |" for i in range(5))
            + "\n"
        )
    document = "\n".join(parts)
    renderer = MarkdownIt("commonmark").enable("table")
    return lambda: renderer.render(document)


def digits():
    """mpmath: functions at 60 digits, on Python's own integers."""
    mpmath = importlib.import_module("mpmath")
    mpmath.mp.dps = 60

    def work():
        out = [mpmath.zeta(mpmath.mpc(1 / 2, 10 + i)) for i in range(12)]
        out += [mpmath.besselj(0, mpmath.mpf(i) / 3) for i in range(1, 400)]
        out += [mpmath.quad(lambda x: mpmath.exp(-x * x) * mpmath.cos(x), [0, 2])]
        out += [mpmath.findroot(lambda x: mpmath.cos(x) - x, 1)]
        out += list(mpmath.polyroots([1, -3, 0, 7, -5, 2], maxsteps=200))
        out += list(mpmath.lu_solve(mpmath.hilbert(10), mpmath.matrix([1] * 10)))
        return "\n".join(map(str, out))

    return work


def queue():
    """simpy: customers, clerks and breakdowns, as generators that the event loop resumes."""
    simpy = importlib.import_module("simpy")

    def work():
        chance = random.Random(7)
        world = simpy.Environment()
        clerks = simpy.PreemptiveResource(world, capacity=3)
        store = simpy.Container(world, capacity=5000, init=2500)
        log = []

        def customer(number):
            arrived = world.now
            with clerks.request(priority=1 + number % 3, preempt=False) as turn:
                patience = world.timeout(chance.expovariate(1 / 40))
                yield turn | patience
                if not turn.triggered:
                    log.append((number, "left", world.now - arrived))
                    return
                try:
                    yield world.timeout(chance.expovariate(1 / 9))
                    yield store.get(1 + number % 4)
                    log.append((number, "served", world.now - arrived))
                except simpy.Interrupt:
                    log.append((number, "sent away", world.now - arrived))

        def arrivals():
            for number in range(8000):
                yield world.timeout(chance.expovariate(1 / 3))
                world.process(customer(number))

        def supply():
            while True:
                yield world.timeout(50)
                if store.level < 2000:
                    yield store.put(500)

        def breakdowns():
            while True:
                yield world.timeout(chance.expovariate(1 / 300))
                with clerks.request(priority=0) as turn:
                    yield turn
                    yield world.timeout(20)

        world.process(supply())
        world.process(breakdowns())
        world.run(until=world.process(arrivals()))
        return hashlib.sha256(repr(log).encode()).hexdigest()

    return work


def cipher():
    """pyaes: AES-256 in CBC and CTR, on bytes."""
    pyaes = importlib.import_module("pyaes")
    chance = random.Random(5)
    key, start, text = chance.randbytes(32), chance.randbytes(16), chance.randbytes(60_000)

    def work():
        encrypted = b""
        cbc = pyaes.AESModeOfOperationCBC(key, iv=start)
        encrypted = b"".join(cbc.encrypt(text[i : i + 16]) for i in range(0, len(text), 16))
        cbc = pyaes.AESModeOfOperationCBC(key, iv=start)
        assert b"".join(cbc.decrypt(encrypted[i : i + 16]) for i in range(0, len(text), 16)) == text
        counted = pyaes.AESModeOfOperationCTR(key, pyaes.Counter(17)).encrypt(text)
        return hashlib.sha256(encrypted + counted).hexdigest()

    return work


def grammar():
    """lark: an LALR parser made from a grammar, a text parsed, its tree evaluated."""
    lark = importlib.import_module("lark")
    rules = r"""
        start: statement+
        statement: NAME "=" sum ";" -> assign | "print" sum ";" -> show
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom | product "*" atom -> mul
        ?atom: NUMBER -> number | "-" atom -> neg | NAME -> var | "(" sum ")"
        %import common.CNAME -> NAME
        %import common.NUMBER
        %import common.WS
        %ignore WS
    """
    chance = random.Random(11)

    def expression(depth):
        if depth == 0:
            return chance.choice(["a", "b", "c", "x", str(chance.randrange(1000))])
        left, right = expression(depth - 1), expression(chance.randrange(depth))
        return f"({left} {chance.choice('+-*')} {right})"

    text = "".join(f"{chance.choice('abcx')} = {expression(4)};\n" for _ in range(400)) + "print a + b;\n"

    @lark.v_args(inline=True)
    class Evaluate(lark.Transformer):
        def __init__(self):
            super().__init__()
            self.names, self.shown = dict.fromkeys("abcx", 1), []

        def number(self, token):
            return int(token)

        def add(self, x, y):
            return (x + y) % 1_000_003

        def sub(self, x, y):
            return (x - y) % 1_000_003

        def mul(self, x, y):
            return (x * y) % 1_000_003

        def neg(self, x):
            return -x

        def var(self, name):
            return self.names[name]

        def assign(self, name, value):
            self.names[name] = value

        def show(self, value):
            self.shown.append(value)

    parser = lark.Lark(rules, parser="lalr")

    def work():
        evaluate = Evaluate()
        evaluate.transform(parser.parse(text))
        return repr((evaluate.shown, evaluate.names))

    return work


PROGRAMS = {
    "deltablue": Program("constraint solver", ("pyperformance", "pyperf"), 50, constraints),
    "pyflate": Program("bzip2 decompressor", ("pyperformance", "pyperf"), 12, decompressor),
    "hexiom": Program("puzzle solver", ("pyperformance", "pyperf"), 10, puzzle),
    "markdown-it-py": Program("Markdown parser", ("markdown-it-py", "mdurl"), 20, markdown),
    "mpmath": Program("arithmetic of many digits", ("mpmath",), 40, digits),
    "simpy": Program("discrete event simulation", ("simpy",), 35, queue),
    "pyaes": Program("cipher", ("pyaes",), 15, cipher),
    "lark": Program("parser generator", ("lark",), 60, grammar),
}
