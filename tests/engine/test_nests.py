"""Loops over arrays that run without checks after one test at their entry: nothing may show that the checks are gone."""

import os
import random
import signal
import threading
import time
import warnings

import numpy as np
import overdrive
import pytest

SEEDS = range(
    int(os.environ.get("NEST_SEED", "0")),
    int(os.environ.get("NEST_SEED", "0")) + int(os.environ.get("NESTS", "120")),
)


def outcome(fn, args, **errors):
    """Value, type, warnings or exception of a call, and the arrays behind it, byte by byte."""
    with warnings.catch_warnings(record=True) as seen, np.errstate(**errors):
        warnings.simplefilter("always")
        try:
            result = fn(*args)
        except Exception as error:
            result = error
    if isinstance(result, Exception):
        shown = type(result).__name__, str(result)
    elif isinstance(result, np.ndarray):
        shown = next((i for i, arg in enumerate(args) if arg is result), "an array")
    else:
        shown = type(result).__name__, repr(result)
    arrays = [(arg.tobytes(), arg.dtype.str, arg.shape) for arg in args if isinstance(arg, np.ndarray)]
    return shown, [(w.category.__name__, str(w.message)) for w in seen], arrays


def same(fn, make, *variants, **errors):
    """Compares a compiled function with the original on its first arguments, then on others, which must not show either."""
    compiled = overdrive.jit(fn, strict=True)
    for change in (None, None, *variants, None):
        plain, native = make(), make()
        if change is not None:
            plain, native = change(plain) or plain, change(native) or native
        assert outcome(compiled, native, **errors) == outcome(fn, plain, **errors)
    return compiled


def blur(a, out):
    h, w = a.shape
    for i in range(1, h - 1):
        for j in range(1, w - 1):
            out[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
    return out


def grids(dtype=np.float64):
    rng = np.random.default_rng(3)
    return [rng.random((20, 24)).astype(dtype), np.zeros((20, 24), dtype)]


def put(index, value, which=0):
    def change(args):
        with np.errstate(all="ignore"):
            args[which][index] = value

    return change


SPECIALS = [np.nan, np.inf, -np.inf, 1e308, -1.7e308, 5e-324, 0.0, -0.0, 1e200]


@pytest.mark.parametrize("errors", [{}, {"all": "raise"}, {"all": "ignore"}, {"under": "warn"}], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda t: t.__name__)
def test_special_values(errors, dtype):
    same(
        blur,
        lambda: grids(dtype),
        *[put((10, 11), v) for v in SPECIALS],
        *[put((0, 0), v) for v in SPECIALS],
        **errors,
    )


def test_layouts():
    transposed = lambda args: [args[0].T, args[1].T]
    reversed_ = lambda args: [args[0][::-1, ::-1], args[1]]
    sparse = lambda args: [np.repeat(args[0], 2, 1)[:, ::2], args[1]]
    repeated = lambda args: [np.broadcast_to(args[0][:1], (20, 24)), args[1]]
    smaller = lambda args: [args[0], args[1][:10]]
    narrower = lambda args: [args[0], args[1][:, :10]]
    empty = lambda args: [args[0][:0], args[1]]
    thin = lambda args: [args[0][:, :2], args[1]]
    fortran = lambda args: [np.asfortranarray(args[0]), np.asfortranarray(args[1])]
    same(blur, grids, transposed, reversed_, sparse, repeated, smaller, narrower, empty, thin, fortran)


def test_overlap():
    one = lambda args: [args[0], args[0]]
    shifted = lambda args: [args[0][:-1], args[0][1:]]
    beside = lambda args: [args[0][:, :12], args[0][:, 12:]]
    same(blur, grids, one, shifted, beside)


def test_a_read_only_array():
    def freeze(args):
        args[1].flags.writeable = False

    same(blur, grids, freeze)


def in_place(a, k):
    for i in range(1, len(a) - 1):
        a[i] = (a[i - 1] + a[i + 1]) * k
    return a


def test_in_place():
    grow = lambda args: [args[0], 1e10]
    huge = lambda args: [args[0] * 1e300, 3.0]
    nan = lambda args: [args[0], float("nan")]
    same(in_place, lambda: [np.linspace(-1, 1, 300), 0.5], grow, huge, nan)


def total(a):
    s = 0.0
    for v in a:
        s += v
    return s


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.int64, np.int32, np.uint8], ids=lambda t: t.__name__
)
def test_sums(dtype):
    make = lambda: [np.arange(300).astype(dtype)]
    changes = [lambda args: [args[0][:n]] for n in (0, 1, 2, 63, 64, 65)]
    if np.issubdtype(dtype, np.floating):
        changes += [put(250, v) for v in (np.nan, np.inf, 1e308)]
    same(total, make, *changes, lambda args: [args[0][::-1]], lambda args: [args[0][::3]])


