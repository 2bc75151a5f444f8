"""`empty` and `zeros`: shape, type, alignment, and sizes that cannot be."""

import numpy as np
import overdrive
import pytest


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3), [4, 1], 7, np.int64(3), (1,) * 64])
@pytest.mark.parametrize("make", [overdrive.empty, overdrive.zeros])
def test_shapes(make, shape):
    t = make(shape, "float32")
    assert t.shape == np.empty(shape if not isinstance(shape, list) else tuple(shape)).shape
    assert t.align >= 64 and t.owner is None and not t.readonly and t.numpy().flags.c_contiguous
    assert make is overdrive.empty or not t.numpy().any()


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float32", "float32"),
        ("f8", "float64"),
        (">i2", ">i2"),
        ("bfloat16", "bfloat16"),
        (np.dtype("uint16"), "uint16"),
        (np.dtype(">f4"), ">f4"),
        (np.float16, "float16"),
        (np.bool_, "bool"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
    ],
)
def test_element_types(dtype, name):
    assert overdrive.empty(3, dtype).dtype == name


@pytest.mark.parametrize("dtype", ["float", "double", "half"])
def test_names_of_c(dtype):
    assert overdrive.empty(1, dtype).dtype == np.dtype(dtype).name


@pytest.mark.parametrize(
    "dtype", ["float128", "O", "U3", "int4", "", None, 3, str, np.dtype("M8[s]"), object]
)
def test_other_types_are_refused(dtype):
    with pytest.raises(TypeError):
        overdrive.empty(3, dtype)


@pytest.mark.parametrize("align", [1, 64, 128, 4096, 1 << 21])
def test_alignment(align):
    for _ in range(5):
        t = overdrive.zeros(10, "int8", align=align)
        assert t.numpy().ctypes.data % max(align, 64) == 0


@pytest.mark.parametrize(
    ("shape", "kwargs", "error"),
    [
        ((-1,), {}, ValueError),
        ((2**62, 2**62), {}, ValueError),
        ((2**63,), {}, ValueError),
        ((2**60,), {}, (MemoryError, ValueError)),
        ((0, 2**62, 2**62), {}, ValueError),
        ((1,) * 65, {}, ValueError),
        ((1.5,), {}, TypeError),
        ("ab", {}, TypeError),
        (None, {}, TypeError),
        ((2,), {"align": 48}, ValueError),
        ((2,), {"align": 0}, ValueError),
        ((2,), {"align": 1 << 22}, ValueError),
        ((2,), {"align": -8}, (ValueError, OverflowError)),
        ((2,), {"device": "cuda"}, ValueError),
    ],
)
def test_what_cannot_be_made(shape, kwargs, error):
    with pytest.raises(error):
        overdrive.empty(shape, "float64", **kwargs)
