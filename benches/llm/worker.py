"""A process that runs one engine: an order is a line of JSON on standard input, its answer one on standard output.

In: the engine's name and its settings, JSON as the only argument. Out: answers to the methods of `Worker`, by name: seconds
and bytes as they were found. Both engines get the same tokens in the same pieces; what an engine does besides (choosing a
token, making text of it) is not asked for.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import platform
import sys
import threading
from time import perf_counter, process_time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/llm/reference")]

READ_AT_ONCE = 384 << 20  # bytes of a thread; more than any cache holds
N_READS = 3


def engine(name):
    """The class that runs a model, and what its software says of itself."""
    if name == "overdrive":
        import ours

        return ours.Ours, ours.about
    import peer

    return peer.Peer, peer.about


def text_tokens(n, n_vocabulary=49152):
    """The same tokens for every engine: a walk through the vocabulary."""
    return [(17 + 7919 * i) % n_vocabulary for i in range(n)]


def resident():
    """Bytes of this process in memory: now, at most, and those that are pages of files."""
    found = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    names = {"now": "VmRSS", "peak": "VmHWM", "files": "RssFile"}
    return {name: int(found[key].split()[0]) * 1024 for name, key in names.items()}


def timed(call, tokens):
    """Seconds of a call on the clock, and seconds that all threads of the process computed."""
    start, computed = perf_counter(), process_time()
    call(tokens)
    return {"seconds": perf_counter() - start, "computed": process_time() - computed}


class Worker:
    """What can be ordered. A refusal is an answer, {"refused": reason}, and not an error."""

    def __init__(self, settings):
        self.settings = settings
        self.model = None

    def hello(self):
        """Who answers."""
        _, about = engine(self.settings["engine"])
        return {"python": platform.python_version(), **about(**self.options())}

    def options(self):
        """The settings but which engine it is."""
        return {name: value for name, value in self.settings.items() if name != "engine"}

    def open(self, path, n_threads, n_ctx):
        """Loads a model: seconds until it is ready, until the first token's logits are there, and bytes that it took."""
        made, _ = engine(self.settings["engine"])  # imported before the clock starts
        before = resident()
        start, computed = perf_counter(), process_time()
        self.model = made(path, n_threads, n_ctx, **self.options())
        ready = perf_counter() - start
        self.model.prompt(text_tokens(1))
        first, computed = perf_counter() - start, process_time() - computed
        return {
            "load": ready,
            "first_token": first,
            "computed": computed,
            "before": before,
            "memory": resident(),
        }

    def forget_file(self, path):
        """Takes a file out of the system's cache, so that the next load reads it."""
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return {}

    def prompt(self, n):
        """Seconds for the logits after n tokens."""
        return timed(self.model.prompt, text_tokens(n))

    def generate(self, n):
        """Seconds for n tokens one after the other, behind one that is there already."""
        tokens = text_tokens(n + 1)
        self.model.prompt(tokens[:1])
        return timed(self.model.steps, tokens[1:])

    def memory(self):
        """Bytes of this process in memory."""
        return resident()

    def inspect(self, path):
        """A file's bytes, and the bytes of weights that a token needs: all matrices but a table that is only looked up in."""
        import gguf

        reader = gguf.GGUFReader(path)
        sizes = {tensor.name: int(tensor.n_bytes) for tensor in reader.tensors}
        looked_up = sizes["token_embd.weight"] if "output.weight" in sizes else 0

        def said(key):
            return reader.get_field(f"llama.{key}").contents()

        head_dim = said("embedding_length") // said("attention.head_count")
        return {
            "bytes": os.path.getsize(path),
            "per_token": sum(sizes.values()) - looked_up,
            "cache_per_position": 2 * 2 * said("block_count") * said("attention.head_count_kv") * head_dim,
            "parameters": sum(int(t.n_elements) for t in reader.tensors),
        }

    def bandwidth(self, n_threads):
        """Bytes a second that threads read: memchr of the C library for what is not there, the best of some passes.

        `rate` is by the clock, `computed` by what the threads computed.
        """
        libc = ctypes.CDLL(None)
        libc.memchr.restype, libc.memchr.argtypes = (
            ctypes.c_void_p,
            [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t],
        )
        if self.model is None or len(self.model) < n_threads:
            import numpy as np

            self.model = [np.ones(READ_AT_ONCE, np.uint8) for _ in range(n_threads)]
        rates, computed = [], []
        for _ in range(N_READS):
            gate = threading.Barrier(n_threads + 1)

            def read(memory):
                gate.wait()
                libc.memchr(memory.ctypes.data, 0, memory.nbytes)

            threads = [threading.Thread(target=read, args=(memory,)) for memory in self.model[:n_threads]]
            for thread in threads:
                thread.start()
            gate.wait()
            start, before = perf_counter(), process_time()
            for thread in threads:
                thread.join()
            rates.append(n_threads * READ_AT_ONCE / (perf_counter() - start))
            computed.append(n_threads**2 * READ_AT_ONCE / (process_time() - before))
        return {"rate": max(rates), "computed": max(computed)}

    def right(self):
        """How far the engine's results are from the recorded reference of SmolLM2."""
        import measures

        return measures.against_reference(self.model.logits)


def main():
    answers, sys.stdout = sys.stdout, sys.stderr  # what else is printed must not be taken for an answer
    worker = Worker(json.loads(sys.argv[1]))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order.pop("do"))(**order)
        except Exception as error:  # what an engine refuses is a result
            answer = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
