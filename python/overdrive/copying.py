"""Copies of a call's arguments, made together: what they share and overlap stays shared and overlapping.

In: values under names. Out: as many deep copies as are asked for. NumPy arrays keep strides, flags and
alignment, and views of one memory become views of one copy; everything else is copied by `copy.deepcopy`.
Functions, classes, modules and jitted callables are not copied: they stand for themselves, as in `deepcopy`.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import sys
import types
from typing import Any

from overdrive.comparing import is_ours

_ATOMS = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented), slice}
)
_LEFT = (type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.ModuleType)
_CACHE_LINE = 64


class CannotCopy(TypeError):
    """Some argument has no copy: which, and why."""


class Copier:
    """Makes copies of ``values``, a dict from names such as ``args[0]``.

    ``most_bytes`` bounds what one copy may take (estimated). Raises `CannotCopy` when there is more, and when
    a value cannot be copied.

    >>> shared = [1]
    >>> copied = Copier({"args[0]": shared, "args[1]": shared}).copies()
    >>> copied["args[0]"] is copied["args[1]"], copied["args[0]"] is shared
    (True, False)
    """

    def __init__(self, values: dict[str, Any], most_bytes: int | None = None) -> None:
        self._values = values
        self._themselves: list[Any] = []
        self._arrays: list[Any] = []
        self._walk(most_bytes)
        self._groups = _overlapping(self._arrays)

    def copies(self) -> dict[str, Any]:
        """Return a new set of copies under the same names."""
        memo = self._memo()
        try:
            return copy.deepcopy(self._values, memo)
        except RecursionError:
            raise CannotCopy(f"{', '.join(self._values)}: nested too deeply to be copied") from None
        except Exception as error:
            raise CannotCopy(self._culprit(error)) from error

    def _memo(self) -> dict[int, Any]:
        memo: dict[int, Any] = {id(x): x for x in self._themselves}
        for group in self._groups:
            for array, copied in zip(group, _copied(group), strict=True):
                memo[id(array)] = copied
        return memo

    def _culprit(self, error: Exception) -> str:
        for name, value in self._values.items():
            try:
                copy.deepcopy(value, self._memo())
            except Exception as own:
                return f"{name} cannot be copied: {own}"
        return f"{', '.join(self._values)} cannot be copied together: {error}"

    def _walk(self, most_bytes: int | None) -> None:
        """Find the arrays, and what stands for itself, in everything that `deepcopy` may reach."""
        np = sys.modules.get("numpy")
        seen: set[int] = {id(self._values)}
        n_bytes = 0
        for name, value in self._values.items():
            work = [value]
            while work:
                if most_bytes is not None and n_bytes > most_bytes:
                    break
                x = work.pop()
                kind = type(x)
                if kind in _ATOMS:
                    n_bytes += len(x) if kind in (str, bytes) else 8
                    continue
                if id(x) in seen or isinstance(x, _LEFT):
                    if isinstance(x, types.ModuleType):
                        self._themselves.append(x)
                    continue
                seen.add(id(x))
                n_bytes += 64
                if np is not None and isinstance(x, np.ndarray):
                    n_bytes += x.nbytes
                    if x.dtype.hasobject:
                        work.extend(x.flat)
                    if kind is np.ndarray:
                        self._arrays.append(x)
                elif kind is bytearray:
                    n_bytes += len(x)
                elif is_ours(x, "JitFunction"):
                    self._themselves.append(x)
                else:
                    work.extend(gc.get_referents(x))
            if most_bytes is not None and n_bytes > most_bytes:
                raise CannotCopy(f"{name} holds more than {most_bytes >> 20} MiB")


def _extent(array: Any) -> tuple[int, int]:
    """Return the first byte of an array's elements and the byte behind the last."""
    low = high = array.__array_interface__["data"][0]
    for n, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (n - 1) * stride)
        high += max(0, (n - 1) * stride)
    return low, high + array.itemsize


def _overlapping(arrays: list[Any]) -> list[list[Any]]:
    """Group arrays that share memory. All bytes from a group's first to its last belong to its arrays."""
    groups: list[list[Any]] = []
    end = -1
    for array in sorted((x for x in arrays if x.size), key=lambda x: _extent(x)[0]):
        low, high = _extent(array)
        if low < end:
            groups[-1].append(array)
        else:
            groups.append([array])
        end = max(end, high)
    for group in groups:
        if len(group) > 1 and any(x.dtype.hasobject for x in group):
            raise CannotCopy("arrays of objects that share memory cannot be copied")
    # Alone, an array of objects is for `deepcopy`, as is one that holds nothing.
    return [group for group in groups if not group[0].dtype.hasobject]


def _copied(group: list[Any]) -> list[Any]:
    """Copy arrays that share memory, into memory that the copies share."""
    np = sys.modules["numpy"]
    extents = [_extent(x) for x in group]
    low, high = min(low for low, _ in extents), max(high for _, high in extents)
    owner = next(
        (x for x in group if x.base is None and x.nbytes == high - low and _extent(x) == (low, high)), None
    )
    if owner is not None:
        copied_owner = np.copy(owner, order="K")
        if copied_owner.strides == owner.strides:
            # In the order of its memory, an array of bytes.
            axes = sorted(range(owner.ndim), key=lambda axis: -abs(owner.strides[axis]))
            memory = copied_owner.transpose(axes).reshape(-1).view(np.uint8)
            if memory.base is not None and memory.__array_interface__["data"][0] == _extent(copied_owner)[0]:
                return [_again(x, copied_owner if x is owner else _view(x, memory, low)) for x in group]
    spare = np.empty(high - low + _CACHE_LINE, np.uint8)
    start = (low - spare.__array_interface__["data"][0]) % _CACHE_LINE
    # A memoryview between them, so that the memory begins where the copy does for everybody who follows
    # `base`.
    memory = np.frombuffer(memoryview(spare)[start : start + high - low], np.uint8)
    memory[:] = np.frombuffer((ctypes.c_char * (high - low)).from_address(low), np.uint8)
    return [_again(x, _view(x, memory, low)) for x in group]


def _view(array: Any, memory: Any, low: int) -> Any:
    np = sys.modules["numpy"]
    offset = array.__array_interface__["data"][0] - low
    return np.ndarray(array.shape, array.dtype, buffer=memory, offset=offset, strides=array.strides)


def _again(array: Any, copied: Any) -> Any:
    if not array.flags.writeable:
        copied.flags.writeable = False
    return copied