def count(a, start):
    s = start
    for i in range(len(a)):
        s += int(a[i]) * 3
    return s


def test_integers_that_leave_64_bits():
    make = lambda: [np.arange(300), 0]
    high = lambda args: [args[0], 2**63 - 1000]
    low = lambda args: [-args[0], -(2**63) + 1000]
    big = lambda args: [args[0] + 2**62, 0]
    beyond = lambda args: [args[0], 2**70]
    same(count, make, high, low, big, beyond)
    same(count, lambda: [np.arange(300).astype(np.int32), 0], high, low)
    same(count, lambda: [np.arange(300).astype(np.uint8), 0], high)


def box(image, out, k):
    h, w = image.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            s = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    s += int(image[y + dy, x + dx])
            out[y, x] = s // k
    return out


def test_stores_into_bytes():
    image = np.random.default_rng(1).integers(0, 256, (20, 30)).astype(np.uint8)
    make = lambda: [image.copy(), np.zeros((20, 30), np.uint8), 9]
    one = lambda args: [*args[:2], 1]
    zero = lambda args: [*args[:2], 0]
    minus = lambda args: [*args[:2], -9]
    same(box, make, one, zero, minus)


def box4(image, out):
    h, w = image.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            s = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    s += int(image[y + dy, x + dx])
            out[y, x] = s // 4
    return out


def test_sums_that_only_may_fit_bytes():
    make = lambda: [np.full((20, 30), 100, np.uint8), np.zeros((20, 30), np.uint8)]
    same(box4, make, lambda args: [args[0] + 20, args[1]], put((9, 9), 255))


def bins(values, lo, scale, counts):
    n = len(counts)
    for v in values:
        b = int((v - lo) * scale)
        if b == n:
            b -= 1
        counts[b] += 1
    return counts


def test_floats_that_become_indices():
    values = np.random.default_rng(2).normal(size=300)
    make = lambda: [values.copy(), values.min(), 16 / (values.max() - values.min()), np.zeros(16, np.int64)]
    specials = [put(150, v) for v in (1e10, -1e10, 2.0**61, 2.0**62, -(2.0**63), 1e19, np.nan, np.inf, 1e300)]
    fine = lambda args: [args[0], args[1], args[2] * 1e-12, args[3]]
    full = put(3, 2**63 - 2, 3)
    same(bins, make, *specials, fine, full, lambda args: [args[0] * 1e12, args[1], 1e-14, args[3]])


def bounds(a, lo, hi, shift):
    s = 0.0
    for i in range(lo, hi):
        s += a[i + shift]
    return s


def test_indices_at_and_beyond_the_ends():
    make = lambda: [np.arange(300.0), 0, 300, 0]
    changes = [
        lambda args, lo=lo, hi=hi, shift=shift: [args[0], lo, hi, shift]
        for lo, hi, shift in [
            (0, 301, 0), (-300, 0, 0), (-301, 0, 0), (-5, 200, 0), (0, 299, 1), (0, 300, 1), (0, 300, -300), (0, 300, -301),
            (0, 0, 0), (300, 0, 0), (5, 100, -5), (5, 100, -6), (0, 200, 2**40), (-(2**40), -(2**40) + 300, 2**40),
            (2**62, 2**62 + 100, -(2**62)), (0, 2**63, 0), (0, 300, 2**63), (0, 300, 2**100),
        ]
    ]  # fmt: skip
    same(bounds, make, *changes)


