"""Every test leaves `/dev/shm` as it found it, apart from what other programs do there."""

import gc
import subprocess
import sys
import textwrap

import pytest
from overdrive import shm

from tests.shared_memory import alone


def names():
    return {row["name"] for row in shm.list()}


@pytest.fixture(autouse=True)
def nothing_is_left():
    with alone():
        before = names()
        yield
        gc.collect()
        left = names() - before
        if left:
            shm.gc()
        assert not left


@pytest.fixture
def python():
    """Runs code in a new process and returns what it printed."""

    def run(code, *arguments, check=True):
        command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if check:
            assert done.returncode == 0, done.stderr
            assert not done.stderr
            return done.stdout.strip()
        return done

    return run
