"""What promotion did, as data and as the table that ``overdrive run`` prints."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import Any

    from overdrive.first_calls import FirstCalls
else:
    from overdrive._frozen import dataclass


@dataclass(frozen=True)
class Row:
    """One function, or the loops of a module; times are seconds, ``None`` where nothing was measured."""

    name: str
    file: str
    line: int
    kind: str
    """``"function"``, or ``"loops"`` for a body that runs once, whose running loops were entered."""
    state: str
    """``"promoted"``, ``"compiling"``, ``"refused"``, ``"put back"`` or ``"would promote"``."""
    score: float
    share: float
    """Largest part of a window's samples that was in the function itself."""
    calls: int | None
    """Calls seen: those counted while it was watched, and all native ones."""
    native_calls: int
    before: float | None
    """Time per call in CPython: calls timed while it was watched (on 3.11: samples by counted calls)."""
    after: float | None
    """Time per call native: one call in 64 is timed."""
    promoted_at: float | None
    """Seconds after the start."""
    exits: int
    loops_entered: int
    notes: tuple[str, ...]
    events: tuple[tuple[float, str], ...] = ()
    """Seconds after the start, and the state that began then (``"compiling"``, ``"promoted"``, ...)."""
    samples: tuple[tuple[int, int], ...] = ()
    """Index in `Report.windows`, and samples of that window that were in the function itself."""
    verified_calls: int | None = None
    """First calls that ran both ways and were equal; ``None`` in a session that does not verify."""
    differences: tuple[str, ...] = ()
    """In which a first call natively differed from CPython."""

    @property
    def speedup(self) -> float | None:
        """How many times faster a call became."""
        if not self.before or not self.after:
            return None
        return self.before / self.after

    @property
    def where(self) -> str:
        """``file.py:12``, without directories."""
        return f"{os.path.basename(self.file)}:{self.line}"


