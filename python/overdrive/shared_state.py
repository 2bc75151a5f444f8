"""The contents of objects that several runs of a function share, kept and put back between the runs.

In: objects, with the names under which they were found (`overdrive.effects`). Out: what a run changed, and
the objects as they were. Only contents are replaced, never the objects themselves, and those that did not
change are not touched.
"""

from __future__ import annotations

import sys
import types
from collections import Counter, deque
from typing import Any

from overdrive.copying import CannotCopy
from overdrive.effects import MUTABLE


class Snapshot:
    """What is in ``shared``, pairs of name and object, at this moment.

    Raises `CannotCopy` for an object whose contents cannot be kept, and when they take more than
    ``most_bytes``.

    >>> table = [1, 2]
    >>> snapshot = Snapshot([("table", table)])
    >>> table.append(3)
    >>> snapshot.changes()
    {'table': [1, 2, 3]}
    >>> snapshot.put_back(), table
    (None, [1, 2])
    """

    def __init__(self, shared: list[tuple[str, Any]], most_bytes: int | None = None) -> None:
        n_bytes = 0
        for name, x in shared:
            n_bytes += getattr(x, "nbytes", 0) or (8 * len(x) if type(x) in MUTABLE else 64)
            if most_bytes is not None and n_bytes > most_bytes:
                raise CannotCopy(f"{name} holds more than {most_bytes >> 20} MiB")
        self._kept = [(name, x, _kept(name, x)) for name, x in shared]

    def changes(self) -> dict[str, Any]:
        """Return the present contents of what was changed."""
        found: dict[str, Any] = {}
        for name, x, kept in self._kept:
            if not _has(x, kept):
                key = name
                while key in found:
                    key += "'"
                found[key] = _kept(name, x)
        return found

    def put_back(self) -> None:
        """Give every changed object the contents that it had."""
        for _, x, kept in self._kept:
            if not _has(x, kept):
                _give(x, kept)


class _Attributes:
    """Those of a class or of an instance."""

    def __init__(self, of: Any) -> None:
        self.names: dict[str, Any] = dict(vars(of)) if hasattr(of, "__dict__") else {}
        self.slots: dict[str, Any] = {}
        if not isinstance(of, type):
            self.slots = {
                name: getattr(of, name, _UNSET) for base in type(of).__mro__ for name in _slots_of(base)
            }


_UNSET = object()


def _slots_of(kind: type) -> list[str]:
    return [name for name, x in vars(kind).items() if isinstance(x, types.MemberDescriptorType)]


def _kept(name: str, x: Any) -> Any:
    kind = type(x)
    if kind in MUTABLE or kind is Counter:
        return x.copy()
    np = sys.modules.get("numpy")
    if np is not None and kind is np.ndarray:
        return x.copy()
    if not isinstance(x, type) and any(base in MUTABLE for base in kind.__mro__):
        raise CannotCopy(f"{name} is an object of {kind.__qualname__}, a container")
    return _Attributes(x)


def _has(x: Any, kept: Any) -> bool:
    if isinstance(kept, _Attributes):
        now = _Attributes(x)
        return _same(now.names, kept.names) and _same(now.slots, kept.slots)
    if isinstance(x, dict):
        return _same(x, kept)
    if isinstance(x, set):
        return len(x) == len(kept) and all(a in kept for a in x)
    if isinstance(x, (list, deque)):
        return len(x) == len(kept) and all(a is b for a, b in zip(x, kept, strict=True))
    if isinstance(x, bytearray):
        return bool(x == kept)
    return bool(x.tobytes() == kept.tobytes())


def _same(a: dict[Any, Any], b: dict[Any, Any]) -> bool:
    pairs = zip(a.items(), b.items(), strict=False)
    return len(a) == len(b) and all(k is other and x is y for (k, x), (other, y) in pairs)


def _give(x: Any, kept: Any) -> None:
    if isinstance(kept, _Attributes):
        _give_attributes(x, kept)
    elif isinstance(x, (dict, set)):
        x.clear()
        x.update(kept)
    elif isinstance(x, deque):
        x.clear()
        x.extend(kept)
    elif isinstance(x, (list, bytearray)):
        x[:] = kept
    else:
        x[...] = kept


def _give_attributes(x: Any, kept: _Attributes) -> None:
    if isinstance(x, type):
        now = dict(vars(x))
        for name in now:
            if name not in kept.names:
                type.__delattr__(x, name)
        for name, value in kept.names.items():
            if now.get(name, _UNSET) is not value:
                type.__setattr__(x, name, value)
        return
    if hasattr(x, "__dict__"):
        vars(x).clear()
        vars(x).update(kept.names)
    for name, value in kept.slots.items():
        if value is not _UNSET:
            object.__setattr__(x, name, value)
        elif hasattr(x, name):
            object.__delattr__(x, name)
