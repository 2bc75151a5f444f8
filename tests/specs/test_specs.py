"""Every block of every specification: in plain CPython, decorated, promoted, and with each exit forced."""

import overdrive
import pytest

from tests.specs.spec import Run, agree, blocks

BLOCKS = [pytest.param(block, id=f"{block.file}:{block.line}") for block in blocks()]
COMPILED_BLOCKS = [
    pytest.param(block, mode, id=f"{block.file}:{block.line}-{mode}")
    for block in blocks()
    for mode in block.modes
]
COMPILED = {"jit": overdrive.jit, "promote": overdrive.promote}


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


@pytest.mark.parametrize(("block", "mode"), COMPILED_BLOCKS)
def test_every_exit_forced(block, mode):
    """Exit k fails whenever it is asked about; then all of them do, then some."""
    want = Run(block, plain)
    n_exits = Run(block, COMPILED[mode]).n_exits()
    for force in (*range(n_exits), ("seed", 1, 1.0), ("seed", 2, 0.3)):
        overdrive._core.debug_force(force)
        try:
            assert agree(want, Run(block, COMPILED[mode])), f"exit {force} forced"
        except AssertionError as error:
            raise AssertionError(f"with exit {force} forced: {error}") from error
