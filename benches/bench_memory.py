"""Measures views, arenas, shared memory, rings and the frames example against what one would use otherwise.

    python benches/bench_memory.py [--out docs/measured-memory.md] [--mib 64] [--messages 100000]

Both sides of a row are measured in one run, taking turns, best of several: a machine that is busy slows
both. Ray is measured where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing as mp
import os
import pathlib
import platform
import subprocess
import sys
import timeit
import tracemalloc
from multiprocessing import shared_memory
from time import perf_counter

import numpy as np
import overdrive
from overdrive import shm

HERE = pathlib.Path(__file__).resolve().parent
fork = mp.get_context("fork")


def best(*functions, repeat=200, seconds=0.002):
    """The best time of a call of each, in seconds, taking turns in short runs."""
    timers = [timeit.Timer(function) for function in functions]
    numbers = []
    for timer in timers:
        once = min(timer.repeat(5, 1))
        numbers.append(max(1, int(seconds / max(once, 1e-8))))
    found = [float("inf")] * len(timers)
    for _ in range(repeat):
        for i, (timer, number) in enumerate(zip(timers, numbers)):
            found[i] = min(found[i], timer.timeit(number) / number)
    return found


class Table:
    """Rows for people, and whether each target was met."""

    def __init__(self):
        self.lines, self.missed = [], 0

    def row(self, what, ours, theirs, ratio, target, met):
        self.missed += not met
        self.lines.append(f"| {what} | {ours} | {theirs} | {ratio} | {target} | {'yes' if met else 'no'} |")
        print(self.lines[-1], flush=True)

    def less(self, what, ours, theirs, unit, target, scale):
        """Ours takes at most `target` times theirs."""
        ratio = ours / theirs
        self.row(
            what,
            f"{ours * scale:,.1f} {unit}",
            f"{theirs * scale:,.1f} {unit}",
            f"{ratio:.2f}",
            f"≤ {target}",
            ratio <= target,
        )

    def below(self, what, ours, unit, limit, scale, note="–"):
        self.row(what, f"{ours * scale:,.1f} {unit}", note, "–", f"≤ {limit} {unit}", ours * scale <= limit)

    def faster(self, what, ours, theirs, unit, target, scale):
        """Ours is at least `target` times as fast."""
        ratio = theirs / ours
        self.row(
            what,
            f"{ours * scale:,.2f} {unit}",
            f"{theirs * scale:,.2f} {unit}",
            f"{ratio:.2f}×",
            f"≥ {target}×",
            ratio >= target,
        )


def views(table):
    a = np.arange(1000.0)
    t = overdrive.tensor(a)
    tensor, numpy_, nothing = overdrive.tensor, t.numpy, lambda: None
    view, back, empty, own = best(lambda: tensor(a), numpy_, nothing, lambda: a.view())
    note = f"{(own - empty) * 1e9:.0f} ns (NumPy's own view)"
    table.below("`tensor(ndarray)`", view - empty, "ns", 50, 1e9, note)
    table.below("`t.numpy()`", back, "ns", 80, 1e9, note)
    from_dlpack = np.from_dlpack
    ours, theirs = best(lambda: from_dlpack(t), lambda: from_dlpack(a))
    table.less("`numpy.from_dlpack`, of a tensor and of an array", ours, theirs, "ns", 1.2, 1e9)
    arena = overdrive.Arena(1 << 20)
    made = arena.empty
    ours = best(lambda: made(64, "float32"), repeat=100, seconds=0.0005)[0] - empty
    arena.reset()
    table.below(
        "`Arena.empty`",
        ours,
        "ns",
        120,
        1e9,
        f"{best(lambda: np.empty(64, 'f4'))[0] * 1e9:.0f} ns (numpy.empty)",
    )


def child_of(work):
    """A process that answers on a pipe."""
    here, there = fork.Pipe()
    process = fork.Process(target=work, args=(there,), daemon=True)
    process.start()
    return process, here


def attach_ours(pipe):
    while (handle := pipe.recv()) is not None:
        pipe.send(int(overdrive.attach(handle).numpy()[-1]))


def attach_theirs(pipe):
    while (asked := pipe.recv()) is not None:
        block = shared_memory.SharedMemory(name=asked)
        array = np.ndarray(block.size, np.uint8, block.buf)
        pipe.send(int(array[0]))
        del array
        block.close()


def receive_pickled(pipe):
    while (array := pipe.recv()) is not None:
        pipe.send(int(array[-1]))


def transfers(table, mib):
    n = mib << 20
    source = np.random.default_rng(0).integers(0, 256, n, np.uint8)
    target = np.zeros(n, np.uint8)
    pool = shm.Pool(n + 4096)
    places = {
        name: child_of(work)
        for name, work in [("ours", attach_ours), ("theirs", attach_theirs), ("pickled", receive_pickled)]
    }

    def ask(name, what):
        pipe = places[name][1]
        pipe.send(what)
        return pipe.recv()

    def memcpy():
        np.copyto(target, source)

    def through_pool():
        t = pool.empty(n, "uint8")
        np.copyto(t.numpy(), source)
        ask("ours", str(t.handle))

    def one_shot():
        handle = overdrive.share(source)
        ask("ours", str(handle))

    def in_place():
        t = pool.empty(n, "uint8")
        ask("ours", str(t.handle))

    def their_block():
        block = shared_memory.SharedMemory(create=True, size=n)
        array = np.ndarray(n, np.uint8, block.buf)
        np.copyto(array, source)
        ask("theirs", block.name)
        del array
        block.close()
        block.unlink()

    def pickled():
        ask("pickled", source)

    def fresh_file():
        fd = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
        os.pwrite(fd, source, 4096)
        os.close(fd)

    for warm in (through_pool, one_shot, their_block, in_place, memcpy):
        warm()
    compared = (memcpy, through_pool, one_shot, their_block, in_place, fresh_file)
    copy, pooled, single, block, made, written = best(*compared, repeat=12)
    (sent,) = best(pickled, repeat=2)

    def speed(seconds):
        return f"{n / seconds / 2**30:.1f} GiB/s"

    def share_of(what, seconds, target):
        ratio = copy / seconds
        table.row(
            what, speed(seconds), f"{speed(copy)} (memcpy)", f"{ratio:.2f}", f"≥ {target}", ratio >= target
        )

    share_of(f"{mib} MiB to another process through a pool", pooled, 0.9)
    share_of(f"{mib} MiB, one-shot `share`", single, 0.4)
    ratio = written / single
    table.row(
        "… beside writing a fresh file in /dev/shm and closing it",
        speed(single),
        speed(written),
        f"{ratio:.2f}",
        "–",
        True,
    )
    table.faster(f"{mib} MiB, `share` and `multiprocessing.shared_memory`", single, block, "ms", 1.5, 1e3)
    table.row(
        f"{mib} MiB made in place (`pool.empty`), no copy",
        f"{made * 1e6:.0f} µs",
        f"{copy * 1e3:.1f} ms (memcpy)",
        "–",
        "no copy",
        made < copy / 10,
    )
    table.row(
        f"{mib} MiB pickled through a `Pipe`",
        f"{single * 1e3:.1f} ms (`share`)",
        f"{sent * 1e3:.1f} ms",
        f"{sent / single:.1f}×",
        "–",
        True,
    )
    if importlib.util.find_spec("ray"):
        import ray

        ray.init(num_cpus=1, logging_level="ERROR", log_to_driver=False, object_store_memory=4 * n)

        def get():
            return ray.get(ray.put(source))

        get()
        (stored,) = best(get, repeat=5)
        ray.shutdown()
        table.row(
            f"{mib} MiB by `ray.put` and `ray.get` (one process)",
            f"{pooled * 1e3:.1f} ms (a pool, two processes)",
            f"{stored * 1e3:.1f} ms",
            f"{stored / pooled:.1f}×",
            "–",
            True,
        )
    for process, pipe in places.values():
        pipe.send(None)
        process.join()


ATTACH = """
import sys, time
from multiprocessing import resource_tracker, shared_memory
import overdrive
n = int(sys.argv[1])
ours, theirs = sys.argv[2 : 2 + n], sys.argv[2 + n :]
best = [1e9] * 4
for _ in range(100):
    begin = time.perf_counter()
    kept = [overdrive.attach(handle) for handle in ours]
    attached = time.perf_counter()
    kept.clear()
    released = time.perf_counter()
    kept = [shared_memory.SharedMemory(name=name) for name in theirs]
    opened = time.perf_counter()
    for block in kept:
        block.close()
    closed = time.perf_counter()
    spans = (attached - begin, released - attached, opened - released, closed - opened)
    best = [min(b, span / n) for b, span in zip(best, spans)]
