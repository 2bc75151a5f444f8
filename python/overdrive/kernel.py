"""Kernels written by hand: functions of shared libraries, called on tensors without a copy.

A library follows the C ABI of ``include/overdrive.h`` (in Rust: the crate ``overdrive-abi``)::

    lib = overdrive.kernel.load_library("./libkernels.so")
    y = lib.scale(x, factor=2.0)  # x: an array, a tensor, anything with memory

Inputs are anything that `overdrive.tensor` views, without a copy; parameters go by name. The result is the
output, or a tuple of them; ``out=`` gives memory for it (a tuple for several). Other threads run meanwhile.
"""

from __future__ import annotations

import os

from overdrive._core import Kernel, _load_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator

__all__ = ["Kernel", "Library", "get_include", "load_library"]


class Library:
    """The kernels of a shared library, as attributes and as an iterable of `Kernel`."""

    def __init__(self, path: str, kernels: list[Kernel]) -> None:
        self._path = path
        self._kernels: dict[str, Kernel] = {kernel.__name__: kernel for kernel in kernels}

    @property
    def path(self) -> str:
        """Where it was loaded from."""
        return self._path

    def __getattr__(self, name: str) -> Kernel:
        kernels: dict[str, Kernel] = self.__dict__.get("_kernels", {})
        if name not in kernels:
            raise AttributeError(f"{self!r} has no kernel {name!r}; it has {', '.join(kernels)}")
        return kernels[name]

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self._kernels.values())

    def __len__(self) -> int:
        return len(self._kernels)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._kernels]

    def __repr__(self) -> str:
        return f"<overdrive kernel library {self._path!r}>"


def load_library(path: str | os.PathLike[str], /) -> Library:
    """Load a shared library of kernels. It stays loaded until the process ends.

    FileNotFoundError where there is none, OSError when the system cannot load it, ImportError when it is
    no library of kernels or one for another version of the ABI.
    """
    path = os.fspath(path)
    return Library(path, _load_library(path))


def get_include() -> str:
    """Return the directory of ``overdrive.h``, for the compiler: ``cc -I$(python -c ...)``."""
    return os.path.join(os.path.dirname(__file__), "include")


def _signature(kernel: Kernel) -> inspect.Signature:
    """Return what `inspect.signature` shows of a kernel."""
    from inspect import Parameter, Signature

    given = [Parameter(f"x{i}", Parameter.POSITIONAL_ONLY) for i in range(kernel.n_inputs)]
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is ... else default)
        for name, default in kernel.parameters.items()
    ]
    return Signature([*given, Parameter("out", Parameter.KEYWORD_ONLY, default=None), *named])
