"""The areas of the language that programs are about, put together.

In: nothing. Out: `AREAS`, with the types that each adds, and `AnyFunction`, a `Function` that knows all of them. A program
is about no area (numbers, lists and small arrays), one or two; 60 of 100 of its statements are theirs.
"""

from __future__ import annotations

from . import arrays, classes, containers, control, kernels, statements, strings
from .expressions import Expressions
from .statements import Function

AREAS = {
    "containers": containers.KINDS,
    "strings": strings.KINDS,
    "arrays": arrays.KINDS,
    "kernels": kernels.KINDS,
    "classes": classes.KINDS,
    "control": control.KINDS,
}
statements.ELEMENT.update({containers.PAIRS: "tuple", containers.NAMES: "str", classes.OBJECTS: "object"})


class AllExpressions(
    control.Control, classes.Objects, arrays.Arrays, strings.Strings, containers.Containers, Expressions
):
    """Expressions of every type."""


class AnyFunction(
    control.ControlStatements,
    classes.ClassStatements,
    kernels.KernelStatements,
    arrays.ArrayStatements,
    strings.StringStatements,
    containers.ContainerStatements,
    Function,
):
    """A function about any area."""

    expressions_of = AllExpressions

    def value(self, kind, depth=2):
        """An expression to be assigned; in a loop, strings are cut."""
        made = super().value(kind, depth)
        return f"({made})[:50]" if kind == "str" and self.in_loop else made
