"""`overdrive.verify`: one call made in CPython and natively, on copies of its arguments, and compared.

In: a function and its arguments. Out: a `Verification`. The program's own objects stay as they were: each run
gets copies of arguments, defaults and closure variables, and global variables that the function binds are put
back. What is not copied, and so adds up over the runs: objects that the function finds through globals,
files, the outer world.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import io
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from overdrive import _loaded
from overdrive.comparing import Comparison, Difference, contents, is_ours, name_of, shorten
from overdrive.copying import CannotCopy, Copier
from overdrive.effects import Reach, original_code
from overdrive.errors import DifferenceError, NotCompiledError
from overdrive.shared_state import Snapshot

CALLS = 5
"""Native calls of a verification: the first compiles, later ones run what was compiled anew for types it
saw."""

_MISSING = object()
_COROUTINES = 0x80 | 0x100 | 0x200  # with asynchronous generators, and what types.coroutine made


class Verification:
    """What `verify` found; true when both kinds of code did the same."""

    def __init__(self, function: str, file: str, line: int) -> None:
        self.function = function
        self.file = file
        self.line = line
        self.differences: tuple[Difference, ...] = ()
        """Each with ``path``, and the values of both sides as text."""
        self.native_calls = 0
        """How many of the calls entered machine code."""
        self.exits = 0
        """How often machine code left for CPython."""
        self.repeatable = True
        """False when two calls in CPython differ from each other: then nothing can be said."""
        self.notes: tuple[str, ...] = ()
        """What was shared instead of copied, not looked into, or not compiled."""

    @property
    def native(self) -> bool:
        """Whether anything ran natively; if not, the comparison was of CPython with itself."""
        return self.native_calls > 0

    @property
    def equal(self) -> bool:
        """Whether no difference was found."""
        return not self.differences

    def check(self, *, native: bool = False) -> None:
        """Raise `DifferenceError` unless equal; with ``native``, `NotCompiledError` if nothing was native."""
        if not self.equal:
            raise DifferenceError(str(self))
        if native and not self.native:
            raise NotCompiledError(self.function, list(self.notes) or ["no call ran natively"])

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.equal:
            said = "equal to CPython"
        elif self.repeatable:
            said = "differs from CPython"
        else:
            said = "not repeatable: two calls in CPython differ, too"
        calls, exits = _count(self.native_calls, "native call"), _count(self.exits, "exit")
        ran = f"{calls}, {exits}" if self.native else "nothing ran natively"
        lines = [f"{self.function} ({self.file}:{self.line}): {said} ({ran})"]
        return "\n  ".join([*lines, *map(str, self.differences), *self.notes])

    def __repr__(self) -> str:
        return f"<Verification of {self.function}: {'equal' if self.equal else 'different'}>"


def verify(
    function: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    most_bytes: int | None = None,
    is_silent: bool = False,
) -> Verification:
    """See `overdrive.verify`.

    ``most_bytes`` bounds the copies. A function that ``is_silent`` prints nothing: the streams, which other
    threads may be writing to, are left alone, and closure variables that cannot be copied are an error.
    """
    target = _Target(function, arguments, keywords, most_bytes, is_silent=is_silent)
    code = target.code
    found = Verification(code.co_qualname, code.co_filename, code.co_firstlineno)
    notes = list(target.notes)
    with target.everything_put_back():
        expected = target.run(target.interpreted)
        comparison = Comparison()
        if _loaded.problem() is not None or _loaded.core is None:
            notes.append(str(_loaded.problem() or _loaded.reason()))
        elif sys.gettrace() is not None or sys.getprofile() is not None:
            notes.append("a debugger, tracer or profiler is active, so that nothing runs natively")
        else:
            native = target.native()
            before = _counts(native)
            for _ in range(CALLS):
                comparison = _compared(expected, target.run(native))
                if comparison.differences:
                    break
            after = _counts(native)
            found.native_calls, found.exits = after[0] - before[0], after[1] - before[1]
            if not found.native:
                notes += _loaded.core.explain_data(native)["refused"]
        if comparison.differences:
            found.differences = tuple(comparison.differences)
            found.repeatable = not _compared(expected, target.run(target.interpreted)).differences
    notes += [f"{path}: only the type was compared" for path in comparison.uncompared]
    found.notes = tuple(notes)
    return found


class Outcome:
    """Everything of one call that is compared."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.entries: list[Any] = []
        self.warnings: list[Any] = []
        self.output: list[str] = []
        self.after: dict[str, Any] = {}
        self.shared: dict[str, Any] = {}


