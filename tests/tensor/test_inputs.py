"""What `tensor` accepts, and that it says about the memory what its owner says: values, layout, order, read-only."""

import array
import ctypes
import mmap
import sys

import numpy as np
import overdrive
import pytest
from overdrive import tensor

DTYPES = """bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64
complex128 >i2 >u2 >i4 >u4 >i8 >u8 >f2 >f4 >f8 >c8 >c16""".split()


def filled(shape, dtype):
    n = int(np.prod(shape))
    return (np.arange(n) % 120).reshape(shape).astype(dtype)


def layouts(dtype):
    base = filled((4, 6), dtype)
    yield "rows", base
    yield "columns", np.asfortranarray(base)
    yield "transposed", base.T
    yield "stepped", base[::2, ::-2]
    yield "reversed", base[::-1, ::-1]
    yield "broadcast", np.broadcast_to(base[0], (3, 6))
    yield "0-d", base[1, 2, ...]
    yield "empty", base[:0]
    yield "empty inside", base[:, :0]
    yield "three axes", filled((2, 3, 4), dtype).transpose(1, 0, 2)
    yield "ten axes", filled((1, 2) * 5, dtype)
    yield "unaligned", np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:].view(dtype).reshape(base.shape)


CASES = [pytest.param(a, id=f"{dtype}-{name}") for dtype in DTYPES for name, a in layouts(np.dtype(dtype))]


def same(left, right):
    left, right = np.asarray(left), np.asarray(right)
    return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()


@pytest.mark.parametrize("a", CASES)
def test_an_array_is_viewed_as_it_is(a):
    t = tensor(a)
    assert (t.shape, t.strides, t.ndim, t.size, t.nbytes) == (a.shape, a.strides, a.ndim, a.size, a.nbytes)
    assert np.dtype(t.dtype) == a.dtype and t.itemsize == a.itemsize
    assert t.readonly == (not a.flags.writeable) and t.owner is a and t.device == "cpu" and not t.weak
    assert t.align == min(4096, a.ctypes.data & -a.ctypes.data)
    assert t.tolist() == a.tolist()


@pytest.mark.parametrize("a", CASES)
def test_every_way_back_shows_the_same_memory(a):
    t = tensor(a)
    n = t.numpy()
    assert same(n, a) and n.strides == a.strides and n.flags.writeable == a.flags.writeable
    assert n.ctypes.data == a.ctypes.data and n.base is t
    assert same(np.asarray(t), a) and np.asarray(t).ctypes.data == a.ctypes.data
    m = memoryview(t)
    assert (m.shape, m.strides, m.itemsize, m.readonly) == (a.shape, a.strides, a.itemsize, t.readonly)
    assert m.tobytes() == a.tobytes()
    interface = t.__array_interface__
    assert interface["typestr"] == a.dtype.str and interface["data"] == (a.ctypes.data, t.readonly)
    assert same(tensor(m), a) and same(tensor(t), a) and tensor(t).owner is t


@pytest.mark.parametrize("a", CASES)
def test_a_copy_is_dense_aligned_and_ours(a):
    t = tensor(a, copy=True)
    assert same(t, a) and t.numpy().flags.c_contiguous
    assert t.align >= 64 and t.owner is None and not t.readonly
    if a.size:
        assert not np.shares_memory(t.numpy(), a)


@pytest.mark.parametrize(
    ("x", "dtype", "readonly", "values"),
    [
        (b"\x01\x02", "uint8", True, [1, 2]),
        (bytearray(b"\x01\x02"), "uint8", False, [1, 2]),
        (memoryview(b"abcdef")[::-2], "uint8", True, [102, 100, 98]),
        (memoryview(bytearray(8)).cast("d"), "float64", False, [0.0]),
        (memoryview(bytearray(6)).cast("H", (3, 1)), "uint16", False, [[0], [0], [0]]),
        (array.array("l", [1, -2]), "int64", False, [1, -2]),
        (array.array("f", [1.5]), "float32", False, [1.5]),
        ((ctypes.c_int * 2)(3, 4), "int32", False, [3, 4]),
        (((ctypes.c_short * 2) * 3)(), "int16", False, [[0, 0]] * 3),
        (ctypes.c_double(2.5), "float64", False, 2.5),
        (ctypes.c_long(7), "int64", False, 7),
        (np.float32(1.5), "float32", True, 1.5),
        (np.bool_(True), "bool", True, True),
        (np.complex128(1 + 2j), "complex128", True, 1 + 2j),
        (np.float16(0.5), "float16", True, 0.5),
        (b"", "uint8", True, []),
    ],
)
def test_buffers(x, dtype, readonly, values):
    t = tensor(x)
    assert (t.dtype, t.readonly, t.tolist()) == (dtype, readonly, values)
    assert t.owner is x


