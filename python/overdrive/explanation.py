"""What was compiled and why the rest was not: data of the engine, laid out beside the source."""

from __future__ import annotations

import inspect
import json
import linecache
import tokenize
import types
from collections.abc import Iterator
from typing import Any

from overdrive import _loaded
from overdrive.errors import NotCompiledError

STAGES = ("ir", "llvm", "asm")

_MARKS = {"native": "native", "cpython": "CPython", "not compiled": "-"}
_WIDEST_SOURCE = 72


class Explanation:
    """An answer to "why was this line not compiled?"; ``str()`` lays it out beside the source.

    ``functions`` holds the engine's data, one dict for each function: ``name``, ``file``, ``firstlineno``,
    ``lines`` (``line``, ``status``: ``native``, ``cpython`` or ``not compiled``, ``why``: sentences),
    ``versions`` (``types``, ``compile_ms``, ``cached``, ``exits``: ``line``, ``why``, ``count``;
    ``line_types``: ``line``, ``name``, ``types`` of that variable there), ``left`` (``line``, ``why``,
    ``count``: exits of all versions, those that were replaced included) and ``code_lines``, the lines that
    hold instructions.
    """

    def __init__(self, functions: list[dict[str, Any]], targets: list[Any]) -> None:
        self.functions = functions
        self._targets = targets

    def to_json(self) -> str:
        """Return the data as JSON."""
        return json.dumps(self.functions, indent=1)

    def emit(self, stage: str) -> str:
        """Return a stage of the compilation as text: ``"ir"``, ``"llvm"`` or ``"asm"``."""
        if stage not in STAGES:
            raise ValueError(f"unknown stage {stage!r}: use {', '.join(map(repr, STAGES))}")
        if _loaded.core is None:
            raise NotCompiledError(self.functions[0]["name"], [str(_loaded.reason())])
        return "\n".join(_loaded.core.emit(target, stage) for target in self._targets)

    def html(self) -> str:
        """Return a page that needs nothing else: the source, shaded line by line by how it runs.

        A line opens to say why, what its variables were, how often code left there, and its machine code,
        which is generated once more for that (some milliseconds for each version).
        """
        from overdrive.html import page, source

        machine = [_machine(*pair) for pair in zip(self.functions, self._targets, strict=True)]
        title = self._title()
        return page.document(title, source.page_body(title, self.functions, machine), page.style())

    def _repr_html_(self) -> str:
        """Return what a notebook shows. Its style touches nothing around it."""
        from overdrive.html import page, source

        return f'<div class="od od-cell"><style>{page.style()}</style>{source.cell(self.functions)}</div>'

    def _title(self) -> str:
        names = [function["name"] for function in self.functions]
        files = {function["file"] for function in self.functions}
        what = names[0] if len(names) == 1 else f"{len(names)} functions"
        return f"{what} of {files.pop()}" if len(files) == 1 else what

    def __str__(self) -> str:
        return "\n\n".join("\n".join(_lay_out(function)) for function in self.functions)

    def __repr__(self) -> str:
        return f"<Explanation of {', '.join(function['name'] for function in self.functions)}>"


def explain(target: Any) -> Explanation:
    """See `overdrive.explain`."""
    if isinstance(target, str):
        targets: list[Any] = list(_codes_of(target))
    else:
        targets = [_explainable(target)]
    if _loaded.core is None:
        return Explanation([_nothing(target) for target in targets], targets)
    return Explanation([_loaded.core.explain_data(target) for target in targets], targets)


def _machine(function: dict[str, Any], target: Any) -> list[Any]:
    """Return the instructions of each version that is still as it was explained; None for the others."""
    if not function["versions"] or _loaded.core is None:
        return []
    now = {(types, size): rows for types, size, rows in _loaded.core.listings(target)}
    return [now.get((version["types"], version["code_size"])) for version in function["versions"]]


def _nothing(target: Any) -> dict[str, Any]:
    """Return what is known of a function where there is no extension."""
    code = target if isinstance(target, types.CodeType) else getattr(target, "__code__", None)
    return {
        "name": getattr(code, "co_qualname", repr(target)),
        "file": getattr(code, "co_filename", "?"),
        "firstlineno": getattr(code, "co_firstlineno", 0),
        "lines": [],
        "versions": [],
        "code_lines": sorted({line for *_, line in code.co_lines() if line}) if code is not None else [],
        "left": [],
        "refused": [_loaded.reason()],
    }


def _explainable(target: Any) -> Any:
    if isinstance(target, types.MethodType):
        target = target.__func__
    if isinstance(target, types.CodeType) or callable(target):
        return target
    raise TypeError(f"explain takes a function, a code object or a path, not {type(target).__name__}")


def _codes_of(target: str) -> Iterator[types.CodeType]:
    """Yield the code of ``"file.py::name"``, or of all functions and the module itself of ``"file.py"``."""
    path, _, name = target.partition("::")
    with tokenize.open(path) as file:
        source = file.read()
    module = compile(source, path, "exec", dont_inherit=True)
    codes = list(_nested(module))
    found = [code for code in codes if not name or name in (code.co_qualname, code.co_name)]
    if not found:
        raise LookupError(f"{path} has no function {name!r}")
    yield from found


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    # Class bodies are left out: they run once and have nothing to compile.
    if code.co_name == "<module>" or code.co_flags & inspect.CO_OPTIMIZED:
        yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _lay_out(function: dict[str, Any]) -> Iterator[str]:
    yield f"{function['name']} ({function['file']}:{function['firstlineno']})"
    for version in function["versions"]:
        cached = ", machine code from the cache" if version["cached"] else ""
        yield f"  compiled for ({version['types']}) in {version['compile_ms']:.1f} ms{cached}"
        if version["fastmath"]:
            called = ", ".join(version["vector_functions"]) or "none"
            yield "    fastmath: results may differ from CPython's in the last bits"
            yield f"    functions of math called for several elements at once: {called}"
        for exit_ in version["exits"]:
            yield f"    left for CPython {exit_['count']} times at line {exit_['line']}: {exit_['why']}"
    refused = function.get("refused", ())
    for refusal in refused:
        yield f"  not compiled: {refusal}"
    if not function["versions"] and not refused:
        yield "  not called yet: the types of its arguments are unknown, so they count as objects here"
    rows = [
        (
            str(line["line"]),
            _MARKS.get(line["status"], line["status"]),
            linecache.getline(function["file"], line["line"]).rstrip().expandtabs()[:_WIDEST_SOURCE],
            line["why"],
        )
        for line in function["lines"]
    ]
    if not rows:
        return
    numbers, marks, sources = (max(len(row[column]) for row in rows) for column in range(3))
    for number, mark, source, why in rows:
        head = f"  {number:>{numbers}}  {mark:<{marks}}  "
        yield f"{head}{source:<{sources}}  {why[0]}".rstrip() if why else f"{head}{source}".rstrip()
        for more in why[1:]:
            yield f"{'':{len(head) + sources}}  {more}"