class _Target:
    """A function, its original code, and what both kinds of runs need."""

    def __init__(
        self,
        function: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        most_bytes: int | None,
        *,
        is_silent: bool,
    ) -> None:
        self._is_silent = is_silent
        function, bound = _unbound(function)
        self._jitted = function if _is_jitted(function) else None
        self.function: Any = function.__wrapped__ if self._jitted is not None else function
        self.code = original_code(self.function.__code__)
        self.notes: list[str] = []
        values = {"self": bound[0]} if bound else {}
        values.update((f"args[{i}]", value) for i, value in enumerate(arguments))
        self._n_positional = len(values)
        self._keywords = list(keywords)
        values.update((f"kwargs[{name!r}]", value) for name, value in keywords.items())
        if self._jitted is None:
            # A jitted callable keeps its own defaults and closure: it is called as it is.
            defaults = {
                "__defaults__": self.function.__defaults__,
                "__kwdefaults__": self.function.__kwdefaults__,
            }
            values.update((name, value) for name, value in defaults.items() if value)
        self._cells: dict[str, Any] = {}
        self._copier = Copier(values, most_bytes)
        self._copier.copies()  # what cannot be copied is told before anything runs
        self._take_closure(values, most_bytes)
        self._bound = _bound_globals(self.code)
        self._globals: dict[str, Any] = {}
        self._twin: Any = None
        self._snapshot = self._shared(list(values.values()), most_bytes)

    def _shared(self, values: list[Any], most_bytes: int | None) -> Snapshot:
        """Remember what else the runs share: its contents are put back after each."""
        reach = Reach(self.function, self.code, values)
        if reach.objection is not None:
            self.notes.append(f"{reach.objection}: what it changes elsewhere, each run changed")
        self._draws = reach.draws or not self._is_silent
        try:
            return Snapshot(reach.shared, most_bytes)
        except CannotCopy as error:
            if self._is_silent:
                raise
            self.notes.append(f"shared by the runs: {error}")
            return Snapshot([])

    def _take_closure(self, values: dict[str, Any], most_bytes: int | None) -> None:
        """Closure variables are copied with the arguments; one that cannot be is shared."""
        if self._jitted is not None:
            return
        for name, cell in zip(self.code.co_freevars, self.function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not set yet
            more = {**values, f"<{name}>": value}
            try:
                copier = Copier(more, most_bytes)
                copier.copies()
            except CannotCopy as error:
                if self._is_silent:
                    raise
                self.notes.append(f"the closure variable {name} is shared by the runs: {error}")
                continue
            values, self._copier = more, copier
            self._cells[name] = types.CellType()

    def _made(self) -> Any:
        """Return a function like the target, with the original code and cells of its own."""
        function = self.function
        closure = tuple(
            self._cells.get(name, cell)
            for name, cell in zip(self.code.co_freevars, function.__closure__ or (), strict=True)
        )
        twin = types.FunctionType(
            self.code, function.__globals__, function.__name__, function.__defaults__, closure or None
        )
        twin.__qualname__, twin.__module__ = function.__qualname__, function.__module__
        twin.__kwdefaults__ = function.__kwdefaults__
        return twin

    @property
    def interpreted(self) -> Any:
        if self._twin is None:
            self._twin = self._made()
        return self._twin

    def native(self) -> Any:
        """Return what is called for machine code."""
        if self._jitted is not None:
            return self._jitted
        return jit(self._made())

    def run(self, function: Any) -> Outcome:
        """Call ``function`` on new copies; the interpreted one with everything native switched off."""
        values = self._copier.copies()
        for name, cell in self._cells.items():
            cell.cell_contents = values[f"<{name}>"]
        if self._jitted is None:
            for name in ("__defaults__", "__kwdefaults__"):
                setattr(function, name, values.get(name))
        items = list(values.items())
        positional = [value for _, value in items[: self._n_positional]]
        named = items[self._n_positional : self._n_positional + len(self._keywords)]
        keywords = {name: value for name, (_, value) in zip(self._keywords, named, strict=True)}
        with contextlib.ExitStack() as streams:
            out, err = io.StringIO(), io.StringIO()
            if not self._is_silent:
                streams.enter_context(contextlib.redirect_stdout(out))
                streams.enter_context(contextlib.redirect_stderr(err))
            outcome = _observe(function, positional, keywords, is_interpreted=function is self._twin)
            outcome.output = [out.getvalue(), err.getvalue()]
        outcome.after = values
        # Cells are the runs' common ones: what is in them now is this run's.
        outcome.after.update((f"<{name}>", contents(cell)) for name, cell in self._cells.items())
        scope = self.function.__globals__
        outcome.after.update((f"globals()[{name!r}]", scope.get(name, "<unset>")) for name in self._bound)
        outcome.shared = self._snapshot.changes()
        self._put_back()
        return outcome

    @contextlib.contextmanager
    def everything_put_back(self) -> Iterator[None]:
        """Remember the global variables that the function binds, and the state of random numbers."""
        scope = self.function.__globals__
        self._globals = {name: scope.get(name, _MISSING) for name in self._bound}
        # Not for nothing: what other threads draw meanwhile would be drawn again.
        self._random = _random_states() if self._draws else []
        try:
            yield
        finally:
            self._put_back()

    def _put_back(self) -> None:
        self._snapshot.put_back()
        scope = self.function.__globals__
        for name, value in self._globals.items():
            if value is _MISSING:
                scope.pop(name, None)
            elif scope.get(name, _MISSING) is not value:
                scope[name] = value
        for set_state, state in self._random:
            set_state(state)


def jit(function: Any) -> Any:
    """Return the callable whose results are compared with CPython's. A test puts a wrong one here."""
    assert _loaded.core is not None
    return _loaded.core.jit(function, strict=False, fastmath=False, parallel=False, nogil=False, cache=True)


def _unbound(function: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the Python function behind a method or a callable object, and what it is bound to."""
    bound: tuple[Any, ...] = ()
    if isinstance(function, functools.partial):
        raise TypeError("verify takes the function of a partial, and all of its arguments")
    if not _is_function(function) and not isinstance(function, types.MethodType | type):
        function = getattr(function, "__call__", function)  # noqa: B004  the method, not a truth
    if isinstance(function, types.MethodType):
        bound, function = (function.__self__,), function.__func__
    if not _is_function(function):
        raise TypeError(
            f"verify takes a Python function, a method or a jitted function, not {shorten(function)}"
        )
    if function.__code__.co_flags & _COROUTINES:
        raise TypeError("verify takes functions that return their result, not coroutines")
    return function, bound


def _is_function(function: Any) -> bool:
    return isinstance(function, types.FunctionType) or _is_jitted(function)


def _is_jitted(function: Any) -> bool:
    return is_ours(function, "JitFunction")


def _counts(native: Any) -> tuple[int, int]:
    assert _loaded.core is not None
    data = _loaded.core.explain_data(native)
    entered = data["calls"] if data["versions"] else 0
    return entered, data["exits"]


def _bound_globals(code: types.CodeType) -> list[str]:
    """Return the global variables that the code, or code inside it, binds."""
    names: list[str] = []
    work = [code]
    while work:
        code = work.pop()
        names += [
            i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        ]
        work += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return list(dict.fromkeys(names))


def _random_states() -> list[tuple[Callable[[Any], Any], Any]]:
    """Return how to set the common random numbers back, `random`'s and NumPy's, where they are in use."""
    states: list[tuple[Callable[[Any], Any], Any]] = []
    random = sys.modules.get("random")
    if random is not None and hasattr(random, "setstate"):
        states.append((random.setstate, random.getstate()))
    of_numpy = sys.modules.get("numpy.random")
    if of_numpy is not None and hasattr(of_numpy, "set_state"):
        states.append((of_numpy.set_state, of_numpy.get_state()))
    return states


def _ignore(frame: Any, event: str, argument: Any) -> None:
    return None


def _observe(
    function: Any, positional: list[Any], keywords: dict[str, Any], *, is_interpreted: bool
) -> Outcome:
    """Call, and write down what can be seen. Under a tracer nothing that is called runs natively."""
    before = sys.gettrace()
    outcome = Outcome()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if is_interpreted:
                sys.settrace(_ignore)
            outcome.value = function(*positional, **keywords)
        except (Exception, SystemExit, GeneratorExit) as error:
            outcome.error = error
            outcome.entries = _entries(error)
            error.__traceback__ = None
        finally:
            if is_interpreted:
                sys.settrace(before)
    outcome.warnings = [(name_of(w.category), str(w.message), w.filename, w.lineno) for w in caught]
    return outcome


def _entries(error: BaseException) -> list[Any]:
    """Return file, function, line and columns of every entry of the traceback but ours."""
    if isinstance(error, (RecursionError, MemoryError)):
        return []  # how far it came depends on how much room there was
    # 3.11 names the instruction before when its interpreter had joined two into one.
    has_columns = sys.version_info >= (3, 12) or not isinstance(error, UnboundLocalError)
    entries: list[Any] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename != __file__:
            at = traceback.tb_lasti // 2
            columns = next((p for i, p in enumerate(code.co_positions()) if i == at), None)
            entries.append(
                (code.co_filename, code.co_name, traceback.tb_lineno, columns)
                if has_columns
                else (code.co_filename, code.co_name)
            )
        traceback = traceback.tb_next
    return entries


def _compared(expected: Outcome, got: Outcome) -> Comparison:
    comparison = Comparison()
    if (expected.error is None) != (got.error is None):
        ended = [
            shorten(x.value) if x.error is None else f"raised {shorten(x.error)}" for x in (expected, got)
        ]
        comparison.differ("result", *ended)
    else:
        comparison.compare("result", expected.value, got.value)
        _compare_errors(comparison, "exception", expected.error, got.error)
        comparison.compare("traceback", expected.entries, got.entries)
    for name in expected.after:
        comparison.compare(name, expected.after[name], got.after[name])
    for name in {**expected.shared, **got.shared}:
        if name in expected.shared and name in got.shared:
            comparison.compare(name, expected.shared[name], got.shared[name])
        else:
            words = ["changed" if name in x.shared else "unchanged" for x in (expected, got)]
            comparison.differ(name, *words)
    comparison.compare("warnings", expected.warnings, got.warnings)
    for name, a, b in zip(("stdout", "stderr"), expected.output, got.output, strict=True):
        comparison.compare(name, a, b)
    return comparison


def _compare_errors(
    comparison: Comparison, path: str, a: BaseException | None, b: BaseException | None
) -> None:
    """Compare exceptions, and those that were being handled or named as their causes."""
    comparison.compare(path, a, b)
    if a is None or b is None or comparison.differences:
        return
    for name in ("__cause__", "__context__"):
        more = getattr(a, name), getattr(b, name)
        if more[0] is not None or more[1] is not None:
            _compare_errors(comparison, f"{path}.{name}", *more)


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"
