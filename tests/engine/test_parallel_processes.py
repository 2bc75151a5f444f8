"""Parallel loops in processes that fork, end, or are interrupted, and where everything is switched off."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import overdrive
from overdrive import prange
signal.alarm(60)
overdrive.set_num_threads(3)

@overdrive.jit(parallel=True, nogil=True)
def f(n):
    s = 0
    for i in prange(n):
        s += i
    return s

@overdrive.jit(parallel=True, nogil=True)
def g(a):
    s = 0.0
    for i in prange(len(a)):
        s += a[i] * 0.5
    return s

def good():
    return f(1000) == 499500 and g(np.ones(10_000)) == 5000.0 and f(10**7) == 10**7 * (10**7 - 1) // 2
"""


def run(text, *options, status=0):
    program = [sys.executable, "-W", "error", *options, "-c", text]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout.strip()


FORK = """
def child():
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os._exit(0 if good() and good() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.mark.parametrize(
    "text",
    [
        # After, and again in the parent; a child of a child.
        "assert good(); child(); child(); assert good(); print('yes')",
        # Before anything ran.
        "child(); assert good(); print('yes')",
        # Only in the grandchild.
        "good()\npid = os.fork()\nif pid == 0:\n    child(); os._exit(0 if good() else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0; print('yes')",
    ],
)
def test_fork(text):
    assert run(PROGRAM + FORK + text) == "yes"


def test_fork_while_others_are_in_loops():
    text = """
good()
going = True
def work():
    while going:
        assert good()
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
import warnings; warnings.simplefilter("ignore")
for _ in range(20): child()
going = False
for t in threads: t.join()
print("yes")
"""
    assert run(PROGRAM + FORK + text) == "yes"


def test_processes_and_their_pools():
    text = """
import concurrent.futures, multiprocessing
def task(n): return good() and f(n)
if __name__ == "__main__":
    good()
    context = multiprocessing.get_context("fork")
    import warnings; warnings.simplefilter("ignore")
    with context.Pool(2) as pool:
        assert pool.map(task, [10, 1000, 100]) == [45, 499500, 4950]
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(task, [10, 1000, 100])) == [45, 499500, 4950]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(task, [10, 1000, 100])) == [45, 499500, 4950]
    print("yes")
"""
    assert run(PROGRAM + text) == "yes"


def test_the_process_ends_while_daemon_threads_are_in_loops():
    text = """
good()
def work():
    while True: good()
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
print("yes", flush=True)
"""
    assert run(PROGRAM + text) == "yes"


def test_ctrl_c():
    text = """
@overdrive.jit(parallel=True)
def long_loop(a, out):
    for i in prange(out.shape[0]):
        acc = 0.0
        for j in range(a.shape[0]):
            acc += a[j]
        out[i] = acc
long_loop(np.ones(1000), np.zeros(100))
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    long_loop(np.ones(100_000), np.zeros(10_000_000))
except KeyboardInterrupt:
    print("interrupted", good())
"""
    assert run(PROGRAM + text) == "interrupted True"


def test_at_first_there_are_as_many_threads_as_processors_that_may_be_used():
    text = "import os, overdrive; print(overdrive.get_num_threads(), len(os.sched_getaffinity(0)))"
    text = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + text
    assert run(text) == "1 1"


def test_switched_off_it_runs_in_order():
    text = """
import overdrive
@overdrive.jit(parallel=True, nogil=True)
def f(n):
    s = 0
    for i in overdrive.prange(n):
        s += i
    return s
print(f(1000), type(f).__name__)
"""
    env = dict(os.environ, OVERDRIVE="0", PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == ["499500", "function"]
