"""Generated programs behave the same compiled as interpreted, also with exits forced at random.

The seeds are fixed, and each program runs in one mode, by turns, so that this takes minutes. The first supported
CPython runs all of them; the others run fewer, because what differs between them (bytecode, frames) shows soon.
They come in parts, each with one worker process, so that a parallel run of the suite keeps all cores busy to its end.
`make fuzz` runs every program in every mode, `make fuzz START=N` others.
"""

import sys

import pytest

from . import compare
from .fuzz import fuzz
from .program import source
from .reduce import reduce
from .run import MODES, load

N_PROGRAMS = 800 if sys.version_info[:2] == (3, 11) else 80
PART = 20


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, N_PROGRAMS, PART))
def test_nothing_differs(start):
    result = fuzz(start, PART, MODES, n_workers=1, takes_turns=True)
    report = "\n".join(map(str, sorted(result.findings, key=lambda f: f.seed)[:5]))
    assert not result.findings, f"{len(result.findings)} findings, the first are:\n{report}"
    assert result.n_programs == PART and result.n_skipped <= 1


@pytest.mark.timeout(900)
def test_few_programs_are_skipped():
    """Nor does one differ from itself: whoever finds a difference elsewhere may blame the compiled code."""
    result = fuzz(0, N_PROGRAMS, ("plain",), n_workers=1)
    assert not result.findings and result.n_programs == N_PROGRAMS
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
