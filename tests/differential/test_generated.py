"""Generated programs behave the same compiled as interpreted, also with exits forced at random.

The seeds are fixed, and each program runs in one mode, by turns, so that this takes minutes. The first supported
CPython runs all of them; the others run fewer, because what differs between them (bytecode, frames) shows soon.
`python tests/differential/fuzz.py --forced` runs every program in every mode, `--start N` others.
"""

import os
import sys

import pytest

from . import compare
from .fuzz import fuzz
from .program import source
from .reduce import reduce
from .run import MODES, load

N_PROGRAMS = 800 if sys.version_info[:2] == (3, 11) else 80


@pytest.mark.timeout(900)
def test_nothing_differs():
    result = fuzz(0, N_PROGRAMS, MODES, n_workers=os.cpu_count() or 1, takes_turns=True)
    report = "\n".join(map(str, sorted(result.findings, key=lambda f: f.seed)[:5]))
    assert not result.findings, f"{len(result.findings)} findings, the first are:\n{report}"
    assert result.n_programs == N_PROGRAMS
    assert result.n_skipped < N_PROGRAMS // 50, "the generator makes programs that are too slow"


def test_the_same_seed_gives_the_same_program():
    assert source(17) == source(17) != source(18)


def test_a_difference_is_seen():
    """The comparison is not blind: each of these pairs differs in one thing."""
    shared, nan = [1.0], float("nan")
    pairs = [
        (1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ([shared, shared], [[1.0], [1.0]]), ([nan, nan], [nan, float("inf") * 0]),
        (1.0, __import__("numpy").float64(1.0)), ("a", "b"), (b"a", bytearray(b"a")),
    ]  # fmt: skip
    assert not [pair for pair in pairs if compare.same(*pair)]
    assert compare.same([shared, shared, nan], [shared, shared, nan])


def test_an_outcome_holds_positions_warnings_and_output():
    module = load(
        "import warnings\ndef f(x):\n    print(x)\n    warnings.warn('w')\n    return 1 // x\n", "plain"
    )
    outcome = compare.observe(module.f, (0,), "<generated>")
    assert outcome.error[:2] == ("ZeroDivisionError", ("integer division or modulo by zero",))
    assert [(name, line) for name, line, _ in outcome.positions] == [("f", 5)]
    assert outcome.warnings == [("UserWarning", "w", 4)]
    assert outcome.printed == "0\n"


def test_the_reducer_keeps_what_fails():
    fails = lambda text: ("differs", "") if "hypot" in text.partition("def f")[2] else None
    seed = next(seed for seed in range(1000) if fails(source(seed)))
    small, _ = reduce(source(seed), fails)
    assert "hypot" in small
    assert len(small) < 80, small
