"""`fastmath=True`: results may differ in the last bits, within stated bounds; everything else is as without it."""

import math
import pickle
import sys
import warnings

import cloudpickle
import numpy as np
import overdrive
import pytest
from overdrive import _core

# glibc's statement about its vector functions, in units of the last place.
VECTOR_ULPS = 4
EPSILON = np.finfo(float).eps
HAS_VECTORS = _core.info()["vector functions"].startswith("libmvec")


def fast(fn, **options):
    return overdrive.jit(fn, fastmath=True, **options)


def total(a):
    s = 0.0
    for i in range(len(a)):
        s += a[i]
    return s


def dot(a, b):
    s = 0.0
    for i in range(len(a)):
        s += a[i] * b[i]
    return s


def outcome(fn, *args):
    """Value and type, or exception, and the warnings of a call."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = fn(*args)
        except Exception as error:
            result = type(error).__name__, str(error)
    return result, [(w.category.__name__, str(w.message)) for w in seen]


def settled(fn, *args):
    """A compiled function after its first calls, in which types are learned."""
    for _ in range(4):
        fn(*args)
    return fn


# --- the option


def add(a, b):
    return a + b


@pytest.mark.parametrize("value", ["fast", 1, None, {"reassoc"}], ids=repr)
def test_the_option_is_a_bool(value):
    with pytest.raises(TypeError):
        overdrive.jit(add, fastmath=value)


def test_with_and_without_are_two_callables():
    exact = overdrive.jit(add)
    loose = fast(exact)
    assert loose is not exact
    assert fast(loose) is loose and overdrive.jit(exact) is exact
    again = overdrive.jit(loose)
    assert again is not loose and overdrive.jit(again) is again
    assert [f(0.5, 1.0) for f in (exact, loose, again)] == [1.5] * 3
    flags = [overdrive.explain(f).functions[0]["versions"][0]["fastmath"] for f in (exact, loose, again)]
    assert flags == [False, True, False]


def test_methods_and_other_options():
    class Sum:
        @overdrive.jit(fastmath=True, strict=True, cache=False)
        def of(self, a):
            s = 0.0
            for i in range(len(a)):
                s += a[i]
            return s

        @staticmethod
        @overdrive.jit(fastmath=True)
        def two(a, b):
            return a + b

    assert Sum().of(np.ones(100)) == 100.0
    assert Sum.two(1, 2) == 3

    def reads(a):
        return eval("a")

    with pytest.raises(overdrive.NotCompiledError):
        fast(reads, strict=True)(1)


def test_it_survives_pickling_by_value():
    copy = cloudpickle.loads(cloudpickle.dumps(fast(lambda a, b: a * b)))
    assert copy(3.0, 2.0) == 6.0
    assert overdrive.explain(copy).functions[0]["versions"][0]["fastmath"]
    exact = pickle.loads(cloudpickle.dumps(overdrive.jit(lambda a, b: a * b)))
    assert exact(3.0, 2.0) == 6.0
    assert not overdrive.explain(exact).functions[0]["versions"][0]["fastmath"]


# --- exact functions stay exact


def cancel(a, b, c):
    return a * b - c


# The rounding error of a product: 0 where product and difference are rounded one after the other.
HALVES = (1.0 + 2.0**-30, 1.0 + 2.0**-30, (1.0 + 2.0**-30) ** 2)


def test_products_and_sums_may_be_contracted():
    assert cancel(*HALVES) == 0.0
    assert overdrive.jit(cancel)(*HALVES) == 0.0
    contracted = fast(cancel)(*HALVES)
    has_fma = "fma" in _core.info()["instruction sets"]
    assert contracted == (2.0**-60 if has_fma else 0.0)


def test_exact_callees_stay_exact():
    exact, loose = overdrive.jit(cancel), fast(cancel)
    settled(exact, *HALVES), settled(loose, *HALVES)

    @overdrive.jit(fastmath=True)
    def both(a, b, c):
        return exact(a, b, c), loose(a, b, c)

    @overdrive.jit
    def neither(a, b, c):
        return exact(a, b, c), loose(a, b, c), a * b - c

    for _ in range(6):
        assert both(*HALVES) == (0.0, loose(*HALVES))
        assert neither(*HALVES) == (0.0, loose(*HALVES), 0.0)


def test_promotion_never_uses_it():
    def product(a, b, c):
        return a * b - c

    loose = fast(product)
    settled(loose, *HALVES)
    overdrive.promote(product)
    try:
        for _ in range(100):
            assert product(*HALVES) == 0.0
    finally:
        overdrive.demote(product)
    assert loose(*HALVES) == fast(cancel)(*HALVES)


def test_exact_sums_keep_their_order():
    a = np.random.default_rng(5).random(10_007)
    exact, loose = settled(overdrive.jit(total), a), settled(fast(total), a)
    assert exact(a) == total(a)
    assert "reassoc" not in _core.emit(exact, "llvm")
    assert "llvm.vector.reduce.fadd" in _core.emit(loose, "llvm")


# --- sums


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 127, 1000, 100_003])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda t: t.__name__)
def test_sums_are_within_their_bound(n, dtype):
    rng = np.random.default_rng(n)
    a, b = rng.uniform(-1, 1, n).astype(dtype), rng.uniform(-1, 1, n).astype(dtype)
    for fn, args, terms in [
        (total, (a,), [float(x) for x in a]),
        (dot, (a, b), [float(x) * float(y) for x, y in zip(a, b, strict=True)]),
    ]:
        got = settled(fast(fn), *args)(*args)
        want = fn(*args)
        assert type(got) is type(want)
        # Any order of n additions, and one rounding more for a product.
        unit = float(np.finfo(dtype).eps)
        assert abs(float(got) - math.fsum(terms)) <= (n + 1) * unit * math.fsum(map(abs, terms))


def row_sums(a, out):
    n, m = a.shape
    for i in range(n):
        s = 0.0
        for j in range(m):
            s += a[i, j]
        out[i] = s


def test_sums_in_nests():
    a = np.random.default_rng(2).uniform(-1, 1, (37, 211))
    out = np.zeros(37)
    settled(fast(row_sums), a, out)
    assert np.abs(out - a.sum(1)).max() <= 211 * EPSILON * np.abs(a).sum(1).max()


SPECIAL = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0]


@pytest.mark.parametrize("value", SPECIAL, ids=str)
@pytest.mark.parametrize("other", SPECIAL, ids=str)
def test_nans_infinities_and_warnings_keep_their_meaning(value, other):
    a = np.zeros(500)
    loose = settled(fast(total), a)
    a[100], a[400] = value, other
    (got, said), (want, should) = outcome(loose, a), outcome(total, a)
    assert said == should and type(got) is type(want)
    assert np.isnan(got) if np.isnan(want) else got == pytest.approx(want, rel=1e-12, abs=0)


def products(a, b, s):
    for i in range(len(a)):
        s += a[i] * b[i]
    return s, 0.0


def products_of_values(a, b, s):
    t = 0.0
    for x, y in zip(a, b):
        t += x
        s -= x * 0.5 * y
    return s, t


def unused_products(a, b, s):
    x = 0.0
    for i in range(len(a)):
        s += b[i]
        x = a[i] * b[i] * 0.0
    return s, x


def whole_parts(a, b, s):
    t = 0
    for i in range(len(a)):
        s += a[i] * b[i]
        t = int(a[i])
    return s, t


def shifted_products(a, b, s):
    t = 0.0
    for i in range(len(a)):
        s -= abs(a[i] - 0.5) * b[i]
        t += a[i]
    return s, t


def halves(a, b, s):
    for i in range(len(a)):
        s = s * 0.5 + a[i] * b[i]
    return s, 0.0


def not_only_summed(a, b, s):
    t = 0.0
    for i in range(len(a)):
        x = a[i] * b[i]
        if x < 1e300:
            s += x
        t += 1.0 / x
    return s, t


def forgotten(a, b, s):
    for i in range(len(a)):
        s = a[i] * b[i]
    return s, 0.0


SUMS = [products, products_of_values, unused_products, whole_parts, shifted_products, halves]
SUMS += [not_only_summed, forgotten]


@pytest.mark.parametrize("fn", SUMS)
@pytest.mark.parametrize("errors", [{}, {"all": "raise"}], ids=str)
def test_what_only_the_sum_tells(fn, errors):
    """Elements are not looked at where the sum shows what NumPy warns about: in any strip, at any place of it."""
    n = 34_000
    a, b = np.full(n, 0.75), np.full(n, 0.5)
    loose = settled(fast(fn), a, b, 0.0)
    for start in (0.0, np.float64(np.inf), np.float64(1e308)):
        for at in (0, 1, 30_000, n - 1):
            for x, y in [(1e200, 1e200), (1e200, -1e200), (math.nan, 1.0), (math.inf, 1.0), (1e308, 1.0)]:
                a[at], b[at] = x, y
                with np.errstate(**errors):
                    (got, said), (want, should) = outcome(loose, a, b, start), outcome(fn, a, b, start)
                assert set(said) == set(should), (start, at, x, y)
                if isinstance(want[0], str):
                    assert got == want
                else:
                    assert [type(v) for v in got] == [type(v) for v in want]
                    pairs = [list(map(float, values)) for values in (got, want)]
                    assert np.allclose(*pairs, rtol=1e-11, atol=0, equal_nan=True), (start, at, x, y)
                a[at], b[at] = 0.75, 0.5


def test_conversions_look_at_the_elements():
    a, b = np.ones(1000), np.ones(1000)
    loose = settled(fast(whole_parts), a, b, 0.0)
    a[-1] = 1e308
    assert loose(a, b, 0.0) == (1e308, int(1e308))


# --- checks stay


def test_errors_are_cpythons():
    def shifted(a, k):
        s = 0.0
        for i in range(len(a)):
            s += a[i + k]
        return s

    def inverse(a, b, out):
        for i in range(len(a)):
            out[i] = a[i] / b[i]

    def python_floats(x, n):
        s = 0.0
        for i in range(n):
            s += x / (i - 70)
        return s

    a = np.ones(100)
    loose = settled(fast(shifted), a, 0)
    assert outcome(loose, a, 1) == outcome(shifted, a, 1)
    assert outcome(loose, a, 1)[0][0] == "IndexError"
    assert outcome(fast(python_floats), 1.0, 100) == outcome(python_floats, 1.0, 100)
    assert outcome(python_floats, 1.0, 100)[0][0] == "ZeroDivisionError"
    b, out, want = np.ones(100), np.zeros(100), np.zeros(100)
    loose = settled(fast(inverse), a, b, out)
    b[50] = 0.0
    assert outcome(loose, a, b, out) == outcome(inverse, a, b, want)
    assert outcome(loose, a, b, out)[1]
    assert (out == want).all()


# --- functions of math

# Arguments that leave nothing to ask beyond one look at them.
UNARY = {
    "exp": (-500, 500),
    "expm1": (-500, 500),
    "log": None,
    "log2": None,
    "log10": None,
    "log1p": None,
    "sin": (-1e5, 1e5),
    "cos": (-1e5, 1e5),
    "tan": (-1e5, 1e5),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atan": (-1e3, 1e3),
    "sinh": (-500, 500),
    "cosh": (-500, 500),
    "tanh": (-20, 20),
    "erf": (-6, 6),
    "erfc": (-6, 26),
}
BINARY = ["atan2", "hypot", "pow"]
N = 20_000


def mapped(name, arguments="a[i]"):
    """A function that stores `math`'s function of elements."""
    scope = {"math": math}
    parameters = "a, b" if "b[i]" in arguments else "a"
    head = f"def f({parameters}, out):\n    for i in range(len(a)):\n"
    source = f"{head}        out[i] = math.{name}({arguments})"
    exec(compile(source, f"<{name}>", "exec"), scope)
    return scope["f"]


