"""DLPack out: versions, the read-only flag, devices, streams, copies, and what it cannot say."""

import gc
import sys

import numpy as np
import pytest
from overdrive import tensor


@pytest.mark.parametrize("dtype", "bool int8 uint16 int32 uint64 float16 float32 float64 complex64".split())
def test_round_trip(dtype):
    a = np.ones((2, 3), dtype)[:, ::-2]
    v = np.from_dlpack(tensor(a))
    assert v.dtype == a.dtype and v.strides == a.strides and v.tolist() == a.tolist()
    assert v.ctypes.data == a.ctypes.data and v.flags.writeable


def test_read_only_travels_in_version_1_and_refuses_the_old_protocol():
    t = tensor(b"abc")
    with pytest.raises(BufferError, match="max_version"):
        t.__dlpack__()
    with pytest.raises(BufferError, match="max_version"):
        t.__dlpack__(max_version=(0, 8))
    assert not np.from_dlpack(t).flags.writeable
    assert tensor(bytearray(b"abc")).__dlpack__() is not None


def capsule_name(capsule):
    return repr(capsule).split('"')[1]


def test_versions_are_negotiated():
    t = tensor(np.zeros(2))
    assert capsule_name(t.__dlpack__()) == "dltensor"
    assert capsule_name(t.__dlpack__(max_version=None)) == "dltensor"
    assert capsule_name(t.__dlpack__(max_version=(1, 0))) == "dltensor_versioned"
    assert capsule_name(t.__dlpack__(max_version=(2, 5))) == "dltensor_versioned"
    assert t.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"stream": 1}, BufferError),
        ({"dl_device": (2, 0)}, BufferError),
        ({"max_version": 1}, ValueError),
        ({"max_version": ("a", 0)}, (ValueError, TypeError)),
        ({"unknown": None}, TypeError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_requests_that_are_refused(kwargs, error):
    with pytest.raises(error):
        tensor(np.zeros(2)).__dlpack__(**kwargs)


def test_a_copy_on_request():
    a = np.zeros(3)
    t = tensor(a)
    v = np.from_dlpack(t, copy=True)
    v[0] = 1
    assert a[0] == 0
    assert np.from_dlpack(t, copy=False).ctypes.data == a.ctypes.data
    assert np.from_dlpack(t, device="cpu").ctypes.data == a.ctypes.data
    assert np.from_dlpack(tensor(a, readonly=True), copy=True).flags.writeable


def test_what_dlpack_cannot_say():
    with pytest.raises(BufferError, match="astype"):
        tensor(np.zeros(2, ">f8")).__dlpack__()


def test_a_capsule_that_nobody_uses_gives_its_reference_back():
    t = tensor(np.zeros(2))
    before = sys.getrefcount(t)
    for version in (None, (1, 0)):
        capsule = t.__dlpack__(max_version=version)
        assert sys.getrefcount(t) == before + 1
        del capsule
    gc.collect()
    assert sys.getrefcount(t) == before


def test_many_axes():
    a = np.zeros((1,) * 12 + (3,))
    assert np.from_dlpack(tensor(a)).shape == a.shape
    assert tensor(np.zeros((1,) * 64)).ndim == 64
