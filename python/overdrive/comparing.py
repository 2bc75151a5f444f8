"""Whether two values can be told apart, and where: the comparison behind `overdrive.verify`.

In: pairs of values under names; all pairs of one `Comparison` are compared as one graph, so that what they
share counts. Out: differences with paths such as ``args[0][3].x``, and what could not be looked into. Nothing
is rounded: floats are their bits, types are exact, order in dicts and sets is compared. Objects must
correspond one to one: a list that stands twice in one value and two equal lists in the other differ.
"""

from __future__ import annotations

import struct
import sys
import types
import warnings
import weakref
from collections import deque
from typing import Any, NamedTuple

MOST_DIFFERENCES = 20
_LONGEST = 120

_ATOMS = (int, str, bytes, float, complex)
_PLAIN = (type(None), bool, int, str, bytes, range, type(...), type(NotImplemented), types.ModuleType)
_UNIFORM = {int: None, str: None, bytes: None, bool: None, type(None): None}
_ITERATORS: tuple[type, ...] = (
    *(type(iter(kind())) for kind in (list, tuple, str, bytes, bytearray)),
    *(type(iter(range(0))), type(reversed([])), enumerate, zip, map, filter),
)


class Difference(NamedTuple):
    """One place in which two calls differ."""

    path: str
    cpython: str
    native: str

    def __str__(self) -> str:
        return f"{self.path}: {self.cpython} in CPython, {self.native} native"


