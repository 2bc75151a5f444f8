"""Handles of shared memory: strings that hold what they name."""

from __future__ import annotations

from overdrive._core import _leased_handle, attach

TYPE_CHECKING = False
if TYPE_CHECKING:
    from overdrive._core import Tensor


class Handle(str):
    """What `share` returns: a str to send to another process, and a reference to the memory.

    Its text says all that `attach` needs; text alone keeps nothing alive. A pickle of a handle keeps
    the memory for a minute, and what is unpickled holds it like the original.
    """

    __slots__ = ("_tensor",)

    _tensor: Tensor

    def __new__(cls, text: str, tensor: Tensor) -> Handle:  # noqa: D102
        self = str.__new__(cls, text)
        self._tensor = tensor
        return self

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return _received, (_leased_handle(self._tensor),)


def _received(text: str) -> Handle:
    return attach(text).handle
