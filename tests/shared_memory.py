"""Tests that share memory take turns: some look at all there is on this machine, and other tests must not be in it."""

import contextlib
import fcntl
import pathlib
import tempfile

LOCK = pathlib.Path(tempfile.gettempdir()) / "overdrive-tests-of-shared-memory.lock"


@contextlib.contextmanager
def alone():
    """Holds the only turn on this machine, whichever process, interpreter or clone the other tests run in.

    A record lock, because forked children do not inherit those.
    """
    with LOCK.open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