def product(a, b, out):
    n, m = a.shape
    p = b.shape[1]
    for i in range(n):
        for j in range(p):
            s = 0.0
            for k in range(m):
                s += a[i, k] * b[k, j]
            out[i, j] = s
    return out


@pytest.mark.parametrize("errors", [{}, {"all": "raise"}, {"under": "raise"}], ids=str)
def test_matrix_products(errors):
    rng = np.random.default_rng(5)
    left, right = rng.random((9, 11)), rng.random((11, 13))
    make = lambda: [left.copy(), right.copy(), np.zeros((9, 13))]
    huge = lambda args: [args[0] * 1e200, args[1] * 1e200, args[2]]
    large = lambda args: [args[0] * 1e150, args[1] * 1e150, args[2]]
    tiny = lambda args: [args[0] * 1e-200, args[1] * 1e-200, args[2]]
    inf = put((4, 4), np.inf)
    shorter = lambda args: [args[0], args[1][:7], args[2]]
    none = lambda args: [args[0][:, :0], args[1][:0], args[2]]
    square = rng.random((12, 12))
    onto_itself = lambda args: [square.copy()] * 3
    same(product, make, huge, large, tiny, inf, shorter, none, onto_itself, **errors)


def triangle(a):
    n = a.shape[0]
    s = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            s += a[i, j] - a[j, i]
    return s


def strided(a, out):
    for i in range(0, len(a), 3):
        out[i] = a[i] / 3.0
    return out


def backwards(a, out):
    n = len(a)
    for i in range(n):
        out[i] = a[n - 1 - i]
    return out


def nearest(points, centres, labels):
    total = 0.0
    for i in range(points.shape[0]):
        best, best_c = 1e308, 0
        for c in range(centres.shape[0]):
            dist = 0.0
            for j in range(points.shape[1]):
                diff = points[i, j] - centres[c, j]
                dist += diff * diff
            if dist < best:
                best, best_c = dist, c
        labels[i] = best_c
        total += best
    return total


def test_other_shapes():
    rng = np.random.default_rng(8)
    square, line = rng.random((20, 20)), rng.random(200)
    same(
        triangle,
        lambda: [square.copy()],
        put((3, 4), np.inf),
        put((4, 3), np.nan),
        lambda args: [args[0][:, :5]],
    )
    same(
        strided, lambda: [line.copy(), np.zeros(200)], put(99, np.inf), lambda args: [args[0], args[1][:198]]
    )
    same(backwards, lambda: [line.copy(), np.zeros(200)], lambda args: [args[0], args[0]])
    points, centres = rng.random((30, 4)), rng.random((5, 4))
    make = lambda: [points.copy(), centres.copy(), np.zeros(30, np.int64)]
    none = lambda args: [args[0], args[1][:0], args[2]]
    flat = lambda args: [args[0][:, :0], args[1][:, :0], args[2]]
    same(nearest, make, put((7, 1), np.nan), put((2, 1), np.inf, 1), put((0, 0), 1e200), none, flat)


def scale(a, out, k):
    for i in range(len(a)):
        out[i] = a[i] * k
    return out


def scale_down(a, out, k):
    for i in range(len(a)):
        out[i] = a[i] / k
    return out


def total_from(a, start):
    s = start
    for i in range(len(a)):
        s += a[i]
    return s


