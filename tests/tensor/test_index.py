"""Basic indexing equals NumPy's, over random keys; elements are Python numbers; assignment goes through."""

import random

import numpy as np
import pytest
from overdrive import tensor


def random_key(rng, shape):
    key = []
    for length in shape[: rng.randint(0, len(shape))]:
        kind = rng.random()
        if kind < 0.4:
            key.append(rng.randint(-length - 1, length))
        elif kind < 0.9:
            ends = [None, *range(-length - 2, length + 3), 2**62, -(2**62)]
            key.append(slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, 3, -1, -2, 2**62])))
        else:
            key.append(None)
    if rng.random() < 0.3:
        key.insert(rng.randint(0, len(key)), ...)
    return tuple(key) if rng.random() < 0.8 or len(key) != 1 else key[0]


def test_random_keys_select_what_numpy_selects():
    rng = random.Random(5)
    a = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).transpose(2, 0, 3, 1)
    for _ in range(5000):
        shape = rng.choice([(), (4,), (4, 2), (4, 2, 5), (4, 2, 5, 3), (0, 3)])
        x = a[(*(0,) * (4 - len(shape)), ...)] if shape != (0, 3) else np.zeros((0, 3), int)
        x = x if x.ndim == len(shape) else np.zeros(shape, int)
        key = random_key(rng, x.shape)
        try:
            expected = x[key]
        except IndexError:
            with pytest.raises(IndexError):
                tensor(x)[key]
            continue
        got = tensor(x)[key]
        if isinstance(expected, np.ndarray):
            assert got.shape == expected.shape and got.tolist() == expected.tolist()
            assert not expected.size or got.numpy().ctypes.data == expected.ctypes.data
        else:
            assert got == expected and type(got) is int


def test_elements_are_python_numbers():
    for dtype, value in [("bool", True), ("int8", -3), ("uint64", 2**64 - 1), ("float16", 0.1), (">f4", 0.1)]:
        a = np.array([value], dtype)
        assert tensor(a)[0] == a.tolist()[0] and type(tensor(a)[0]) is type(a.tolist()[0])
    every_half = np.arange(65536, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(tensor(every_half).tolist(), every_half.astype(float))
    assert tensor(np.array([1 + 2j], ">c8"))[0] == 1 + 2j


def test_iteration_and_length():
    t = tensor(np.arange(6).reshape(2, 3))
    assert len(t) == 2 and [row.tolist() for row in t] == [[0, 1, 2], [3, 4, 5]] and list(t[0]) == [0, 1, 2]
    zero = tensor(np.array(1.5))
    assert zero[()] == 1.5 and zero[...].shape == ()
    with pytest.raises(TypeError):
        len(zero)
    with pytest.raises(TypeError):
        list(zero)


@pytest.mark.parametrize("key", [True, 1.0, "x", [0], np.array([0, 1]), np.array([True, False]), (0, [1])])
def test_what_would_gather_is_left_to_numpy(key):
    with pytest.raises(TypeError, match="numpy"):
        tensor(np.zeros((2, 2)))[key]


@pytest.mark.parametrize("key", [2, -3, 2**70, -(2**70), (0, 0, 0), (..., ...)])
def test_out_of_range(key):
    with pytest.raises(IndexError):
        tensor(np.zeros((2, 2)))[key]
    with pytest.raises(IndexError):
        tensor(np.zeros((2, 2)))[key] = 1


def test_assignment():
    a = np.zeros((3, 4))
    t = tensor(a)
    t[1, 2] = 5
    t[0] = [1, 2, 3, 4]
    t[2, ::2] = tensor(np.array([7, 8]))
    assert a.tolist() == [[1, 2, 3, 4], [0, 0, 5, 0], [7, 0, 8, 0]]
    with pytest.raises(ValueError):
        t[0] = [1, 2]
    with pytest.raises(ValueError):
        tensor(a, readonly=True)[0, 0] = 1
    with pytest.raises(TypeError):
        del t[0]
    assert a[0, 0] == 1