print(*best)
for name in theirs:
    resource_tracker.unregister("/" + name, "shared_memory")
"""


def attach(table, n=40):
    """Each of `n` segments by its first view in a process: a second view of one costs a seventh of that."""
    tensors = [overdrive.zeros(1 << 20, "uint8", shared=True) for _ in range(n)]
    blocks = [shared_memory.SharedMemory(create=True, size=1 << 20) for _ in range(n)]
    names = [*(str(t.handle) for t in tensors), *(block.name for block in blocks)]
    answer = subprocess.run([sys.executable, "-c", ATTACH, str(n), *names], capture_output=True, text=True)
    for block in blocks:
        block.close()
        block.unlink()
    ours, release, theirs, close = map(float, answer.stdout.split())
    other = f"{theirs * 1e6:.0f} µs (shared_memory)"
    table.below("`attach`, a new mapping each time", ours, "µs", 15, 1e6, other)
    table.row(
        "… and its release",
        f"{release * 1e6:.1f} µs",
        f"{close * 1e6:.1f} µs (shared_memory)",
        "–",
        "–",
        True,
    )


def messages(table, n):
    message = np.zeros(4096, np.uint8)
    raw = message.tobytes()

    def timed(consume, produce, count):
        process = fork.Process(target=consume, args=(count,), daemon=True)
        process.start()
        done.recv()
        began = perf_counter()
        produce(count)
        done.recv()
        spent = (perf_counter() - began) / count
        process.join()
        return spent

    done, tell = fork.Pipe()

    def ring_consumer(count):
        ring.join()
        tell.send(1)
        receive = ring.recv
        for _ in range(count):
            receive()
        tell.send(1)

    def ring_producer(count):
        send = ring.send
        for _ in range(count):
            send(message)

    def queue_consumer(count):
        tell.send(1)
        for _ in range(count):
            queue.get()
        tell.send(1)

    def queue_producer(count):
        for _ in range(count):
            queue.put(raw)

    def pipe_consumer(count):
        tell.send(1)
        for _ in range(count):
            reader.recv_bytes()
        tell.send(1)

    def pipe_producer(count):
        for _ in range(count):
            writer.send_bytes(raw)

    found = {"ring": [], "queue": [], "pipe": []}
    for _ in range(3):
        ring = shm.Ring(256, 4096, "work")
        found["ring"].append(timed(ring_consumer, ring_producer, n))
        queue = fork.Queue(256)
        found["queue"].append(timed(queue_consumer, queue_producer, n // 4))
        reader, writer = fork.Pipe(duplex=False)
        found["pipe"].append(timed(pipe_consumer, pipe_producer, n))
    ours = min(found["ring"])
    table.faster(
        f"{n:,} messages of 4 KiB: ring and bounded `multiprocessing.Queue`",
        ours,
        min(found["queue"]),
        "µs",
        8,
        1e6,
    )
    table.faster(
        f"{n:,} messages of 4 KiB: ring and `Pipe.send_bytes`", ours, min(found["pipe"]), "µs", 3, 1e6
    )


def frames(table):
    specification = importlib.util.spec_from_file_location("frames", HERE.parent / "examples/02_frames.py")
    example = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(example)
    for height, width, flipped in ((224, 224, False), (1080, 1920, True)):
        frame = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
        frame = frame[:, ::-1] if flipped else frame
        batches = example.Batches(1, height, width)
        ours, theirs = best(
            lambda: batches.make([frame]), lambda: example.usual(frame)[None], repeat=30, seconds=0.01
        )
        kind = "flipped, " if flipped else ""
        table.less(f"frame of {kind}{height}×{width} to a normalised batch", ours, theirs, "ms", 0.27, 1e3)
        tracemalloc.start()
        batches.make([frame])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        output = 4 * 3 * height * width
        table.row(
            "… peak extra memory",
            f"{peak / 1024:,.0f} KiB",
            f"{output / 1024:,.0f} KiB (the output)",
            f"{peak / output:.2f}",
            "≤ 1",
            peak <= output,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--messages", type=int, default=100_000)
    options = parser.parse_args()
    table = Table()
    views(table)
    attach(table)
    transfers(table, options.mib)
    messages(table, options.messages)
    frames(table)
    if options.out:
        load = os.getloadavg()[0]
        head = f"""# Memory: measured

Generated by `python benches/bench_memory.py --out docs/{options.out.name}` on {os.cpu_count()} shared cores ({platform.machine()}, CPython
{platform.python_version()}, NumPy {np.__version__}), load average {load:.1f}. Both sides of a row were measured in one run, taking turns,
best of several.

| what | ours | other side | ratio | target | met |
|---|---:|---:|---:|---|---|
"""
        options.out.write_text(head + "\n".join(table.lines) + "\n")
    print(f"{len(table.lines) - table.missed} met, {table.missed} missed")


if __name__ == "__main__":
    main()
