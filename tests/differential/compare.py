"""What a call did, as data, and whether two calls did the same.

In: a function, its arguments. Out: an `Outcome`: the value or the exception with its arguments and the positions of
its traceback in the program, warnings with their lines, what was printed and noted. Values are compared with their
types, floats bit for bit (any NaN equals any NaN), and containers with the way they share objects.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import decimal
import fractions
import io
import struct
import sys
import types
import warnings

import numpy as np


@dataclasses.dataclass
class Outcome:
    """Everything a caller can see of one call."""

    value: object = None
    error: object = None  # type, arguments
    positions: object = None  # of the traceback's entries that lie in the program
    warnings: object = None
    printed: str = ""
    notes: object = None
    arguments: object = None  # after the call
    references: object = None  # how often they and the containers in them are held then


class Sharing:
    """Remembers which object of one side stands for which of the other."""

    def __init__(self):
        self.forward, self.backward = {}, {}
        self.kept = []  # an id must not be used again

    def fits(self, a, b):
        """Whether the pair agrees with every pair before it."""
        self.kept.append((a, b))
        return self.forward.setdefault(id(a), id(b)) == id(b) and self.backward.setdefault(
            id(b), id(a)
        ) == id(a)

    def known(self, a, b):
        """Whether exactly this pair was seen."""
        return self.forward.get(id(a)) == id(b)


def name_of(kind):
    """A type's name; classes of the program exist once per run, so types are compared by it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def same(a, b, sharing=None):
    """Whether two values cannot be told apart."""
    sharing = sharing or Sharing()
    if name_of(type(a)) != name_of(type(b)):
        return False
    if isinstance(a, np.ndarray):
        if sharing.known(a, b):
            return True
        return (
            sharing.fits(a, b)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.strides == b.strides
            and (same(a.tolist(), b.tolist(), sharing) if a.dtype.hasobject else same_array(a, b))
        )
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and same_array(np.asarray(a), np.asarray(b))
    if isinstance(a, (list, tuple)):
        if sharing.known(a, b) and isinstance(a, list):
            return True
        if isinstance(a, list) and not sharing.fits(a, b):
            return False
        return len(a) == len(b) and all(same(x, y, sharing) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        if sharing.known(a, b):
            return True
        return sharing.fits(a, b) and same(list(a.items()), list(b.items()), sharing)
    if isinstance(a, float):
        if a != a:  # `in` and `==` of lists look at the identity of a NaN first
            return b != b and sharing.fits(a, b)
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, bytearray):
        return sharing.fits(a, b) and a == b
    if isinstance(a, (set, frozenset, collections.deque)):  # the order of equal histories is the same
        return sharing.fits(a, b) and same(list(a), list(b), sharing)
    if isinstance(a, (decimal.Decimal, fractions.Fraction)):
        return repr(a) == repr(b)
    if isinstance(a, (int, str, bytes, type(None), range, slice)):
        return a == b
    if isinstance(a, BaseException):
        return same(a.args, b.args, sharing)
    if isinstance(a, type) or isinstance(
        a, types.FunctionType | types.BuiltinFunctionType | types.MethodType
    ):
        return a.__name__ == b.__name__
    if sharing.known(a, b):
        return True
    return sharing.fits(a, b) and same(attributes(a), attributes(b), sharing)


def attributes(a):
    """What an object holds in its dictionary and in its slots."""
    found = dict(getattr(a, "__dict__", {}))
    for kind in type(a).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            descriptor = kind.__dict__.get(name)
            if isinstance(descriptor, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):
                    found[name] = descriptor.__get__(a)
    return found


def same_array(a, b):
    """Same bits, except that NaNs are one value."""
    if a.tobytes() == b.tobytes():
        return True
    return (
        a.dtype.kind in "fc"
        and bool(np.array_equal(np.isnan(a), np.isnan(b)))
        and np.where(np.isnan(a), 0, a).tobytes() == np.where(np.isnan(b), 0, b).tobytes()
    )


def differences(want, got):
    """The names of the fields that differ."""
    sharing = Sharing()
    names = [field.name for field in dataclasses.fields(Outcome)]
    return [name for name in names if not same(getattr(want, name), getattr(got, name), sharing)]


def entries(error, filename):
    """Function, line and columns of every traceback entry in the program."""
    found = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == filename:
            positions = list(code.co_positions())
            at = traceback.tb_lasti // 2
            found.append((code.co_name, traceback.tb_lineno, positions[at] if at < len(positions) else None))
        traceback = traceback.tb_next
    return found


def observe(function, arguments, filename="", notes=()):
    """Calls the function and writes down what happened."""
    outcome, out = Outcome(), io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(out):
        warnings.simplefilter("always")
        try:
            outcome.value = function(*arguments)
        except Exception as error:
            outcome.error = (type(error).__name__, error.args, context(error))
            outcome.positions = entries(error, filename)
            if isinstance(error, UnboundLocalError) and sys.version_info < (3, 12):
                # 3.11 names the instruction before when its interpreter had joined two into one.
                outcome.positions = [name for name, *_ in outcome.positions]
            error.__traceback__ = None
            del error
    outcome.warnings = [(w.category.__name__, str(w.message), w.lineno) for w in caught]
    outcome.printed = out.getvalue()
    outcome.notes = list(notes)
    outcome.arguments = arguments
    outcome.references = references(arguments)
    if hasattr(notes, "clear"):
        notes.clear()
    return outcome


HELD = (list, dict, set, bytearray, collections.deque, np.ndarray)  # nobody but the program holds these


def references(arguments):
    """Reference counts: one too many is a leak that no value shows."""
    inside = [x for argument in arguments if isinstance(argument, (list, tuple)) for x in argument]
    return [
        sys.getrefcount(x) for x in (*arguments, *inside) if isinstance(x, HELD) or hasattr(x, "__dict__")
    ]


def context(error):
    """The types of the exceptions that were being handled."""
    names = []
    while (error := error.__context__) is not None:
        names.append(type(error).__name__)
    return names


def describe(want, got):
    """The difference, for people."""
    lines = []
    for name in differences(want, got):
        lines.append(f"  {name}:")
        lines.append(f"    expected {shorten(getattr(want, name))}")
        lines.append(f"    got      {shorten(getattr(got, name))}")
    return "\n".join(lines)


def shorten(value, limit=600):
    """Its repr, cut."""
    with np.printoptions(threshold=50):
        text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"


# Integers of generated programs can be long; their repr must not fail.
sys.set_int_max_str_digits(0)
