"""Arrow, both ways: offsets, validity, lists as axes, and that the memory lives as long as somebody uses it."""

import gc
import weakref

import numpy as np
import pytest
from overdrive import tensor

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    "kind", "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
)
def test_numbers(kind):
    values = np.arange(5).astype(kind)
    a = pa.array(values)
    for part in (a, a[2:], a[1:4], a[5:]):
        t = tensor(part)
        assert t.dtype == kind and t.tolist() == part.to_pylist() and t.readonly and t.owner is part
        back = t.arrow()
        assert back.equals(part) and back.type == a.type
        if len(part):
            assert back.buffers()[1].address == t.numpy().ctypes.data


def test_nulls_count_only_where_they_are_used():
    a = pa.array([1.0, None, 3.0, 4.0])
    for bad in (a, a[:2], a[1:2]):
        with pytest.raises(BufferError, match="null"):
            tensor(bad)
        with pytest.raises(BufferError, match="null"):
            tensor(bad, copy=True)
    assert (
        tensor(a[2:]).tolist() == [3, 4] and tensor(a[:1]).tolist() == [1] and tensor(a[1:1]).tolist() == []
    )


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: pa.array([True, False]), TypeError, "eight to a byte"),
        (lambda: pa.array(["a"]), TypeError, "fixed size"),
        (lambda: pa.array([b"ab"], pa.binary(2)), TypeError, "cast"),
        (lambda: pa.array([[1], [2, 3]]), TypeError, "no shape"),
        (lambda: pa.array([None]), TypeError, "null"),
        (lambda: pa.array([0], pa.timestamp("s")), TypeError, "int64"),
        (lambda: pa.array([1], pa.decimal128(5)), TypeError, "float64"),
        (lambda: pa.array(["a", "a"]).dictionary_encode(), BufferError, "dictionary_decode"),
        (lambda: pa.record_batch({"a": [1], "b": [2]}), TypeError, "column"),
        (lambda: pa.chunked_array([[1], [2]]), BufferError, "combine_chunks"),
        (lambda: pa.table({"a": [1]}), BufferError, "combine_chunks"),
        (lambda: pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), BufferError, "null"),
        (lambda: pa.array([[1, None]], pa.list_(pa.int32(), 2)), BufferError, "null"),
    ],
)
def test_refusals(make, error, text):
    with pytest.raises(error, match=text):
        tensor(make())


def test_packed_booleans_are_unpacked_by_a_copy():
    values = [True, False, True, True] * 5
    a = pa.array(values)
    assert tensor(a, copy=True).tolist() == values
    assert tensor(a[3:11], copy=True).tolist() == values[3:11] and tensor(a, copy=True).dtype == "bool"
    with pytest.raises(BufferError, match="null"):
        tensor(pa.array([True, None]), copy=True)


def test_columns_of_a_batch():
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int16()), "b": [0.5, 1.5, 2.5]})[1:]
    assert tensor(batch["a"]).tolist() == [2, 3] and tensor(batch.column(1)).tolist() == [1.5, 2.5]
    assert tensor(pa.table(batch)["b"].combine_chunks()).tolist() == [1.5, 2.5]


def test_fixed_size_lists_are_axes():
    a = pa.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], pa.list_(pa.float32(), 3))
    assert tensor(a).shape == (3, 3) and tensor(a[1:]).tolist() == [[4, 5, 6], [7, 8, 9]]
    n = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    back = tensor(n).arrow()
    assert back.type == pa.list_(pa.list_(pa.int32(), 4), 3) and back.to_pylist() == n.tolist()
    back.validate(full=True)
    again = tensor(back)
    assert again.shape == n.shape and again.numpy().ctypes.data == n.ctypes.data
    inner = tensor(n).arrow().flatten().flatten()  # a consumer keeps only the innermost child
    del n, back, again
    gc.collect()
    assert inner.to_pylist() == list(range(24))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1, 1, 2)])
def test_shapes_at_the_edge(shape):
    n = np.zeros(shape, np.float32)
    back = tensor(n).arrow()
    assert back.to_pylist() == n.tolist() and tensor(back).shape == shape


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: np.float64(1), "no axes"),
        (lambda: np.zeros((4, 4))[:, ::2], "strides"),
        (lambda: np.zeros(2, bool), "uint8"),
        (lambda: np.zeros(2, complex), "complex"),
        (lambda: np.zeros(2, ">i4"), "byte order"),
    ],
)
def test_what_arrow_cannot_say(make, text):
    with pytest.raises(BufferError, match=text):
        tensor(make()).arrow()


def test_the_memory_lives_as_long_as_the_array():
    class Array(np.ndarray):
        pass

    n = np.arange(4.0).view(Array)
    seen = weakref.ref(n)
    a = tensor(n).arrow()
    t = tensor(a)
    del n, a
    gc.collect()
    assert seen() is not None and t.tolist() == [0, 1, 2, 3]
    del t
    gc.collect()
    assert seen() is None


def test_capsules_that_nobody_uses():
    class Array(np.ndarray):
        pass

    n = np.zeros((2, 2)).view(Array)
    seen = weakref.ref(n)
    capsules = tensor(n).__arrow_c_array__()
    del n
    assert seen() is not None
    del capsules
    assert seen() is None
    pair = pa.array([1, 2]).__arrow_c_array__()

    class Once:
        def __arrow_c_array__(self, requested_schema=None):
            return pair

    assert tensor(Once()).tolist() == [1, 2]
    with pytest.raises(BufferError, match="used"):
        tensor(Once())


def test_producers_that_are_wrong():
    class Wrong:
        def __init__(self, answer):
            self.answer = answer

        def __arrow_c_array__(self, requested_schema=None):
            return self.answer

    for answer in (None, 1, (1, 2), (1,), pa.array([1]).__arrow_c_array__()[::-1]):
        with pytest.raises((TypeError, ValueError)):
            tensor(Wrong(answer))