@pytest.mark.parametrize("k", [1e308, -1e308, np.inf, np.nan, 0.0, 5e-324, 1e-308, 1.0], ids=str)
@pytest.mark.parametrize("kind", [float, np.float64], ids=lambda t: t.__name__)
def test_scalars_that_the_loop_does_not_change(k, kind):
    numbers = np.linspace(2.0, 90.0, 100)
    for fn in (scale, scale_down):
        same(fn, lambda: [numbers.copy(), np.zeros(100), kind(3.0)], lambda args: [*args[:2], kind(k)])
    same(total_from, lambda: [numbers * 1e306, kind(0.0)], lambda args: [args[0], kind(k)])


def cascade(a):
    n, m = a.shape
    for i in range(1, n):
        d = 0
        for k in range(m):
            d += int(a[i - 1, k])
        a[i, 0] = d % 251
    return a


def handed_on(a, b, out, n):
    for r in range(n):
        for i in range(len(a)):
            out[i] = a[i] * 2.0
            a[i] = b[i]
            b[i] = i * 1e306


def test_elements_that_come_through_another_array():
    same(handed_on, lambda: [np.ones(200), np.ones(200), np.zeros(200), 5])


def chained(a, twice):
    s = 0
    n, m = a.shape
    for i in range(n):
        d = s
        for k in range(m):
            d += int(a[i, k])
        s = d % 251
    t = 1
    for i in range(n):
        d = t * 2
        for k in range(m):
            d += int(a[i, k]) * (t + twice)
        t = d % 251
    u = 1
    for i in range(n):
        d = u % 7
        for k in range(m):
            d += int(a[i, k]) * 2
        u = d % 251
    return s, t, u


def rows(a, out, n, m):
    for i in range(n):
        d = 0
        for k in range(m):
            d += int(a[i, k])
        out[i] = d % 251
    return out


def test_rows_that_depend_on_those_before():
    """Outer iterations run side by side only where none reads what another stores."""
    bytes_ = np.random.default_rng(4).integers(0, 200, (40, 12)).astype(np.uint8)
    same(cascade, lambda: [bytes_.copy()], lambda args: [args[0][:, :1]], lambda args: [args[0][:3]])
    same(chained, lambda: [bytes_.copy(), 2], lambda args: [args[0][:, :1], 3], lambda args: [args[0][:3], 1])
    square = np.random.default_rng(4).integers(0, 200, (30, 30)).astype(np.uint8)
    onto_itself = lambda args: [args[0], args[0][5], *args[2:]]
    column = lambda args: [args[0], args[0][:, 3], *args[2:]]
    counts = [lambda args, n=n: [*args[:2], n, args[3]] for n in (0, 1, 3, 4, 5, 15, 16, 17, 30, 31)]
    same(rows, lambda: [square.copy(), np.zeros(30, np.uint8), 30, 30], onto_itself, column, *counts)


def test_the_error_state_is_asked_at_each_call():
    compiled = overdrive.jit(scale, strict=True)
    args = [np.full(100, 1e-200), np.zeros(100), np.float64(1e-200)]
    for _ in range(3):
        compiled(*args)
    with np.errstate(under="raise"), pytest.raises(FloatingPointError):
        compiled(*args)
    compiled(*args)


def test_a_signal_stops_a_long_nest():
    def spin(a, n):
        s = 0.0
        for _ in range(n):
            for i in range(len(a)):
                s += a[i]
        return s

    compiled = overdrive.jit(spin, strict=True)
    a = np.ones(1000)
    for _ in range(3):
        compiled(a, 10)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiled(a, 2**40)
    assert time.monotonic() - begin < 20


def test_other_threads_get_their_turn_and_may_change_the_arrays():
    def spin(a, out, n):
        for _ in range(n):
            for i in range(len(a)):
                out[i] = a[i] + 1.0
        return out

    compiled = overdrive.jit(spin, strict=True)
    a, out = np.zeros(2000), np.zeros(2000)
    for _ in range(3):
        compiled(a, out, 5)
    ends = []

    def other():
        for k in range(20):
            a[:] = k
            time.sleep(0.01)
        ends.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    while not ends:
        compiled(a, out, 200)
    thread.join()
    compiled(a, out, 1)
    assert (out == 20.0).all()


