"""Copies of arguments: separate from the originals, and related to each other as these are."""

import math
import threading

import numpy as np
import overdrive
import pytest
from overdrive.comparing import Comparison
from overdrive.copying import CannotCopy, Copier


def copied(*values):
    names = {f"args[{i}]": value for i, value in enumerate(values)}
    return list(Copier(names).copies().values())


def test_views_of_one_memory_stay_views_of_one_memory():
    base = np.arange(24.0).reshape(4, 6)
    part, turned, row = base[::2, 1:4], base[:, ::-1], base[1]
    part2, turned2, nested = copied(part, turned, [row, base])
    row2, base2 = nested
    assert np.shares_memory(part2, turned2) and np.shares_memory(row2, base2)
    assert not np.shares_memory(base2, base)
    assert (part2.strides, turned2.strides) == (part.strides, turned.strides)
    part2[0, 0] = 99.0
    assert base2[0, 1] == turned2[0, 4] == 99.0 and base[0, 1] == 1.0


def test_an_array_that_owns_its_memory_still_does():
    base = np.arange(6.0)
    view2, base2 = copied(base[1:3], base)
    assert base2.flags.owndata and np.shares_memory(view2, base2)
    turned = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    (turned2,) = copied(turned)
    assert turned2.flags.f_contiguous and turned2.flags.owndata


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(10)[::-3],
        lambda: np.array(2.5),
        lambda: np.zeros((0, 3)),
        lambda: np.frombuffer(bytes(41), "f8", 5, 1),
        lambda: np.broadcast_to(np.arange(3), (4, 3)),
        lambda: np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
        lambda: np.array([[1], None, {}], object),
        lambda: np.array([(1, 2.0)], "i4,f8"),
        lambda: np.arange(3).astype(">i4"),
    ],
)
def test_copies_are_like_the_original(make):
    (copy,), (other,), original = copied(make()), copied(make()), make()
    comparison = Comparison()
    comparison.compare("r", copy, other)
    assert not comparison.differences
    assert (copy.dtype, copy.strides, str(copy.flags.aligned)) == (
        original.dtype,
        original.strides,
        str(original.flags.aligned),
    )
    assert copy.flags.writeable == original.flags.writeable and copy.tolist() == original.tolist()


def test_alignment_stays():
    whole = np.zeros(1001, np.uint8)
    odd = whole[3:803].view(np.float64)
    (copy,) = copied(odd)
    assert copy.ctypes.data % 64 == odd.ctypes.data % 64


def test_what_is_shared_stays_shared_and_cycles_end():
    inner = [1]
    cycle = [inner, inner]
    cycle.append(cycle)
    a, b = copied(cycle, {"i": inner})
    assert a[0] is a[1] is b["i"] and a[2] is a and a[0] is not inner


def test_functions_classes_and_modules_stand_for_themselves():
    jitted = overdrive.jit(lambda x: x)
    values = [len, test_alignment_stays, Copier, math, jitted]
    assert all(a is b for a, b in zip(copied(values)[0], values, strict=True))


def test_what_has_no_copy_is_named(tmp_path):
    with open(tmp_path / "f", "w") as file:
        for values, message in [
            ((1, (x for x in [])), r"args\[1\] cannot be copied: cannot pickle 'generator' object"),
            (([threading.Lock()],), r"args\[0\] cannot be copied: cannot pickle '_thread.lock' object"),
            ((file,), r"args\[0\] cannot be copied: cannot pickle"),
        ]:
            with pytest.raises(CannotCopy, match=message):
                copied(*values)


def test_nested_too_deeply():
    deep = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(CannotCopy, match=r"args\[0\]: nested too deeply"):
        copied(deep)
    while deep:
        deep = deep[0]


def test_a_limit():
    with pytest.raises(CannotCopy, match=r"args\[0\] holds more than 1 MiB"):
        Copier({"args[0]": [np.zeros(200_000)]}, most_bytes=1 << 20)
    assert Copier({"args[0]": np.zeros(20_000)}, most_bytes=1 << 20).copies()
