"""`nogil=True`: nests run without the GIL, and have it again wherever CPython or NumPy is asked, and when they leave."""

import sys
import threading
import time
from pathlib import Path

import numpy as np
import overdrive
import pytest
from overdrive import _core

from tests.engine.test_nests import outcome

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
from kernels import kmeans_assign  # noqa: E402  (stores and sums; a sum that is not finite is asked about in the loop)

BIG = 1e200  # its square is no float


def products(a, out):
    for i in range(a.shape[0]):
        p = 1.0
        for j in range(a.shape[1]):
            p *= a[i, j]
        out[i] = p
    return out[0]


def quotients(a, b, out):
    for i in range(len(a)):
        out[i] = a[i] / b[i]
    return len(a)


def places(a, at, out):
    """An index that is an element: whether it is one is asked in the loop."""
    s = 0.0
    for i in range(len(at)):
        s += a[at[i]]
        out[i] = s
    return s


def cloud(where=None, value=BIG):
    rng = np.random.default_rng(3)
    points = rng.uniform(-5, 5, (300, 3))
    if where is not None:
        points[where, 1] = value
    return points, rng.uniform(-5, 5, (6, 3)), np.zeros(300, np.int64)


def matrix(where=None, value=BIG):
    a = np.random.default_rng(5).uniform(0.5, 1.5, (200, 8))
    if where is not None:
        a[where, 2:4] = value
    return a, np.zeros(200)


def fractions(where=None, value=0.0):
    rng = np.random.default_rng(7)
    a, b = rng.uniform(-1, 1, (2, 500))
    if where is not None:
        b[where] = value
    return a, b, np.zeros(500)


def indices(where=None, value=100):
    rng = np.random.default_rng(9)
    a, at = rng.uniform(-1, 1, 100), rng.integers(0, 100, 300)
    if where is not None:
        at[where] = value
    return a, at, np.zeros(300)


CASES = [(kmeans_assign, cloud), (products, matrix), (quotients, fractions), (places, indices)]
INPUTS = [
    pytest.param(fn, make, where, id=f"{fn.__name__}-{where}")
    for fn, make in CASES
    for where in (None, 0, 1, 150, 199)
]


def compiled(fn, make):
    result = overdrive.jit(nogil=True)(fn)
    for _ in range(3):
        result(*make())
    return result


def remarks(fn):
    return " ".join(str(overdrive.explain(fn)).split())


@pytest.mark.parametrize(("fn", "make", "where"), INPUTS)
@pytest.mark.parametrize("state", ["warn", "ignore", "raise"])
def test_what_numpy_reports_is_reported_from_without_the_gil(fn, make, where, state):
    jitted = compiled(fn, make)
    for value in (None, np.nan, np.inf, -BIG) if make is not indices else (None, 100, -101, -1):
        more = () if value is None else (value,)
        want = outcome(fn, make(where, *more), all=state)
        for _ in range(2):
            assert outcome(jitted, make(where, *more), all=state) == want


@pytest.mark.parametrize(("fn", "make"), CASES)
def test_a_handler_sees_the_arrays_as_they_are_at_that_moment(fn, make):
    jitted = compiled(fn, make)

    def seen(call):
        arguments, found = make(150), []
        out = arguments[-1]
        old = np.seterrcall(lambda kind, flag: found.append((kind, flag, out.tobytes())))
        try:
            with np.errstate(all="call"):
                result = outcome(call, arguments)
        finally:
            np.seterrcall(old)
        return result, found

    assert seen(jitted) == seen(fn)


@pytest.fixture
def forced():
    yield _core.debug_force
    _core.debug_force(None)


@pytest.mark.parametrize(("fn", "make"), CASES)
@pytest.mark.parametrize("seed", range(6))
def test_exits_forced_without_the_gil(fn, make, seed, forced):
    forced(("seed", seed, (0.001, 0.02, 0.3)[seed % 3]))
    jitted = compiled(fn, make)
    for where in (None, 3, 150):
        assert outcome(jitted, make(where), all="ignore") == outcome(fn, make(where), all="ignore")


def test_nests_with_checks_inside_run_without_the_gil():
    for fn, make in CASES[:2]:
        assert "without the GIL" in remarks(compiled(fn, make)), fn.__name__
    assert "tests that stay in it" in remarks(compiled(kmeans_assign, cloud))


def test_threads_that_leave_at_once():
    """Each has its own exits, warnings and results; the GIL is where it belongs afterwards."""
    jitted = compiled(kmeans_assign, cloud)

    def call(fn, where):
        arguments = cloud(where)
        return repr(fn(*arguments)), arguments[-1].tolist()

    with np.errstate(all="ignore"):
        want = [call(kmeans_assign, where) for where in range(40)]
    wrong = []

    def work(first):
        with np.errstate(all="ignore"):
            for where in range(first, 40, 4):
                wrong.extend(where for _ in range(10) if call(jitted, where) != want[where])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_another_thread_goes_on_while_a_nest_with_checks_runs():
    jitted = compiled(kmeans_assign, cloud)
    before, seen = sys.getswitchinterval(), False
    rng = np.random.default_rng(1)
    points, centres = rng.uniform(-5, 5, (200_000, 3)), rng.uniform(-5, 5, (50, 3))
    try:
        # Nobody takes the GIL away from a thread that has it.
        sys.setswitchinterval(1000.0)
        for _ in range(50):
            labels = np.full(len(points), -1)
            loop = threading.Thread(target=jitted, args=(points, centres, labels))
            loop.start()
            time.sleep(0)
            if labels[-1] == -1:
                seen = any(labels[100] != -1 and labels[-1] == -1 for _ in range(1_000_000))
            loop.join()
            if seen:
                break
    finally:
        sys.setswitchinterval(before)
    assert seen
