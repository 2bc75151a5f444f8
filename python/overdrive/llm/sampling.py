"""One draw from logits."""

from __future__ import annotations

import operator

from overdrive._core import sample as _sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, SupportsIndex


def sample(
    logits: Any,
    *,
    temperature: float = 1.0,
    top_k: SupportsIndex = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: SupportsIndex | None = None,
) -> int:
    """Draw a token by its logits and return its id.

    ``logits`` is one row of floats: a NumPy array, a torch tensor, a list. ``temperature=0`` takes the
    largest, of equal ones the lowest id. ``top_k`` keeps so many of the largest (0: all), ``top_p`` the most
    probable ones that together have that probability, ``min_p`` those at least that part as probable as the
    most probable one. The same ``seed`` draws the same token on every machine; without one each call differs.

    ValueError for logits that name no token (none, a NaN, +inf, all -inf) and for options out of range.

    >>> from overdrive import llm
    >>> llm.sample([1.0, 3.0, 3.0], temperature=0)
    1
    """
    k = operator.index(top_k)
    if k < 0:
        raise ValueError(f"top_k={k}; it has to be 0 (off) or a positive number")
    start = None if seed is None else operator.index(seed)
    if start is not None and not 0 <= start < 1 << 64:
        raise ValueError(f"seed={start}; it has to be from 0 to 2**64 - 1")
    # No vocabulary is larger.
    return _sample(_row(logits), float(temperature), min(k, 1 << 32), float(top_p), float(min_p), start)


def _row(logits: Any) -> Any:
    """Return the logits as a row of float32 or float64 that lies in one piece."""
    import numpy as np

    if hasattr(logits, "detach"):  # torch: NumPy has no bfloat16, and takes no tensor that has a gradient
        logits = logits.detach().cpu().double()
    row = np.asarray(logits)
    if row.dtype.kind not in "fiu" and row.size:
        raise TypeError(f"logits are numbers, not {row.dtype}")
    if row.ndim != 1:
        raise ValueError(f"logits are one row, not of shape {row.shape}")
    kind = np.float32 if row.dtype in (np.float16, np.float32) else np.float64
    return np.ascontiguousarray(row, dtype=kind)
