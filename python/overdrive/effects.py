"""What a call can reach outside of its arguments: told from the code, before anything runs.

In: a function's original code, and the values that it is called with. Out: objects that it shares with the
program (globals and what hangs on them), and the first reason, if there is one, why a call cannot be repeated
unnoticed: it may call something of which nobody knows what it does. All code that may run is looked at:
functions by the globals that name them, methods by the attributes that are asked for, in the classes of all
objects in reach. What is unknown counts as a reason.
"""

from __future__ import annotations

import builtins
import dis
import gc
import sys
import types
from abc import ABCMeta
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

from overdrive.comparing import contents, is_ours, is_written_in_c

_DATA = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)}
)
MUTABLE = frozenset({list, dict, set, bytearray, deque, defaultdict, OrderedDict})
_TYPES = (
    _DATA
    | MUTABLE
    | {
        object,
        tuple,
        frozenset,
        enumerate,
        zip,
        map,
        filter,
        reversed,
        property,
        staticmethod,
        classmethod,
        super,
    }
    | {type, Counter}
)
_BUILTINS = frozenset(
    """
    abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float format
    frozenset hash hex int isinstance issubclass iter len list map max min next object oct ord pow range repr
    reversed round set slice sorted str sum super tuple type zip
    """.split()  # noqa: SIM905
)
_MODULES = frozenset(
    """
    math cmath _operator operator itertools _bisect _heapq _struct _statistics _functools binascii
    unicodedata _collections
    """.split()  # noqa: SIM905
)
_NUMPY = frozenset(
    """
    abs all any arange argmax argmin argsort array array_equal asarray ascontiguousarray atleast_1d
    atleast_2d average bincount broadcast_to clip column_stack concatenate convolve copy cross cumprod cumsum
    diag diff digitize dot einsum empty empty_like errstate expand_dims eye flatnonzero flip full full_like
    histogram hstack identity inner interp isclose kron linspace logspace matmul max mean median meshgrid min
    moveaxis ndarray nonzero ones ones_like outer pad percentile prod ravel repeat reshape roll round
    searchsorted size sort split squeeze stack std sum swapaxes take tensordot tile trace transpose triu tril
    unique vstack var vdot where zeros zeros_like
    """.split()  # noqa: SIM905
)
_ODD_NAMES = frozenset(
    """
    tofile dump gi_frame gi_code f_locals f_globals f_back f_builtins tb_frame func_globals ctypes __globals__
    __code__ __builtins__ __subclasses__ __import__ __loader__ __closure__ __bases__ __mro__ __base__
    """.split()  # noqa: SIM905
)
_ODD_INSTRUCTIONS = {
    "IMPORT_NAME": "imports a module",
    "IMPORT_STAR": "imports a module",
    "LOAD_BUILD_CLASS": "makes a class",
    "GET_AWAITABLE": "awaits",
    "GET_AITER": "iterates asynchronously",
    "BEFORE_ASYNC_WITH": "awaits",
}


_MOST_OBJECTS = 2_000_000


class Objection(Exception):
    """Why a call cannot be repeated unnoticed, as ``"line 12 calls print"``."""


