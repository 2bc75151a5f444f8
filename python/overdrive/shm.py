"""Shared memory: what there is, its removal, pools of tensors and rings of messages.

>>> import overdrive
>>> t = overdrive.zeros((2, 3), "float32", shared=True)
>>> overdrive.attach(t.handle).shape
(2, 3)
"""

from __future__ import annotations

from overdrive._core import Pool, _shm_gc, _shm_list, _shm_unlink
from overdrive._core import Ring as _Ring
from overdrive.handles import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from overdrive._core import Tensor

__all__ = ["Handle", "Pool", "Ring", "gc", "list", "unlink"]

_list = list


def list() -> _list[dict[str, Any]]:  # the name of the command
    """Return a row for each segment on this machine: name, kind, bytes, participants, tensors in flight."""
    return _shm_list()


def gc() -> _list[str]:
    """Remove the segments that nobody holds, left by killed processes, and return their names.

    Marks of killed processes are taken off the others. Memory with a participant that is alive, or a
    pickle in flight, is never removed.
    """
    return _shm_gc()


def unlink(handle: str, /) -> None:
    """Remove the name of the segment behind a handle; who has it mapped keeps it, nobody else can attach.

    Nothing needs this: memory goes when its last holder does. HandleError when it has gone already. For
    a tensor of a pool the segment is the pool.
    """
    _shm_unlink(handle)


class Ring(_Ring):
    """Messages between processes: a ring of ``slots`` slots of ``slot_bytes`` bytes each.

    In mode ``"broadcast"`` each consumer gets every message sent after it joined (the first also those
    before), read-only; in mode ``"work"`` each message goes to one consumer. Sending copies into a slot
    and waits while none is free; a received tensor is the slot itself, which is free again when the
    tensor and everything made from it is gone. Waiting costs no processor time. When a consumer is
    killed its slots come free.

    Hand a ring to another process by pickle, or its ``handle`` to `attach`; keep it alive until the
    other has it.

    >>> ring = Ring(4, 1024, "work")
    >>> ring.send(b"abc")
    >>> bytes(ring.recv(timeout=1))
    b'abc'
    """

    async def __aiter__(self) -> AsyncIterator[Tensor]:
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            try:
                message = super().recv(0)
            except EOFError:
                return
            except TimeoutError:
                # A thread only waits; the message is taken here, so that cancelling loses none. It looks up
                # now and then, because a thread cannot be cancelled.
                await loop.run_in_executor(None, super().wait, 0.1)
                continue
            yield message
            del message  # or it would keep its slot until the next one is there
