"""PyTorch operators made of kernels: eager, autograd and ``torch.compile``, with no copy in or out.

>>> import torch
>>> def twice(x):
...     return x * 2
>>> op = custom_op("demo::twice", twice, backward=lambda gradient, x: (gradient * 2,))
>>> x = torch.ones(3, requires_grad=True)
>>> op(x).sum().backward()
>>> x.grad
tensor([2., 2., 2.])
"""

from __future__ import annotations

import inspect
import itertools
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy
import torch

from overdrive._core import Kernel, Tensor
from overdrive._core import tensor as view

__all__ = ["custom_op"]

_SCHEMA = {float: "float", int: "int", bool: "bool", str: "str"}


def custom_op(
    name: str,
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    fake: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Register ``forward`` as the operator ``name`` (``"namespace::name"``) and return it as a callable.

    ``forward`` is a kernel of a library or a Python function, jitted or not. A kernel gets the tensors
    themselves, a function gets NumPy arrays, or an `overdrive.Tensor` where its parameter is annotated so;
    all see PyTorch's memory, and what they return becomes the result without a copy. Parameters of a
    function that are annotated with ``float``, ``int``, ``bool`` or ``str`` are given by name, all others
    are tensors; a kernel's parameters likewise. A function that
    gives several tensors says so by its annotation, ``-> tuple[Any, Any]``. It must not write its inputs
    or return one of them.

    ``backward(*gradients, *inputs, **parameters)`` gives one gradient for each input tensor, or None; it
    gets memory as ``forward`` does, and is an operator of its own (``name + "_backward"``), so that
    ``torch.compile`` keeps it. Gradients of gradients are not known.

    ``fake(*inputs, **parameters)`` gives an empty result of the right shape and element type for
    ``torch.compile``, from tensors without memory; without it results are like the first input.

    >>> import torch
    >>> def halve(x, divisor: float = 2.0):
    ...     return x / divisor
    >>> custom_op("demo::halve", halve)(torch.ones(2), divisor=4.0)
    tensor([0.2500, 0.2500])
    """
    shape = _Shape.of(forward)
    if not shape.tensors and fake is None:
        raise TypeError(f"{name}: an operator without input tensors needs fake=")

    def like_the_first(*tensors: torch.Tensor, **_: Any) -> Any:
        made = tuple(tensors[0].new_empty(tensors[0].shape) for _ in range(shape.n_outputs))
        return made if shape.n_outputs > 1 else made[0]

    call = _caller(name, forward, shape.n_outputs)

    def run(*tensors: torch.Tensor, **parameters: Any) -> Any:
        results = call(tensors, parameters)
        made = tuple(_tensor(name, result) for result in results)
        if any(_is_part_of(t, tensors) for t in made):
            raise ValueError(f"{name} returned memory of an input; return a copy of it")
        return made if shape.n_outputs > 1 else made[0]

    op = torch.library.custom_op(
        name, _named(run, shape), mutates_args=(), device_types="cpu", schema=shape.schema()
    )
    op.register_fake(_named(fake or like_the_first, shape))
    if backward is not None:
        _register_backward(name, op, backward, shape)

    def operator(*tensors: torch.Tensor, **parameters: Any) -> Any:
        return op(*tensors, *shape.values(name, len(tensors), parameters))

    operator.__name__ = operator.__qualname__ = name.rpartition(":")[2]
    operator.__doc__ = forward.__doc__
    operator.__signature__ = shape.signature()  # type: ignore[attr-defined]
    operator.op = op  # type: ignore[attr-defined]
    return operator


class _Shape(typing.NamedTuple):
    """What an operator takes and gives: names of tensors, parameters with type and default, results."""

    tensors: tuple[str, ...]
    parameters: tuple[tuple[str, type, Any], ...]
    n_outputs: int

    @staticmethod
    def of(forward: Callable[..., Any]) -> _Shape:
        if isinstance(forward, Kernel):
            named = []
            for key, default in forward.parameters.items():
                given = inspect.Parameter.empty if default is ... else default
                named.append((key, forward.parameter_types[key], given))
            return _Shape(tuple(f"x{i}" for i in range(forward.n_inputs)), tuple(named), forward.n_outputs)
        signature = inspect.signature(forward)
        hints = typing.get_type_hints(inspect.unwrap(forward))
        tensors: list[str] = []
        parameters = []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"{forward!r}: an operator has no *{parameter.name}")
            kind = hints.get(parameter.name, Any)
            if kind in _SCHEMA:
                parameters.append((parameter.name, kind, parameter.default))
            elif parameters:
                raise TypeError(f"{forward!r}: the tensor {parameter.name} stands behind a parameter")
            else:
                tensors.append(parameter.name)
        result = hints.get("return")
        n = len(typing.get_args(result)) if typing.get_origin(result) is tuple else 1
        return _Shape(tuple(tensors), tuple(parameters), n)

    def schema(self, tensors: Sequence[str] | None = None, results: int | None = None) -> str:
        inputs = [f"Tensor {name}" for name in tensors or self.tensors]
        # None as default: the kernel's own.
        for name, kind, default in self.parameters:
            inputs.append(f"{_SCHEMA[kind]}{'?' if default is None else ''} {name}")
        n = results or self.n_outputs
        result = "Tensor" if n == 1 else f"({', '.join(['Tensor'] * n)})"
        return f"({', '.join(inputs)}) -> {result}"

    def signature(self) -> inspect.Signature:
        made = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in self.tensors]
        made += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, kind, default in self.parameters
        ]
        return inspect.Signature(made)

    def values(self, name: str, n_tensors: int, given: dict[str, Any]) -> list[Any]:
        """Return the parameters in order, with defaults."""
        if n_tensors != len(self.tensors):
            raise TypeError(f"{name} takes {len(self.tensors)} tensors ({n_tensors} given)")
        unknown = given.keys() - {key for key, _, _ in self.parameters}
        if unknown:
            raise TypeError(f"{name} has no parameter {sorted(unknown)[0]!r}")
        values = []
        for key, _, default in self.parameters:
            value = given.get(key, default)
            if value is inspect.Parameter.empty:
                raise TypeError(f"{name} needs {key}=")
            values.append(value)
        return values


def _named(run: Callable[..., Any], shape: _Shape, n_tensors: int | None = None) -> Callable[..., Any]:
    """Return a function of positional arguments only, as PyTorch calls it."""
    n = len(shape.tensors) if n_tensors is None else n_tensors
    keys = [key for key, _, _ in shape.parameters]

    def positional(*arguments: Any) -> Any:
        named = zip(keys, arguments[n:], strict=True)
        return run(*arguments[:n], **{key: value for key, value in named if value is not None})

    return positional


def _caller(name: str, function: Callable[..., Any], n: int) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Return what calls a kernel or function on PyTorch's memory and gives its ``n`` results."""
    views = _views(function)

    def call(tensors: Sequence[torch.Tensor], parameters: dict[str, Any]) -> tuple[Any, ...]:
        given = [view(t) for view, t in zip(views, tensors, strict=False)]
        result = function(*given, **parameters)
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(results) != n:
            raise ValueError(f"{name} gave {len(results)} tensors instead of {n}")
        return results

    return call


def _views(function: Callable[..., Any]) -> Iterable[Callable[[torch.Tensor], Any]]:
    """Return how each input of a kernel or function sees PyTorch's memory."""
    if isinstance(function, Kernel):
        # Only where a kernel takes no gaps, and there are some, is anything copied.
        return itertools.repeat(lambda t: t.detach().contiguous() if function.is_dense else t.detach())
    hints = typing.get_type_hints(inspect.unwrap(function))
    names = list(inspect.signature(function).parameters)
    return [_own if hints.get(name) is Tensor else _array for name in names]


def _own(tensor: torch.Tensor) -> Tensor:
    """View a tensor as one of ours; what is only marked as conjugate or negative is computed first."""
    return view(tensor.detach().resolve_conj().resolve_neg())


def _is_part_of(made: torch.Tensor, tensors: Sequence[torch.Tensor]) -> bool:
    """Tell whether a result shares memory with an input, which PyTorch does not allow."""

    def span(tensor: torch.Tensor) -> range:
        storage = tensor.untyped_storage()
        return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())

    own = span(made)
    return any(own.start < other.stop and other.start < own.stop for other in map(span, tensors))