class Comparison:
    """Pairs of values, compared; ``nan_bits=False`` takes any NaN for any other.

    >>> comparison = Comparison()
    >>> comparison.compare("result", [1, {"x": 0.0}], [1, {"x": -0.0}])
    >>> print(comparison.differences[0])
    result[1]['x']: 0.0 in CPython, -0.0 native
    """

    def __init__(self, *, nan_bits: bool = True) -> None:
        self.differences: list[Difference] = []
        self.uncompared: list[str] = []
        """Paths of objects of which only the type was compared."""
        self._nan_bits = nan_bits
        self._forward: dict[int, int] = {}
        self._backward: dict[int, int] = {}
        self._kept: list[Any] = []  # an id must not be used again
        self._work: list[tuple[str, Any, Any]] = []

    def compare(self, path: str, a: Any, b: Any) -> None:
        """Compare one more pair, in everything that can be reached from it."""
        self._work.append((path, a, b))
        while self._work and len(self.differences) < MOST_DIFFERENCES:
            self._pair(*self._work.pop())
        self._work.clear()

    def differ(self, path: str, cpython: str, native: str) -> None:
        """Note a difference."""
        self.differences.append(Difference(path, cpython, native))

    def _values_differ(self, path: str, a: Any, b: Any) -> None:
        cpython, native = shorten(a), shorten(b)
        if cpython == native:
            cpython, native = f"{cpython} ({_details(a)})", f"{native} ({_details(b)})"
        self.differ(path, cpython, native)

    def _push(self, pairs: list[tuple[str, Any, Any]]) -> None:
        self._work.extend(reversed(pairs))

    def _is_new(self, path: str, a: Any, b: Any) -> bool:
        """Whether two objects correspond and were not compared yet; notes when they do not correspond."""
        known = self._forward.get(id(a))
        if known == id(b):
            return False
        if known is not None or id(b) in self._backward:
            kind = type(a).__name__
            same, other = (f"a {kind} that is also elsewhere", f"a {kind} of its own")
            if known is None:
                same, other = other, same
            self.differ(path, same, other)
            return False
        self._forward[id(a)], self._backward[id(b)] = id(b), id(a)
        self._kept.append((a, b))
        return True

    def _pair(self, path: str, a: Any, b: Any) -> None:
        kind = type(a)
        if name_of(kind) != name_of(type(b)):
            self.differ(
                path, f"{shorten(a)} of type {name_of(kind)}", f"{shorten(b)} of type {name_of(type(b))}"
            )
        elif kind in _PLAIN:
            if a is not b and a != b:
                self._values_differ(path, a, b)
        elif kind is float:
            self._floats(path, a, b)
        elif kind is complex:
            self._floats(f"{path}.real", a.real, b.real)
            self._floats(f"{path}.imag", a.imag, b.imag)
        elif kind is tuple:
            self._items(path, a, b)
        elif a is b and not isinstance(a, (list, dict, set, bytearray)):
            self._is_new(path, a, b)
        elif isinstance(a, type):
            if name_of(a) != name_of(b):
                self._values_differ(path, a, b)
        elif isinstance(a, types.FunctionType):
            self._functions(path, a, b)
        elif isinstance(a, types.BuiltinFunctionType | types.MethodWrapperType):
            if a.__name__ != b.__name__:
                self._values_differ(path, a, b)
            else:
                self._push([(f"{path}.__self__", a.__self__, b.__self__)])
        elif isinstance(a, types.MethodType):
            self._push(
                [(f"{path}.__func__", a.__func__, b.__func__), (f"{path}.__self__", a.__self__, b.__self__)]
            )
        elif not self._numpy(path, a, b) and self._is_new(path, a, b):
            self._objects(path, a, b)

    def _floats(self, path: str, a: float, b: float) -> None:
        if a != a and b != b:
            if self._nan_bits and struct.pack("d", a) != struct.pack("d", b):
                self._values_differ(path, a, b)
            else:
                # `in` and `==` of lists look at the identity of a NaN first.
                self._is_new(path, a, b)
        elif struct.pack("d", a) != struct.pack("d", b):
            self._values_differ(path, a, b)

    def _items(self, path: str, a: Any, b: Any) -> None:
        if len(a) != len(b):
            self.differ(path, f"length {len(a)}", f"length {len(b)}")
        elif not _are_uniform(a, b):
            self._push([(f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))])

    def _functions(self, path: str, a: Any, b: Any) -> None:
        place = [(f.__code__.co_filename, f.__code__.co_firstlineno, f.__qualname__) for f in (a, b)]
        if place[0] != place[1]:
            self._values_differ(path, a, b)
        elif self._is_new(path, a, b):
            cells = zip(a.__code__.co_freevars, a.__closure__ or (), b.__closure__ or (), strict=True)
            self._push(
                [
                    (f"{path}.__defaults__", a.__defaults__, b.__defaults__),
                    (f"{path}.__kwdefaults__", a.__kwdefaults__, b.__kwdefaults__),
                    *((f"{path}.<{name}>", contents(x), contents(y)) for name, x, y in cells),
                ]
            )

    def _numpy(self, path: str, a: Any, b: Any) -> bool:
        np = sys.modules.get("numpy")
        if np is None or not isinstance(a, (np.ndarray, np.generic)):
            return False
        if isinstance(a, np.ndarray):
            if not self._is_new(path, a, b):
                return True
            for name in ("dtype", "shape", "strides"):
                if getattr(a, name) != getattr(b, name):
                    self.differ(f"{path}.{name}", str(getattr(a, name)), str(getattr(b, name)))
                    return True
            if a.flags.writeable != b.flags.writeable:
                self.differ(f"{path}.flags.writeable", str(a.flags.writeable), str(b.flags.writeable))
            owners = _owner(np, a), _owner(np, b)
            self._is_new(f"{path}.base", *(owner for owner, _ in owners))
            if owners[0][1] != owners[1][1]:
                self.differ(f"{path}.base", f"{owners[0][1]} bytes into it", f"{owners[1][1]} bytes into it")
            if type(a) is not np.ndarray and hasattr(a, "__dict__"):
                self._push([(f"{path}.__dict__", vars(a), vars(b))])
        elif a.dtype != b.dtype:
            self.differ(f"{path}.dtype", str(a.dtype), str(b.dtype))
            return True
        self._elements(np, path, np.asarray(a), np.asarray(b))
        return True

    def _elements(self, np: Any, path: str, a: Any, b: Any) -> None:
        if a.dtype.names:
            for name in a.dtype.names:  # what lies between the fields is nobody's
                self._elements(np, f"{path}[{name!r}]", a[name], b[name])
            return
        if a.dtype.hasobject:
            pairs = zip(np.ndindex(a.shape), a.flat, b.flat, strict=True)
            self._push([(path + _index(at), x, y) for at, x, y in pairs])
            return
        if a.tobytes() == b.tobytes():
            return
        size = a.dtype.itemsize
        rows = [np.frombuffer(x.tobytes(), np.uint8).reshape(-1, size) for x in (a, b)]
        differs = (rows[0] != rows[1]).any(axis=1)
        if not self._nan_bits and a.dtype.kind in "fc":
            differs &= ~(np.isnan(a) & np.isnan(b)).reshape(-1)
        places = np.flatnonzero(differs)
        for at in places[:3]:
            index = np.unravel_index(at, a.shape)
            self._values_differ(path + _index(tuple(map(int, index))), a[index], b[index])
        if len(places) > 3:
            self.differ(path, f"{len(places)} elements", "differ from them")

    def _objects(self, path: str, a: Any, b: Any) -> None:
        """Everything that has an identity; the pair is new."""
        looked_into = True
        if isinstance(a, (list, deque, tuple)):
            self._items(path, a, b)
        elif isinstance(a, dict):
            self._dicts(path, a, b)
        elif isinstance(a, (set, frozenset)):
            self._sets(path, a, b)
        elif isinstance(a, (bytearray, memoryview)):
            self._pair(path, bytes(a), bytes(b))
        elif isinstance(a, BaseException):
            self._push([(f"{path}.args", a.args, b.args)])
        elif isinstance(a, _ATOMS):
            base: Any = next(base for base in _ATOMS if isinstance(a, base))
            self._push([(path, base.__getnewargs__(a), base.__getnewargs__(b))])
        elif isinstance(a, weakref.ref):
            self._push([(f"{path}()", a(), b())])
        elif isinstance(a, types.GeneratorType):
            self._generators(path, a, b)
        elif isinstance(a, (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))):
            self._push([(path, list(a), list(b))])
        else:
            looked_into = False
        names = [*_slots(type(a)), *(["__dict__"] if hasattr(a, "__dict__") else [])]
        hides = any(is_written_in_c(base) for base in type(a).__mro__ if base is not object)
        if not looked_into and (hides or not names):
            self._reduced(path, a, b)
        elif names:
            self._states(path, a, b, names)

    def _states(self, path: str, a: Any, b: Any, names: list[str]) -> None:
        pairs: list[tuple[str, Any, Any]] = []
        for name in names:
            if name == "__dict__":
                mine, other = vars(a), vars(b)
                if list(mine) != list(other):
                    self.differ(path, f"attributes {', '.join(mine)}", f"attributes {', '.join(other)}")
                else:
                    pairs += [(f"{path}.{key}", mine[key], other[key]) for key in mine]
                continue
            both = [getattr(x, name, _MISSING) for x in (a, b)]
            if both[0] is _MISSING or both[1] is _MISSING:
                if both[0] is not both[1]:
                    self.differ(f"{path}.{name}", *("unset" if x is _MISSING else shorten(x) for x in both))
            else:
                pairs.append((f"{path}.{name}", both[0], both[1]))
        self._push(pairs)

    def _dicts(self, path: str, a: Any, b: Any) -> None:
        if len(a) != len(b):
            self.differ(path, f"length {len(a)}", f"length {len(b)}")
            return
        pairs = []
        for (key, value), (other_key, other) in zip(dict.items(a), dict.items(b), strict=True):
            pairs += [(f"{path}.keys()", key, other_key), (f"{path}[{shorten(key, 40)}]", value, other)]
        if hasattr(a, "default_factory"):
            pairs.append((f"{path}.default_factory", a.default_factory, b.default_factory))
        self._push(pairs)

    def _sets(self, path: str, a: Any, b: Any) -> None:
        if len(a) != len(b):
            self.differ(path, f"length {len(a)}", f"length {len(b)}")
        elif all(type(x) in _PLAIN or type(x) in _ATOMS or type(x) is tuple for x in (*a, *b)):
            self._push([(f"{path}{{{i}}}", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))])
        elif a or b:
            # Their order depends on where the elements lie in memory.
            self.uncompared.append(path)

    def _generators(self, path: str, a: Any, b: Any) -> None:
        frames = a.gi_frame, b.gi_frame
        lines = ["finished" if frame is None else f"at line {frame.f_lineno}" for frame in frames]
        if lines[0] != lines[1] or a.gi_code.co_qualname != b.gi_code.co_qualname:
            self.differ(path, f"{shorten(a)} {lines[0]}", f"{shorten(b)} {lines[1]}")
        elif frames[0] is not None:
            mine, other = ([*dict(frame.f_locals).items()] for frame in frames)
            self._push([(f"{path}.gi_frame.f_locals", mine, other)])

    def _reduced(self, path: str, a: Any, b: Any) -> None:
        """Types written in C, by what `pickle` would keep of them."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                both = [_state_of(x) for x in (a, b)]
        except Exception:
            self.uncompared.append(path)
            return
        self._push([(path, *both)])


_MISSING = object()
_HEAP_TYPE = 1 << 9
_BASE_TYPE = 1 << 10  # what a class statement makes can be inherited from
_METHODS_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _state_of(value: Any) -> Any:
    if isinstance(value, _ITERATORS):
        return value.__reduce__()
    reduced = value.__reduce_ex__(4)
    if isinstance(reduced, str):
        return reduced
    function, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    if getattr(function, "__name__", "") == "__newobj__" and state is None and len(arguments) == 1:
        # `object.__reduce_ex__` says the same of all objects that it knows nothing about.
        raise TypeError("nothing to compare")
    return arguments, state, list(items or ()), list(pairs or ())


def is_written_in_c(kind: type) -> bool:
    """Whether a class was not made by a class statement: then its objects hold more than attributes."""
    if not kind.__flags__ & _HEAP_TYPE:
        return True
    for member in vars(kind).values():
        if isinstance(member, _METHODS_IN_C) and member.__objclass__ is kind:
            return True
        if isinstance(member, types.BuiltinFunctionType) and member.__self__ is kind:
            return True
    return False


def is_ours(x: Any, kind: str) -> bool:
    """Whether ``x`` is an object of the extension's type of that name, ``"JitFunction"`` or ``"Native"``."""
    return type(x).__qualname__ == kind and not type(x).__flags__ & _BASE_TYPE


