"""ml_dtypes and JAX, where they are installed: scripts/test_interop makes such an environment."""

import numpy as np
import overdrive
import pytest
from overdrive import tensor


def test_bfloat16_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)[:, ::-1]
    t = tensor(a)
    assert t.dtype == "bfloat16" and t.tolist() == a.astype(float).tolist()
    for back in (t.numpy(), np.asarray(t)):
        assert back.dtype == a.dtype and back.ctypes.data == a.ctypes.data and back.strides == a.strides
    assert overdrive.zeros(2, ml_dtypes.bfloat16).dtype == "bfloat16"
    assert overdrive.zeros(2, a.dtype).numpy().dtype == a.dtype
    assert np.asarray(t, dtype=np.float32).tolist() == t.tolist()
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(t)
    with pytest.raises(AttributeError):
        t.__array_interface__
    for other in (ml_dtypes.float8_e4m3fn, ml_dtypes.int4):
        with pytest.raises(TypeError, match="bfloat16"):
            tensor(np.zeros(2, other))
    with pytest.raises((TypeError, BufferError)):
        tensor(ml_dtypes.bfloat16(1))  # a scalar of it exports nothing
    assert tensor(np.array(ml_dtypes.bfloat16(1.5))).tolist() == 1.5


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    for dtype in ("float32", "int32", "uint8", "bfloat16", "bool", "complex64"):
        x = jnp.arange(6).reshape(2, 3).astype(dtype)
        t = tensor(x)
        assert t.dtype == dtype and t.shape == (2, 3) and t.tolist() == x.tolist()
        assert t.readonly  # JAX's arrays never change
    t = tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = jnp.from_dlpack(overdrive.tensor(t, copy=True))
    assert y.tolist() == t.tolist()
