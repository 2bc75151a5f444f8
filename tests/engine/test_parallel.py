"""Loops over `prange` on several threads: results are those of the stated order, whatever the number of threads."""

import ctypes
import ctypes.util
import math
import os
import random
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import overdrive
import pytest
from overdrive import get_num_threads, prange, set_num_threads

from tests.engine.test_nests import outcome

SEEDS = range(
    int(os.environ.get("PARALLEL_SEED", "0")),
    int(os.environ.get("PARALLEL_SEED", "0")) + int(os.environ.get("PARALLELS", "40")),
)
THREADS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def threads():
    before = get_num_threads()
    set_num_threads(3)
    yield
    set_num_threads(before)


def parallel(fn, **options):
    return overdrive.jit(parallel=True, strict=True, **options)(fn)


def remarks(fn):
    return " ".join(str(overdrive.explain(fn)).split())


def is_parallel(fn):
    text = remarks(fn)
    return "; parallel" in text and "not parallel" not in text


def source(header, body, end, loop):
    lines = [f"def f({header}):", *loop, f"    return {end}"]
    return "\n".join(lines).replace("BODY", "\n            ".join(body))


def made(header, init, body, sums, end, bounds, name):
    """A function whose loop is over `prange`, and one that does in plain Python what is said of its order."""
    init = ["    " + line for line in init]
    block = {s: "1.0" if op == "*" else "-0.0" for s, op in sums.items()}
    before = [f"{s}_ = {s}" for s in sums] + [f"{s} = {start}" for s, start in block.items()]
    behind = [f"{s} = {s}_ {'*' if op == '*' else '+'} {s}" for s, op in sums.items()]
    stated = [
        f"    numbers = range({bounds})",
        "    for i in numbers[:1]:",
        "            BODY",
        "    numbers = numbers[1:]",
        "    while len(numbers) > 16:",
        *("        " + line for line in before),
        "        for i in numbers[:16]:",
        "            BODY",
        *("        " + line for line in behind),
        "        numbers = numbers[16:]",
        "    for i in numbers:",
        "            BODY",
    ]
    functions = []
    for loop in ([f"    for i in prange({bounds}):", "            BODY"], stated):
        text = source(header, body, end, init + loop)
        scope = {"prange": prange, "np": np, "math": math}
        exec(compile(text, f"<{name}>", "exec"), scope)
        functions.append(scope["f"])
    return functions


def same_for_all_threads(compiled, plain, make):
    expected = outcome(plain, make())
    for n in (*THREADS, 2):
        set_num_threads(n)
        assert outcome(compiled, make()) == expected, n


SUMS = [
    ("x += {t}", "+", ["x = 0.0", "x = -0.0", "x = 1e3"]),
    ("x -= {t}", "+", ["x = 0.0", "x = p"]),
    ("x *= 1.0 + {t} * 1e-3", "*", ["x = 1.0", "x = q"]),
    ("x = x + {t}", "+", ["x = 0.0"]),
    ("x = {t} + x", "+", ["x = 0.0"]),
]
STARTS = np.float64(2.5), np.float64(-3.0)
TERMS = ["a[i]", "a[i] * b[i]", "(a[i] - b[i])", "a[i] * 0.5", "i * 0.1", "(a[i] + i)"]
OTHERS = [
    "out[i] = a[i] * 2.0",
    "out[i] = b[i] + i",
    "t = a[i] - 0.5\n            if t < 0.0:\n                t = -t\n            out[i] = t",
    "acc = 0.0\n            for k in range(m):\n                acc += a[k] * b[i]\n            out[i] = acc",
    "n_seen += 1",
    "n_seen -= i",
]


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_loops_have_the_stated_order(seed):
    rng = random.Random(seed)
    init, body, sums = ["n_seen = 0"], [], {}
    for i in range(rng.randrange(0, 3)):
        update, op, starts = rng.choice(SUMS)
        name = f"x{i}"
        body.append(update.replace("x", name).format(t=rng.choice(TERMS)))
        init.append(rng.choice(starts).replace("x", name))
        sums[name] = op
    body += rng.sample(OTHERS, rng.randrange(0 if sums else 1, 3))
    rng.shuffle(body)
    bounds = rng.choice(["n", "n", "3, n", "k0, n, 2", "0, n, 5"])
    end = ", ".join(["out", "n_seen", *sums])
    header = "a, b, out, n, m, k0, p, q"
    compiled, plain = made(header, init, body, sums, f"({end})", bounds, f"seed {seed}")
    compiled = parallel(compiled)
    values = np.random.default_rng(seed)
    for n in (700, rng.choice([1, 2, 17, 18, 33, 65, 100, 1000]), 0, 333):

        def make(n=n):
            a, b = (np.random.default_rng(seed + n).normal(size=(2, max(n, 8)))).copy()
            return [a, b, np.zeros(max(n, 8)), n, 7, 1, *STARTS]

        same_for_all_threads(compiled, plain, make)
    assert is_parallel(compiled), remarks(compiled)
    # An element that sends the loop to its checks: then it runs in order, as it is written.
    a, b = values.normal(size=(2, 500))
    for bad in (math.inf, math.nan, 1e300):
        a[values.integers(500)] = bad

        def make_bad(a=a, b=b):
            return [a.copy(), b.copy(), np.zeros(500), 500, 7, 1, *STARTS]

        found = set()
        for n_threads in THREADS:
            set_num_threads(n_threads)
            found.add(repr(outcome(compiled, make_bad())))
        assert len(found) == 1


