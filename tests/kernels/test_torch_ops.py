"""PyTorch operators made of kernels and jitted functions: eager, gradients, opcheck, torch.compile, no copies."""

import itertools
from typing import Any

import numpy as np
import overdrive
import pytest

torch = pytest.importorskip("torch")
custom_op = pytest.importorskip("overdrive.torch").custom_op

numbers = itertools.count()


def fresh(name):
    return f"overdrive_tests::{name}{next(numbers)}"


@overdrive.jit
def squares(x, factor: float = 1.0):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = factor * x[i] * x[i]
    return out


@overdrive.jit
def squares_backward(gradient, x, factor: float = 1.0):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = gradient[i] * 2.0 * factor * x[i]
    return out


@pytest.fixture(scope="module")
def square_op():
    return custom_op(fresh("squares"), squares, squares_backward)


@pytest.fixture(scope="module")
def add_op(lib):
    return custom_op(fresh("add"), lib.add, lambda g, a, b: (g, g))


@pytest.fixture(scope="module")
def scale_op(lib):
    return custom_op(fresh("scale"), lib.scale, lambda g, x, factor: g * factor)


def test_eager(square_op, add_op, scale_op):
    x = torch.arange(5, dtype=torch.float64)
    assert torch.equal(square_op(x), x * x)
    assert torch.equal(square_op(x, factor=3.0), 3 * x * x)
    assert torch.equal(add_op(x, x), 2 * x)
    assert torch.equal(scale_op(x.reshape(5, 1).T, factor=0.5), x.reshape(1, 5) / 2)
    assert torch.equal(scale_op(x.float()), 2 * x.float())


@overdrive.jit
def cubes(x: overdrive.Tensor, factor: float = 1.0):
    out = overdrive.empty(x.shape, x.dtype)
    for i in range(len(x)):
        out[i] = factor * x[i] * x[i] * x[i]
    return out


@overdrive.jit
def cubes_backward(gradient: overdrive.Tensor, x: overdrive.Tensor, factor: float = 1.0):
    out = overdrive.empty(x.shape, x.dtype)
    for i in range(len(x)):
        out[i] = gradient[i] * 3.0 * factor * x[i] * x[i]
    return out


def test_jitted_functions_over_tensors():
    op = custom_op(fresh("cubes"), cubes, cubes_backward)
    x = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    assert torch.equal(op(x, factor=2.0), 2.0 * x * x * x)
    assert torch.equal(op(x.detach()[::2]), x.detach()[::2] ** 3)
    assert torch.autograd.gradcheck(lambda x: op(x, factor=0.5), x)
    torch.library.opcheck(op.op, (x, 0.5))
    compiled = torch.compile(lambda x: op(x).sum(), backend="aot_eager")
    compiled(x).backward()
    assert torch.allclose(x.grad, 3 * x.detach() ** 2)
    status = {row["status"] for row in overdrive.explain(cubes).functions[0]["lines"]}
    assert "native" in status


def test_a_function_gets_what_its_annotation_says():
    seen = []

    def look(a: overdrive.Tensor, b, c: overdrive.Tensor):
        seen[:] = [type(a), type(b), type(c), a.dtype, overdrive.tensor(b).numpy().ctypes.data]
        return overdrive.tensor(a, copy=True)

    op = custom_op(fresh("look"), look, lambda g, a, b, c: (g, None, None))
    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    y = torch.ones(3)
    op(x, y, y).sum().backward()
    assert seen[:3] == [overdrive.Tensor, np.ndarray, overdrive.Tensor]
    assert str(seen[3]) == "bfloat16" and seen[4] == y.data_ptr()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_no_copy_in_or_out():
    seen = {}

    def look(x):
        seen["in"] = x.__array_interface__["data"][0]
        out = np.ones_like(x)
        seen["out"] = out.__array_interface__["data"][0]
        return out

    op = custom_op(fresh("look"), look)
    x = torch.zeros(1000, dtype=torch.float64)
    y = op(x)
    assert (x.data_ptr(), y.data_ptr()) == (seen["in"], seen["out"])


def test_no_copy_around_a_kernel(lib):
    made = []

    def through(x):
        made.append(lib.scale(x, factor=2.0))
        return made[-1]

    x = torch.arange(1000, dtype=torch.float64)
    y = custom_op(fresh("through"), through)(x)
    assert y.data_ptr() == made[0].numpy().__array_interface__["data"][0] and torch.equal(y, 2 * x)


def test_gradients(square_op, add_op, scale_op):
    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    y = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: square_op(x, factor=1.5), (x,))
    assert torch.autograd.gradcheck(add_op, (x, y))
    assert torch.autograd.gradcheck(lambda x: scale_op(x, factor=-3.0), (x.reshape(2, 3).T,))


def test_opcheck(square_op, add_op, scale_op):
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, dtype=torch.float64)
    torch.library.opcheck(square_op.op, (x, 2.0))
    torch.library.opcheck(add_op.op, (x, y))
    torch.library.opcheck(scale_op.op, (torch.randn(3, 2).T.requires_grad_(), 0.5))


