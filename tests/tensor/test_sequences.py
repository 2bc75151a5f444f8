"""Random sequences of create, view, export and release across NumPy, memoryview, DLPack and PyTorch, where it is.

A model keeps what each block of memory must hold. After every step each live view shows exactly that, and memory is
given back at the step in which its last view goes, neither before nor after. `SEQUENCES=100000` runs as many.
"""

import contextlib
import gc
import os
import sys

import numpy as np
import overdrive
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests.shared_memory import alone

torch = None
if "torch" in sys.modules or os.environ.get("WITH_TORCH"):
    import torch

DTYPES = ["uint8", "int16", "float32", "float64"]
SHAPES = [(), (3,), (2, 3), (0,), (4, 1, 2)]


class Block:
    """One piece of memory: what it holds, and how many views of it are alive."""

    def __init__(self, values):
        self.values, self.views, self.told = values, 0, 0


class View:
    """A view of any kind, and which elements of the block it shows."""

    def __init__(self, block, thing, expected, writable=True):
        self.block, self.thing, self.expected, self.writable = block, thing, expected, writable
        block.views += 1

    def array(self):
        if torch is not None and isinstance(self.thing, torch.Tensor):
            return self.thing.numpy()
        return np.asarray(self.thing)

    def drop(self):
        self.thing = None
        self.block.views -= 1


class Sequences(RuleBasedStateMachine):
    views = Bundle("views")

    def __init__(self):
        super().__init__()
        self.turn = contextlib.ExitStack()
        self.turn.enter_context(alone())
        self.blocks, self.live, self.arenas = [], [], [overdrive.Arena() for _ in range(2)]

    def add(self, block, thing, expected, writable=True):
        view = View(block, thing, expected, writable)
        self.live.append(view)
        return view

    def begin(self, t, values):
        block = Block(values)
        t.on_release(lambda: setattr(block, "told", block.told + 1))
        self.blocks.append(block)
        return self.add(block, t, values)

    @rule(
        target=views,
        shape=st.sampled_from(SHAPES),
        dtype=st.sampled_from(DTYPES),
        where=st.sampled_from(["array", "own", "arena", "shared", "copy"]),
    )
    def create(self, shape, dtype, where):
        values = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
        if where == "array":
            return self.begin(overdrive.tensor(values.copy()), values)
        if where == "copy":
            return self.begin(overdrive.tensor(values, copy=True), values)
        if where == "own":
            t = overdrive.empty(shape, dtype)
        elif where == "shared":
            t = overdrive.zeros(shape, dtype, shared=True)
        else:
            t = self.arenas[0].empty(shape, dtype)
        t[...] = values
        return self.begin(t, values)

    @rule(
        target=views,
        view=views,
        how=st.sampled_from(["tensor", "numpy", "memoryview", "dlpack", "asarray", "torch", "capsule"]),
    )
    def export(self, view, how):
        if view.thing is None or isinstance(view.thing, Capsule):
            return multiple()
        t = view.thing if type(view.thing) is overdrive.Tensor else overdrive.tensor(view.thing)
        if how == "tensor":
            thing = overdrive.tensor(t)
        elif how == "numpy":
            thing = t.numpy()
        elif how == "memoryview":
            thing = memoryview(t)
        elif how == "dlpack":
            thing = np.from_dlpack(t)
        elif how == "asarray":
            thing = np.asarray(t)
        elif how == "capsule":
            thing = Capsule(t.__dlpack__(max_version=(1, 0)))
        elif torch is None or any(stride < 0 for stride in t.strides):
            return multiple()
        else:
            thing = t.torch()
        return self.add(view.block, thing, view.expected)

    @rule(target=views, view=views, step=st.sampled_from([1, 2, -1]))
    def slice(self, view, step):
        if type(view.thing) is not overdrive.Tensor or not view.thing.ndim:
            return multiple()
        return self.add(view.block, view.thing[::step], view.expected[::step])

    @rule(view=views, value=st.integers(0, 100))
    def write(self, view, value):
        if view.thing is not None and not isinstance(view.thing, Capsule):
            view.array()[...] = value
            view.expected[...] = value

    @rule(view=consumes(views))
    def release(self, view):
        if view.thing is not None:
            self.live.remove(view)
            view.drop()

    @rule()
    def collect(self):
        gc.collect()

    @rule()
    def reset_the_arena(self):
        arena = self.arenas[0]
        before = arena.views
        try:
            arena.reset()
        except BufferError:
            assert before > 0
        else:
            assert before == 0 and arena.used == 0

    @invariant()
    def views_show_the_model(self):
        for view in self.live:
            if isinstance(view.thing, Capsule):
                continue
            seen = view.array()
            assert seen.shape == view.expected.shape and (seen == view.expected).all()

    @invariant()
    def memory_goes_with_its_last_view(self):
        for block in self.blocks:
            assert block.told == (0 if block.views else 1), (block.told, block.views)

    def teardown(self):
        for view in self.live:
            view.drop()
        self.live.clear()
        self.memory_goes_with_its_last_view()
        self.arenas[0].close()
        self.blocks.clear()
        self.turn.close()


class Capsule:
    """A capsule that nobody has used: it holds the memory without showing it."""

    def __init__(self, capsule):
        self.capsule = capsule


def test_random_sequences():
    n = int(os.environ.get("SEQUENCES", "25"))
    run_state_machine_as_test(
        Sequences, settings=settings(max_examples=n, stateful_step_count=20, deadline=None, database=None)
    )
