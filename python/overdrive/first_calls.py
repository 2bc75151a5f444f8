"""``overdrive run --verify``: the first calls of a hot function run both ways before native code goes in.

In: calls, from the engine (`_core.verify_with`), each before it begins. Out: an answer for the engine, and
records for the report. Both kinds of code run on copies; the call that the program made is CPython's. A
function whose calls cannot be repeated unnoticed (`overdrive.effects`), or whose arguments have no small
copy, is promoted without and the report says so.
"""

from __future__ import annotations

import threading
import types
from typing import Any, NamedTuple

from overdrive import verification
from overdrive.copying import CannotCopy, Copier
from overdrive.effects import Reach

MOST_BYTES = 64 << 20
"""Arguments that take more are not copied."""


class Record(NamedTuple):
    """What the report says of one function."""

    verified_calls: int
    differences: tuple[str, ...]
    not_verified: str | None


class FirstCalls:
    """The verifier of one session; ``n_calls`` of each code object are verified."""

    def __init__(self, n_calls: int) -> None:
        self._n_calls = n_calls
        # Code objects are kept: their functions may die before the report.
        self._records: dict[types.CodeType, Record] = {}
        self._busy = threading.Lock()

    def record_of(self, file: str, line: int, name: str) -> Record | None:
        """Return the record of the function that the report knows by these three."""
        for code, record in self._records.items():
            if (code.co_filename, code.co_firstlineno, code.co_qualname) == (file, line, name):
                return record
        return None

    def __call__(
        self, function: types.FunctionType, code: types.CodeType, arguments: tuple[Any, ...]
    ) -> bool | str | None:
        """Answer the engine: None, ask again; True, promote; a str, do not, for this reason."""
        record = self._records.get(code, Record(0, (), None))
        if record.differences:
            return _refusal(record.differences)
        if record.not_verified is not None or record.verified_calls >= self._n_calls:
            return True
        # One at a time: a verification calls the function again, and puts global variables back.
        if not self._busy.acquire(blocking=False):
            return None
        try:
            record = self._verified(record, function, code, arguments)
        finally:
            self._busy.release()
        self._records[code] = record
        if record.differences:
            return _refusal(record.differences)
        return True if record.not_verified is not None or record.verified_calls >= self._n_calls else None

    def _verified(
        self,
        record: Record,
        function: types.FunctionType,
        code: types.CodeType,
        arguments: tuple[Any, ...],
    ) -> Record:
        positional, keywords = _as_called(code, arguments)
        try:
            # First of all, because it is bounded: that they are not too much.
            Copier({f"args[{i}]": value for i, value in enumerate(arguments)}, MOST_BYTES)
            objection = Reach(function, code, list(arguments)).objection
            if objection is not None:
                return record._replace(not_verified=objection)
            found = verification.verify(function, positional, keywords, most_bytes=MOST_BYTES, is_silent=True)
        except CannotCopy as error:
            return record._replace(not_verified=str(error))
        except Exception as error:
            # Nothing that goes wrong here is the program's error; that it is not verified is in the report.
            return record._replace(not_verified=f"{type(error).__name__}: {error}")
        if not found.repeatable:
            return record._replace(not_verified=f"two calls in CPython differ: {found.differences[0].path}")
        if not found.equal:
            return record._replace(differences=tuple(map(str, found.differences)))
        if not found.native:
            return record._replace(not_verified="; ".join(found.notes) or "nothing of it ran natively")
        return record._replace(verified_calls=record.verified_calls + 1)


def _refusal(differences: tuple[str, ...]) -> str:
    return f"differs from CPython: {differences[0]}"


def _as_called(code: types.CodeType, arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional arguments and keywords that fill a function's variables with ``arguments``."""
    n, n_keywords = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[n : n + n_keywords]
    positional = arguments[:n]
    keywords = dict(zip(names, arguments[n : n + n_keywords], strict=True))
    rest = list(arguments[n + n_keywords :])
    if code.co_flags & _VARARGS:
        positional += rest.pop(0)
    if code.co_flags & _VARKEYWORDS:
        keywords |= rest.pop(0)
    return positional, keywords


_VARARGS = 0x4
_VARKEYWORDS = 0x8
