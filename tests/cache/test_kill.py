"""`kill -9` while entries are written: what is on the disk afterwards is whole, or not used.

`python -m tests.cache.test_kill 200` does as many rounds as it is told to.
"""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from .processes import code, entries, environment, run

# Compiles one small function after the other, and writes each.
WRITER = """
import itertools, overdrive
print("ready", flush=True)
for n in itertools.count():
    space = {"overdrive": overdrive}
    exec(f"@overdrive.jit\\ndef f(x):\\n    return x * {n % 40} + {n % 40 + 3}", space)
    space["f"](n)
    if n >= 40:
        # So that there is something to write.
        overdrive._core.cache_clear()
"""

READER = """
results = []
for n in range(40):
    space = {"overdrive": overdrive}
    exec(f"@overdrive.jit\\ndef f(x):\\n    return x * {n} + {n + 3}", space)
    results.append(space["f"](5))
print(results == [5 * n + n + 3 for n in range(40)])
"""


def rounds(caches, n, random):
    """Kills a writer at some moment, `n` times; the entries that readers loaded altogether."""
    loaded = 0
    for i in range(n):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, env=environment(caches))
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout.readline() == b"ready\n"
        try:
            writers[0].wait(timeout=random.uniform(0.0, 0.4))
        except subprocess.TimeoutExpired:
            pass
        for writer in writers:
            assert writer.poll() is None, "a writer ended by itself"
            writer.kill()
            writer.wait()
            writer.stdout.close()
        if i % 4 == 3 or i == n - 1:
            printed, (n_loaded, made, problem) = run(READER, caches)
            assert (printed, problem) == (["True"], None)
            assert n_loaded + made == 40
            loaded += n_loaded
            assert run(READER, caches)[1] == (40, 0, None)
    return loaded


def test_kill(tmp_path):
    assert rounds(tmp_path, 8, random.Random(1)) > 0
    assert entries(tmp_path)
    left = [path for path in code(tmp_path).rglob(".new-*")]
    assert all(os.path.getsize(path) < 1 << 20 for path in left)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        n = int(sys.argv[1])
        print(
            f"{n} kills, {rounds(Path(directory), n, random.Random(n))} entries loaded, each as it was made"
        )
