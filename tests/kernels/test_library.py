"""Kernels of shared libraries, in C and in Rust: calls, outputs, errors, isolation, tables that must be refused."""

import gc
import inspect
import subprocess
import sys
import threading
import time

import numpy as np
import overdrive
import pytest
from overdrive import kernel


def test_an_array_goes_in_and_a_tensor_comes_out(lib):
    x = np.arange(6.0).reshape(2, 3)
    y = lib.scale(x)
    assert isinstance(y, overdrive.Tensor) and y.align >= 64 and not y.readonly
    assert y.dtype == "float64" and (y.numpy() == 2 * x).all()
    assert (lib.scale(x, factor=-0.5).numpy() == -0.5 * x).all()
    assert (lib.scale(x.astype("float32"), factor=np.float32(3)).numpy() == 3 * x).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::-1, ::2],
        lambda x: x.T,
        lambda x: np.asfortranarray(x),
        lambda x: x[0, 0],
        lambda x: x[:, :0],
        lambda x: np.broadcast_to(x[:, :1], x.shape),
        lambda x: overdrive.tensor(x),
        lambda x: memoryview(x),
    ],
    ids=["negative", "transposed", "fortran", "scalar", "empty", "broadcast", "tensor", "memoryview"],
)
def test_any_layout_goes_in(lib, view):
    x = np.arange(24.0).reshape(4, 6)
    y = lib.scale(view(x), factor=3.0)
    want = np.asarray(view(x)) * 3.0
    assert y.shape == want.shape and (y.numpy() == want).all()


def test_several_inputs_and_outputs(lib):
    a, b = np.arange(5.0), np.ones(5)
    assert (lib.add(a, b).numpy() == a + b).all()
    low, high = lib.extremes(np.array([[3.0, -1.0], [7.0, 2.0]]))
    assert (low.shape, float(low.numpy()), float(high.numpy())) == ((), -1.0, 7.0)


def test_shapes_from_parameters(lib):
    assert lib.count(n=4).numpy().tolist() == [0, 1, 2, 3]
    assert lib.count(n=np.int64(3), first=-1).numpy().tolist() == [-1, 0, 1]
    assert lib.count(n=0).shape == (0,)
    for given, want in [("añb", "añb".encode()), (b"\0x", b"\0x"), ("", b"")]:
        assert bytes(lib.letters(text=given)) == want
    assert bytes(lib.letters()) == b"default"


def test_memory_of_the_caller_is_filled(lib):
    x = np.arange(4.0)
    out = np.empty(4)
    assert lib.scale(x, out=out) is out and (out == 2 * x).all()
    shared = overdrive.empty(4, "float64")
    assert lib.scale(x, out=shared) is shared and (shared.numpy() == 2 * x).all()
    low, high = np.empty(()), np.empty(())
    got = lib.extremes(x, out=(low, high))
    assert got[0] is low and got[1] is high and (low, high) == (0.0, 3.0)
    lib.scale(x, factor=2.0, out=x)
    assert x.tolist() == [0.0, 2.0, 4.0, 6.0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda lib: lib.scale(), TypeError, r"scale\(\) takes 1 tensor \(0 given\)"),
        (lambda lib: lib.add(1), TypeError, r"takes 2 tensors \(1 given\)"),
        (lambda lib: lib.scale(3), TypeError, r"scale\(\), input 0: int has no memory"),
        (lambda lib: lib.scale(np.arange(3)), TypeError, "scale: takes float32 and float64"),
        (lambda lib: lib.scale(np.arange(3.0).astype(">f8")), BufferError, "input 0: .*order"),
        (
            lambda lib: lib.scale(np.zeros(1), faktor=1),
            TypeError,
            "no parameter 'faktor'; it has factor, out",
        ),
        (lambda lib: lib.scale(np.zeros(1), factor="2"), TypeError, "factor is a float, not <class 'str'>"),
        (lambda lib: lib.count(), TypeError, r"count\(\) needs n="),
        (lambda lib: lib.count(n=1.5), TypeError, "n is an int"),
        (lambda lib: lib.count(n=2**63), OverflowError, "too large|too big"),
        (lambda lib: lib.count(n=-1), ValueError, "count: n is negative"),
        (lambda lib: lib.letters(text=3), TypeError, "text is bytes or str"),
        (lambda lib: lib.add(np.zeros(3), np.zeros(4)), ValueError, "add: the shapes differ"),
        (lambda lib: lib.add(np.zeros(6)[::2], np.zeros(3)), BufferError, "input 0: .*copy=True"),
        (lambda lib: lib.scale(np.zeros(3), out=np.zeros(4)), ValueError, r"output 0: its shape is \[4\]"),
        (
            lambda lib: lib.scale(np.zeros(3), out=np.zeros(3, "f4")),
            TypeError,
            "elements are float32, .* float64",
        ),
        (lambda lib: lib.scale(np.zeros(3), out=bytes(24)), TypeError, "elements are uint8"),
        (lambda lib: lib.scale(np.zeros(3), out=np.broadcast_to(0.0, 3)), BufferError, "read-only"),
        (lambda lib: lib.scale(np.zeros(3), out=np.zeros(6)[::2]), ValueError, "scale: out has gaps"),
        (lambda lib: lib.extremes(np.zeros(3), out=np.zeros(())), TypeError, "out= is a tuple of as many"),
        (lambda lib: lib.extremes(np.zeros(0)), ValueError, "there is no element"),
        (lambda lib: lib.broken(which=0), ValueError, "plan of kernel broken is wrong: -1 axes"),
        (lambda lib: lib.broken(which=1), ValueError, "65 axes"),
        (lambda lib: lib.broken(which=2), ValueError, "plan of kernel broken is wrong"),
        (lambda lib: lib.broken(which=3), ValueError, "plan of kernel broken is wrong"),
        (lambda lib: lib.broken(which=4), ValueError, "replaced the array of lengths"),
        (lambda lib: lib.broken(which=5), ValueError, "negative"),
        (lambda lib: lib.broken(which=6), ValueError, "address"),
        (lambda lib: lib.broken(which=7), RuntimeError, "broken: failed with status 77"),
        (lambda lib: lib.broken(which=8), RuntimeError, "an error that says OK"),
        (lambda lib: lib.broken(which=9), RuntimeError, "\N{REPLACEMENT CHARACTER} no text"),
        (lambda lib: lib.absent, AttributeError, "no kernel 'absent'; it has scale, add"),
    ],
)
def test_errors_say_what_is_wrong(lib, call, error, text):
    with pytest.raises(error, match=text):
        call(lib)


