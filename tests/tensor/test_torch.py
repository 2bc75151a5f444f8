"""PyTorch, both ways. Runs where PyTorch is installed: scripts/test_interop makes such an environment."""

import gc
import sys

import numpy as np
import overdrive
import pytest
from overdrive import tensor

torch = pytest.importorskip("torch")

DTYPES = "bool int8 uint8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_is_viewed_as_it_is(dtype):
    base = torch.arange(24).reshape(4, 6).to(getattr(torch, dtype))
    for x in (base, base.T, base[::2, 1::2], base[:0], base[1, 2], base.expand(3, 4, 6)):
        t = tensor(x)
        assert t.dtype == dtype and t.shape == tuple(x.shape) and not t.readonly and t.owner is x
        assert t.tolist() == x.tolist()
        y = t.torch()
        assert y.dtype == x.dtype and y.stride() == x.stride() or not x.numel() or 1 in x.shape
        assert torch.equal(x, y) and (not x.numel() or y.data_ptr() == x.data_ptr())


def test_writes_are_seen_on_both_sides():
    a = np.zeros(4, np.float32)
    x = tensor(a).torch()
    x += 1
    assert a.tolist() == [1] * 4
    tensor(x)[0] = 5
    assert x[0] == 5 and a[0] == 5
    z = overdrive.zeros((2, 2), "bfloat16")
    z.torch().fill_(1.5)
    assert z.tolist() == [[1.5, 1.5], [1.5, 1.5]]


def test_element_types_by_torch_names():
    assert overdrive.empty(2, torch.float32).dtype == "float32"
    assert overdrive.empty(2, torch.bfloat16).dtype == "bfloat16"
    assert overdrive.empty(2, torch.float).dtype == "float32"


def test_refusals():
    with pytest.raises(BufferError, match="read-only"):
        tensor(b"abc").torch()
    with pytest.raises(BufferError, match="negative"):
        tensor(np.arange(3)[::-1]).torch()
    assert tensor(np.arange(3)[::-1], copy=True).torch().tolist() == [2, 1, 0]
    assert tensor(np.arange(3)[:1][::-1]).torch().tolist() == [0]  # a stride that nobody uses
    with pytest.raises(BufferError, match="byte order"):
        tensor(np.zeros(2, ">f4")).torch()
    with pytest.raises(BufferError, match="grad"):
        tensor(torch.zeros(2, requires_grad=True))
    for odd in (
        torch.eye(2).to_sparse(),
        torch.zeros(2, dtype=torch.complex64).conj(),
        torch.empty(2, device="meta"),
    ):
        with pytest.raises((BufferError, RuntimeError, TypeError, ValueError)):
            tensor(odd)
    with pytest.raises(TypeError, match="DLPack"):
        tensor(torch.zeros(2, dtype=torch.float8_e4m3fn))


def test_memory_lives_as_long_as_the_storage():
    t = overdrive.zeros(1000, "float32")
    told = []
    t.on_release(told.append, 1)
    x = t.torch()
    y = x[10:20].view(2, 5)
    del t, x
    gc.collect()
    assert not told
    y += 1
    storage = y.untyped_storage()
    del y
    assert not told
    del storage
    assert told == [1]


def test_references_are_given_back():
    x = torch.zeros(5)
    before = sys.getrefcount(x)
    for _ in range(100):
        tensor(x).torch(), tensor(x).numpy(), tensor(x, weak=True).tolist()
    gc.collect()
    assert sys.getrefcount(x) == before


def test_autograd_runs_on_the_memory():
    a = np.ones(3)
    x = tensor(a).torch().requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
