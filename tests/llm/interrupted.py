"""Generations that are interrupted at random, and what they leave behind.

    python -m tests.llm.interrupted [N] [FILE]

runs N (1,000) of them on a model and prints by how much the process has grown.
"""

import contextlib
import gc
import random
import signal
import sys
import threading
import time


@contextlib.contextmanager
def after(seconds):
    """Send this process SIGINT, as Ctrl-C does, after a time."""

    def send():
        if not ended.wait(seconds):
            signal.raise_signal(signal.SIGINT)

    ended = threading.Event()
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def interrupt(model, session, rng):
    """One generation of a kind drawn at random, interrupted at a moment drawn at random."""
    options = {"max_tokens": 100, "temperature": 1.0, "seed": rng.randrange(1 << 30)}
    kind = rng.randrange(4)
    try:
        with after(rng.random() * 0.02):
            while True:
                if kind == 0:
                    model.generate("then the", **options)
                elif kind == 1:
                    model.generate(["then the", "a", "in the end"], **options)
                elif kind == 2:
                    session.generate("then the other", **options)
                else:
                    for _ in model.generate("then the", stream=True, **options):
                        pass
    except KeyboardInterrupt:
        return True
    return False


def growth(model, n, seed=1):
    """Interrupt ``n`` generations; return by how many bytes the process has grown over the last four fifths."""
    rng = random.Random(seed)
    session = model.session()
    n_first = n // 5
    for number in range(n):
        assert interrupt(model, session, rng)
        if number == n_first:
            gc.collect()
            before = resident()
    gc.collect()
    expected = model.generate("then the", max_tokens=5)
    assert session.generate("then the", max_tokens=5) == expected
    return resident() - before


def main():
    import overdrive.llm

    # A process in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with overdrive.llm.load(sys.argv[2] if len(sys.argv) > 2 else None) as model:
        begin = time.monotonic()
        grown = growth(model, n)
        kib = grown / 1024
        print(
            f"{n} generations interrupted in {time.monotonic() - begin:.0f} s: {kib:,.0f} KiB more in memory"
        )
        sys.exit(grown > 8 << 20)


if __name__ == "__main__":
    main()