def test_writes_go_through():
    b = bytearray(4)
    tensor(b).numpy()[:] = 7
    assert b == b"\x07" * 4
    a = np.zeros(3)
    tensor(a)[1] = 5
    np.from_dlpack(tensor(a))[2] = 6
    memoryview(tensor(a))[0] = 4.0
    assert a.tolist() == [4, 5, 6]


def test_a_mapped_file(tmp_path):
    path = tmp_path / "numbers"
    np.arange(1000, dtype=np.int32).tofile(path)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    t = tensor(mapped)
    assert t.readonly and t.shape == (4000,)
    with pytest.raises(BufferError):
        mapped.close()
    del t
    mapped.close()


def test_a_buffer_is_held_until_the_view_goes():
    b = bytearray(b"abc")
    t = tensor(b)
    n = t.numpy()
    del t
    with pytest.raises(BufferError):
        b.append(1)
    del n
    b.append(1)


class Interface:
    def __init__(self, **interface):
        self.__array_interface__ = interface


def test_array_interface():
    a = np.arange(6, dtype=np.int16)[::2]
    t = tensor(Interface(**a.__array_interface__))
    assert same(t, a) and t.strides == a.strides
    raw = bytearray(range(16))
    t = tensor(Interface(version=3, shape=(2, 3), typestr="<u2", data=raw, offset=2))
    assert same(t, np.frombuffer(raw, "<u2", 6, 2).reshape(2, 3)) and not t.readonly
    t = tensor(Interface(version=3, shape=(3,), typestr="|u1", strides=(-2,), data=bytes(range(8)), offset=5))
    assert t.tolist() == [5, 3, 1] and t.readonly
    assert tensor(Interface(version=3, shape=(0, 2), typestr="<f4", data=(0, False))).shape == (0, 2)


@pytest.mark.parametrize(
    ("interface", "error", "text"),
    [
        ({"shape": (9,), "typestr": "|u1", "data": bytes(8)}, ValueError, "outside"),
        ({"shape": (8,), "typestr": "|u1", "data": bytes(8), "offset": 1}, ValueError, "outside"),
        ({"shape": (8,), "typestr": "|u1", "data": bytes(8), "offset": -1}, ValueError, "outside"),
        ({"shape": (2,), "typestr": "|u1", "data": bytes(8), "strides": (-1,)}, ValueError, "outside"),
        ({"shape": (2,), "typestr": "|u1", "data": bytes(8), "strides": (2**62,)}, ValueError, "outside"),
        ({"shape": (2**62, 2**62), "typestr": "|u1", "data": bytes(8)}, ValueError, "fit"),
        ({"shape": (-1,), "typestr": "|u1", "data": bytes(8)}, ValueError, "negative"),
        ({"shape": (2,), "typestr": "|u1", "data": (0, False)}, BufferError, "address 0"),
        ({"shape": (2,), "typestr": "|V1", "data": bytes(8)}, TypeError, "structured"),
        ({"shape": (2,), "typestr": "|u1", "data": bytes(8), "mask": bytes(2)}, BufferError, "mask"),
        ({"shape": (2,), "typestr": "|u1", "data": bytes(8), "strides": (1, 1)}, ValueError, "axes"),
        ({"shape": (2,), "data": bytes(8)}, ValueError, "typestr"),
        ({"shape": (2,), "typestr": "|u1"}, TypeError, "no address"),
    ],
)
def test_array_interface_that_is_wrong(interface, error, text):
    with pytest.raises(error, match=text):
        tensor(Interface(version=3, **interface))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: 3, TypeError, "no memory"),
        (lambda: "text", TypeError, "no memory"),
        (lambda: [1, 2], TypeError, "copy=True"),
        (lambda: np.array([None]), TypeError, "Python objects"),
        (lambda: np.array(["a"]), TypeError, "strings"),
        (lambda: np.zeros(2, [("a", "i4")]), TypeError, "one field"),
        (lambda: np.zeros(2, "M8[s]"), TypeError, "int64"),
        (lambda: np.zeros(2, np.longdouble), TypeError, "long double"),
        (lambda: np.longdouble(1), TypeError, "long double"),
        (lambda: (ctypes.c_char_p * 2)(), TypeError, "type"),
        (lambda: array.array("w" if sys.version_info >= (3, 13) else "u", "ab"), TypeError, "text"),
        (lambda: np.ma.array([1, 2], mask=[0, 1]), BufferError, "filled"),
        (lambda: np.ndarray, TypeError, "no memory"),
    ],
)
def test_refusals_name_their_reason(make, error, text):
    with pytest.raises(error, match=text):
        tensor(make())