def test_kernels_describe_themselves(lib):
    assert lib.scale.__doc__ == "Multiplies by factor." and lib.add.__doc__ is None
    assert str(inspect.signature(lib.scale)) == "(x0, /, *, out=None, factor=2.0)"
    assert str(inspect.signature(lib.count)) == "(*, out=None, n, first=0)"
    assert repr(lib.extremes) == "<overdrive kernel extremes, 1 to 2 tensors>"
    assert {k.__name__ for k in lib} >= {"scale", "add"} and len(lib) == 11 and "add" in dir(lib)


def in_threads(work, n=4):
    threads = [threading.Thread(target=work) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_contexts_are_isolated(lib):
    seen = []
    in_threads(lambda: seen.extend(int(lib.alone(ms=20).numpy()) for _ in range(5)))
    assert seen == [1] * 20
    ids = [int(lib.id().numpy()) for _ in range(5)]
    assert len(set(ids)) == 5


def test_the_gil_is_released(lib):
    seen, end = [], time.monotonic() + 20
    while max(seen, default=0) < 2 and time.monotonic() < end:
        in_threads(lambda: seen.append(int(lib.together(ms=20).numpy())))
    assert max(seen) >= 2


def test_scratch_memory_may_be_kept(lib):
    assert int(lib.keep(which=11).numpy()) == -1
    for _ in range(20):
        assert int(lib.alone().numpy()) == 1
    assert int(lib.keep(which=12).numpy()) == 11
    assert int(lib.keep(which=13).numpy()) == 12
    assert int(lib.arenas().numpy()) == 1


def test_nothing_leaks(lib):
    x = np.zeros(1000)
    before = sys.getrefcount(x)
    for _ in range(200):
        lib.scale(x)
        lib.scale(x, out=x, factor=1)
        for bad in ({"which": 7}, {"which": 5}):
            with pytest.raises((RuntimeError, ValueError)):
                lib.broken(**bad)
        with pytest.raises(TypeError):
            lib.scale(x, wrong=x)
    gc.collect()
    assert sys.getrefcount(x) == before


def test_a_library_in_rust(rust_lib):
    a, b = np.arange(10, dtype="float32"), np.arange(20, dtype="float32")[::2]
    assert float(rust_lib.dot(a, b).numpy()) == float((a * b).sum())
    assert rust_lib.dot.__doc__ == "The sum of products."
    with pytest.raises(TypeError, match="dot takes float32"):
        rust_lib.dot(a.astype("f8"), b)
    with pytest.raises(ValueError, match="two vectors"):
        rust_lib.dot(a, a[:3])


@pytest.mark.parametrize(
    ("which", "text"),
    [
        (0, "table is null"),
        (1, r"version 2\.0 of the kernel ABI, this is 1\.0"),
        (2, "8 bytes instead of 56"),
        (3, "no kernels"),
        (4, "no function"),
        (5, "a name is null"),
        (6, "'not one' is no Python identifier|\"not one\" is no"),
        (7, "two kernels named scale"),
        (8, "1 inputs and 0 outputs"),
        (9, "neither a plan"),
        (10, "parameters that are null"),
        (11, "parameter factor that is named so already"),
        (12, "unknown kind 9"),
        (13, "parameter out that is named so already"),
    ],
)
def test_tables_that_are_refused(compile_c, which, text):
    with pytest.raises(ImportError, match=text):
        kernel.load_library(compile_c(f"broken{which}", f"-DBROKEN={which}"))


def test_files_that_are_no_library(folder, compile_c):
    with pytest.raises(FileNotFoundError, match="no library at"):
        kernel.load_library(folder / "absent.so")
    text = folder / "text.so"
    text.write_text("no library")
    with pytest.raises(OSError, match="cannot load"):
        kernel.load_library(text)
    other = folder / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", other], input=b"int x;", check=True)
    with pytest.raises(ImportError, match="exports no od_library_v1"):
        kernel.load_library(other)


@pytest.mark.parametrize("standard", ["c99", "c17"])
def test_the_header_in_other_standards(compile_c, standard):
    assert len(kernel.load_library(compile_c(f"kernels-{standard}", standard=standard))) == 11


def test_the_header_in_cpp(folder):
    source = folder / "header.cpp"
    source.write_text('#include "overdrive.h"\nconst od_api *od_runtime_;\n')
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
    subprocess.run([*command, "-I", kernel.get_include(), source], check=True)
