"""Generated programs behave the same compiled as interpreted, also with exits forced at random.

The seeds are fixed, and each program runs in one mode, by turns, so that this takes minutes. The first supported
CPython runs a thousand; the others run fewer, because what differs between them (bytecode, frames) shows soon.
They come in parts, each with one worker process, so that a parallel run of the suite keeps all cores busy to its end.
`make fuzz` runs others until it is stopped.
"""

import ast
import os
import re
import signal
import subprocess
import sys

import pytest

from . import compare
from .fuzz import ROOT, Finding, Keeper, fuzz
from .program import PRELUDE, source
from .reduce import reduce
from .run import MODES, load, reference

N_PROGRAMS = 1000 if sys.version_info[:2] == (3, 11) else 100
PART = 20


@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, N_PROGRAMS, PART))
def test_nothing_differs(start):
    result = fuzz(start, PART, MODES, n_workers=1, takes_turns=True)
    report = "\n".join(map(str, sorted(result.findings, key=lambda f: f.seed)[:5]))
    assert not result.findings, f"{len(result.findings)} findings, the first are:\n{report}"
    assert result.n_programs == PART and result.n_skipped <= 1
    assert result.n_compiled >= PART * 0.7, "what is not compiled cannot fail"


@pytest.mark.timeout(900)
def test_few_programs_are_skipped():
    """Nor does one differ from itself: whoever finds a difference elsewhere may blame the compiled code."""
    result = fuzz(0, N_PROGRAMS, ("plain",), n_workers=1)
    assert not result.findings and result.n_programs == N_PROGRAMS
    assert result.n_skipped < N_PROGRAMS // 50, "the generator makes programs that are too slow"


def test_most_calls_come_to_their_end():
    """A call that raises in its first line tries nothing behind it."""
    seen = [outcome for seed in range(150) for outcome in reference(source(seed))]
    assert sum(outcome.error is not None for outcome in seen) < 0.4 * len(seen)


CONSTRUCTS = """
AnnAssign Assert Assign AugAssign Attribute BoolOp Break Call ClassDef Compare Constant Continue Delete Dict DictComp
ExceptHandler Expr For FormattedValue FunctionDef GeneratorExp Global If IfExp JoinedStr Lambda List ListComp Match
MatchAs MatchClass MatchMapping MatchOr MatchSequence MatchSingleton MatchStar MatchValue NamedExpr Nonlocal Pass Raise
Return Set SetComp Slice Starred Subscript Try Tuple UnaryOp While With Yield YieldFrom keyword
""".split()
PIECES = """
@property super() __slots__ @dataclass @classmethod @staticmethod .setter __add__ __getattr__ __setattr__ __del__ __class__
patch( finally: complex( Fraction( Decimal( float16 complex64 uint64 errstate .T [::-1] nonlocal **kw *rest
.items() .setdefault( .pop( frozenset( deque( Counter( defaultdict( .join( .split( .encode( to_bytes memoryview globals()
isinstance( sorted( .sort( lambda suppress( sys.exc_info() next( rec(
""".split()


def test_all_of_the_language_is_generated():
    texts = [source(seed)[len(PRELUDE) :] for seed in range(400)]
    nodes = {type(node).__name__ for text in texts for node in ast.walk(ast.parse(text))}
    assert set(CONSTRUCTS) - nodes == set()
    whole = "\n".join(texts)
    assert [piece for piece in PIECES if piece not in whole] == []


def test_ctrl_c_ends_a_run_without_end():
    command = [sys.executable, "tests/differential/fuzz.py", "--workers", "1", "--modes", "jit"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline()
        assert re.fullmatch(r"programs from seed \d+ on; Ctrl-C ends it\n", first)
        os.kill(process.pid, signal.SIGINT)
        rest = process.communicate(timeout=100)[0]
    assert re.match(r"\d+ programs", rest.splitlines()[-1])
    assert process.returncode == 0


def test_a_finding_is_kept(tmp_path, capsys):
    """Also one that does not come back when its program runs alone."""
    Keeper(tmp_path, 20)(Finding(17, "jit", "call 0"))
    assert (tmp_path / "17-jit.py").read_text() == source(17)
    assert "not reduced: alone" in (tmp_path / "17-jit.txt").read_text()
    assert "seed 17, jit" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_program():
    assert source(17) == source(17) != source(18)


def test_a_difference_is_seen():
    """The comparison is not blind: each of these pairs differs in one thing."""
    shared, nan = [1.0], float("nan")
    pairs = [
        ({1, 2}, {1, 3}), (frozenset(), set()), (__import__("decimal").Decimal(1), __import__("decimal").Decimal("1.0")),
        (__import__("collections").deque([1]), __import__("collections").deque([2])), (slice(1), slice(2)), (1j, 1 + 1j),
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


def test_slots_and_references_are_seen():
    class Slotted:
        __slots__ = ("x",)

        def __init__(self, x):
            self.x = x

    assert compare.same(Slotted(1), Slotted(1)) and not compare.same(Slotted(1), Slotted(1.0))
    kept = []
    keep, ignore = (compare.observe(function, ([],)) for function in (kept.append, len))
    ignore.value = keep.value
    assert compare.differences(keep, ignore) == ["references"]