def test_compile(square_op, add_op):
    def model(x, y):
        return add_op(square_op(x, factor=2.0).relu(), y * 3).sum()

    x = torch.randn(8, dtype=torch.float64, requires_grad=True)
    y = torch.randn(8, dtype=torch.float64, requires_grad=True)
    model(x, y).backward()
    want = (x.grad.clone(), y.grad.clone())
    x.grad = y.grad = None
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, y), model(x, y))
    compiled(x, y).backward()
    assert torch.equal(x.grad, want[0]) and torch.equal(y.grad, want[1])
    with torch.no_grad():
        for n in (3, 5, 9):
            a, b = torch.randn(n, dtype=torch.float64), torch.randn(n, dtype=torch.float64)
            assert torch.allclose(compiled(a, b), model(a, b))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of itself
def test_inductor(square_op):
    compiled = torch.compile(lambda x: square_op(x + 1).sum() * 2, fullgraph=True)
    x = torch.randn(16, dtype=torch.float64)
    assert torch.allclose(compiled(x), ((x + 1) ** 2).sum() * 2)


def test_several_results_and_shapes():
    def both(x) -> tuple[Any, Any]:
        return x.sum(), x.T.copy()

    def fake(x):
        return x.new_empty(()), x.new_empty(x.shape[1], x.shape[0])

    op = custom_op(fresh("both"), both, lambda g, h, x: (g + h.T).copy(), fake)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    total, turned = op(x)
    assert total.shape == () and torch.equal(turned, x.T) and torch.allclose(total, x.sum())
    torch.library.opcheck(op.op, (x,))
    assert torch.autograd.gradcheck(op, (x,))


def test_integers_have_no_gradient_and_none_is_zero():
    op = custom_op(
        fresh("take"),
        lambda x, i: x[i],
        lambda g, x, i: (np.bincount(i, g, len(x)), None),
        lambda x, i: x.new_empty(i.shape),
    )
    x, i = torch.randn(4, dtype=torch.float64, requires_grad=True), torch.tensor([1, 1, 3])
    op(x, i).sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 0.0, 1.0]


def test_results_of_other_kinds():
    x = torch.ones(3)
    made = {
        "float": lambda x: 1.5,
        "reversed": lambda x: x[::-1] * 1,
        "negative": lambda x: np.arange(3.0)[::-1],
        "readonly": lambda x: np.broadcast_to(np.float32(2), (3,)),
        "big": lambda x: np.arange(3).astype(">i4"),
        "torch": lambda x: torch.arange(3),
        "tensor": lambda x: overdrive.zeros(3, "float32"),
    }
    for name, function in made.items():
        y = custom_op(fresh(name), function)(x)
        want = function(x.numpy())
        want = want.numpy() if isinstance(want, (torch.Tensor, overdrive.Tensor)) else want
        assert np.array_equal(y.numpy(), want), name
    half = torch.ones(3, dtype=torch.bfloat16)
    assert custom_op(fresh("bf"), lambda x: overdrive.tensor(x + x))(half).tolist() == [2.0, 2.0, 2.0]
    conj = torch.tensor([1 + 2j]).conj()
    assert custom_op(fresh("conj"), lambda x: x * 1)(conj).tolist() == [1 - 2j]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: custom_op(fresh("same"), lambda x: x)(torch.ones(2)), ValueError, "memory of an input"),
        (lambda: custom_op(fresh("part"), lambda x: x[1:])(torch.ones(2)), ValueError, "memory of an input"),
        (
            lambda: custom_op(fresh("none"), lambda x: None)(torch.ones(2)),
            TypeError,
            "NoneType, which is no tensor",
        ),
        (
            lambda: custom_op(fresh("two"), lambda x: (x, x))(torch.ones(2)),
            ValueError,
            "2 tensors instead of 1",
        ),
        (lambda: custom_op(fresh("few"), lambda x: x)(), TypeError, r"takes 1 tensors \(0 given\)"),
        (lambda: custom_op(fresh("key"), lambda x: x)(torch.ones(2), a=1), TypeError, "no parameter 'a'"),
        (lambda: custom_op(fresh("star"), lambda *x: x), TypeError, r"no \*x"),
        (lambda: custom_op(fresh("zero"), lambda: 1.0), TypeError, "needs fake="),
    ],
)
def test_errors(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_kernel_that_fails(lib, add_op):
    with pytest.raises(ValueError, match="the shapes differ"):
        add_op(torch.ones(2, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    with pytest.raises(TypeError, match="takes float64"):
        add_op(torch.ones(2), torch.ones(2))


def test_a_wrong_gradient_is_named():
    op = custom_op(fresh("wrong"), lambda x: x * 2, lambda g, x: g[:1] * 1)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match=r"gradient torch.float32\[1\] for an input torch.float32\[3\]"):
        op(x).sum().backward()


def test_operators_describe_themselves(scale_op, square_op):
    import inspect

    assert scale_op.__doc__ == "Multiplies by factor."
    assert str(inspect.signature(square_op)) == "(x, /, *, factor: float = 1.0)"
