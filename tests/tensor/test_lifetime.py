"""Who keeps what alive: strong and weak views, hooks, any order of release, threads, fork, the end of the process."""

import copy
import gc
import itertools
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import overdrive
import pytest
from overdrive import tensor


class Array(np.ndarray):
    """Can be referenced weakly, so that one can see it die."""


def array(n=4):
    return np.arange(float(n)).view(Array)


def test_a_strong_view_keeps_its_owner():
    a = array()
    seen = weakref.ref(a)
    t = tensor(a)
    del a
    assert seen() is not None and t.tolist() == [0, 1, 2, 3]
    del t
    assert seen() is None


EXPORTS = {
    "numpy": lambda t: t.numpy(),
    "asarray": np.asarray,
    "memoryview": memoryview,
    "dlpack": np.from_dlpack,
    "tensor": tensor,
    "slice": lambda t: t[1:],
    "capsule": lambda t: t.__dlpack__(),
}


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_order_of_release(order):
    for names in itertools.combinations(EXPORTS, 3):
        a = array()
        seen = weakref.ref(a)
        told = []
        t = tensor(a)
        t.on_release(told.append, "gone")
        held = [t, *(EXPORTS[name](t) for name in names)]
        del a, t
        for position in order:
            assert seen() is not None and not told
            held[position] = None
        assert seen() is None and told == ["gone"]


def test_a_weak_view_ends_with_its_owner():
    a = array()
    t = tensor(a, weak=True)
    assert t.weak and t.owner is a and t.tolist() == [0, 1, 2, 3] and t.shape == (4,)
    v = t.numpy()
    del a  # the array made from it keeps the owner
    gc.collect()
    assert t.tolist() == [0, 1, 2, 3]
    del v
    gc.collect()
    for use in (
        lambda: t.numpy(),
        lambda: t.shape,
        lambda: t.dtype,
        lambda: t.owner,
        lambda: t.tolist(),
        lambda: t[0],
        lambda: len(t),
        lambda: memoryview(t),
        lambda: np.from_dlpack(t),
        lambda: t.__array_interface__,
        lambda: tensor(t),
        lambda: t.__arrow_c_array__(),
        lambda: t.__setitem__(0, 1),
    ):
        with pytest.raises(ReferenceError):
            use()
    assert t.weak and "gone" in repr(t)


def test_weak_views_of_buffers_look_again_at_each_use():
    import array as arrays

    a = arrays.array("d", [1, 2, 3])
    t = tensor(a, weak=True)
    assert t.tolist() == [1, 2, 3]
    for _ in range(1000):
        a.append(0.0)  # not held by the view, so it may grow, and move
    with pytest.raises(ReferenceError, match="changed"):
        t.tolist()
    with pytest.raises(TypeError):
        tensor(b"bytes know no weak references", weak=True)


def test_weak_views_of_tensors():
    t = tensor(np.zeros(2))
    w = tensor(t, weak=True)
    assert w.owner is t
    with pytest.raises(BufferError):
        tensor(tensor(t, readonly=True), readonly=False, weak=True)
    r = tensor(t, weak=True, readonly=True)
    assert not r.numpy().flags.writeable
    del t
    with pytest.raises(ReferenceError):
        w.numpy()


def test_hooks_run_once_in_order_after_the_memory_is_back():
    arena = overdrive.Arena(1024)
    t = arena.empty(4, "float32")
    told = []
    t.on_release(lambda: told.append(arena.views))
    t.on_release(told.append, "second")
    m = memoryview(t)
    del t
    assert told == []
    m.release()
    del m
    assert told == [0, "second"]


def test_a_hook_that_fails_is_reported_and_harms_nobody(monkeypatch):
    failures = []
    monkeypatch.setattr(sys, "unraisablehook", failures.append)
    told = []
    t = tensor(np.zeros(1))
    t.on_release(lambda: 1 / 0)
    t.on_release(told.append, 1)
    del t
    assert told == [1] and failures[0].exc_type is ZeroDivisionError


def test_hooks_want_a_callable():
    t = tensor(b"")
    for wrong in (lambda: t.on_release(), lambda: t.on_release(3), lambda: t.on_release(print, file=None)):
        with pytest.raises(TypeError):
            wrong()


