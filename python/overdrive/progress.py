"""A line on a terminal that says how far something is, for whatever takes longer than a second."""

from __future__ import annotations

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

BAR = 24
"""Characters of the bar."""


class Progress:
    """Shows ``what`` and a bar on standard error: only on a terminal, after a second, erased at the end.

    Call it with how much is done and how much there is. Nothing is written to a file or a pipe.

    >>> with Progress("loading") as progress:
    ...     progress(1, 2)
    """

    def __init__(self, what: str, *, after: float = 1.0, stream: TextIO | None = None) -> None:
        self.what = what
        self._stream = sys.stderr if stream is None else stream
        # Standard error may be closed or absent.
        try:
            self._is_terminal = self._stream is not None and self._stream.isatty()
        except ValueError:
            self._is_terminal = False
        self._next = time.monotonic() + after
        self._width = 0

    def __call__(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` is done, at most ten times a second."""
        if not self._is_terminal or (now := time.monotonic()) < self._next:
            return
        self._next = now + 0.1
        part = done / total if total else 1.0
        full = round(part * BAR)
        line = f"{self.what} [{'#' * full}{'-' * (BAR - full)}] {part:4.0%}"
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def close(self) -> None:
        """Erase the line."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        # A terminal that went away is no reason to stop the work.
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_terminal = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
