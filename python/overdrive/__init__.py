"""Overdrive: your Python program, faster, with no change to it.

>>> import overdrive
>>> @overdrive.jit
... def total(n):
...     s = 0
...     for i in range(n):
...         s += i
...     return s
>>> total(10)
45

``jit`` compiles one function, ``start`` promotes hot functions of the running program, ``explain`` says
what was compiled and why the rest was not, ``verify`` compares a call with CPython's. ``tensor`` views the
memory of arrays and buffers without a copy, ``share`` and ``shm`` put it into memory that processes share,
``Arena`` hands out scratch memory. ``kernel`` loads kernels from shared libraries, ``llm`` language models.
``prange`` and ``set_num_threads`` are for parallel loops.
Results are CPython's. The environment variable ``OVERDRIVE=0`` switches compiling off; so does an
interpreter for which there is no extension, where there are no tensors either (``info`` says why).
"""

from __future__ import annotations

from overdrive import _loaded
from overdrive._loaded import core as _core
from overdrive.errors import DifferenceError, Error, HandleError, NotCompiledError

if _core is not None:
    from overdrive._core import (
        Arena,
        Tensor,
        attach,
        empty,
        get_num_threads,
        prange,
        set_num_threads,
        share,
        tensor,
        zeros,
    )
else:
    # A program that uses them goes on where there is no extension: nothing is parallel there.
    from overdrive._sequential import get_num_threads, prange, set_num_threads

# Nothing but what the interpreter has loaded anyway is imported at run time: see overdrive.cli.run.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar, overload

    from overdrive import kernel, llm, shm
    from overdrive.explanation import Explanation
    from overdrive.handles import Handle
    from overdrive.policy import Policy
    from overdrive.report import Report
    from overdrive.session import Session
    from overdrive.verification import Verification

    _F = TypeVar("_F", bound=Callable[..., Any])

__all__ = [
    "Arena",
    "DifferenceError",
    "Error",
    "Explanation",
    "Handle",
    "HandleError",
    "NotCompiledError",
    "Policy",
    "Report",
    "Session",
    "Tensor",
    "Verification",
    "__version__",
    "attach",
    "demote",
    "empty",
    "explain",
    "get_num_threads",
    "info",
    "jit",
    "kernel",
    "llm",
    "prange",
    "promote",
    "set_num_threads",
    "share",
    "shm",
    "start",
    "stop",
    "tensor",
    "verify",
    "zeros",
]

_OFF = _loaded.reason()


if TYPE_CHECKING:

    @overload
    def jit(fn: _F, /) -> _F: ...
    @overload
    def jit(
        fn: None = None,
        /,
        *,
        strict: bool = False,
        fastmath: bool = False,
        parallel: bool = False,
        nogil: bool = False,
        cache: bool = True,
    ) -> Callable[[_F], _F]: ...


def jit(
    fn: Any = None,
    /,
    *,
    strict: bool = False,
    fastmath: bool = False,
    parallel: bool = False,
    nogil: bool = False,
    cache: bool = True,
) -> Any:
    """Return a callable that runs ``fn`` natively.

    It is compiled at the first call, for the argument types that the call brings. It has the signature, name
    and documentation of ``fn`` and gives its results, exceptions and tracebacks. What cannot be compiled runs
    in CPython, line by line; ``explain`` tells. Usable with and without arguments.

    ``strict`` raises `NotCompiledError` instead of leaving any line to CPython. ``fastmath`` lets the
    compiler reassociate and contract floating-point operations, and call vector forms of `math`'s
    functions (at most 4 units in the last place off, says glibc): faster, no longer CPython's to the last
    bit. NaN and infinities are not assumed away, checks and exceptions stay, called functions stay exact.
    ``parallel`` runs loops over `prange` on several threads, floats being summed in a stated order that
    does not depend on their number. ``nogil`` lets other threads run while a loop is inside numbers and
    arrays only. Machine code is kept on the disk, and loaded from there instead of being made once more from
    the same, in whatever process; without ``cache`` it is neither. ``overdrive cache info`` says where.

    >>> @jit
    ... def square(x):
    ...     return x * x
    >>> square(7), square(1.5)
    (49, 2.25)
    """

    def compile_(fn: Any) -> Any:
        if _OFF is not None:
            if strict and _OFF is not _loaded.SWITCHED_OFF:
                raise NotCompiledError(getattr(fn, "__qualname__", repr(fn)), [_OFF])
            return fn
        return _core.jit(fn, strict=strict, fastmath=fastmath, parallel=parallel, nogil=nogil, cache=cache)

    return compile_ if fn is None else compile_(fn)


