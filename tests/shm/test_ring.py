"""Rings: order, back-pressure, waiting, the end, killed consumers and senders, signals, async."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from overdrive import HandleError, shm


def forked(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def reap(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("mode", ["broadcast", "work"])
@pytest.mark.parametrize(
    "x",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(12, dtype=">i2").reshape(3, 4)[::-1, ::2],
        np.array(5),
        np.zeros((0, 2), np.float32),
        b"bytes",
        np.ones((1,) * 8, bool),
    ],
    ids=repr,
)
def test_messages_arrive_as_they_were_sent(mode, x):
    ring = shm.Ring(2, 4096, mode)
    ring.send(x)
    t = ring.recv(timeout=5)
    a = np.asarray(memoryview(x))
    assert t.numpy().dtype == a.dtype and t.shape == a.shape and t.tolist() == a.tolist() and t.align >= 64
    assert t.readonly == (mode == "broadcast")


def test_every_process_gets_every_message():
    ring = shm.Ring(4, 64)

    def consume():
        ring.join()
        got = [t.tolist() for t in ring]
        assert got == [[i] for i in range(2000)], got[:5]

    children = [forked(consume) for _ in range(3)]
    while ring.consumers < 3:
        time.sleep(0.001)
    for i in range(2000):
        ring.send(np.array([i]), timeout=30)
    ring.finish()
    assert [reap(child) for child in children] == [0, 0, 0]
    assert ring.sent == 2000


def test_each_message_goes_to_one_process():
    ring, results = shm.Ring(8, 64, "work"), shm.Ring(64, 64, "work")

    def consume():
        n = total = 0
        for t in ring:
            n, total = n + 1, total + t[0]
            del t
        results.send(np.array([n, total]))

    children = [forked(consume) for _ in range(3)]
    for i in range(3000):
        ring.send(np.array([i]), timeout=30)
    ring.finish()
    assert [reap(child) for child in children] == [0, 0, 0]
    counts = [results.recv(5).tolist() for _ in children]
    assert sum(n for n, _ in counts) == 3000 and sum(total for _, total in counts) == sum(range(3000))


def work(ring, n):
    for i in range(n):
        ring.send(np.full(10, i))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_ring_is_sent_to_processes(method):
    context = multiprocessing.get_context(method)
    ring = shm.Ring(4, 128, "work")
    process = context.Process(target=work, args=(ring, 100))
    process.start()
    assert [ring.recv(timeout=30)[0] for _ in range(100)] == list(range(100))
    process.join(30)
    assert process.exitcode == 0


def test_time_outs_and_back_pressure():
    ring = shm.Ring(2, 64, "work")
    with pytest.raises(TimeoutError):
        ring.recv(timeout=0)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ring.recv(timeout=0.1)
    assert 0.09 < time.monotonic() - began < 5
    assert ring.wait(timeout=0.01) is False
    ring.send(b"1", timeout=0)
    ring.send(b"2", timeout=0)
    assert ring.wait() and ring.used == 2
    for timeout in (0, -1, 0.05):
        with pytest.raises(TimeoutError):
            ring.send(b"3", timeout=timeout)
    t = ring.recv()
    with pytest.raises(TimeoutError):
        ring.send(b"3", timeout=0.05)  # it is still held
    del t
    ring.send(b"3", timeout=0)
    with pytest.raises(ValueError):
        ring.recv(timeout=float("nan"))
    assert bytes(ring.recv(timeout=float("inf"))) == b"2"


def test_a_blocked_sender_goes_on_when_a_slot_comes_free():
    ring = shm.Ring(1, 64, "work")
    ring.send(b"1")
    sent = []
    thread = threading.Thread(target=lambda: (ring.send(b"2"), sent.append(1)))
    thread.start()
    time.sleep(0.1)
    assert not sent
    assert bytes(ring.recv()) == b"1"
    thread.join(10)
    assert sent and bytes(ring.recv()) == b"2"


def test_what_does_not_fit_is_refused():
    ring = shm.Ring(2, 8)
    for bad, error in [
        (bytes(9), ValueError),
        (np.zeros((1,) * 9), ValueError),
        ([1], TypeError),
        (np.array(["a"]), TypeError),
    ]:
        with pytest.raises(error):
            ring.send(bad)
    ring.send(bytes(8))
    for arguments in [(0, 8), (2, 8, "both"), (-1, 8), (2, -8)]:
        with pytest.raises((ValueError, OverflowError)):
            shm.Ring(*arguments)


def test_the_end():
    ring = shm.Ring(4, 64)
    ring.send(b"1")
    ring.finish()
    assert [bytes(t) for t in ring] == [b"1"]
    with pytest.raises(EOFError):
        ring.recv()
    with pytest.raises(ValueError, match="finished"):
        ring.send(b"2")
    late = shm.Ring.attach(ring.handle)
    assert list(late) == []


def test_close():
    ring = shm.Ring(4, 64)
    ring.send(b"1")
    t = ring.recv()
    with pytest.raises(BufferError):
        ring.close()
    del t
    ring.close()
    ring.close()
    assert ring.closed and not shm.list()
    for use in (
        ring.recv,
        lambda: ring.send(b""),
        lambda: ring.handle,
        lambda: next(iter(ring)),
        ring.finish,
    ):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(HandleError):
        shm.Ring.attach("od1:x")
    with pytest.raises(HandleError):
        shm.Ring.attach(shm.Pool(4096).handle)


def test_messages_outlive_the_ring_object():
    ring = shm.Ring(4, 64)
    ring.send(b"abc")
    t = ring.recv()
    n = t.numpy()
    del ring, t
    assert n.tobytes() == b"abc"


@pytest.mark.parametrize("mode", ["broadcast", "work"])
def test_a_killed_consumer_frees_its_slots(mode):
    ring = shm.Ring(4, 64, mode)
    read, write = os.pipe()

    def consume():
        ring.join()
        os.write(write, b"j")
        held = [ring.recv() for _ in range(3)]
        os.write(write, b"x")
        signal.pause()
        del held

    child = forked(consume)
    assert os.read(read, 1) == b"j"
    for i in range(4):
        ring.send(np.array([i]))
    assert os.read(read, 1) == b"x"
    with pytest.raises(TimeoutError):
        ring.send(np.array([4]), timeout=0.1)
    os.kill(child, signal.SIGKILL)
    assert reap(child) == -signal.SIGKILL
    ring.send(np.array([4]), timeout=10)
    other = shm.Ring.attach(ring.handle)
    if mode == "work":
        assert [other.recv(5)[0] for _ in range(2)] == [3, 4]
    else:
        assert other.recv(5)[0] == 4
    os.close(read)
    os.close(write)


def test_an_idle_consumer_uses_no_processor():
    ring = shm.Ring(4, 64)
    before = time.process_time()
    with pytest.raises(TimeoutError):
        ring.recv(timeout=1)
    assert time.process_time() - before < 0.05


def test_signals_end_a_wait():
    ring = shm.Ring(1, 64, "work")
    ring.send(b"1")

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    old = signal.signal(signal.SIGALRM, stop)
    try:
        for action in (lambda: ring.send(b"2"), ring.join, lambda: (ring.recv(), ring.recv())):
            if action == ring.join:
                continue
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            began = time.monotonic()
            with pytest.raises(Stop):
                action()
            assert time.monotonic() - began < 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_other_threads_run_while_one_waits():
    ring = shm.Ring(1, 64)
    got = []
    thread = threading.Thread(target=lambda: got.append(bytes(ring.recv())))
    thread.start()
    time.sleep(0.05)
    ring.send(b"x")
    thread.join(10)
    assert got == [b"x"]


def test_async_iteration():
    ring = shm.Ring(32, 64, "work")  # a send that blocked would block the loop

    async def consume():
        return [t[0] async for t in ring]

    async def produce():
        for i in range(20):
            await asyncio.sleep(0.002)
            ring.send(np.array([i]))
        ring.finish()

    async def main():
        return (await asyncio.gather(consume(), produce()))[0]

    assert asyncio.run(main()) == list(range(20))


def test_a_cancelled_async_iteration_loses_nothing():
    ring = shm.Ring(4, 64, "work")

    async def consume():
        async for t in ring:
            return t[0]

    async def main():
        task = asyncio.create_task(consume())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ring.send(np.array([7]))

    asyncio.run(main())
    assert ring.recv(5)[0] == 7


def test_threads_share_one_ring_object():
    ring = shm.Ring(16, 64)
    ring.join()
    got, n = [], 4000

    def consume():
        for t in ring:
            got.append(t[0])
            del t

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(n):
        ring.send(np.array([i]))
    ring.finish()
    for thread in threads:
        thread.join(30)
    assert sorted(got) == list(range(n))  # one consumer of three threads: each message once


def test_pickling_gives_another_participant():
    ring = shm.Ring(4, 64)
    other = pickle.loads(pickle.dumps(ring))
    assert (
        type(other) is shm.Ring and other.mode == "broadcast" and (other.slots, other.slot_bytes) == (4, 64)
    )
    ring.join()
    other.join()
    ring.send(b"x")
    assert bytes(ring.recv(5)) == bytes(other.recv(5)) == b"x" and ring.consumers == 2
