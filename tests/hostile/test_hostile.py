"""The benchmark functions, warmed up on ordinary arguments, then called with hostile ones, do what CPython does."""

import copy
import sys
import warnings
from pathlib import Path

import numpy as np
import overdrive
import pytest

from tests.differential.compare import Outcome, describe, differences
from tests.hostile.inputs import HOSTILE, LOG, TWICE
from tests.settle import settle

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
import kernels  # noqa: E402


def duplicate(arguments):
    """A deep copy; iterators cannot be copied, so they are made anew from what they still hold."""
    if any(hasattr(a, "__next__") for a in arguments):
        return tuple(iter([90.0, 91.0]) if hasattr(a, "__next__") else copy.deepcopy(a) for a in arguments)
    return copy.deepcopy(arguments)


def observe(function, arguments):
    outcome = Outcome()
    LOG.clear()
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            outcome.value = function(*arguments)
        except Exception as error:
            outcome.error = type(error).__name__, error.args
            outcome.positions = error.__traceback__.tb_next.tb_lineno
    outcome.warnings = [(w.category.__name__, str(w.message), w.lineno) for w in caught]
    outcome.notes = list(LOG)
    outcome.arguments = tuple(a for a in arguments if not hasattr(a, "__next__"))
    return outcome


def inputs(name):
    yield from HOSTILE[name]
    if name in TWICE:
        first, _, *rest = kernels.CASES[name].arguments()
        small = first[:12, :12] if isinstance(first, np.ndarray) else first[:12]
        yield (small, small, *(r[:12, :12] if isinstance(r, np.ndarray) else r for r in rest))


def copy_of(function):
    """The same function with a code object of its own, so that promoting it leaves the original alone."""
    made = type(function)(function.__code__.replace(), function.__globals__, function.__name__)
    return made


@pytest.mark.parametrize("forced", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("mode", ["jit", "promote"])
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile(name, mode, forced):
    case = kernels.CASES[name]
    plain = copy_of(case.function)
    fast = overdrive.jit(copy_of(plain)) if mode == "jit" else overdrive.promote(copy_of(plain))
    if forced:
        overdrive._core.debug_force(("seed", 7, 0.05))
    ordinary = case.arguments()
    if forced:
        ordinary = next(inputs(name))  # with exits forced, the ordinary arguments take long
    wrong, seen = [], {}
    promoted = [fast] if mode == "promote" else []  # a decorated function has waited for its compiles itself
    for _ in range(3):
        observe(fast, duplicate(ordinary))
        settle(promoted, seen)
    for arguments in inputs(name):
        want, got = observe(plain, duplicate(arguments)), observe(fast, duplicate(arguments))
        settle(promoted, seen)
        if differences(want, got):
            wrong.append(f"{name}{str(arguments)[:200]}\n{describe(want, got)}")
    assert not wrong, "\n".join(wrong)
