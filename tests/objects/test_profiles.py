"""What compiled code observes, the layout of this process, and that the test surface refuses nonsense."""

import numpy as np
import overdrive
import pytest
from overdrive import _core

from .support import table


class Mine:
    pass


@pytest.mark.parametrize(
    "values, seen, looked",
    [
        ([], "Nothing", 0),
        ([1, 2, 3], "Always(Exact(Int))", 1),
        ([True], "Always(Exact(Bool))", 1),
        ([1.5, 2.5], "Always(Exact(Float))", 1),
        ([None], "Always(Exact(NoneType))", 1),
        ([np.float64(1), np.float64(2)], "Always(Exact(NpF64))", 1),
        ([np.bool_(True)], "Always(Exact(NpBool))", 1),
        ([Mine(), Mine()], 'Always(Other("Mine"))', 1),
        ([1, 1.5, 2], "Mixed", 3),
        ([1, 1.5, 2.5, 3.5], "Mixed", 2),
        ([np.zeros(3), np.ones(5)], "Always(Array { holder: NdArray, dtype: F64, ndim: 1 })", 2),
        ([np.zeros((2, 2), np.uint8)], "Always(Array { holder: NdArray, dtype: U8, ndim: 2 })", 1),
        ([overdrive.zeros(2, "int32")] * 2, "Always(Array { holder: Tensor, dtype: I32, ndim: 1 })", 2),
        ([overdrive.zeros(2, "int16")], 'Always(Other("overdrive.Tensor"))', 1),
        ([overdrive.tensor(np.zeros(2)), np.zeros(2)], "Mixed", 2),
        ([np.zeros(3), np.zeros((3, 3)), np.zeros(3), np.zeros(3)], "Mixed", 2),
        ([np.zeros(3), np.zeros(3, np.int32)], "Mixed", 2),
        ([np.zeros(3, ">f8")], 'Always(Other("numpy.ndarray"))', 1),
        ([np.zeros(3, np.complex128)], 'Always(Other("numpy.ndarray"))', 1),
        ([np.zeros(25, np.uint8)[1:].view(np.float64)], 'Always(Other("numpy.ndarray"))', 1),
        ([np.zeros((2, 2)).view(np.matrix)], 'Always(Other("matrix"))', 1),
        ([iter([1]), iter([2])], "Always(Exact(ListIter))", 1),
    ],
)
def test_observations(values, seen, looked):
    assert _core._observe(*values) == (seen, looked)


def test_types_of_the_layout():
    types = _core._types()
    expected = {
        "int": int, "float": float, "bool": bool, "None": type(None), "str": str, "bytes": bytes,
        "bytearray": bytearray, "list": list, "tuple": tuple, "dict": dict, "set": set, "ndarray": np.ndarray,
        "Tensor": overdrive.Tensor,
        "np.float64": np.float64, "np.float32": np.float32, "np.int64": np.int64, "np.int32": np.int32,
        "np.uint8": np.uint8, "np.bool": np.bool_, "range_iterator": type(iter(range(1))),
        "list_iterator": type(iter([])), "tuple_iterator": type(iter(())), "range": range, "slice": slice,
        "function": type(test_types_of_the_layout),
    }  # fmt: skip
    for name in ("float64", "float32", "int64", "int32", "uint8", "bool"):
        expected[f"dtype {name}"] = np.dtype(name)
    assert types == {name: id(value) for name, value in expected.items()}


def test_numpy_is_found_when_it_comes_later():
    import subprocess
    import sys

    code = (
        "from overdrive import _core\n"
        "assert _core._types()['int'] == id(int) and _core._types()['ndarray'] == 0\n"
        "import sys; assert 'numpy' not in sys.modules\n"
        "import numpy\n"
        "assert _core._types()['ndarray'] == id(numpy.ndarray)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_probe_refuses_nonsense():
    with pytest.raises(ValueError):
        table("no such entry")
    with pytest.raises(ValueError):
        table("observe", 0, 1)
    with pytest.raises(TypeError):
        table("binary", 1)
    with pytest.raises(TypeError):
        table("box_int", 1, 2)
