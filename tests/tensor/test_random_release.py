"""The same as `test_sequences`, without shrinking and a hundred times faster: SEQUENCES=100000 runs so many.

Each sequence makes blocks, views and exports and releases them in random order; every block must hold its value while
any view of it lives, and must be given back with its last view. At the end the process holds no more than before.
"""

import gc
import os
import random
import sys

import numpy as np
import overdrive
from overdrive import tensor

torch = None
if "torch" in sys.modules or os.environ.get("WITH_TORCH"):
    import torch

ARENA = overdrive.Arena()
MAKERS = [
    lambda n: tensor(np.empty(n, np.int32)),
    lambda n: tensor(bytearray(4 * n)) if n % 2 else overdrive.empty(n, "int32"),
    lambda n: overdrive.empty(n, "int32"),
    lambda n: ARENA.empty(n, "int32"),
    lambda n: tensor(np.empty(n, np.int32), copy=True),
]
EXPORTS = [
    tensor,
    lambda t: t.numpy(),
    memoryview,
    np.from_dlpack,
    np.asarray,
    lambda t: t[::-1],
    lambda t: t.__dlpack__(max_version=(1, 0)),
    lambda t: t.__dlpack__(),
    lambda t: tensor(t, readonly=True),
    lambda t: tensor(np.from_dlpack(t)),
    lambda t: tensor(memoryview(t)),
]
if torch is not None:
    EXPORTS += [lambda t: t.torch(), lambda t: tensor(t.torch())]


def is_shown(view, value):
    if type(view).__name__ == "PyCapsule":
        return True
    seen = view.numpy() if torch is not None and isinstance(view, torch.Tensor) else np.asarray(view)
    return (seen == value).all()


def sequence(rng):
    blocks = []  # value, whether it was told gone, live views
    for _ in range(rng.randrange(4, 14)):
        action = rng.random()
        if action < 0.25 or not blocks:
            t = rng.choice(MAKERS)(rng.randrange(1, 60))
            value = rng.randrange(100)
            t[...] = value
            gone = []
            t.on_release(gone.append, 1)
            blocks.append((value, gone, [t]))
            del t
        elif action < 0.6:
            value, gone, views = rng.choice(blocks)
            t = rng.choice(views)
            if type(t) is overdrive.Tensor:
                views.append(
                    (EXPORTS[rng.randrange(len(EXPORTS))] if t.strides[0] > 0 else tensor)(t)
                ) if not (t.readonly) else views.append(memoryview(t))
            del t, views
        else:
            at = rng.randrange(len(blocks))
            value, gone, views = blocks[at]
            assert not gone and is_shown(views[-1], value)
            del views[rng.randrange(len(views))]
            if not views:
                assert gone == [1]
                del blocks[at]
            del views, gone
    rng.shuffle(blocks)
    for value, gone, views in blocks:
        assert not gone and all(is_shown(view, value) for view in views)
        rng.shuffle(views)
        while views:
            views.pop()
        assert gone == [1]
    ARENA.reset()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_many_sequences():
    rng = random.Random(11)
    n = int(os.environ.get("SEQUENCES", "2000"))
    for _ in range(500):
        sequence(rng)
    gc.collect()
    before = resident()
    for _ in range(n):
        sequence(rng)
    gc.collect()
    if not os.environ.get("UNDER_VALGRIND"):  # it keeps freed blocks for a while, to find who uses them
        assert resident() - before < 4 << 20
