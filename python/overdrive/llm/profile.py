"""Where the time of a model goes: for each operator calls, time, bytes and operations.

>>> with model.profile() as profile:  # doctest: +SKIP
...     model.generate("Once upon a time")
>>> print(profile)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import NamedTuple

from overdrive._core import LlmProfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Any, Self

    from overdrive.llm.model import Model


class OpCost(NamedTuple):
    """What one operator took: ``n_bytes`` of weights, keys and values; a multiply-add is two operations."""

    operator: str
    n_calls: int
    seconds: float
    n_bytes: int
    n_operations: int


class OpProfile:
    """Sums by operator, over everything that a model computes inside ``with model.profile()``.

    ``rows`` has them in the order they run, ``str`` is a table. One computation at a time adds to a profile.
    """

    def __init__(self, model: Model | None = None) -> None:
        self._core = LlmProfile()
        self._model = model
        self._before: OpProfile | None = None

    @property
    def rows(self) -> list[OpCost]:
        """The operators that ran."""
        return [OpCost(*row) for row in self._core.rows() if row[1]]

    @staticmethod
    def table(rows: Iterable[Mapping[str, Any]]) -> str:
        """Return rows, as dictionaries, as a table for people."""
        rows = list(rows)
        total = sum(row["seconds"] for row in rows) or 1.0
        lines = [f"{'operator':10} {'calls':>7} {'ms':>10} {'part':>6} {'MB':>9} {'GB/s':>7} {'GOP/s':>8}"]
        for row in rows:
            seconds = row["seconds"] or 1e-9
            bandwidth = row["n_bytes"] / seconds / 1e9
            lines.append(
                f"{row['operator']:10} {row['n_calls']:7,} {row['seconds'] * 1e3:10,.2f} "
                f"{row['seconds'] / total:6.1%} {row['n_bytes'] / 1e6:9,.1f} {bandwidth:7.1f} "
                f"{row['n_operations'] / seconds / 1e9:8,.1f}"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table(row._asdict() for row in self.rows)

    def __enter__(self) -> Self:
        if self._model is not None:
            self._before, self._model._profile = self._model._profile, self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._model is not None:
            self._model._profile = self._before
