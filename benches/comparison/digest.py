"""A value as a hash: values of two processes are equal, types and bits included, exactly if their hashes are.

In: a value. Out: `digest`, and `text` for people. Runs on every interpreter that is measured, PyPy without NumPy
included. Any NaN equals any NaN; how containers share objects counts. A type it does not know is an error: what
cannot be compared must not pass for equal.
"""

from __future__ import annotations

import hashlib
import re
import struct

try:
    import numpy as np
except ImportError:
    np = None


def digest(value):
    """The hash, in hex."""
    state = hashlib.sha256()
    for piece in pieces(value, {}):
        state.update(len(piece).to_bytes(8, "little") + piece)
    return state.hexdigest()


def text(value, limit=60):
    """Type and value, cut, without addresses."""
    shown = re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))
    return f"{type(value).__name__} {shown if len(shown) <= limit else shown[:limit] + '…'}"


def pieces(value, seen):
    """All that tells a value from others, as bytes."""
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if kind in (int, bool, str, type(None)):
        yield repr(value).encode()
    elif kind is float:
        yield b"nan" if value != value else struct.pack("<d", value)
    elif kind is bytes:
        yield value
    elif kind is tuple:
        yield from every(value, seen)
    elif np is not None and isinstance(value, np.generic):
        yield from array(np.asarray(value))
    elif id(value) in seen:
        yield b"seen %d" % seen[id(value)]
    else:
        seen[id(value)] = len(seen)
        yield from mutable(value, kind, seen)


def every(items, seen):
    """The pieces of all items, and how many items there are."""
    yield b"%d" % len(items)
    for item in items:
        yield from pieces(item, seen)


def mutable(value, kind, seen):
    """The pieces of an object whose identity counts."""
    if kind is list:
        yield from every(value, seen)
    elif kind is dict:
        yield from every([part for item in value.items() for part in item], seen)
    elif kind is bytearray:
        yield bytes(value)
    elif np is not None and kind is np.ndarray:
        yield repr((value.shape, value.strides)).encode()
        yield from array(value)
    elif hasattr(value, "__dict__"):
        yield from pieces(vars(value), seen)
    else:
        raise TypeError(f"{kind.__name__} cannot be compared between processes; add it to {__name__}")


def array(values):
    """The pieces of a NumPy array of numbers."""
    if values.dtype.kind not in "biufc":
        raise TypeError(
            f"arrays of {values.dtype} cannot be compared between processes; add them to {__name__}"
        )
    yield values.dtype.str.encode()
    if values.dtype.kind in "fc":
        holes = np.isnan(values)
        yield holes.tobytes()
        values = np.where(holes, 0, values)
    yield values.tobytes()