def test_a_release_does_not_lose_the_exception_that_is_on_its_way():
    t = tensor(np.zeros(1))
    t.on_release(lambda: None)
    held = [t]
    del t
    with pytest.raises(KeyError):
        try:
            raise KeyError("x")
        finally:
            held.clear()


def run(code, *flags):
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split()


def test_hooks_run_at_the_end_of_the_process():
    out = run("""
        import numpy as np, overdrive
        t = overdrive.tensor(np.zeros(2))
        t.on_release(print, "end")
        keep = [t.numpy(), memoryview(t), np.from_dlpack(t)]
        gone = overdrive.zeros(3, "int8")
        gone.on_release(print, "before")
        del gone
    """)
    assert out == ["before", "end"]


def test_hooks_run_in_threads_and_after_fork():
    out = run("""
        import os, sys, threading, time, overdrive
        def work():
            t = overdrive.zeros(3, "int8")
            t.on_release(lambda: print(threading.current_thread().name, flush=True))
        thread = threading.Thread(target=work, name="worker"); thread.start(); thread.join()
        t = overdrive.zeros(3, "int8")
        t.on_release(lambda: print("process", os.getpid() == parent, flush=True))
        parent = os.getpid()
        # The kernel counts a joined thread for a moment longer, and CPython warns of it at a fork.
        while len(os.listdir("/proc/self/task")) > 1:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            del t
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)
    assert out == ["worker", "process", "False", "process", "True"]


def test_exports_outlive_everything_at_the_end_of_the_process():
    run("""
        import sys, numpy as np, overdrive
        class Late:
            def __del__(self):
                assert self.v.sum() == 3 and self.m[0] == 1
        late = Late()
        t = overdrive.zeros(3, "float64"); t[:] = 1
        late.v = np.from_dlpack(t); late.m = memoryview(t)
        sys.late = late
    """)


def test_cycles_are_collected():
    class Owner(np.ndarray):
        pass

    seen = []
    for _ in range(3):
        a = np.zeros(8).view(Owner)
        a.view_of_itself = tensor(a)
        a.other = memoryview(a.view_of_itself)
        seen.append(weakref.ref(a))
        del a
    # NumPy's arrays are not tracked by the collector, so a cycle through one is NumPy's leak; through other
    # exporters it is none.

    class Buffer(bytearray):
        pass

    b = Buffer(8)
    b.view = tensor(b)
    b.lent = memoryview(b.view)
    seen = weakref.ref(b)
    del b
    gc.collect()
    assert seen() is None


def test_threads_release_what_others_made():
    a = np.arange(1000.0)
    errors = []

    def work():
        try:
            for _ in range(300):
                t = tensor(a)
                box.append((t.numpy(), memoryview(t), np.from_dlpack(t), t.__dlpack__()))
                if len(box) > 20:
                    box.pop(0)
        except BaseException as error:
            errors.append(error)

    box = []
    before = sys.getrefcount(a)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    box.clear()
    assert not errors and sys.getrefcount(a) == before


def test_copies_and_pickles():
    t = tensor(np.arange(3), readonly=True)
    shallow, deep = copy.copy(t), copy.deepcopy(t)
    assert np.shares_memory(shallow.numpy(), t.numpy()) and shallow.readonly
    assert not np.shares_memory(deep.numpy(), t.numpy()) and deep.tolist() == [0, 1, 2] and deep.readonly
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="share"):
            pickle.dumps(t, protocol)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_nothing_leaks():
    a = np.zeros((100, 100))

    def once():
        t = tensor(a)
        t.numpy(), np.from_dlpack(t), memoryview(t), t.__dlpack__(), t[1:, ::-1].tolist(), np.asarray(t)
        tensor(a, weak=True).numpy(), tensor(b"abc").tolist(), tensor(a, copy=True)
        tensor(np.zeros((1,) * 20)).numpy()
        big = overdrive.empty((1 << 16,), "float64")
        big.on_release(int)
        for bad in (np.array([None]), [1]):
            try:
                tensor(bad)
            except TypeError:
                pass

    for _ in range(50):
        once()
    before = resident()
    for _ in range(400):
        once()
    assert resident() - before < 8 << 20  # one lost copy alone would be 32 MB
