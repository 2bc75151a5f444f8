"""`prange` and the number of threads where there is no extension: everything runs in order, on one thread."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import SupportsIndex


def prange(*bounds: SupportsIndex) -> range:
    """As `range`."""
    return range(*bounds)


def set_num_threads(n: int, /) -> None:
    """Check ``n`` as the extension does; there is only one thread here."""
    if not isinstance(n, int):
        raise TypeError(f"'{type(n).__name__}' object cannot be interpreted as an integer")
    if not 1 <= n <= 256:
        raise ValueError(f"the number of threads must be between 1 and 256, not {n}")


def get_num_threads() -> int:
    """One."""
    return 1