def remarks(fn, *args):
    compiled = overdrive.jit(fn, strict=True)
    compiled(*args)
    first = fn.__code__.co_firstlineno
    lines = overdrive.explain(compiled).functions[0]["lines"]
    return {line["line"] - first: line["why"] for line in lines if line["why"]}


def test_explain_says_what_became_of_the_loop():
    once = "indices and results are tested once, before the loop"
    assert remarks(blur, *grids()) == {2: [once], 3: ["results are tested for 8 iterations at once"]}
    assert remarks(product, np.ones((4, 4)), np.ones((4, 4)), np.ones((4, 4))) == {
        3: [once],
        4: ["16 iterations run side by side"],
    }

    def pick(a, at):
        s = 0.0
        for i in range(len(at)):
            s += a[at[i]]
        return s

    stays = "tests that stay in it: index out of range"
    assert remarks(pick, np.ones(4), np.arange(4)) == {2: [f"{once}; {stays}"]}
    assert remarks(lambda n: n + 1, 3) == {}


class Generator:
    """A random function of loops over arrays."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.kinds = {}

    def index(self, counters):
        r = self.random
        i = r.choice(counters)
        return r.choice(
            [
                i,
                i,
                i,
                f"{i} + {r.randint(1, 3)}",
                f"{i} - {r.randint(1, 3)}",
                f"n - 1 - {i}",
                f"{i} * 2",
                "0",
                "-1",
            ]
        )

    def element(self, counters, arrays):
        name = self.random.choice(arrays)
        indices = [self.index(counters) for _ in range(self.kinds[name][1])]
        if self.random.random() < 0.6:  # mostly the counters themselves
            indices = [self.random.choice(counters) for _ in indices]
        return f"{name}[{', '.join(indices)}]"

    def value(self, counters, arrays, depth=2):
        r = self.random
        if depth == 0 or r.random() < 0.3:
            leaf = r.choice(["element", "element", "element", "number", "counter", "k"])
            if leaf == "element":
                text = self.element(counters, arrays)
                return f"int({text})" if r.random() < 0.15 else text
            return {
                "number": r.choice(["2", "0.5", "3", "1.5", "-1"]),
                "counter": r.choice(counters),
                "k": "k",
            }[leaf]
        op = r.choice(["+", "+", "-", "*", "*", "/", "//"])
        return f"({self.value(counters, arrays, depth - 1)} {op} {self.value(counters, arrays, depth - 1)})"

    def function(self):
        r = self.random
        arrays = ["a", "b", "out"]
        for name in arrays:
            self.kinds[name] = (r.choice(["f8", "f8", "f8", "f4", "i8", "i4", "u1"]), r.choice([1, 2, 2]))
        n_counters = r.randint(1, 3)
        counters, indent = [], "    "
        self.lines = ["def f(a, b, out, n, k):", "    s = 0.0", "    t = 0"]
        for depth in range(n_counters):
            i = "ijm"[depth]
            bounds = ["n", "n", "1, n - 1", "0, n, 2", "3", "a.shape[0]"]
            if counters:
                bounds += [f"{counters[-1]}, n", f"{counters[-1]}", "-1, 2"]
            self.lines.append(f"{indent}for {i} in range({r.choice(bounds)}):")
            counters.append(i)
            indent += "    "
            if depth + 1 < n_counters and r.random() < 0.3:
                self.lines.append(f"{indent}s = 0.0")
        if n_counters > 1 and r.random() < 0.5:
            self.reduction(counters, arrays, indent)
        else:
            for _ in range(r.randint(1, 3)):
                self.statement(counters, arrays, indent)
        self.lines.append("    return s, t")
        return "\n".join(self.lines)

    def reduction(self, counters, arrays, indent):
        """A sum over the innermost loop, and what is done with it behind that loop."""
        r = self.random
        self.lines.insert(
            -1, f"{indent[:-4]}d = {r.choice(['0.0', '0', 'k', self.element(counters[:-1], arrays)])}"
        )
        self.lines.append(f"{indent}d {r.choice(['+=', '+=', '-=', '*='])} {self.value(counters, arrays)}")
        outer = counters[:-1]
        for _ in range(r.randint(1, 2)):
            behind = r.choice(["store", "store", "best", "sum", "both"])
            if behind == "store":
                self.lines.append(f"{indent[:-4]}{self.element(outer, ['out', 'out', 'a'])} = d")
            elif behind == "best":
                self.lines.append(f"{indent[:-4]}if d < s:")
                self.lines.append(f"{indent[:-4]}    s, t = d, {r.choice(outer)}")
            elif behind == "both":
                self.lines.append(f"{indent[:-4]}s = d")
            else:
                self.lines.append(f"{indent[:-4]}s += d * {self.element(outer, arrays)}")

    def statement(self, counters, arrays, indent):
        r = self.random
        value = self.value(counters, arrays)
        kind = r.choice(["store", "store", "sum", "count", "best"])
        if kind == "store":
            self.lines.append(f"{indent}{self.element(counters, ['out', 'out', 'a'])} = {value}")
        elif kind == "sum":
            self.lines.append(f"{indent}s += {value}")
        elif kind == "count":
            self.lines.append(f"{indent}t += int({self.element(counters, arrays)})")
        else:
            self.lines.append(f"{indent}if {value} > s:")
            self.lines.append(f"{indent}    s = {self.element(counters, arrays)}")

    def arguments(self, rng, n):
        def array(dtype, rank):
            shape = (n,) * rank
            if dtype.startswith("f"):
                return (rng.random(shape) * 4 - 2).astype(dtype)
            return rng.integers(0, 3 if dtype == "u1" else 50, shape).astype(dtype)

        return [
            *(array(*self.kinds[name]) for name in ("a", "b", "out")),
            n,
            self.random.choice([2, 1.5, np.float64(0.5)]),
        ]


@pytest.fixture
def forced():
    yield overdrive._core.debug_force
    overdrive._core.debug_force(None)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated(seed):
    differences(seed)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_generated_with_exits_forced_at_random(seed, forced):
    forced(("seed", seed, (0.02, 0.3)[seed % 2]))
    differences(seed)


def differences(seed):
    generator = Generator(seed)
    source = generator.function()
    scope = {}
    exec(compile(source, f"<nest {seed}>", "exec"), scope)
    fn = scope["f"]
    compiled = overdrive.jit(fn)
    rng = np.random.default_rng(seed)
    state = generator.random.getstate()
    for round_ in range(10):
        n = [12, 12, 12, 20, 5, 12, 30, 1, 12, 16][round_]
        args = []
        copy = rng.bit_generator.state
        for _ in range(2):
            rng.bit_generator.state = copy
            generator.random.setstate(state)
            args.append(generator.arguments(rng, n))
        special = generator.random.choice(SPECIALS) if round_ in (5, 6, 9) else None
        for one in args:
            if special is not None and one[0].dtype.kind == "f":
                with np.errstate(all="ignore"):
                    one[0].flat[one[0].size // 2] = special
            if round_ == 8:
                one[2] = one[0]
        errors = {"all": "raise"} if round_ == 9 else {}
        got, want = outcome(compiled, args[1], **errors), outcome(fn, args[0], **errors)
        assert got == want, source


def tally(idx, counts):
    for i in range(idx.shape[0]):
        counts[idx[i]] += 1
    return counts


def weighed(idx, weights, counts):
    for i in range(idx.shape[0]):
        counts[idx[i]] += int(weights[i]) - 3
        counts[0] -= 2


def bins_of(values, lo, scale, counts):
    for v in values:
        counts[int((v - lo) * scale)] += 1
    return counts


def indices(n=300, m=16):
    return np.random.default_rng(5).integers(-m, m, n)


EDGES = [
    2**63 - 1,
    2**63 - 2,
    2**63 - 40,
    2**62,
    2**60,
    2**60 - 1,
    -(2**63),
    -(2**63) + 5,
    -(2**60),
    -(2**60) - 1,
]


def test_counts_near_their_largest():
    same(tally, lambda: [indices(), np.zeros(16, np.int64)], *[put(3, v, 1) for v in EDGES])
    make = lambda: [indices(), np.arange(300, dtype=np.uint8), np.zeros(16, np.int64)]
    same(weighed, make, *[put(3, v, 2) for v in EDGES], *[put(0, v, 2) for v in EDGES])
    same(tally, lambda: [indices(), np.zeros(16, np.int64)], *[put(3, v, 1) for v in EDGES], over="raise")


def test_counts_at_places_outside():
    bad = [put(n, v) for n in (0, 150, 299) for v in (16, -17, 2**62, -(2**63))]
    same(tally, lambda: [indices(), np.zeros(16, np.int64)], *bad)


def test_counts_that_are_the_indices():
    one = lambda args: [args[0], args[0]]
    shifted = lambda args: [args[0][:-1], args[0][1:]]
    same(tally, lambda: [indices(300, 100) % 300, np.zeros(300, np.int64)], one, shifted)


def test_bins_of_floats():
    make = lambda: [np.random.default_rng(2).random(500), 0.0, 16.0, np.zeros(16, np.int64)]
    same(bins_of, make, *[put(250, v) for v in (*SPECIALS, 1.0, -0.99, -1.0, -1.1)], put(3, 2**63 - 5, 3))


def test_gathers():
    def gather(x, idx, out):
        for i in range(idx.shape[0]):
            out[i] = x[idx[i]] * 2.0
        return out

    make = lambda: [np.random.default_rng(2).random(64), indices(256, 64), np.zeros(256)]
    own = lambda args: [args[0], args[1], args[0]]
    outside = [put(n, v, 1) for n in (0, 255) for v in (64, -65)]
    same(gather, make, *[put(n, v) for n in (0, 63) for v in SPECIALS], own, *outside)


def test_integer_dot_products_and_sums():
    def dot(a, b, c):
        s = 0
        for i in range(a.shape[0]):
            s += a[i] * b[i]
            c[i] = a[i] + b[i]
        return s

    make = lambda: [indices(200, 1 << 15), indices(200, 1 << 16), np.zeros(200, np.int64)]
    same(dot, make, *[put(n, v, which) for n in (0, 199) for v in EDGES for which in (0, 1)])


def test_scattered_values_that_grow():
    """What is stored comes from an element of the same array, so elements may double in each iteration."""

    def double(a, n):
        for i in range(n):
            for j in range(a.shape[0]):
                a[j] = a[j] + a[j]
        return a

    def chain(a, n):
        for i in range(n):
            a[i + 1] = a[i] + 2**35
        return a

    same(double, lambda: [np.arange(70), 3], lambda args: [args[0], 61], lambda args: [args[0] + 1, 64])
    same(chain, lambda: [np.zeros(400, np.int64), 399], *[put(0, v) for v in EDGES])


def test_ranges_through_many_ways_that_part_and_meet():
    """Each choice doubles the ways to the last sum; none is followed twice."""
    lines = ["def f(a, out):", "    for i in range(a.shape[0]):", "        k = i & 7", "        x = a[i]"]
    for n in range(40):
        lines += [
            f"        if i % {n + 2} == 1:",
            f"            k = k + {n % 3}",
            f"            x = x * 0.5 + {n}.0",
        ]
    lines += ["        out[i] = x + k", "    return out"]
    names = {}
    exec("\n".join(lines), names)
    same(names["f"], lambda: [np.linspace(0.1, 2, 70), np.zeros(70)], put(60, np.inf), put(2, np.nan))