def add(a):
    s = 0.0
    for i in prange(len(a)):
        s += a[i]
    return s


def stated_sum(terms, s=0.0):
    """As docs/parallel.md says it."""
    for x in terms[:1]:
        s += x
    terms = terms[1:]
    while len(terms) > 16:
        part = -0.0
        for x in terms[:16]:
            part += x
        s += part
        terms = terms[16:]
    for x in terms:
        s += x
    return s


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_of_floats_for_every_length(dtype):
    compiled = parallel(add)
    rng = np.random.default_rng(5)
    for n in [*range(1, 70), 1023, 10_000, 2**20 + 3]:
        a = rng.normal(size=n).astype(dtype)
        for n_threads in THREADS if n < 20_000 else (1, 3):
            set_num_threads(n_threads)
            assert compiled(a).tobytes() == np.asarray(stated_sum(a)).tobytes(), (n, n_threads)
    assert is_parallel(compiled)
    assert math.copysign(1.0, compiled(np.full(100, -0.0))) == 1.0


def test_the_stated_order_is_not_the_order_as_written():
    """Otherwise the tests above could not fail."""
    a = np.random.default_rng(1).normal(size=1000)
    assert parallel(add)(a) != add(a)
    assert overdrive.jit(add)(a) == add(a)


def test_sums_of_ints_are_exact_up_to_the_end_of_64_bits():
    @parallel
    def f(n, s, k):
        for i in prange(n):
            s += i
            s -= k
        return s

    def g(n, s, k):
        n = max(n, 0)
        return s + n * (n - 1) // 2 - n * k

    for n_threads in THREADS:
        set_num_threads(n_threads)
        for args in [(1000, 0, 0), (1000, 0, 7), (10**7, 5, -1), (3, 1, 1), (0, 1, 1), (-5, 1, 1)]:
            assert f(*args) == g(*args)
        for s in (2**63 - 1, -(2**63), 2**60 + 1, 2**62):
            assert f(1000, s, 0) == g(1000, s, 0)
    assert is_parallel(f)


def matmul(a, b, c):
    n, m, p = a.shape[0], a.shape[1], b.shape[1]
    for i in prange(n):
        for j in range(p):
            acc = 0.0
            for k in range(m):
                acc += a[i, k] * b[k, j]
            c[i, j] = acc
    return c


def kmeans(points, centres, labels):
    n, d = points.shape
    k = centres.shape[0]
    total = 0.0
    for i in prange(n):
        best, best_c = 1e308, 0
        for c in range(k):
            dist = 0.0
            for j in range(d):
                diff = points[i, j] - centres[c, j]
                dist += diff * diff
            if dist < best:
                best, best_c = dist, c
        labels[i] = best_c
        total += best
    return total


def test_matmul():
    compiled = parallel(matmul)
    rng = np.random.default_rng(2)
    for shape in [(40, 30, 20), (3, 70, 90), (200, 5, 1)]:
        a, b = rng.random(shape[:2]), rng.random(shape[1:])
        same_for_all_threads(compiled, matmul, lambda a=a, b=b: [a, b, np.zeros((a.shape[0], b.shape[1]))])
    assert is_parallel(compiled)
    # The result is an operand: the iterations are not independent of each other, and run in order.
    square = rng.random((30, 30))
    a, b = square.copy(), square.copy()
    assert outcome(compiled, [a, a, a]) == outcome(matmul, [b, b, b])