def samples(name):
    rng = np.random.default_rng(len(name))
    near = rng.uniform(-1, 1, N) * 2.0 ** rng.uniform(-40, 0, N)
    if name == "pow":
        return [(2.0 ** rng.uniform(-50, 50, N), rng.uniform(-7, 7, N))]
    if name in BINARY:
        far = rng.uniform(-5, 5, (2, N)) * 2.0 ** rng.uniform(-200, 200, (2, N))
        return [tuple(far), (near, rng.uniform(-1, 1, N))]
    if UNARY[name] is None:
        return [(2.0 ** rng.uniform(-900, 900, N),), (1 + near / 2,), (np.abs(near),)]
    return [(rng.uniform(*UNARY[name], N),), (near,), (near * 1e-200,)]


def is_close(out, want):
    """Within the library's statement, where both are numbers; else the same."""
    same = (out == want) | (np.isnan(out) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        return (same | (np.abs(out - want) <= VECTOR_ULPS * np.spacing(np.abs(want)))).all()


def called_as_vectors(fn):
    return overdrive.explain(fn).functions[0]["versions"][0]["vector_functions"]


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_functions_are_within_the_librarys_statement(name):
    fn = mapped(name, "a[i]" if name in UNARY else "a[i], b[i]")
    function = getattr(math, name)
    for columns in samples(name):
        loose, out = fast(fn, strict=True), np.zeros(N)
        settled(loose, *columns, out)
        want = np.array([function(*map(float, row)) for row in zip(*columns, strict=True)])
        assert is_close(out, want)
        assert called_as_vectors(loose) == ([name] if HAS_VECTORS else [])


def test_vector_functions_are_there():
    """Where glibc is recent enough for all of them, none goes missing."""
    text = _core.info()["vector functions"]
    if sys.platform == "linux" and HAS_VECTORS and " erf " in text:
        assert set(text.split(": ")[1].split()) == {*UNARY, *BINARY}


# Beyond them CPython raises, or the vector function is not asked for.
EDGES = [0.0, -0.0, 5e-324, 1e-310, 0.5, 1.0, -1.0, 1.5, -1.5, 511.0, 512.0, -512.0, 700.0, 709.7]
EDGES += [709.8, 710.5, -708.4, -745.2, -746.0, 1e5, 2.0**53, 1e300, -1e300, 1.7e308]
EDGES += [math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_values_at_the_edges(name):
    fn = mapped(name, "a[i]" if name in UNARY else "a[i], b[i]")
    n = 200
    a, b = np.full(n, 0.75), np.full(n, 0.5)
    columns = lambda: (a.copy(),) if name in UNARY else (a.copy(), b.copy())
    loose = settled(fast(fn), *columns(), np.zeros(n))
    for which in range(len(columns())):
        for edge in EDGES:
            for at in (3, n - 2):
                args, out, want = columns(), np.zeros(n), np.zeros(n)
                args[which][at] = edge
                got, should = outcome(loose, *args, out), outcome(fn, *args, want)
                assert got == should, (edge, at)
                assert is_close(out, want), (edge, at)


def black_scholes(spot, strike, time, out, rate, vol):
    for i in range(len(spot)):
        s = spot[i]
        k = strike[i]
        t = time[i]
        d1 = (math.log(s / k) + (rate + 0.5 * vol * vol) * t) / (vol * math.sqrt(t))
        d2 = d1 - vol * math.sqrt(t)
        first = s * 0.5 * (1.0 + math.erf(d1 / math.sqrt(2.0)))
        out[i] = first - k * math.exp(-rate * t) * 0.5 * (1.0 + math.erf(d2 / math.sqrt(2.0)))


def options(n=1000):
    rng = np.random.default_rng(1)
    return rng.uniform(10, 100, n), rng.uniform(10, 100, n), rng.uniform(0.1, 3, n), np.zeros(n), 0.02, 0.3


@pytest.mark.parametrize(
    "which, value",
    [(0, -1.0), (0, 0.0), (1, 0.0), (2, 0.0), (2, -0.5), (2, 1e6), (1, 1e300), (1, math.nan), (0, math.inf)],
)
def test_several_functions_of_several_arrays(which, value):
    args, want = options(), options()
    loose = settled(fast(black_scholes, strict=True), *args)
    black_scholes(*want)
    assert np.abs(args[3] - want[3]).max() < 1e-11
    if HAS_VECTORS:
        assert called_as_vectors(loose) == ["erf", "exp", "log"]
    for some in (args, want):
        some[which][700] = value
        some[3][:] = 0
    assert outcome(loose, *args) == outcome(black_scholes, *want)
    assert np.allclose(args[3], want[3], rtol=1e-12, atol=1e-11, equal_nan=True)


def test_invariants_are_asked_about():
    def powers(a, out, e, scale):
        for i in range(len(a)):
            out[i] = math.pow(a[i], e) + math.log(scale) + math.exp(scale * a[i])

    a = np.random.default_rng(0).uniform(0.5, 2, 300)
    loose = settled(fast(powers), a, np.zeros(300), 2.5, 2.0)
    for e in (2.5, -7.5, 500.0, 1e5, math.inf, math.nan, 0.0):
        for scale in (2.0, 0.0, -1.0, 1e-300, 300.0, 400.0, math.inf, math.nan):
            out, want = np.zeros(300), np.zeros(300)
            assert outcome(loose, a, out, e, scale) == outcome(powers, a, want, e, scale)
            assert np.allclose(out, want, rtol=1e-13, atol=0, equal_nan=True)


@pytest.mark.parametrize("c", [1.0, -1.0, 1e300, -1e-300, 5e-324, math.inf, -math.inf, math.nan], ids=str)
def test_quotients_by_an_invariant(c):
    def ratios(a, out, c):
        for i in range(len(a)):
            out[i] = math.log(a[i] / c)

    a = np.random.default_rng(0).uniform(0.5, 2, 300)
    loose = settled(fast(ratios), a, np.zeros(300), 2.0)
    out, want = np.zeros(300), np.zeros(300)
    assert outcome(loose, a, out, c) == outcome(ratios, a, want, c)
    assert np.allclose(out, want, rtol=1e-13, atol=1e-15, equal_nan=True)


@pytest.mark.parametrize("small", [0.5, 1e-20, 1e-30, 1e-38, 1e-45, 0.0, -1.0])
def test_products_of_float32_that_underflow(small):
    def logs(a, b, out, c):
        for i in range(len(a)):
            out[i] = math.log(a[i] * b[i]) + math.log(c)

    a, b, c = np.full(300, 0.5, np.float32), np.full(300, 0.75, np.float32), np.float32(1.5)
    loose = settled(fast(logs), a, b, np.zeros(300), c)
    out, want = np.zeros(300), np.zeros(300)
    a[200] = b[200] = small
    assert outcome(loose, a, b, out, c) == outcome(logs, a, b, want, c)
    assert np.allclose(out, want, rtol=1e-13, atol=0)
    a[200], b[200], c = 0.5, 0.75, np.float32(small)
    assert outcome(loose, a, b, out, c) == outcome(logs, a, b, want, c)
    assert np.allclose(out, want, rtol=1e-13, atol=0)


def test_elements_that_the_loop_itself_makes_unfit():
    def chained(a):
        for i in range(1, len(a)):
            a[i] = math.exp(a[i - 1])

    def falls(a):
        for i in range(1, len(a)):
            a[i] = math.log(a[i - 1])

    def in_place(a):
        for i in range(len(a)):
            a[i] = math.log(a[i])

    def twice(a, b):
        for r in range(4):
            for i in range(len(a)):
                b[i] = math.log(a[i])
            for i in range(len(a)):
                a[i] = math.sqrt(b[i])

    a = np.full(200, 0.1)
    assert outcome(fast(chained), a.copy()) == outcome(chained, a.copy())
    for fn, start in [
        (falls, [1e9] * 200),
        (in_place, [50.0] * 200),
        (in_place, [1.0, 2.0] * 100),
        (twice, [9e99] * 200),
    ]:
        rest = [np.zeros(200)] if fn is twice else []
        got, want = np.array(start), np.array(start)
        loose = fast(fn)
        for _ in range(3):
            assert outcome(loose, got, *rest) == outcome(fn, want, *rest)
            assert np.allclose(got, want, rtol=1e-14, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8], ids=lambda t: t.__name__)
def test_elements_of_other_types(dtype):
    fn = mapped("log")
    a, out, want = (np.arange(1, 201) % 100 + 1).astype(dtype), np.zeros(200), np.zeros(200)
    loose = settled(fast(fn), a, out)
    for value in (7, 0, 1e-45):
        a[150] = value
        out[:], want[:] = 0, 0
        assert outcome(loose, a, out) == outcome(fn, a, want)
        assert np.allclose(out, want, rtol=1e-14, atol=0)


# --- exits forced, explain


@pytest.fixture
def forced():
    yield _core.debug_force
    _core.debug_force(None)


@pytest.mark.parametrize("seed", range(12))
def test_exits_forced_at_random(seed, forced):
    forced(("seed", seed, (0.02, 0.3)[seed % 2]))
    args, want = options(200), options(200)
    loose = fast(black_scholes)
    black_scholes(*want)
    for _ in range(5):
        args[3][:] = 0
        loose(*args)
        assert np.abs(args[3] - want[3]).max() < 1e-11


def test_explain_says_so():
    loose = settled(fast(black_scholes), *options())
    text = str(overdrive.explain(loose))
    assert "fastmath: results may differ from CPython's in the last bits" in text
    if HAS_VECTORS:
        assert "functions of math called for several elements at once: erf, exp, log" in text
    assert "arguments too, of math's erf, exp, log" in text
    exact = settled(overdrive.jit(black_scholes), *options())
    assert "fastmath: results" not in str(overdrive.explain(exact))

    fn = mapped("log", "a[i] - 1.0")
    loose = settled(fast(fn), np.full(100, 3.0), np.zeros(100))
    text = str(overdrive.explain(loose))
    assert "tests that stay in it: " in text and "at once: none" in text
