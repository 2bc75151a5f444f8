"""An exit at every instruction: CPython goes on from the same state, and nobody can tell."""

import copy
import dis
import sys

import pytest
from overdrive import _core

from . import harness, subjects

NAMES = tuple(subject.__name__ for subject in subjects.SUBJECTS) + (
    "helper",
    "plus",
    "noisy",
    "inner",
    "bump",
    "generate",
)


# Instructions that run user code: only there can native code have an exception to hand over. (One that merely
# finds a variable unset is left in front of, and CPython raises.)
CAN_RAISE = (
    "BEFORE_WITH BINARY BUILD_MAP BUILD_SET BUILD_STRING CALL CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP "
    "CONVERT_VALUE DELETE_ATTR DELETE_SUBSCR DICT FORMAT FOR_ITER GET_ITER IMPORT LIST_EXTEND LOAD_ATTR "
    "LOAD_FROM_DICT LOAD_GLOBAL LOAD_METHOD LOAD_NAME LOAD_SUPER_ATTR MATCH POP_JUMP PRECALL "
    "RAISE_VARARGS SET_ADD SET_UPDATE STORE_ATTR STORE_SLICE STORE_SUBSCR TO_BOOL UNARY UNPACK WITH_EXCEPT_START"
).split()


def can_raise(code):
    return {i.offset for i in dis.get_instructions(code) if i.opname.startswith(tuple(CAN_RAISE))}


def plain(function):
    log = []
    return harness.outcome(lambda: function(log), *NAMES), log


@pytest.mark.parametrize("subject", subjects.SUBJECTS, ids=lambda s: s.__name__)
def test_reexecute(subject):
    expected = plain(subject)
    depths = harness.depths(subject.__code__)
    n_steps = harness.n_steps(subject)
    assert n_steps > 5
    for step in range(0, n_steps, 1 if n_steps < 600 else 7):

        def take_over(frame, offset):
            log = frame.f_locals["log"]
            locals_, stack = _core._frame_slots(frame, depths[offset])
            result = harness.outcome(lambda: _core._resume(subject, offset, locals_, stack), *NAMES)
            return result, copy.copy(log), offset

        result, log, offset = harness.at_step(subject, step, take_over)
        assert (result, log) == expected, f"step {step}, offset {offset}"


@pytest.mark.parametrize("subject", subjects.SUBJECTS, ids=lambda s: s.__name__)
def test_raise(subject):
    depths = harness.depths(subject.__code__)
    raising = can_raise(subject.__code__)
    n_steps = harness.n_steps(subject)
    for step in range(0, n_steps, 1 if n_steps < 600 else 7):
        count, place, expected_log = 0, None, []

        def inject(frame, offset):
            nonlocal count, place
            count += 1
            if count == step + 1:
                place = offset
                raise harness.Injected("here")

        # CPython itself: an event's callback that raises.
        expected = harness.outcome(lambda: run_raising(subject, inject, expected_log), *NAMES)

        if place not in raising:
            continue

        def take_over(frame, offset):
            log = frame.f_locals["log"]
            locals_, stack = _core._frame_slots(frame, depths[offset])
            error = harness.Injected("here")
            error.__context__ = sys.exc_info()[1]
            result = harness.outcome(lambda: _core._resume(subject, offset, locals_, stack, error), *NAMES)
            return result, copy.copy(log)

        result, log = harness.at_step(subject, step, take_over)
        # A context manager that is entered and never left closes with the last frame that holds it.
        open_ones = ("leave",) if "noisy" in subject.__code__.co_names else ()
        log, expected_log = ([e for e in entries if e not in open_ones] for entries in (log, expected_log))
        assert (result, log) == (expected, expected_log), f"step {step}, offset {place}"


def run_raising(function, on_step, log):
    def isolated():
        yield harness.stepping(function, on_step, log)

    return next(isolated())