def test_kmeans_and_a_total_that_leaves_the_finite_numbers():
    compiled = parallel(kmeans)
    rng = np.random.default_rng(3)
    points, centres = rng.random((500, 6)), rng.random((4, 6))
    results = set()
    for n in THREADS:
        set_num_threads(n)
        labels = np.zeros(500, np.int64)
        results.add(compiled(points, centres, labels))
        distances = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
        assert (labels == distances.argmin(axis=1)).all()
    assert len(results) == 1
    assert is_parallel(compiled)
    # Without centres every distance is 1e308, a float: their sum is infinite, and no warning is due.
    # With far points NumPy's scalars overflow, and warn, at the iteration that they do.
    far = points.copy()
    far[100:] *= 9e153
    for points_, centres_ in [(points, centres[:0]), (far, centres)]:
        for n in THREADS:
            set_num_threads(n)
            args = [[points_, centres_, np.zeros(500, np.int64)] for _ in range(2)]
            assert outcome(compiled, args[0]) == outcome(kmeans, args[1])


def test_a_sum_that_no_look_at_elements_bounds():
    def f(a, s, out):
        for i in prange(len(a)):
            x = 1e308
            if a[i] < 5.0:
                x = a[i]
            out[i] = x
            s += x
        return s

    compiled = parallel(f)
    a = np.random.default_rng(7).random(1000)
    start = np.float64(0.5)
    results = set()
    for n in THREADS:
        set_num_threads(n)
        results.add(compiled(a, start, np.zeros(1000)))
    assert len(results) == 1
    assert is_parallel(compiled)
    # Twice in one block, in different blocks, first and last: the sum is infinite, and NumPy says where it became so.
    for places in ([500, 501], [100, 900], [100], [0, 999]):
        far = a.copy()
        far[places] = 7.0
        for errors in ({}, {"over": "raise"}):
            for n in THREADS:
                set_num_threads(n)
                args = [[far, start, np.zeros(1000)] for _ in range(2)]
                got, expected = (outcome(g, x, **errors) for g, x in zip((compiled, f), args, strict=True))
                if len(places) == 1:
                    # Finite, in the stated order.
                    assert got[1:] == expected[1:]
                elif errors:
                    # What iterations behind the one that raises have stored may be there.
                    assert got[:2] == expected[:2]
                else:
                    assert got == expected


def test_float32_and_a_sum_that_overflows():
    compiled = parallel(add)
    a = np.full(1000, 1e36, np.float32)
    for n in THREADS:
        set_num_threads(n)
        assert outcome(compiled, [a]) == outcome(add, [a])


def test_what_the_last_iteration_assigns_is_there_behind_the_loop():
    def f(a):
        t = u = 0.0
        i = -1
        for i in prange(len(a)):
            t = a[i] * 2.0
            u = t + 1.0
        return t, u, i

    compiled = parallel(f)
    for n in (0, 1, 2, 63, 64, 65, 1000, 100_000):
        a = np.random.default_rng(n).random(n)
        same_for_all_threads(compiled, f, lambda a=a: [a])
    assert is_parallel(compiled)


@pytest.mark.skipif(sys.platform != "linux", reason="the number of a rounding mode")
def test_all_threads_round_as_the_calling_one():
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    compiled = parallel(add)
    a = np.random.default_rng(8).normal(size=50_000)
    nearest = compiled(a)
    upward, before = 0x800, libm.fegetround()
    if libm.fesetround(upward):
        pytest.skip("another processor has other numbers for its rounding modes")
    try:
        expected = stated_sum(a)
        results = []
        for n in THREADS:
            set_num_threads(n)
            results.append(compiled(a))
    finally:
        libm.fesetround(before)
    assert expected != nearest
    assert results == [expected] * len(THREADS)


