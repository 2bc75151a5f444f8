"""Pools: tensors made in place, their life across processes, room that comes back."""

import os
import pickle
import random
import signal

import numpy as np
import overdrive
import pytest
from overdrive import HandleError, attach, shm


def test_tensors_are_made_in_place(python):
    pool = shm.Pool(1 << 20)
    views = [pool.empty((n, 7), "float32") for n in range(1, 40)]
    for i, view in enumerate(views):
        assert view.align >= 64
        view[...] = i
    for i, view in enumerate(views):
        assert (view.numpy() == i).all()
    assert pool.blocks == 39 and pool.size == 1 << 20 and len(shm.list()) == 1
    out = python("import sys, overdrive; print(overdrive.attach(sys.argv[1]).numpy().sum())", views[5].handle)
    assert float(out) == 5 * 6 * 7


def test_room_comes_back_when_the_last_holder_lets_go(python):
    pool = shm.Pool(4096)
    t = pool.empty(4096, "uint8")
    handle = str.__str__(t.handle)
    other = attach(handle)
    del t
    with pytest.raises(MemoryError, match="gap"):
        pool.empty(1, "uint8")
    del other
    again = pool.empty(4096, "uint8")
    with pytest.raises(HandleError, match="released"):
        attach(handle)  # the same place, another use of it
    assert again.nbytes == 4096
    with pytest.raises(MemoryError):
        shm.Pool(1 << 20).empty(1 << 21, "uint8")
    few = shm.Pool(1 << 20, blocks=2)
    keep = [few.empty(1, "uint8"), few.empty(1, "uint8")]
    with pytest.raises(MemoryError, match="blocks="):
        few.empty(1, "uint8")
    del keep


def test_a_pickle_on_the_way_keeps_its_block():
    pool = shm.Pool(4096)
    t = pool.empty(4096, "uint8")
    t[...] = 3
    pickled = pickle.dumps(t)
    del t
    with pytest.raises(MemoryError):
        pool.empty(1, "uint8")
    t = pickle.loads(pickled)
    assert (t.numpy() == 3).all()
    del t
    pool.empty(4096, "uint8")


def test_close_wants_no_views():
    pool = shm.Pool(4096)
    t = pool.empty(3, "int8")
    v = memoryview(t)
    del t
    with pytest.raises(BufferError, match="1 view"):
        pool.close()
    v.release()
    del v
    pool.close()
    pool.close()
    assert pool.closed and not shm.list()
    for use in (lambda: pool.empty(1, "int8"), lambda: pool.handle, lambda: pool.size):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(pool)


def test_tensors_outlive_their_pool():
    t = shm.Pool(4096).empty(3, "int8")
    t[...] = 1
    assert t.tolist() == [1, 1, 1] and attach(t.handle).tolist() == [1, 1, 1]


def test_several_processes_allocate(python):
    pool = shm.Pool(1 << 16)
    mine = pool.empty(1000, "uint8")
    mine[...] = 1
    code = """
        import pickle, sys, overdrive
        pool = pickle.loads(bytes.fromhex(sys.argv[1]))
        views = [pool.empty(1000, "uint8") for _ in range(20)]
        for view in views:
            view[...] = 2
        print(pool.blocks)
    """
    assert python(code, pickle.dumps(pool).hex()) == "21"
    assert (mine.numpy() == 1).all() and pool.blocks == 1


def test_a_killed_holder_gives_its_blocks_up():
    pool = shm.Pool(4096)
    t = pool.empty(4096, "uint8")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    del t
    with pytest.raises(MemoryError):
        pool.empty(4096, "uint8")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert pool.empty(4096, "uint8").nbytes == 4096
    os.close(read)
    os.close(write)


def test_random_use_never_overlaps():
    rng = random.Random(3)
    pool, live = shm.Pool(1 << 18, blocks=64), []
    for step in range(2000):
        if rng.random() < 0.55:
            try:
                t = pool.empty(rng.randrange(0, 9000), "int16")
            except MemoryError:
                assert live
                continue
            t[...] = step
            live.append((t.numpy(), step))
            del t
        elif live:
            array, value = live.pop(rng.randrange(len(live)))
            assert (array == np.int16(value)).all()
            del array
        assert pool.blocks == len(live)
    live.clear()
    pool.close()


def test_sizes():
    for size in (-1, 1.5, 2**70):
        with pytest.raises((OverflowError, TypeError)):
            shm.Pool(size)
    for blocks in (0, 2**21):
        with pytest.raises(ValueError):
            shm.Pool(4096, blocks=blocks)
    assert overdrive.shm.Pool(0).size == 0
