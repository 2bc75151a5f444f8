"""`kill -9` at any moment: afterwards nothing is left, and nobody else has crashed or hangs."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from overdrive import shm

# Each worker shares, attaches, allocates, sends and receives as fast as it can until it is killed or told to stop.
WORKER = """
import random, select, sys
import numpy as np, overdrive
from overdrive import HandleError, shm

seed, pool, work, news = int(sys.argv[1]), *sys.argv[2:5]
rng = random.Random(seed)
pool, work, news = shm.Pool.attach(pool), shm.Ring.attach(work), shm.Ring.attach(news)
kept, received = [], []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    action = rng.randrange(7)
    try:
        if action == 0:
            kept.append(overdrive.attach(overdrive.share(np.full(rng.randrange(5000), seed))))
        elif action == 1:
            t = pool.empty(rng.randrange(20000), "uint8")
            t[...] = seed % 256
            kept.append(t)
        elif action == 2:
            # What a pickle does, with a lease of two seconds instead of a minute.
            held = [t for t in kept if type(t) is overdrive.Tensor]
            work.send(overdrive._core._leased_handle(rng.choice(held), 2).encode() if held else b"", timeout=0.02)
        elif action == 3:
            message = work.recv(timeout=0.02)
            received.append(message)
        elif action == 4:
            news.send(np.full(rng.randrange(100), seed), timeout=0.02)
        elif action == 5:
            t = news.recv(timeout=0.02)
            values = t.numpy()
            assert t.size == 0 or (values == values[0]).all()
            del values, t
        else:
            text = bytes(work.recv(timeout=0.02)).decode()
            kept.append(overdrive.attach(text))
    except (TimeoutError, MemoryError, HandleError):
        pass
    except RuntimeError as error:
        assert "in flight" in str(error)  # 64 leases at a time
    if rng.random() < 0.3:
        received = []
    if len(kept) > 6 or rng.random() < 0.3:
        kept = kept[1:] if rng.random() < 0.5 else []
"""


def start(seed, *handles):
    command = [sys.executable, "-c", WORKER, str(seed), *map(str, handles)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.timeout(1200)
def test_random_participants_are_killed(kills=int(os.environ.get("KILLS", "25"))):
    rng = random.Random(9)
    before = {row["name"] for row in shm.list()}
    pool, work, news = shm.Pool(1 << 20), shm.Ring(8, 4096, "work"), shm.Ring(8, 4096)
    handles = (pool.handle, work.handle, news.handle)
    workers = [start(seed, *handles) for seed in range(4)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == b"ready\n"
        for kill in range(kills):
            victim = rng.randrange(4)
            time.sleep(rng.random() * 0.05)
            for worker in workers:
                assert worker.poll() is None, worker.stderr.read().decode()
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].communicate()
            workers[victim] = start(10 + kill, *handles)
            assert workers[victim].stdout.readline() == b"ready\n"
        # Survivors still work with each other, and stop when they are told.
        for worker in workers:
            _, errors = worker.communicate(b"stop\n", timeout=60)
            assert worker.returncode == 0, errors.decode()
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.communicate()
    # A ring's consumers were killed with messages in hand: each slot comes free again.
    for ring in (work, news):
        ring.join()
        while True:
            try:
                ring.recv(timeout=0)
            except TimeoutError:
                break
        for _ in range(20):
            ring.send(b"x", timeout=20)
            assert bytes(ring.recv(timeout=20)) == b"x"
        assert ring.used == 0
    deadline = time.monotonic() + 20  # leases that died with their message
    while True:
        shm.gc()
        left = {row["name"]: row for row in shm.list() if row["name"] not in before}
        # The pool and the two rings of this test.
        if (len(left) == 3 and pool.blocks == 0) or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert len(left) == 3 and pool.blocks == 0, (left, pool)
    assert pool.empty(1 << 20, "uint8").nbytes == 1 << 20
    assert all(row["participants"] == 1 for row in left.values())
