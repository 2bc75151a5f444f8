"""What every test of the Python suite gets: no switch of the engine stays on after a test."""

import signal
import sys

import pytest

# A runner in the background has SIGINT ignored, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def engine_is_left_as_found():
    yield
    core = sys.modules.get("overdrive._core")
    if core is not None and hasattr(core, "debug_force"):
        core.debug_force(None)
