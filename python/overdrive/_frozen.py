"""A small ``dataclass``: immutable records without importing ``dataclasses``.

``dataclasses`` brings ``inspect`` and ``re``. A program under ``overdrive run`` must find the modules that
it imports itself as ``python`` leaves them, and ``import overdrive`` must be quick; so nothing of that is
imported for our records.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_REQUIRED = object()


def dataclass(*, frozen: bool, kw_only: bool = False) -> Any:
    """Make an immutable record of a class with annotated fields; ``frozen`` must be true."""
    assert frozen

    def make(cls: Any) -> Any:
        fields = tuple(cls.__annotations__)
        defaults = {name: cls.__dict__.get(name, _REQUIRED) for name in fields}

        def __init__(self: Any, *args: Any, **changes: Any) -> None:
            if len(args) > (0 if kw_only else len(fields)):
                raise TypeError(f"{cls.__name__}() takes no more positional arguments")
            given = dict(zip(fields, args, strict=False))
            for name in changes:
                if name not in defaults or name in given:
                    raise TypeError(f"{cls.__name__}() got an unexpected or repeated argument {name!r}")
            values = {**defaults, **given, **changes}
            missing = [name for name, value in values.items() if value is _REQUIRED]
            if missing:
                raise TypeError(f"{cls.__name__}() misses {', '.join(missing)}")
            self.__dict__.update(values)
            check = getattr(self, "__post_init__", None)
            if check is not None:
                check()

        def __repr__(self: Any) -> str:
            return f"{cls.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"

        def __eq__(self: Any, other: object) -> Any:
            if type(other) is not type(self):
                return NotImplemented
            return self.__dict__ == other.__dict__

        def __hash__(self: Any) -> int:
            return hash(tuple(getattr(self, name) for name in fields))

        def __setattr__(self: Any, name: str, value: object) -> None:
            raise AttributeError(f"{cls.__name__} does not change: cannot assign {name!r}")

        def __delattr__(self: Any, name: str) -> None:
            raise AttributeError(f"{cls.__name__} does not change: cannot delete {name!r}")

        methods = (__init__, __repr__, __eq__, __hash__, __setattr__, __delattr__)
        for name, value in [(method.__name__, method) for method in methods]:
            setattr(cls, name, value)
        return cls

    return make