def _array(tensor: torch.Tensor) -> Any:
    """View a tensor as an array; what is only marked as conjugate or negative is computed first."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return view(tensor).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _tensor(name: str, result: Any) -> torch.Tensor:
    if isinstance(result, torch.Tensor):
        return result
    if isinstance(result, Tensor):
        return result.torch()
    if isinstance(result, (numpy.ndarray, numpy.generic, float, int, bool, complex)):
        array = numpy.asarray(result)
        plain = array.dtype.kind in "biufc" and array.dtype.isnative and array.flags.writeable
        if plain and all(stride >= 0 for stride in array.strides):
            return torch.from_numpy(array) if array.ndim else torch.from_numpy(array.reshape(1))[0]
        native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return view(native, copy=True).torch()
    raise TypeError(f"{name} returned {type(result).__name__}, which is no tensor")


def _register_backward(name: str, op: Any, backward: Callable[..., Any], shape: _Shape) -> None:
    """Make the gradient an operator and tell autograd of it."""
    n_gradients, n_inputs = shape.n_outputs, len(shape.tensors)
    names = [f"gradient{i}" for i in range(n_gradients)] + list(shape.tensors)
    call = _caller(f"the backward of {name}", backward, n_inputs)

    def run(*tensors: torch.Tensor, **parameters: Any) -> Any:
        made = []
        results = call(tensors, parameters)
        for result, x in zip(results, tensors[n_gradients:], strict=True):
            gradient = torch.zeros_like(x) if result is None else _tensor(name, result)
            if gradient.shape != x.shape or gradient.dtype != x.dtype:
                raise ValueError(
                    f"the backward of {name} gave a gradient {gradient.dtype}{list(gradient.shape)} "
                    f"for an input {x.dtype}{list(x.shape)}"
                )
            # Handing on the gradient itself is what many formulas do.
            made.append(gradient.clone() if _is_part_of(gradient, tensors) else gradient)
        return tuple(made) if n_inputs > 1 else made[0]

    def fake(*tensors: torch.Tensor, **_: Any) -> Any:
        made = tuple(x.new_empty(x.shape) for x in tensors[n_gradients:])
        return made if n_inputs > 1 else made[0]

    gradient_op = torch.library.custom_op(
        f"{name}_backward",
        _named(run, shape, len(names)),
        mutates_args=(),
        device_types="cpu",
        schema=shape.schema(names, n_inputs),
    )
    gradient_op.register_fake(_named(fake, shape, len(names)))

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[:n_inputs])
        ctx.parameters = inputs[n_inputs:]

    def formula(ctx: Any, *gradients: Any) -> Any:
        inputs = ctx.saved_tensors
        made = gradient_op(*gradients, *inputs, *ctx.parameters)
        made = made if n_inputs > 1 else (made,)
        has = [x.is_floating_point() or x.is_complex() for x in inputs]
        wanted = [g if known else None for g, known in zip(made, has, strict=True)]
        return (*wanted, *[None] * len(ctx.parameters))

    op.register_autograd(formula, setup_context=setup)