@pytest.mark.parametrize("bad", [None, 1e300])
def test_turns_of_cpython_do_not_change_the_order(bad):
    """Not even where the loop began in order, and an interruption would be a chance to go on in parallel."""
    a = np.random.default_rng(9).normal(size=2**21)
    b = np.ones_like(a)
    if bad:
        a[3], a[4] = bad, -bad

    def f(a, b):
        s = 0.0
        for i in prange(len(a)):
            s += a[i] * b[i]
        return s

    compiled = parallel(f)
    compiled(a, b)
    expected = f(a, b) if bad else stated_sum(a * b)
    turns = 0

    def turn(*_):
        nonlocal turns
        turns += 1

    before = signal.signal(signal.SIGALRM, turn)
    try:
        while turns < 100:  # a fast machine takes one turn a call, or none
            signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
            result = compiled(a, b)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert result == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def prefix(a, out):
    s = 0.0
    for i in prange(len(a)):
        s += a[i]
        out[i] = s
    return s


def largest(a):
    best = a[0]
    for i in prange(len(a)):
        if a[i] > best:
            best = a[i]
    return best


def begun_anew(a):
    s = 0.0
    for i in prange(len(a)):
        if a[i] > 0.5:
            s = 0.0
        s += a[i]
    return s


def mixed(a):
    s = 1.0
    for i in prange(len(a)):
        s += a[i]
        s *= 0.5
    return s


def doubled(a):
    s = 1.0
    for i in prange(len(a)):
        s = a[i] - s
    return s


def divided(a, b):
    for i in prange(len(a)):
        b[i] = 1.0 / float(a[i])


def printed(a):
    for i in prange(len(a)):
        str(i)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (prefix, "neither sum nor product"),
        (largest, "neither sum nor product"),
        (begun_anew, "neither sum nor product"),
        (mixed, "neither sum nor product"),
        (doubled, "neither sum nor product"),
        (divided, "division by zero"),
        (printed, "no counted loop that only computes"),
    ],
)
def test_loops_that_run_in_order_say_why(fn, why):
    compiled = overdrive.jit(parallel=True)(fn)
    for _ in range(3):
        arrays = [np.random.default_rng(4).random(300) for _ in range(fn.__code__.co_argcount)]
        copies = [a.copy() for a in arrays]
        assert outcome(compiled, arrays) == outcome(fn, copies)
    assert "not parallel: " in remarks(compiled)
    assert why in remarks(compiled)
    strict = overdrive.jit(parallel=True, strict=True)(fn)
    with pytest.raises(overdrive.NotCompiledError, match=r"not parallel: |through|str"):
        strict(*arrays)


def test_exceptions_come_from_their_iteration():
    def f(a, out):
        for i in prange(len(out)):
            out[i] = a[i] + 1.0
        return out

    compiled = parallel(f)
    for n in (1000, 999, 10, 0):
        args = [[np.ones(n), np.zeros(1000)] for _ in range(2)]
        assert outcome(compiled, args[0]) == outcome(f, args[1])
    with pytest.raises(IndexError):
        compiled(np.ones(999), np.zeros(1000))
    args = [np.ones(1000), np.zeros(1000)]
    args[1].flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        compiled(*args)


def test_prange_is_range_everywhere_else():
    assert prange(3) == range(3)
    assert prange(1, 9, 2) == range(1, 9, 2)
    assert list(overdrive.prange(5, 0, -2)) == [5, 3, 1]
    for bad in [(), (1.5,), ("3",), (0, 1, 0), (None,), (1, 2, 3, 4)]:
        with pytest.raises((TypeError, ValueError)) as told:
            prange(*bad)
        with pytest.raises(told.type):
            range(*bad)

    def f(n, step):
        out = []
        for i in prange(0, n, step):
            out.append(i)
        return out, [j for j in prange(3)], list(enumerate(prange(2)))

    for compiled in (overdrive.jit(f), overdrive.jit(parallel=True)(f)):
        for args in [(5, 1), (5, 2), (-5, -2), (0, 1)]:
            assert compiled(*args) == f(*args)
        with pytest.raises(ValueError, match="zero"):
            compiled(5, 0)


def test_another_prange_is_only_what_it_is():
    scope = {"np": np}
    exec("def f(n):\n    s = 0\n    for i in prange(n):\n        s += i\n    return s", scope)
    scope["prange"] = lambda n: [1, 2, n]
    f = overdrive.jit(parallel=True)(scope["f"])
    assert f(5) == 8
    scope["prange"] = prange
    assert f(5) == 10
    scope["prange"] = lambda n: [1]
    assert f(5) == 1


def test_numbers_of_threads():
    for n in (0, -1, 257, 10**30):
        with pytest.raises(ValueError, match="between 1 and 256"):
            set_num_threads(n)
    for n in (1.5, "2", None):
        with pytest.raises(TypeError):
            set_num_threads(n)
    for n in (1, 256, 2):
        set_num_threads(n)
        assert get_num_threads() == n