def promote(fn: _F, /) -> _F:
    """Swap native code into the function ``fn`` itself and return it: every reference to it becomes fast.

    >>> def double(x):
    ...     return x + x
    >>> promote(double) is double, double(4)
    (True, 8)
    """
    if _OFF is None:
        _core.promote(fn)
    return fn


def demote(fn: _F, /) -> _F:
    """Put the original code of ``fn`` back, the inverse of `promote`. No effect on a function that has it.

    >>> demote(max.__self__.sorted) is sorted
    True
    """
    if _OFF is None:
        _core.demote(fn)
    return fn


def start(
    policy: str | Policy = "default",
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    verify: bool = False,
    verify_calls: int = 3,
) -> Session:
    """Begin to find hot functions and promote them while the program runs.

    ``policy`` is ``"default"``, ``"eager"``, ``"observe"`` or a `Policy`. ``only`` and ``skip`` name
    functions or files: ``"Parser.*"``, ``"tools.py"``, ``"tools.py::Parser.run"``. The returned `Session`
    is a context manager. When promotion runs already (as under ``overdrive run``) the session joins it, as it
    is.

    With ``verify``, the first ``verify_calls`` calls of each function are run both ways on copies of their
    arguments before native code goes in, and a function that differs stays in CPython: see
    ``docs/settings.md``. No settings file is read: what a library starts must not depend on where the program
    lies.

    >>> with start() as session:
    ...     pass
    >>> session.report().rows
    ()
    """
    from overdrive import session

    return session.start(policy, only, skip, verify, verify_calls)


def stop() -> Report:
    """End what `start` began and return the report. Promoted functions stay promoted.

    >>> stop().rows
    ()
    """
    from overdrive import session

    return session.stop()


def explain(target: Any, /) -> Explanation:
    """Say for each line of a function whether it runs natively, through CPython or not compiled, and why.

    ``target`` is a function, a jitted function, a code object, or a path ``"file.py"`` or
    ``"file.py::name"``; a file is read, not run, so the types of arguments are unknown there.

    >>> explain("nowhere.py::f")
    Traceback (most recent call last):
        ...
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.py'
    """
    from overdrive import explanation

    return explanation.explain(target)


def verify(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Verification:
    """Call ``fn`` in CPython and natively, on copies of the arguments, and compare to the last bit.

    Result or exception with its traceback, arguments after the call, warnings, what was printed, and global
    variables that ``fn`` binds are compared, in types, float bits, order, and in what objects share. The
    native call is made several times, so that what is compiled anew for the types it saw runs, too. The
    arguments themselves are not touched. ``fn`` is a Python function, a method, or what `jit` returned.
    Raises TypeError, naming it, for an argument that has no copy (an open file, a generator, a lock).

    >>> def mean(values):
    ...     return sum(values) / len(values)
    >>> bool(verify(mean, [1.0, 2.5]))
    True
    """
    from overdrive import verification

    return verification.verify(fn, args, kwargs)


def info() -> dict[str, Any]:
    """Versions, processor, and which parts work on this interpreter (the start-up self-test).

    >>> info()["overdrive"] == __version__
    True
    """
    from overdrive import information

    return information.collect()


def load_ipython_extension(shell: Any) -> None:
    """Give IPython the magics, for ``%load_ext overdrive``."""
    from overdrive import ipython

    ipython.load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take them away again, for ``%unload_ext overdrive``."""
    from overdrive import ipython

    ipython.unload(shell)


_LAZY = {
    "Policy": "policy",
    "Report": "report",
    "Session": "session",
    "Explanation": "explanation",
    "Verification": "verification",
    "Handle": "handles",
}


def _version() -> str:
    if _core is not None:
        version: str = _core.__version__
        return version
    from importlib import metadata

    try:
        return metadata.version("overdrive")
    except metadata.PackageNotFoundError:
        return "unknown"


__version__ = _version()


def __getattr__(name: str) -> Any:
    """Import on first use: a program that only calls a jitted function pays for none of these."""
    if _core is None and name in (
        "Arena",
        "Handle",
        "Tensor",
        "attach",
        "empty",
        "kernel",
        "llm",
        "share",
        "shm",
        "tensor",
        "torch",
        "zeros",
    ):
        raise AttributeError(f"{__name__}.{name} needs the extension: {_OFF}")
    if name in ("kernel", "llm", "shm", "torch"):
        return __import__(f"{__name__}.{name}", fromlist=[name])
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__import__(f"{__name__}.{_LAZY[name]}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
