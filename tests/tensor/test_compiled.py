"""Compiled functions over tensors: equal to CPython for every element type, layout and value, warnings included."""

import linecache
import math
import warnings

import numpy as np
import overdrive
import pytest

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128".split()
NATIVE = ("bool", "uint8", "int32", "int64", "float32", "float64")
VALUES = [
    *(
        0,
        1,
        -1,
        127,
        128,
        255,
        256,
        -129,
        2**31 - 1,
        2**31,
        -(2**31) - 1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63) - 1,
    ),
    *(True, False, None, "1", "x", b"1", 1j, [1], (1, 2)),
    *(0.0, -0.0, 1.5, -1.5, 255.9, 1e10, -1e19, 9.2e18, 3.5e38, 1e-46, 1e308, math.inf, -math.inf, math.nan),
    *(np.float64(2.5), np.float64(math.nan), np.float64(1e300), np.float32(0.1), np.float32(math.inf)),
    *(np.int64(300), np.int64(-1), np.int64(2**40), np.int32(-5), np.uint8(200), np.True_, np.float16(1.5)),
]


def outcome(f, *args):
    """What a call gave, raised and warned."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = repr(f(*args))
        except Exception as e:
            result = f"{type(e).__name__}: {e}"
    return result, [(w.category.__name__, str(w.message)) for w in seen]


def compiled(f, *warm):
    """`f`, compiled for such arguments."""
    jitted = overdrive.jit(f)
    for _ in range(4):
        jitted(*warm)
    return jitted


def is_native(jitted, text):
    """Whether the line of source that contains `text` runs as machine code."""
    status = {row["line"]: row["status"] for row in overdrive.explain(jitted).functions[0]["lines"]}
    return [status[i] for i in status if text in linecache.getline(__file__, i)] == ["native"]


def put(t, x):
    t[1] = x
    return t.tobytes() if isinstance(t, np.ndarray) else bytes(memoryview(t).cast("B"))


def get(t, i):
    return t[i]


# Arrays take the same stores, by the same conversions.
@pytest.mark.parametrize("zeros", [overdrive.zeros, np.zeros], ids=["tensor", "array"])
@pytest.mark.parametrize("dtype", NATIVE)
def test_a_store_is_that_of_cpython(dtype, zeros):
    for value in VALUES:
        want = outcome(put, zeros(3, dtype), value)
        jitted = overdrive.jit(put)
        for _ in range(4):
            assert outcome(jitted, zeros(3, dtype), value) == want, value


@pytest.mark.parametrize("zeros", [overdrive.zeros, np.zeros], ids=["tensor", "array"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_values_through_one_version(dtype, zeros):
    for first in (1, np.float64(1)):
        jitted = compiled(put, zeros(3, dtype), first)
        for value in VALUES:
            want = outcome(put, zeros(3, dtype), value)
            assert outcome(jitted, zeros(3, dtype), value) == want, (first, value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_load_is_that_of_cpython(dtype):
    rng = np.random.default_rng(3)
    memory = np.frombuffer(rng.bytes(64 * np.dtype(dtype).itemsize), np.uint8).copy()
    if dtype == "bool":
        memory &= 1
    array = memory.view(dtype)
    layouts = [array, array[::-1], array[1::3], array.astype(array.dtype.newbyteorder()), np.array(array[:1])]
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = array.view(np.uint8)
    layouts.append(memory[1:].view(dtype))  # not aligned
    for layout in layouts:
        t = overdrive.tensor(layout)
        jitted = compiled(get, t, 0)
        for i in (
            *range(-len(layout), len(layout)),
            len(layout),
            -len(layout) - 1,
            True,
            1.0,
            None,
            np.int8(0),
        ):
            assert outcome(jitted, t, i) == outcome(get, t, i), (layout, i)


def test_what_has_a_native_form_is_native():
    for dtype in DTYPES:
        t = overdrive.zeros(3, dtype)
        assert is_native(compiled(get, t, 0), "return t[i]") == (dtype in NATIVE), dtype


def test_one_version_is_not_taken_for_another_layout():
    jitted = compiled(get, overdrive.zeros(3, "float64"), 0)
    others = [np.ones((2, 2)), np.ones(2, ">f8"), np.ones(3, "int64"), np.array(1.5)]
    memory = np.zeros(17, np.uint8)
    others.append(memory[1:].view("float64"))
    for other in others:
        assert (
            outcome(jitted, overdrive.tensor(other), 0)[0].split(" at ")[0]
            == (outcome(get, overdrive.tensor(other), 0)[0].split(" at ")[0])
        )
    array = np.ones(3)
    assert type(jitted(array, 0)) is np.float64
    assert type(jitted(overdrive.tensor(array), 0)) is float


def test_a_weak_tensor_is_asked_each_time():
    array = np.arange(3.0)
    weak = overdrive.tensor(array, weak=True)
    jitted = compiled(get, overdrive.tensor(array), 1)
    assert [jitted(weak, 1) for _ in range(50)] == [1.0] * 50
    del array
    with pytest.raises(ReferenceError):
        jitted(weak, 1)


def test_read_only_memory_is_not_written():
    t = overdrive.zeros(3, "float64")
    jitted = compiled(put, t, 1.5)
    frozen = overdrive.tensor(t.numpy(), readonly=True)
    want = outcome(put, frozen, 2.5)
    assert want[0].startswith("ValueError")
    assert outcome(jitted, frozen, 2.5) == want
    assert t.tolist() == [0.0, 1.5, 0.0]


def total(t):
    s = 0.0
    for i in range(len(t)):
        for j in range(t.shape[1]):
            s += t[i, j]
    return s


def test_loops_over_every_layout():
    base = np.arange(24.0).reshape(4, 6)
    jitted = compiled(total, overdrive.tensor(base))
    for array in (base, base.T, base[::-1, ::2], base[:0], base[:, :0], np.broadcast_to(base[0], (3, 6))):
        assert jitted(overdrive.tensor(array)) == array.sum()


def scratch_sum(xs, arena):
    n = len(xs)
    scratch = arena.empty(n, "float64")
    for i in range(n):
        scratch[i] = xs[n - 1 - i]
    s = 0.0
    for x in scratch:
        s += x
    return s


def test_scratch_of_an_arena():
    arena = overdrive.Arena(1 << 12)
    xs = [float(i) for i in range(100)]
    jitted = overdrive.jit(scratch_sum)
    for _ in range(200):
        with arena:
            assert jitted(xs, arena) == sum(xs)
    assert is_native(jitted, "scratch[i] = xs") and is_native(jitted, "s += x")
    arena.reset()  # no call left a view behind
    arena.close()


def keeps_scratch(arena, raises):
    t = arena.empty(4, "int64")
    for i in range(4):
        t[i] = i
    if raises:
        t[4] = 0
    return t


def test_a_view_that_leaves_a_compiled_function_keeps_the_arena():
    arena = overdrive.Arena(1 << 12)
    jitted = overdrive.jit(keeps_scratch)
    for _ in range(30):
        t = jitted(arena, False)
        with pytest.raises(BufferError):
            arena.reset()
        assert t.tolist() == [0, 1, 2, 3]
        del t
        with pytest.raises(IndexError):
            jitted(arena, True)
        arena.reset()


def test_promotion_of_a_running_loop_over_a_tensor():
    def run(t, n):
        s = 0
        for k in range(n):
            s += t[k % len(t)]
        return s

    t = overdrive.tensor(np.arange(10))
    want = run(t, 50_000)
    promoted = overdrive.promote(run)
    try:
        assert [run(t, 50_000) for _ in range(3)] == [want] * 3
    finally:
        overdrive.demote(promoted if promoted is not None else run)