def names_of_threads():
    return [p.read_text().strip() for p in Path("/proc/self/task").glob("*/comm")]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_of_the_pool_work():
    set_num_threads(4)
    compiled = parallel(add)
    compiled(np.ones(100_000))
    # A thread gives itself its name when it first runs, which may be after the work was done without it.
    end = time.monotonic() + 30
    while names_of_threads().count("overdrive-pool") < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert names_of_threads().count("overdrive-pool") >= 3


def test_several_python_threads_ask_at_once():
    compiled = parallel(matmul)
    rng = np.random.default_rng(6)
    a, b = rng.random((60, 50)), rng.random((50, 40))
    expected = matmul(a, b, np.zeros((60, 40))).tobytes()
    compiled(a, b, np.zeros((60, 40)))
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(compiled, a, b, np.zeros((60, 40))) for _ in range(300)]
        assert all(job.result().tobytes() == expected for job in jobs)


def long_loop(a, out):
    for i in prange(out.shape[0]):
        acc = 0.0
        for j in range(a.shape[0]):
            acc += a[j]
        out[i] = acc


@pytest.mark.parametrize("nogil", [False, True])
def test_a_signal_ends_a_long_loop(nogil):
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    compiled = parallel(long_loop, nogil=nogil)
    a, out = np.ones(1000), np.zeros(100)
    compiled(a, out)
    assert (out == 1000.0).all()
    # Hours, if nothing ended it.
    a, out = np.ones(100_000), np.zeros(100_000_000, np.float64)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Stop):
            compiled(a, out)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # What was done is the beginning of the loop, without a gap.
    done = int(np.count_nonzero(out))
    assert 0 < done < out.shape[0]
    assert (out[:done] == 100_000.0).all()
    assert overdrive.jit(parallel=True)(add)(np.ones(1000)) == 1000.0


def fill(out, m):
    for i in range(len(out)):
        acc = 1.0
        for k in range(m):
            acc = acc + 1.0
        out[i] = acc


def fill_parallel(out, m):
    for i in prange(len(out)):
        acc = 1.0
        for k in range(m):
            acc = acc + 1.0
        out[i] = acc


def changes_under(watched, place):
    """Whether the calling thread, which does not let the GIL go meanwhile, sees an element being filled."""
    if watched[place] != 0.0:
        return False
    # Bounded: where the loop waits for the GIL nothing ever changes.
    return any(watched[place] != 0.0 for _ in range(1_000_000))


@pytest.mark.parametrize("nogil", [True, False])
@pytest.mark.parametrize("fn", [fill, fill_parallel])
def test_without_the_gil_another_thread_goes_on_meanwhile(fn, nogil):
    compiled = parallel(fn, nogil=nogil)
    compiled(np.zeros(1000), 10)
    before = sys.getswitchinterval()
    seen = False
    try:
        # Nobody takes the GIL away from a thread that has it.
        sys.setswitchinterval(1000.0)
        for _ in range(200 if nogil else 5):
            out = np.zeros(2**17)
            loop = threading.Thread(target=compiled, args=(out, 100))
            loop.start()
            time.sleep(0)
            seen = changes_under(out, 2**14)
            loop.join()
            assert (out == 101.0).all()
            if seen:
                break
    finally:
        sys.setswitchinterval(before)
    assert seen == nogil
    assert not nogil or "without the GIL" in remarks(compiled)


def test_case_a15():
    """The value of the case, and that it holds in a child."""

    @parallel
    def f(n):
        s = 0
        for i in prange(n):
            s += i
        return s

    assert f(1000) == 499500
    assert is_parallel(f)


def test_warnings_are_those_of_the_loop_in_order():
    def f(a, out):
        for i in prange(len(a)):
            out[i] = a[i] * a[i]
        return out

    compiled = parallel(f)
    a = np.linspace(0.0, 1.0, 500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(a, np.zeros(500))
    for bad in (1e200, math.inf, math.nan, 1e-200):
        a[321] = bad
        for errors in ({}, {"over": "raise"}, {"under": "raise"}):
            args = [[a, np.zeros(500)] for _ in range(2)]
            assert outcome(compiled, args[0], **errors) == outcome(f, args[1], **errors)