class Reach:
    """What a call of ``function`` with ``values`` may run or touch."""

    def __init__(self, function: types.FunctionType, code: types.CodeType, values: list[Any]) -> None:
        self.shared: list[tuple[str, Any]] = []
        """Mutable objects and classes that are not copied, and how they were found."""
        self.draws = False
        """Whether it may draw from the common random numbers of `random`."""
        self.objection: str | None = None
        """None, or a sentence: ``"line 12 calls print"``."""
        # Kept, as an id must not be used again. What was copied may be shared under another name.
        self._seen: dict[int, Any] = {}
        self._seen_copied: dict[int, Any] = {}
        self._classes: dict[type, None] = {}
        self._names: dict[str, tuple[int, str]] = {}
        self._formats = False
        self._code: list[tuple[types.CodeType, dict[str, Any], bool]] = []
        self._line = code.co_firstlineno
        self._in = ""
        try:
            for value in values:
                self._value(value, "an argument", is_shared=False)
            for cell in function.__closure__ or ():
                self._value(contents(cell), "a closure variable", is_shared=True)
            self._later(code, function.__globals__, True)
            self._all()
        except Objection as error:
            self.objection = str(error)

    def _all(self) -> None:
        while True:
            if self._code:
                self._scan(*self._code.pop())
                continue
            before = len(self._seen), len(self._classes)
            for kind in list(self._classes):
                for name, place in list(self._names.items()):
                    self._line, self._in = place
                    if name in vars(kind):
                        self._member(kind, name)
                for name in _FORMATTERS if self._formats else ():
                    if name in vars(kind):
                        self._member(kind, name)
            if (len(self._seen), len(self._classes)) == before and not self._code:
                return

    def _object(self, what: str) -> Objection:
        return Objection(f"line {self._line}{self._in} {what}")

    # --- code

    def _later(self, code: types.CodeType, scope: dict[str, Any], is_own: bool) -> None:
        if id(code) not in self._seen:
            self._seen[id(code)] = code
            self._code.append((code, scope, is_own))

    def _scan(self, code: types.CodeType, scope: dict[str, Any], is_own: bool) -> None:
        self._in = "" if is_own else f" of {code.co_qualname}"
        instructions = list(dis.get_instructions(code))
        at = 0
        while at < len(instructions):
            instruction = instructions[at]
            at += 1
            line = instruction.positions.lineno if instruction.positions else None
            self._line = line or self._line
            name = instruction.opname
            if name in _ODD_INSTRUCTIONS:
                raise self._object(_ODD_INSTRUCTIONS[name])
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                at = self._global(instructions, at, str(instruction.argval), scope)
            elif name in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                self._attribute(str(instruction.argval))
            elif name in ("STORE_GLOBAL", "DELETE_GLOBAL") and not is_own:
                raise self._object(f"binds the global variable {instruction.argval}")
            elif (
                name in ("STORE_DEREF", "DELETE_DEREF")
                and not is_own
                and instruction.argval in code.co_freevars
            ):
                raise self._object(f"binds the variable {instruction.argval} of an outer function")
            elif name == "LOAD_CONST" and isinstance(instruction.argval, types.CodeType):
                self._later(instruction.argval, scope, is_own)  # of a comprehension, or a function made here
            elif name in _FORMATTING or (name == "LOAD_CONST" and "%" in str(instruction.argval)):
                self._formats = True

    def _global(self, instructions: list[dis.Instruction], at: int, name: str, scope: dict[str, Any]) -> int:
        inner = scope.get("__builtins__", builtins)
        inner = inner if isinstance(inner, dict) else vars(inner)
        value = scope.get(name, inner.get(name, self))
        if value is self:
            return at  # a NameError, for both kinds of code
        while isinstance(value, types.ModuleType):
            following = instructions[at] if at < len(instructions) else None
            if following is None or following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                raise self._object(f"uses the module {name} as a value")
            name += f".{following.argval}"
            if not hasattr(value, str(following.argval)):
                return at + 1
            value = getattr(value, str(following.argval))
            at += 1
        self._formats |= name in ("str", "repr", "format", "ascii")
        self._value(value, name, is_shared=True)
        return at

    def _attribute(self, name: str) -> None:
        if name in _ODD_NAMES:
            raise self._object(f"asks for the attribute {name}")
        self._formats |= name == "format"
        self._names.setdefault(name, (self._line, self._in))

    # --- values

    def _value(self, value: Any, name: str, *, is_shared: bool) -> None:
        """Look at a value, and all that hangs on it. What is not ``is_shared`` was copied."""
        np = sys.modules.get("numpy")
        seen = self._seen if is_shared else self._seen_copied
        work = [value]
        while work:
            if len(seen) > _MOST_OBJECTS:
                raise self._object(
                    f"uses {name}, from which more than {_MOST_OBJECTS:,} objects can be reached"
                )
            x = work.pop()
            kind = type(x)
            if kind in _DATA or id(x) in seen:
                continue
            seen[id(x)] = x
            if kind in MUTABLE or kind is Counter:
                if is_shared:
                    self.shared.append((name, x))
                work.extend(gc.get_referents(x))
            elif kind in (tuple, frozenset):
                work.extend(x)
            elif isinstance(x, type):
                self._class(x, name)
            elif self._function(x, name):
                pass
            elif np is not None and isinstance(x, (np.ndarray, np.generic, np.dtype, np.ufunc)):
                if kind is np.ndarray:
                    if is_shared:
                        self.shared.append((name, x))
                    if x.dtype.hasobject:
                        work.extend(x.flat)
                elif isinstance(x, np.ndarray):
                    raise self._object(f"uses {name}, a {kind.__name__}")
            elif kind.__flags__ & _HEAP_TYPE and not isinstance(x, types.ModuleType):
                self._class(kind, name)
                if is_shared:
                    self.shared.append((name, x))
                work.extend(y for y in gc.get_referents(x) if y is not kind)
            else:
                raise self._object(f"uses {name}, a {kind.__name__}")

    def _function(self, x: Any, name: str) -> bool:
        """Whether ``x`` is something to be called that may be; what it is made of is looked at, too."""
        if is_ours(x, "JitFunction"):
            x = x.__wrapped__
        if isinstance(x, types.FunctionType):
            if x.__module__ is not None and x.__module__.partition(".")[0] == "numpy":
                return self._numpy(x, name)
            self._later(original_code(x.__code__), x.__globals__, False)
            for more in (x.__defaults__, x.__kwdefaults__, *map(contents, x.__closure__ or ())):
                self._value(more, f"a variable of {name}", is_shared=True)
        elif isinstance(x, types.MethodType):
            random = sys.modules.get("random")
            if random is not None and x.__self__ is getattr(random, "_inst", self):
                self.draws = True
            else:
                self._value(x.__func__, name, is_shared=True)
                self._value(x.__self__, f"the object of {name}", is_shared=True)
        elif isinstance(x, types.BuiltinFunctionType):
            self._builtin(x, name)
        elif isinstance(x, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            self._class(x.__objclass__, name)
        elif isinstance(x, (staticmethod, classmethod)):
            self._value(x.__func__, name, is_shared=True)
        elif isinstance(x, property):
            for method in (x.fget, x.fset, x.fdel):
                self._value(method, name, is_shared=True)
        elif not isinstance(x, _ACCESSORS):
            return type(x).__name__ == "_ArrayFunctionDispatcher" and self._numpy(x, name)
        return True

    def _builtin(self, x: Any, name: str) -> None:
        owner = x.__self__
        random = sys.modules.get("random")
        if isinstance(owner, types.ModuleType) or owner is None:
            module = x.__module__ or ""
            if module == "builtins":
                allowed = x.__name__ in _BUILTINS and getattr(builtins, x.__name__) is x
            else:
                allowed = module in _MODULES or (module.startswith("numpy") and x.__name__ in _NUMPY)
            if not allowed:
                raise self._object(f"calls {name}")
        elif isinstance(owner, type):
            self._class(owner, name)
        elif random is not None and owner is getattr(random, "_inst", self):
            self.draws = True
        else:
            self._value(owner, f"the object of {name}", is_shared=True)

    def _numpy(self, x: Any, name: str) -> bool:
        if x.__name__ not in _NUMPY:
            raise self._object(f"calls {name}")
        return True

    # --- classes

    def _class(self, kind: type, name: str) -> None:
        np = sys.modules.get("numpy")
        for base in kind.__mro__:
            if base in self._classes or base in _TYPES or _is_error(base):
                continue
            if base.__module__ == "itertools" or (base.__module__, base.__name__) == ("functools", "partial"):
                continue
            if np is not None and (
                issubclass(base, np.generic)
                or (base.__module__.startswith("numpy") and base.__name__ in _NUMPY)
                or base is np.dtype
            ):
                return
            if type(base) not in (type, ABCMeta) or is_written_in_c(base):
                raise self._object(f"uses {name}, of the class {base.__module__}.{base.__qualname__}")
            self._classes[base] = None
            self.shared.append((base.__qualname__, base))
            for member in vars(base):
                if member.startswith("__") and member.endswith("__") and member not in _FORMATTERS:
                    self._member(base, member)

    def _member(self, kind: type, name: str) -> None:
        if name in _NOT_METHODS:
            return
        self._value(vars(kind)[name], f"{kind.__qualname__}.{name}", is_shared=True)


_HEAP_TYPE = 1 << 9
_ACCESSORS = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    type(namedtuple("_Pair", "first").first),  # type: ignore[attr-defined]
)
_FORMATTERS = ("__repr__", "__str__", "__format__")
_FORMATTING = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE")
_NOT_METHODS = frozenset(
    """
    __module__ __qualname__ __doc__ __dict__ __weakref__ __annotations__ __slots__ __dataclass_fields__
    __dataclass_params__ __match_args__ __firstlineno__ __static_attributes__ __parameters__ __orig_bases__
    __annotate__ __init_subclass__ __class_getitem__ __subclasshook__ __reduce__ __reduce_ex__ __getstate__
    __setstate__ __copy__ __deepcopy__ __replace__ __getnewargs__ __set_name__
    """.split()  # noqa: SIM905
)


def original_code(code: types.CodeType) -> types.CodeType:
    """Return the code object as it was written, behind what promotion put in."""
    last: Any = code.co_consts[-1] if code.co_consts else None
    if is_ours(last, "Native"):
        original: types.CodeType = last.original
        return original
    return code


def _is_error(kind: type) -> bool:
    return issubclass(kind, BaseException) and kind.__module__ == "builtins"
