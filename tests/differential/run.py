"""Runs one program plain and compiled, and compares.

In: source text. Out: the list of differences. A program is executed anew for every mode, with its own code objects.
Modes: `jit` (decorated), `promote` (swapped in), each with exits as they come or forced at random.
"""

from __future__ import annotations

import random
import signal
import sys
import types
import warnings

import numpy as np

from tests.settle import settle

from . import compare

MODES = ("jit", "promote", "jit-forced", "promote-forced")
FILENAME = "<generated>"
RATES = (0.02, 0.1, 0.3, 1.0)


class TooSlow(BaseException):
    """The program takes too long for a test, or too much memory."""


def load(text, mode, seed=0):
    """The program as a module, its functions made fast as the mode says."""
    module = types.ModuleType("generated")
    sys.modules["generated"] = module  # dataclasses look for it
    module.marked = []
    module.jit = lambda function: module.marked.append(function) or function
    if mode != "plain":
        import overdrive
        from overdrive import _core

        rate = random.Random(seed).choice(RATES)
        _core.debug_force(("seed", seed, rate) if mode.endswith("forced") else None)
        if mode.startswith("jit"):
            module.jit = lambda function: module.marked.append(made := overdrive.jit(function)) or made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, FILENAME, "exec"), module.__dict__)
    if mode.startswith("promote"):
        for function in module.marked:
            overdrive.promote(function)
    return module


def outcomes(text, mode, seed=0, look=lambda module: None):
    """What every call of the program did; `look` gets the module afterwards."""
    module = load(text, mode, seed)
    notes = module.__dict__.get("NOTES", [])
    found, seen = [], {}
    for arguments in quietly(module.calls()):
        with np.errstate(all="warn"):
            found.append(compare.observe(module.f, arguments, FILENAME, notes))
        if mode.startswith("promote"):
            settle(module.marked, seen)
    look(module)
    return found


def quietly(calls):
    """The calls' arguments, made without a word: int8 of 1000 warns."""
    calls = iter(calls)
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = next(calls, None)
        if arguments is None:
            return
        yield arguments


def reference(text, limit=2.0):
    """What plain CPython does, or `TooSlow`; `limit` counts seconds of the processor, not of a busy machine."""

    def stop(*_):
        raise TooSlow

    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        found = outcomes(text, "plain")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
    if any(o.error and o.error[0] in ("MemoryError", "RecursionError") for o in found):
        raise TooSlow
    return found


def check(text, modes=MODES, seed=0, before=lambda mode: None, look=lambda module: None):
    """The differences of a program: (mode, number of the call, description)."""
    want = reference(text)
    found = []
    for mode in modes:
        before(mode)
        got = outcomes(text, mode, seed, look)
        for number, (a, b) in enumerate(zip(want, got, strict=True)):
            if compare.differences(a, b):
                found.append((mode, number, compare.describe(a, b)))
                break
        # Comparing says which objects are shared, so the arguments of the reference stay as they were left.
    if "overdrive" in sys.modules:
        sys.modules["overdrive"]._core.debug_force(None)
    return found