def contents(cell: Any) -> Any:
    """Return what is in a closure's cell, or a word for an empty one."""
    try:
        return cell.cell_contents
    except ValueError:
        return "<unset>"


def name_of(kind: type) -> str:
    """Return a type's full name. Two runs may have made a local class twice, so this is what is compared."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def shorten(value: Any, most: int = _LONGEST) -> str:
    """Return the repr, cut; a type's name where there is none to be had."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[: most - 1] + "…"


def _details(value: Any) -> str:
    if isinstance(value, float):
        return "bits " + struct.pack(">d", value).hex()
    tobytes = getattr(value, "tobytes", None)
    return "bytes " + tobytes().hex() if tobytes is not None else name_of(type(value))


def _are_uniform(a: Any, b: Any) -> bool:
    """Whether two sequences hold the same values of one simple type: the quick way for what is long."""
    kinds = set(map(type, a))
    if len(kinds) != 1 or kinds != set(map(type, b)):
        return False
    (kind,) = kinds
    if kind is float:
        return all(x == x for x in a) and struct.pack(f"{len(a)}d", *a) == struct.pack(f"{len(b)}d", *b)
    return kind in _UNIFORM and list(a) == list(b)


def _index(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""


def _owner(np: Any, array: Any) -> tuple[Any, int]:
    """Return the array whose memory this one views, and how many bytes into it this one begins."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner, array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]


def _slots(kind: type) -> list[str]:
    """Return the names of the slots of a class and its bases."""
    names = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__"):
                names.append(name)
    return names
