"""Every block of every specification: in plain CPython, decorated, promoted, and with each exit forced."""

import sys

import overdrive
import pytest

from tests.specs.spec import Run, agree, blocks

BLOCKS = [pytest.param(block, id=f"{block.file}:{block.line}") for block in blocks()]
COMPILED = {"jit": overdrive.jit, "promote": overdrive.promote}
COMPILED_BLOCKS = [
    pytest.param(block, mode, id=f"{block.file}:{block.line}-{mode}")
    for block in blocks()
    for mode in COMPILED
]
N_FORCED_ROUNDS = 2


def plain(function):
    return function


@pytest.mark.parametrize("block", BLOCKS)
def test_cpython(block):
    Run(block, plain)


@pytest.mark.parametrize(("block", "mode"), COMPILED_BLOCKS)
def test_compiled(block, mode):
    run = Run(block, COMPILED[mode])
    assert agree(Run(block, plain), run)
    assert not list(run.wrong_lines())


@pytest.mark.parametrize("block", BLOCKS)
def test_every_exit_forced(block):
    """Exit k fails whenever it is asked about. CPythons after the first try every third."""
    want = Run(block, plain, N_FORCED_ROUNDS)
    for force in range(0, Run(block, overdrive.jit).n_exits(), 1 if sys.version_info < (3, 12) else 3):
        forced(block, "jit", want, force)


@pytest.mark.parametrize(("block", "mode"), COMPILED_BLOCKS)
def test_exits_forced_at_random(block, mode):
    want = Run(block, plain, N_FORCED_ROUNDS)
    for force in (("seed", 1, 1.0), ("seed", 2, 0.3)):
        forced(block, mode, want, force)


def forced(block, mode, want, force):
    overdrive._core.debug_force(force)
    try:
        assert agree(want, Run(block, COMPILED[mode], N_FORCED_ROUNDS))
    except AssertionError as error:
        raise AssertionError(f"with {force} forced: {error}") from error