@dataclass(frozen=True)
class Report:
    """The outcome of a session: ``str()`` is a table."""

    rows: tuple[Row, ...]
    seconds: float
    """Length of the session."""
    samples: int
    trouble: str | None = None
    """Why nothing could be promoted, where that is so."""
    windows: tuple[tuple[float, int], ...] = ()
    """Consecutive windows of the session: end in seconds after the start, and samples taken. At most 400."""
    others: tuple[dict[str, Any], ...] = ()
    """Functions without a row in which most samples were: ``name``, ``file`` and ``samples`` as in a row."""

    @classmethod
    def empty(cls, trouble: str | None = None) -> Report:
        """Return the report of a session that did nothing."""
        return cls((), 0.0, 0, trouble)

    @classmethod
    def from_data(cls, data: dict[str, Any], verifier: FirstCalls | None = None) -> Report:
        """Make a report of what the engine tells, and the verifier where there is one."""
        rows = tuple(_row(row, verifier) for row in data["rows"])
        windows, others = tuple(data.get("windows", ())), tuple(data.get("others", ()))
        return cls(rows, data["seconds"], data["samples"], data["trouble"], windows, others)

    def shares(self, row: Row) -> tuple[float | None, float | None]:
        """Return the part of all samples that were in a function itself: while it was CPython's, and native.

        ``None`` where no whole window was of that kind.
        """
        periods = native_periods(row, self.seconds)
        own = dict(row.samples)
        taken, seen = [0, 0], [0, 0]
        begin = 0.0
        for number, (end, ticks) in enumerate(self.windows):
            is_native = any(since <= begin and end <= until for since, until in periods)
            is_mixed = not is_native and any(since < end and begin < until for since, until in periods)
            if not is_mixed:
                taken[is_native] += ticks
                seen[is_native] += own.get(number, 0)
            begin = end
        before, after = (part / all_ if all_ else None for part, all_ in zip(seen, taken, strict=True))
        return before, after

    @property
    def n_differences(self) -> int:
        """Functions that did something else natively than in CPython."""
        return sum(bool(row.differences) for row in self.rows)

    def to_json(self) -> str:
        """Return all fields as JSON; times are seconds. Fields may be added, none changes its meaning."""
        import json

        rows = []
        for row in self.rows:
            before, after = self.shares(row)
            rows.append({**vars(row), "speedup": row.speedup, "share_before": before, "share_after": after})
        return json.dumps({**vars(self), "rows": rows}, indent=1)

    def html(self, explained: list[dict[str, Any]] | None = None, *, title: str = "overdrive run") -> str:
        """Return a page that needs nothing else: when what was promoted, and where the time went.

        ``explained`` are functions as in `Explanation.functions`; by default those of this process that were
        compiled, or were to be. Their sources are shown, shaded line by line.
        """
        from overdrive.html import report

        return report.page_of(self, report.compiled() if explained is None else explained, title)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the page without sources. Its style touches nothing around it."""
        from overdrive.html import report

        return report.cell(self)

    def __str__(self) -> str:
        promoted = sum(row.state == "promoted" for row in self.rows)
        lines = [f"overdrive: {_count(promoted, 'promotion')} in {self.seconds:.1f} s"]
        if self.n_differences:
            functions = _count(self.n_differences, "function")
            lines.append(f"overdrive: {functions} differed from CPython and got no native code")
        if self.trouble:
            lines.append(f"overdrive: {self.trouble}")
        if self.rows:
            lines += _table(_HEADER, [_cells(row) for row in self.rows])
        return "\n".join(lines)


def native_periods(row: Row, seconds: float) -> list[tuple[float, float]]:
    """Return from when to when a function was native."""
    periods = []
    since = None
    for at, state in row.events:
        if state == "promoted":
            since = at if since is None else since
        elif since is not None:
            periods.append((since, at))
            since = None
    if since is not None:
        periods.append((since, max(seconds, since)))
    return periods


_HEADER = ("function", "calls", "before", "after", "speed-up", "promoted at", "note")
_LEFT = {0, len(_HEADER) - 1}


_LISTS = ("notes", "events", "samples")


def _row(data: dict[str, Any], verifier: FirstCalls | None) -> Row:
    row: dict[str, Any] = {**data, **{name: tuple(data.get(name, ())) for name in _LISTS}}
    if verifier is not None:
        record = verifier.record_of(data["file"], data["line"], data["name"])
        row["verified_calls"], notes = 0, ["not verified: loops that were entered while they ran"]
        if record is not None:
            row["verified_calls"], row["differences"] = record.verified_calls, record.differences
            if record.not_verified is not None:
                notes = [f"not verified: {record.not_verified}"]
            else:
                notes = [f"{_count(record.verified_calls, 'call')} verified"] if record.verified_calls else []
        elif data["kind"] == "function":
            notes = ["waits for a call to verify"] if data["state"] == "compiling" else []
        row["notes"] += tuple(notes)
    return Row(**row)


def _cells(row: Row) -> tuple[str, ...]:
    at = f"{row.promoted_at:.1f} s" if row.promoted_at is not None else "-"
    if row.state == "would promote":
        at = f"({at})"
    notes = list(row.notes)
    if row.state not in ("promoted", "would promote"):
        notes.insert(0, row.state)
    if row.state == "promoted" and (row.kind == "loops" or (row.loops_entered and not row.native_calls)):
        notes.insert(0, "loops entered while they ran")
    return (
        f"{row.name} ({row.where})",
        f"{row.calls:,}" if row.calls is not None else "-",
        duration(row.before),
        duration(row.after),
        f"{row.speedup:.1f}×" if row.speedup is not None else "-",  # noqa: RUF001
        at,
        "; ".join(notes),
    )


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    out = []
    for row in [header, *rows]:
        cells = [
            cell.ljust(width) if column in _LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.append("  ".join(cells).rstrip())
    return out


def duration(seconds: float | None) -> str:
    """Write a time with three digits and its unit; ``-`` for none.

    >>> duration(0.0000123), duration(None)
    ('12.3 µs', '-')
    """
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size or unit == "ns":
            value = seconds / size
            digits = 0 if value >= 100 or unit == "ns" else 1 if value >= 10 else 2
            return f"{value:.{digits}f} {unit}"
    raise AssertionError("the last unit takes all")


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"
