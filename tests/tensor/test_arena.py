"""Arenas: alignment, nesting, threads, and that no memory is taken back under a view."""

import random
import threading

import numpy as np
import overdrive
import pytest
from overdrive import Arena


def test_tensors_are_aligned_and_apart():
    arena = Arena(1000)
    views = [arena.empty((n, 3), "float32") for n in range(60)]
    for i, view in enumerate(views):
        assert view.align >= 64
        view[...] = i
    for i, view in enumerate(views):
        assert (view.numpy() == i).all()
    assert arena.views == 60 and arena.capacity >= arena.used


def test_reset_and_close_want_no_views():
    arena = Arena()
    t = arena.empty(10, "int32")
    v = t.numpy()
    del t
    for action in (arena.reset, arena.close):
        with pytest.raises(BufferError, match="1 view"):
            action()
    del v
    used = arena.used
    assert used > 0
    arena.reset()
    assert arena.used == 0 and arena.capacity > 0
    arena.close()
    arena.close()
    assert arena.closed and arena.capacity == 0
    for action in (arena.reset, lambda: arena.empty(1, "int8"), arena.__enter__):
        with pytest.raises(ValueError, match="closed"):
            action()


def test_a_view_outlives_the_arena_object():
    arena = Arena()
    t = arena.empty(1000, "int64")
    t[...] = 7
    del arena
    assert (t.numpy() == 7).all()


def test_blocks_nest():
    assert Arena.current() is None
    with Arena(1 << 12) as outer:
        a = outer.empty(16, "float32")
        used = outer.used
        with outer:
            assert Arena.current() is outer
            with Arena() as other:
                assert Arena.current() is other
            b = outer.empty(16, "float32")
            with pytest.raises(BufferError):
                outer.reset()
        assert Arena.current() is outer
        assert outer.used > used  # b is alive
        del b
        assert outer.used == used
        del a
    assert Arena.current() is None and outer.used == 0


def test_leaving_a_block_with_views_is_no_error_and_takes_nothing_early():
    with Arena() as arena:
        t = arena.empty(100, "int64")
        t[...] = 3
    for _ in range(20):
        with arena:
            arena.empty(100, "int64")[...] = 4
    assert (t.numpy() == 3).all()
    del t
    arena.reset()


def test_an_error_passes_through_a_block():
    with pytest.raises(KeyError):
        with Arena() as arena:
            keep = arena.empty(4, "int8")
            raise KeyError
    keep[...] = 1
    assert Arena.current() is None


def test_random_use_never_overlaps():
    rng = random.Random(1)
    arena, live = Arena(), []
    for step in range(3000):
        action = rng.random()
        if action < 0.5:
            t = arena.empty(rng.randrange(0, 3000), "int32")
            t[...] = step
            live.append((t.numpy(), step))
            del t
        elif action < 0.9 and live:
            array, value = live.pop(rng.randrange(len(live)))
            assert (array == value).all()
            del array
        elif action < 0.94:
            arena.__enter__()
        elif action < 0.99:
            arena.__exit__(None, None, None)
        else:
            assert arena.views == len(live)
            if not live:
                arena.reset()
    while Arena.current() is not None:
        arena.__exit__(None, None, None)
    for array, value in live:
        assert (array == value).all()
    del array
    live.clear()
    arena.close()


def test_an_arena_belongs_to_its_thread():
    arena = Arena()
    t = arena.empty(3, "int8")
    errors = []

    def work():
        nonlocal t
        assert Arena.current() is None
        for action in (lambda: arena.empty(1, "int8"), arena.reset, arena.close, arena.__enter__):
            try:
                action()
            except RuntimeError as error:
                errors.append(str(error))
        del t  # may happen anywhere

    with arena:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 4 and all("thread" in error for error in errors)
    arena.close()


def test_sizes_that_cannot_be():
    for size in (-1, 2**70, 1.5):
        with pytest.raises((OverflowError, TypeError)):
            Arena(size)
    with pytest.raises(MemoryError):
        Arena(2**62)
    arena = Arena()
    with pytest.raises(MemoryError):
        arena.empty(2**59, "float64")
    assert arena.views == 0
    assert arena.empty((0, 3), "float64").shape == (0, 3)
    assert np.asarray(arena.empty(5, overdrive.tensor(b"a").dtype)).size == 5