def test_an_unmasked_masked_array_and_subclasses_are_fine():
    a = np.ma.array([1, 2])
    assert tensor(a).tolist() == [1, 2]

    class Sub(np.ndarray):
        pass

    s = np.arange(3).view(Sub)
    assert tensor(s).owner is s and type(tensor(s).numpy()) is np.ndarray


def test_a_structure_is_read_field_by_field():
    a = np.zeros(3, [("x", "f4"), ("y", "i8")])
    a["y"] = [1, 2, 3]
    t = tensor(a["y"])
    assert t.strides == (12,) and t.tolist() == [1, 2, 3]
    with pytest.raises(BufferError, match="12 bytes"):
        t.__dlpack__()


def test_suboffsets_are_refused_and_copied_on_request():
    exporter = pytest.importorskip("_testbuffer")
    nd = exporter.ndarray(list(range(12)), shape=[3, 4], format="i", flags=exporter.ND_PIL)
    with pytest.raises(BufferError, match="suboffsets"):
        tensor(nd)
    assert tensor(nd, copy=True).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_exporters_of_every_kind():
    exporter = pytest.importorskip("_testbuffer")
    for shape, strides, offset in [([3, 4], None, 0), ([3, 2], [-16, 8], 32), ([], None, 0)]:
        kwargs = {"strides": strides, "offset": offset} if strides else {}
        items = list(range(12 if strides else int(np.prod(shape))))
        nd = exporter.ndarray(items if shape else 0, shape=shape, format="i", **kwargs)
        assert tensor(nd).tolist() == nd.tolist() and tensor(nd).shape == nd.shape
    nd = exporter.ndarray([(1, 2.5)], shape=[1], format="if")
    with pytest.raises(TypeError, match="format|type"):
        tensor(nd)


def test_readonly_is_kept_forced_or_refused():
    a = np.zeros(3)
    t = tensor(a, readonly=True)
    assert t.readonly and not t.numpy().flags.writeable and memoryview(t).readonly
    with pytest.raises(ValueError):
        t[0] = 1
    with pytest.raises(BufferError, match="copy=True"):
        tensor(b"abc", readonly=False)
    with pytest.raises(BufferError, match="copy=True"):
        tensor(t, readonly=False)
    assert not tensor(b"abc", readonly=False, copy=True).readonly
    assert tensor(a, copy=True, readonly=True).readonly
    assert not tensor(a, readonly=False).readonly


def test_arguments():
    for wrong in (
        lambda: tensor(),
        lambda: tensor(1, 2),
        lambda: tensor(x=b""),
        lambda: tensor(b"", nocopy=True),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="exclude"):
        tensor(b"", copy=True, weak=True)
    with pytest.raises(TypeError):
        overdrive.Tensor()


@pytest.mark.parametrize(
    ("x", "dtype"),
    [([1, 2], "int64"), ((1.5,), "float64"), (3, "int64"), (2.5, "float64"), (1j, "complex128")],
)
def test_numbers_are_converted_by_a_copy_only(x, dtype):
    with pytest.raises(TypeError):
        tensor(x)
    t = tensor(x, copy=True)
    assert t.dtype == dtype and t.tolist() == (list(x) if isinstance(x, tuple) else x)


def test_a_broken_dlpack_producer_is_an_error_only():
    class Wrong:
        def __init__(self, answer):
            self.answer = answer

        def __dlpack__(self, **_):
            return self.answer

        def __dlpack_device__(self):
            return (1, 0)

    for answer in (None, 3, np.zeros(1)):
        with pytest.raises((TypeError, BufferError)):
            tensor(Wrong(answer))
    capsule = np.arange(3.0).__dlpack__(max_version=(1, 0))
    assert tensor(Wrong(capsule)).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="used"):
        tensor(Wrong(capsule))

    class Elsewhere(Wrong):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(BufferError, match="cuda"):
        tensor(Elsewhere(None))
    moved = np.arange(2.0).__dlpack__(max_version=(1, 0))
    assert tensor(Elsewhere(moved), copy=True).tolist() == [0, 1]

    class Interrupted(Wrong):
        def __dlpack__(self, **_):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tensor(Interrupted(None))


def test_a_dlpack_producer_of_before_version_1():
    class Old:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, stream=None):
            return self.a.__dlpack__()

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    a = np.arange(6.0).reshape(2, 3)[:, ::-1]
    t = tensor(Old(a))
    assert t.tolist() == a.tolist() and not t.readonly and t.strides == a.strides
