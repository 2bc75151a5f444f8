"""Loops that ask about the results of several iterations at once: whoever looks sees what iterations in order would show."""

import os
import random
import traceback
import warnings

import numpy as np
import overdrive
import pytest

SEEDS = range(
    int(os.environ.get("BATCH_SEED", "0")),
    int(os.environ.get("BATCH_SEED", "0")) + int(os.environ.get("BATCHES", "60")),
)
SPECIALS = [np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 1e200, 5e-324, 1e-300, 0.0, -0.0]


def held(args):
    """What arrays hold, byte by byte. Which of two NaNs an operation hands on is nobody's promise."""
    arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
    return [np.where(arg == arg, arg, np.nan).tobytes() for arg in arrays]


def seen_by_handlers(fn, make):
    """What NumPy's handler of errors sees, report by report: the kind, and the arrays at that moment, byte by byte."""
    args, seen = make(), []

    def handler(kind, flag):
        seen.append((kind, flag, held(args)))

    with np.errstate(all="call", call=handler):
        try:
            result = fn(*args)
        except Exception as error:
            result = error
    return repr(result), seen, held(args)


def ended(fn, make, filters="always", **errors):
    """How a call ends: value or exception, warnings, arrays."""
    args = make()
    with warnings.catch_warnings(record=True) as seen, np.errstate(**errors):
        warnings.simplefilter(filters)
        try:
            shown = repr(fn(*args))
        except Exception as error:
            shown = type(error).__name__, str(error), list(traceback.walk_tb(error.__traceback__))[-1][1]
    return shown, [(w.category.__name__, str(w.message)) for w in seen], held(args)


def same(fn, compiled, make):
    assert seen_by_handlers(compiled, make) == seen_by_handlers(fn, make)
    for errors in (
        {},
        {"all": "raise"},
        {"all": "ignore"},
        {"under": "warn"},
        {"under": "raise", "over": "ignore"},
    ):
        assert ended(compiled, make, **errors) == ended(fn, make, **errors), errors
    assert ended(compiled, make, "error") == ended(fn, make, "error")


def in_batches(fn, make, of=8):
    """The compiled function; it runs in batches."""
    compiled = overdrive.jit(fn, strict=True)
    compiled(*make())
    remarks = [why for line in overdrive.explain(compiled).functions[0]["lines"] for why in line["why"]]
    assert f"results are tested for {of} iterations at once" in remarks, remarks
    return compiled


