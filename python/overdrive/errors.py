"""What Overdrive raises by itself. Errors of the program under it are the program's own."""

from __future__ import annotations


class Error(Exception):
    """Base of all errors that Overdrive raises."""


class NotCompiledError(Error):
    """``jit(strict=True)``: part of the function would run in CPython.

    ``reasons`` says which lines and why, one sentence each.
    """

    def __init__(self, name: str, reasons: list[str]) -> None:
        self.name = name
        self.reasons = reasons
        lines = [f"{name} is not compiled as a whole:", *(f"  {reason}" for reason in reasons)]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type[NotCompiledError], tuple[str, list[str]]]:
        return NotCompiledError, (self.name, self.reasons)


class DifferenceError(Error):
    """`Verification.check`: native code did something else than CPython. The text says what."""


class HandleError(Error):
    """A handle of shared memory that leads nowhere: of another machine or container, cut, or released."""
