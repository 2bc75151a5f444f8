"""What every test of the Python suite gets: no switch of the engine stays on after a test."""

import sys

import pytest


@pytest.fixture(autouse=True)
def engine_is_left_as_found():
    yield
    core = sys.modules.get("overdrive._core")
    if core is not None and hasattr(core, "debug_force"):
        core.debug_force(None)
