"""`share`, `attach`, handles, pickles, `unlink`, the list and the command: who holds what, and for how long."""

import copy
import gc
import json
import multiprocessing
import os
import pickle
import stat
import subprocess
import sys
import textwrap

import numpy as np
import overdrive
import pytest
from overdrive import HandleError, attach, share, shm


def file_of(handle):
    return "/dev/shm/overdrive-" + handle.split(":")[3]


@pytest.mark.parametrize(
    "x",
    [
        np.arange(24.0).reshape(2, 3, 4),
        np.arange(24, dtype=">i4").reshape(4, 6)[::2, ::-2],
        np.array(3.5, np.float32),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
        np.ones((2, 2), np.complex64).T,
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        b"bytes",
    ],
    ids=repr,
)
def test_a_copy_is_shared_and_attached(x, python):
    a = np.asarray(memoryview(x))
    handle = share(x)
    t = attach(handle)
    assert isinstance(handle, str) and isinstance(handle, overdrive.Handle)
    assert t.numpy().dtype == a.dtype and t.shape == a.shape and t.tolist() == a.tolist() and t.align >= 64
    assert t.handle == handle
    out = python("import sys, overdrive; print(overdrive.attach(sys.argv[1]).tolist())", handle)
    assert out == repr(a.tolist())


def test_both_sides_see_writes(python):
    t = overdrive.zeros(4, "int32", shared=True)
    python("import sys, overdrive; t = overdrive.attach(sys.argv[1]); t[1] = 7; t.numpy()[3] = 8", t.handle)
    assert t.tolist() == [0, 7, 0, 8]


def test_sharing_what_is_shared_copies_nothing():
    t = overdrive.empty((2, 2), "float64", shared=True)
    assert share(t) == t.handle
    t[...] = 1
    assert attach(share(t)).tolist() == t.tolist()
    assert len(shm.list()) == 1


def test_files_have_the_exact_size_and_belong_to_the_user_alone():
    old = os.umask(0)
    try:
        handle = share(np.zeros(1001, np.uint8))
    finally:
        os.umask(old)
    status = os.stat(file_of(handle))
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == 4096 + 1001 and attach(handle).nbytes == 1001


def test_memory_lives_as_long_as_anybody_holds_it():
    handle = share(np.arange(3))
    path, text = file_of(handle), str.__str__(handle)
    t = attach(text)
    v = t.numpy()[1:]
    del handle
    assert os.path.exists(path)
    del t
    gc.collect()
    assert os.path.exists(path) and v.tolist() == [1, 2]
    del v
    assert not os.path.exists(path)
    with pytest.raises(HandleError, match="gone"):
        attach(text)