def blur(a, out):
    h, w = a.shape
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            out[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda t: t.__name__)
@pytest.mark.parametrize("special", SPECIALS, ids=str)
def test_every_place_in_rows_of_all_lengths(dtype, special):
    rng = np.random.default_rng(1)
    # Some pairs of neighbours overflow, some are infinite and cancel out.
    for width in (*range(1, 13), 18, 19, 27):
        height = 3 + 70 // width
        plain = rng.random((height, width)).astype(dtype)

        def make(at=None, plain=plain, height=height, width=width):
            args = [plain.copy(), np.full((height, width), 7, dtype)]
            if at is not None:
                with np.errstate(all="ignore"):
                    args[0][at] = special
                    args[0][at[0] - 2, at[1]] = -special
                    args[0][at[0] - 1, at[1] - 1] = special
            return args

        compiled = overdrive.jit(blur, strict=True)
        if width > 2:
            compiled = in_batches(blur, make, 8 if dtype is np.float64 else 16)
        same(blur, compiled, make)
        columns = range(width) if width < 10 else rng.choice(width, 5, replace=False)
        for column in columns:
            same(blur, compiled, lambda column=column: make((height // 2, column)))


def between(a, b, out, k):
    for i in range(len(out)):
        out[i] = k / (a[i] * b[i]) - a[i]


def test_results_that_are_finite_again():
    """What an operation says is not always seen in what is stored."""
    line = np.linspace(1.0, 2.0, 100)
    make = lambda at=None, value=0.0, k=np.float64(1.0): [
        np.where(np.arange(100) == at, value, line), line[::-1].copy(), np.zeros(100), k,
    ]  # fmt: skip
    compiled = in_batches(between, make)
    for at in (0, 1, 7, 8, 15, 50, 91, 92, 95, 96, 99):
        for value in (1.7e308, np.inf, -np.inf, np.nan, 0.0, 1e-320):
            same(between, compiled, lambda at=at, value=value: make(at, value))
    same(between, compiled, lambda: make(3, 0.5, np.float64(np.inf)))


def steps(a, out, n, step):
    for i in range(3, n, 3):
        out[i] = a[i] * a[i - 1] + a[i - 2]


def test_steps():
    make = lambda n=300, at=None, value=1e200: [
        np.where((np.arange(300) == at) | (np.arange(300) + 1 == at), value, 1.5), np.zeros(300), n, 3,
    ]  # fmt: skip
    compiled = in_batches(steps, make)
    for n in (*range(196, 220, 3), 197, 207, 301):
        same(steps, compiled, lambda n=n: make(n))
        for at in (3, 6, 27, 192, n - n % 3 - 3):
            same(steps, compiled, lambda n=n, at=at: make(n, at))


def pair(a, first, second):
    for i in range(len(a)):
        first[i] = a[i] + a[i]
        second[i] = a[i] * a[i]


def test_two_arrays_that_are_stored_into_may_be_one():
    line = np.linspace(-2.0, 2.0, 101)

    def make(shift, at=None, value=np.inf, n=101):
        both = np.arange(130.0)
        values = np.where(np.arange(101) == at, value, line)[:n]
        return [values.copy(), both[max(0, -shift) :][:n], both[max(0, shift) :][:n], both]

    fn = lambda a, first, second, both: pair(a, first, second)
    compiled_pair = in_batches(pair, lambda: make(0)[:3])
    compiled = lambda a, first, second, both: compiled_pair(a, first, second)
    for shift in (-20, -9, -8, -1, 0, 1, 2, 7, 8, 9):
        for n in (64, 65, 71, 101):
            same(fn, compiled, lambda shift=shift, n=n: make(shift, n=n))
            for at in (0, 63, n - 1, n - 9):
                for value in (1.7e308, -1e200):
                    same(fn, compiled, lambda shift=shift, n=n, at=at, value=value: make(shift, at, value, n))


def shifted(a, out):
    for i in range(len(out)):
        out[i] = a[i] * 1.5 + a[i + 1]


def test_what_is_loaded_may_be_stored_into():
    memory = np.linspace(1.0, 2.0, 200)

    def make(offset, at=None):
        both = memory.copy()
        if at is not None:
            both[at] = 1.7e308
        return [both[20:121], both[20 + offset : 120 + offset], both]

    fn = lambda a, out, both: shifted(a, out)
    compiled_one = in_batches(shifted, lambda: [memory[:101].copy(), np.zeros(100)])
    compiled = lambda a, out, both: compiled_one(a, out)
    for offset in (-20, -8, -7, -1, 0, 1, 2, 7, 8, 9, 15, 16, 79):
        for at in (None, 20, 60, 119, 120):
            same(fn, compiled, lambda offset=offset, at=at: make(offset, at))


def test_what_must_not_run_in_batches():
    def running(a, out):
        for i in range(1, len(a)):
            out[i] = out[i - 1] * 0.5 + a[i]

    def fading(a, out):
        for i in range(1, len(a)):
            out[i] = out[i - 1] * 0.25

    def picked(a, at, out):
        for i in range(len(at)):
            out[i] = a[at[i]] + 1.0

    def summed(a, out):
        s = 0.0
        for i in range(len(a)):
            s += a[i]
            out[i] = s

    line = np.linspace(1.0, 2.0, 100)
    for fn, make in (
        (running, lambda: [line.copy(), np.zeros(100)]),
        (fading, lambda: [line.copy(), np.full(100, 1e300)]),
        (picked, lambda: [line.copy(), np.arange(100)[::-1].copy(), np.zeros(100)]),
        (summed, lambda: [line.copy(), np.zeros(100)]),
    ):
        compiled = overdrive.jit(fn, strict=True)
        compiled(*make())
        assert "at once" not in str(overdrive.explain(compiled))
        same(fn, compiled, make)


def expression(r, depth):
    if depth == 0 or r.random() < 0.15:
        return r.choice(["a[i, j]", "b[i, j]", "a[i, j + 1]", "b[i + 1, j]", "k", "2.0", "0.5", "float(j)"])
    op = r.choice(["+", "+", "-", "*", "*", "/", "neg", "abs"])
    if op in ("neg", "abs"):
        return f"{'-' if op == 'neg' else 'abs'}({expression(r, depth - 1)})"
    return f"({expression(r, depth - 1)} {op} {expression(r, depth - 1)})"


@pytest.fixture
def forced():
    yield overdrive._core.debug_force
    overdrive._core.debug_force(None)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated(seed):
    differences(seed)


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_generated_with_exits_forced_at_random(seed, forced):
    forced(("seed", seed, (0.02, 0.3)[seed % 2]))
    differences(seed)


def differences(seed):
    r = random.Random(seed)
    stores = [
        f"            {r.choice(['out', 'other'])}[i, j] = {expression(r, 3)}" for _ in range(r.randint(1, 2))
    ]
    source = "\n".join(
        [
            "def f(a, b, out, other, k):",
            "    h, w = out.shape",
            "    for i in range(h):",
            f"        for j in range({r.choice(['w', 'w', '1, w', '0, w, 2'])}):",
            *stores,
        ]
    )
    scope = {}
    exec(compile(source, f"<batch {seed}>", "exec"), scope)
    dtype = r.choice([np.float64, np.float64, np.float32])
    compiled = overdrive.jit(scope["f"])
    rng = np.random.default_rng(seed)
    for width in (r.randint(1, 9), r.randint(8, 30)):
        height = 1 + 70 // width
        a, b = ((rng.random((height + 1, width + 1)) * 4 - 2).astype(dtype) for _ in range(2))
        k = r.choice([2.0, np.float64(0.5), dtype(1.5)])
        for n_specials in (0, 0, 1, 1, 2, 5):
            with np.errstate(all="ignore"):
                for _ in range(n_specials):
                    r.choice([a, b])[r.randrange(height), r.randrange(width)] = r.choice(SPECIALS)
            make = lambda a=a, b=b, k=k, shape=(height, width): [
                a.copy(), b.copy(), np.zeros(shape, dtype), np.ones(shape, dtype), k,
            ]  # fmt: skip
            try:
                same(scope["f"], compiled, make)
            except AssertionError as error:
                raise AssertionError(source) from error