def test_another_process_keeps_it(python):
    handle = share(np.arange(3))
    code = """
        import sys, overdrive
        t = overdrive.attach(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        print(t.tolist())
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(handle)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    path = file_of(handle)
    del handle
    assert os.path.exists(path) and shm.list()[0]["participants"] == 1
    assert child.communicate("\n", timeout=30)[0] == "[0, 1, 2]\n"
    assert not os.path.exists(path)


def test_a_process_that_ends_with_its_tensors_leaves_nothing(python):
    out = python("""
        import sys, overdrive
        t = overdrive.zeros(4, "int8", shared=True)
        sys.kept = overdrive.share(b"abc"), memoryview(t), t.numpy()
        print(t.handle)
    """)
    assert not os.path.exists(file_of(out))


def test_read_only_attachment(python):
    t = overdrive.zeros(4096, "uint8", shared=True)
    r = attach(t.handle, readonly=True)
    assert r.readonly and not r.numpy().flags.writeable
    t[0] = 5
    assert r[0] == 5
    with pytest.raises(ValueError):
        r[0] = 1
    assert attach(r.handle).readonly  # the handle says so too
    done = python(
        """
        import ctypes, sys, overdrive
        r = overdrive.attach(sys.argv[1], readonly=True)
        ctypes.memset(r.numpy().ctypes.data, 1, 1)
        """,
        t.handle,
        check=False,
    )
    assert done.returncode == -11  # the kernel refuses too
    assert t[0] == 5


def test_handles_are_checked():
    handle = share(np.arange(100))
    fields = handle.split(":")
    for bad in (
        "",
        "x",
        "od1:",
        "od9:1:2",
        handle[:-1],
        handle[1:],
        handle + "0",
        handle.upper(),
        "a" * 10**6,
    ):
        with pytest.raises(HandleError):
            attach(bad)
    for position in range(len(fields)):
        changed = ":".join([*fields[:position], fields[position] + "1", *fields[position + 1 :]])
        with pytest.raises(HandleError):
            attach(changed)
    with pytest.raises(TypeError):
        attach(3)
    with pytest.raises(HandleError, match="pool or ring"):
        attach(shm.Pool(4096).handle)
    with pytest.raises(HandleError, match="tensor"):
        shm.Pool.attach(handle)


def test_a_file_that_is_something_else_is_refused():
    handle = share(np.arange(100))
    path = file_of(handle)
    text = str.__str__(handle)
    other = share(np.arange(5))
    os.rename(file_of(other), path + "x")
    try:
        for content in (b"", b"x" * 100, b"\0" * 10000):
            os.rename(path, path + "y")
            with open(path, "wb") as file:
                file.write(content)
            child = subprocess.run(
                [sys.executable, "-c", f"import overdrive; overdrive.attach({text!r})"],
                capture_output=True,
                text=True,
            )
            assert child.returncode == 1 and "HandleError" in child.stderr
            os.rename(path + "y", path)
        child = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import os, overdrive; os.rename({path + 'x'!r}, {file_of(other)!r}); overdrive.attach({text!r})",
            ],
            capture_output=True,
            text=True,
        )
        assert child.returncode == 0
    finally:
        if os.path.exists(path + "x"):
            os.rename(path + "x", file_of(other))


def test_pickles_keep_the_memory_on_the_way(python):
    t = overdrive.zeros(3, "int16", shared=True)
    t[:] = [1, 2, 3]
    pickled = [pickle.dumps(t), pickle.dumps(t.handle)]
    path = file_of(t.handle)
    del t
    assert os.path.exists(path) and shm.list()[0]["in_flight"] == 2 and shm.gc() == []
    out = python(
        "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).tolist())", pickled[0].hex()
    )
    assert out == "[1, 2, 3]"
    handle = pickle.loads(pickled[1])
    assert attach(handle).tolist() == [1, 2, 3] and isinstance(handle, overdrive.Handle)
    assert shm.list()[0]["in_flight"] == 0
    del handle
    assert not os.path.exists(path)
    with pytest.raises(HandleError):
        pickle.loads(pickled[0])


def test_copies_of_shared_tensors():
    t = overdrive.zeros(3, "int8", shared=True)
    assert np.shares_memory(copy.copy(t).numpy(), t.numpy())
    deep = copy.deepcopy(t)
    assert not np.shares_memory(deep.numpy(), t.numpy())
    with pytest.raises(ValueError, match="share"):
        t[1:].handle
    with pytest.raises(ValueError, match="share"):
        overdrive.zeros(3, "int8").handle


def work(t, queue):
    t[0] = 42
    queue.put(overdrive.share(np.arange(3)))
    queue.put(t)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    t = overdrive.zeros(4, "int64", shared=True)
    process = context.Process(target=work, args=(t, queue))
    process.start()
    handle = queue.get(timeout=30)
    again = queue.get(timeout=30)
    assert attach(handle).tolist() == [0, 1, 2] and again.tolist() == [42, 0, 0, 0] == t.tolist()
    process.join(30)
    assert process.exitcode == 0
    queue.close()
    queue.join_thread()


def test_a_fork_holds_for_itself():
    t = overdrive.zeros(3, "int8", shared=True)
    handle = str.__str__(t.handle)
    read, write = os.pipe()
    go_read, go_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(go_read, 1)  # the parent has dropped its tensor
            ok = t.tolist() == [0, 0, 0] and attach(handle).tolist() == [0, 0, 0] and len(shm.list()) == 1
            t[0] = 1
            del t
            ok = ok and not shm.list()
            os.write(write, b"y" if ok else b"n")
        finally:
            os._exit(0)
    assert shm.list()[0]["participants"] == 2
    del t
    assert shm.list()[0]["participants"] == 1
    os.write(go_write, b"x")
    assert os.read(read, 1) == b"y"
    os.waitpid(child, 0)
    for fd in (read, write, go_read, go_write):
        os.close(fd)


def test_a_fork_that_lets_go_takes_nothing_from_its_parent():
    t = overdrive.zeros(3, "int8", shared=True)
    for _ in range(5):
        child = os.fork()
        if child == 0:
            try:
                del t
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert shm.list()[0]["participants"] == 1 and attach(t.handle).tolist() == [0, 0, 0]


def test_no_space_is_a_memory_error_that_says_what_to_do():
    free = os.statvfs("/dev/shm")
    for make in (
        lambda: overdrive.zeros(free.f_blocks * free.f_frsize + 1, "uint8", shared=True),
        lambda: overdrive.empty(1 << 50, "uint8", shared=True),
        lambda: shm.Pool(1 << 50),
        lambda: shm.Ring(1 << 20, 1 << 30),
    ):
        with pytest.raises(MemoryError, match="--shm-size"):
            make()


def test_alignment_of_shared_memory():
    assert overdrive.zeros(3, "int8", shared=True, align=4096).align == 4096
    with pytest.raises(ValueError):
        overdrive.zeros(3, "int8", shared=True, align=8192)
    with pytest.raises(ValueError):
        overdrive.zeros(3, "int8", shared=True, align=3)


def test_unlink_takes_the_name_only():
    t = overdrive.zeros(3, "int8", shared=True)
    handle = t.handle
    shm.unlink(handle)
    assert not os.path.exists(file_of(handle)) and t.tolist() == [0, 0, 0]
    for action in (attach, shm.unlink):
        with pytest.raises(HandleError, match="gone"):
            action(handle)
    with pytest.raises(HandleError):
        shm.unlink("../../etc/passwd")


def test_the_command(python):
    t = overdrive.zeros(100, "int8", shared=True)
    name = os.path.basename(file_of(t.handle))

    def command(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "overdrive", "shm", *arguments], capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    status, out, _ = command("ls")
    assert status == 0 and name in out and "4,196" in out
    assert json.loads(command("ls", "--json")[1])[0]["name"] == name
    assert json.loads(command("gc", "--json")[1]) == []
    python("import os, overdrive; t = overdrive.zeros(3, 'int8', shared=True); os._exit(0)")
    status, out, _ = command("gc")
    assert status == 0 and "1 removed" in out and name not in out
    assert command("ls")[1].count("overdrive-") == 1
    assert command("--help")[0] == 0 and command()[0] == 2 and command("rm")[0] == 2


def test_nothing_of_the_resource_tracker_is_involved(python):
    python("""
        import sys, overdrive
        t = overdrive.attach(overdrive.share(b"abc"))
        assert "multiprocessing.resource_tracker" not in sys.modules
        assert "multiprocessing.shared_memory" not in sys.modules
    """)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_no_descriptor_leaks():
    before = descriptors()
    for _ in range(50):
        t = overdrive.zeros(3, "int8", shared=True)
        r = attach(t.handle, readonly=True)
        with pytest.raises(MemoryError):
            overdrive.zeros(1 << 50, "int8", shared=True)
        with pytest.raises(HandleError):
            attach("od1:nothing")
    del t, r
    assert descriptors() == before
