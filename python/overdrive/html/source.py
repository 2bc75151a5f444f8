"""An explanation as a picture: source with each line shaded by how it runs, and behind each line why.

In: the dicts of `overdrive.explanation.Explanation.functions`, and on request the machine code of their
versions. Out: HTML. Each source line is there once, though several functions may have a part in it: then in
the colour of the least native of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from overdrive.html.page import CLASSES, MARKS, count, escape, legend
from overdrive.html.tokens import Lines, read

Listing = Sequence[tuple[int | None, bool, str]]
"""Instructions of one version: line of the source, part of a way out into CPython, text."""
Machine = Sequence["Listing | None"]
"""For each version of a function its instructions; None where there are none to show."""

_WORST = ("native", "cpython", "not compiled")
_NOT_REACHED = "no compiled code leads here"
_NO_LINE = 0


def page_body(title: str, functions: Sequence[dict[str, Any]], machine: Sequence[Machine]) -> str:
    """Return a page about functions: what the colours mean, a table of the functions, their sources."""
    rows = "".join(_table_row(number, function) for number, function in enumerate(functions))
    table = ""
    if len(functions) > 1:
        heads = ("native", "through CPython", "interpreted", "versions", "left for CPython")
        head = "".join(f'<th class="od-r">{text}</th>' for text in heads)
        table = f"<table><thead><tr><th>function</th>{head}</tr></thead><tbody>{rows}</tbody></table>\n"
    hint = (
        '<p class="od-muted">A line opens to say why, what its variables were, how often code left there for '
        "CPython, and its machine code. Underlined variables show their types.</p>\n"
    )
    return f"<h1>{escape(title)}</h1>\n{legend()}{hint}{table}{sources(functions, machine)}"


def cell(functions: Sequence[dict[str, Any]]) -> str:
    """Return what a notebook shows: the same, small, without machine code."""
    return legend() + sources(functions, [()] * len(functions), anchors=False)


def sources(functions: Sequence[dict[str, Any]], machine: Sequence[Machine], *, anchors: bool = True) -> str:
    """Return the source of functions, each file once, each line once."""
    by_file: dict[str, list[int]] = {}
    for number, function in enumerate(functions):
        by_file.setdefault(function["file"], []).append(number)
    out = []
    for file, numbers in by_file.items():
        part = _File(file, [(n, functions[n], machine[n]) for n in numbers], anchors)
        out.append(part.html())
    return "".join(out)


def anchor(number: int) -> str:
    """Return the id of a function's place on the page."""
    return f"f{number}"


def status_counts(function: dict[str, Any]) -> dict[str, int]:
    """Count the lines of a function by how they run."""
    counts = dict.fromkeys(_WORST, 0)
    for line in _lines_of(function).values():
        counts[line[0]] += 1
    return counts


def _table_row(number: int, function: dict[str, Any]) -> str:
    counts = status_counts(function)
    cells = "".join(f'<td class="od-r">{counts[status]:,}</td>' for status in _WORST)
    left = sum(row["count"] for row in function.get("left", ()))
    return (
        f'<tr><td><a href="#{anchor(number)}"><code>{escape(function["name"])}</code></a></td>{cells}'
        f'<td class="od-r">{len(function["versions"])}</td><td class="od-r">{left:,}</td></tr>'
    )


def _lines_of(function: dict[str, Any]) -> dict[int, tuple[str, list[str]]]:
    """Status and reasons of each line that holds instructions of the function."""
    lines = {line["line"]: (line["status"], list(line["why"])) for line in function["lines"]}
    # Of a module only the loops are compiled: what stands around them is no news.
    is_module = function["name"] == "<module>"
    first, last = (min(lines), max(lines)) if is_module and lines else (1, sys.maxsize)
    why = [_NOT_REACHED] if lines and not is_module else []
    for number in function.get("code_lines", ()):
        if number not in lines and first <= number <= last:
            lines[number] = ("not compiled", why)
    return lines


class _Line:
    """What all functions have to say about one line."""

    def __init__(self) -> None:
        self.status: str | None = None
        self.why: list[str] = []
        self.left: list[tuple[str, int]] = []
        self.types: dict[str, list[tuple[str, str]]] = {}
        """For each variable what it is, with the version that says so."""
        self.code: list[tuple[str, list[tuple[bool, str]]]] = []

    def type_texts(self) -> dict[str, str]:
        """Say what each variable is; version by version only where they differ."""
        texts = {}
        for name, known in self.types.items():
            if len({text for _, text in known}) == 1:
                texts[name] = known[0][1]
            else:
                texts[name] = "; ".join(f"{label}: {text}" if label else text for label, text in known)
        return texts

    def add(self, status: str, why: Iterable[str]) -> None:
        if self.status is None or _WORST.index(status) > _WORST.index(self.status):
            self.status = status
        self.why += [sentence for sentence in why if sentence not in self.why]


class _File:
    """One file and the functions of it that are shown."""

    def __init__(
        self, file: str, functions: list[tuple[int, dict[str, Any], Machine]], anchors: bool
    ) -> None:
        self._file = file
        self._anchors = anchors
        self._lines: dict[int, _Line] = {}
        self._heads: dict[int, list[str]] = {}
        self._source = read(file)
        self._shown: set[int] = set()
        for number, function, machine in sorted(functions, key=lambda f: f[1]["firstlineno"]):
            self._add(number, function, machine)

    def html(self) -> str:
        text = Lines(self._source)
        rows = []
        last = 0
        for number in sorted(self._shown):
            if last and number > last + 1:
                rows.append('<div class="od-line od-muted od-gap" aria-hidden="true">      …</div>\n')
            last = number
            rows += self._heads.get(number, ())
            rows.append(self._row(number, text))
        missing = "" if self._source else ' <span class="od-muted">(its source is not to be had)</span>'
        name = f"<h2><code>{escape(self._file)}</code>{missing}</h2>\n"
        return f'{name}<div class="od-src"><div class="od-rows">\n{"".join(rows)}</div></div>\n'

    def _line(self, number: int) -> _Line:
        return self._lines.setdefault(number, _Line())

    def _add(self, number: int, function: dict[str, Any], machine: Machine) -> None:
        lines = _lines_of(function)
        for line, (status, why) in lines.items():
            self._line(line).add(status, why)
        first = function["firstlineno"]
        last = max(lines, default=first)
        if function["name"] == "<module>" and function["lines"]:
            first = min(lines)
        elif function["name"] == "<module>" and self._source:
            first, last = 1, len(self._source)
        self._shown |= set(range(max(first, 1), last + 1)) | set(lines)
        for row in function.get("left", ()):
            if row["line"] is not None:
                self._line(row["line"]).left.append((row["why"], row["count"]))
                self._shown.add(row["line"])
        versions = function["versions"]
        self._add_types(function.get("line_types", ()), "")
        for n, version in enumerate(versions, 1):
            label = f"version {n}" if len(versions) > 1 else ""
            self._add_types(version.get("line_types", ()), label)
        of_no_line = self._add_machine(function, machine)
        self._heads.setdefault(max(first, 1), []).append(self._head(number, function, of_no_line))
        self._shown.add(max(first, 1))

    def _add_types(self, rows: Iterable[dict[str, Any]], label: str) -> None:
        for row in rows:
            text = ", then ".join(row["types"])
            self._line(row["line"]).types.setdefault(row["name"], []).append((label, text))

    def _add_machine(self, function: dict[str, Any], machine: Machine) -> list[tuple[str, Listing]]:
        """Give each line its instructions; return those of no line."""
        rest: list[tuple[str, Listing]] = []
        for n, listing in enumerate(machine):
            if listing is None:
                continue
            version = function["versions"][n]
            label = ""
            if len(machine) > 1:
                loop = "a loop of " if version["entry"] == "loop" else ""
                label = f" of {loop}version {n + 1} ({version['types']})"
            by_line: dict[int, list[tuple[bool, str]]] = {}
            last = None
            for line, is_out, text in listing:
                key = line if line is not None and line > 0 else _NO_LINE
                part = by_line.setdefault(key, [])
                if last != key and part:
                    part.append((False, "…"))
                part.append((is_out, text))
                last = key
            none = by_line.pop(_NO_LINE, [])
            if none:
                rest.append((label, [(None, is_out, text) for is_out, text in none]))
            for line, part in by_line.items():
                self._line(line).code.append((label, part))
                self._shown.add(line)
        return rest

    def _head(self, number: int, function: dict[str, Any], of_no_line: list[tuple[str, Listing]]) -> str:
        ident = f' id="{anchor(number)}"' if self._anchors else ""
        facts = "".join(f"<li>{fact}</li>" for fact in _facts(function))
        code = "".join(
            f"<details><summary>Machine code{escape(label)} that belongs to no line</summary>"
            f"{_assembly([(is_out, text) for _, is_out, text in listing])}</details>"
            for label, listing in of_no_line
        )
        name = f"<h3><code>{escape(function['name'])}</code></h3>"
        return f'<div class="od-head"{ident}>{name}<ul>{facts}</ul>{code}</div>\n'

    def _row(self, number: int, text: Lines) -> str:
        line = self._lines.get(number)
        if line is None:
            line = _Line()
        mark = MARKS.get(line.status or "", " ")
        css = f"od-line {CLASSES[line.status]}" if line.status else "od-line"
        types = line.type_texts()
        left = sum(n for _, n in line.left)
        why = line.why[0] if line.why else ""
        more = _more(line)
        cells = (
            f'<span class="od-n">{number}</span>'
            f'<span class="od-mark" title="{escape(line.status or "no code")}">{mark}</span>'
            f'<code class="od-c">{text.html(number, types)}</code>'
            + (f'<span class="od-left" title="left for CPython">left {left:,}×</span>' if left else "")  # noqa: RUF001
            + (f'<span class="od-why">{escape(why)}</span>' if why else "")
        )
        data = f' data-line="{number}"'
        if not more:
            return f'<div class="{css}"{data}><span class="od-tri"></span>{cells}</div>\n'
        return (
            f'<details><summary class="{css}"{data}><span class="od-tri"></span>{cells}</summary>'
            f'<div class="od-more">{more}</div></details>\n'
        )


def _more(line: _Line) -> str:
    """Return what a line says when it is opened."""
    rows = []
    if len(line.why) > 1 or (line.why and (line.left or line.types or line.code)):
        rows += [("why", escape(sentence)) for sentence in line.why]
    rows += [("left for CPython", f"{count(n, 'time')}: {escape(why)}") for why, n in line.left]
    rows += [(f"<code>{escape(name)}</code>", escape(text)) for name, text in line.type_texts().items()]
    facts = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)
    code = "".join(
        f"<details{' open' if len(line.code) == 1 else ''}><summary>Machine code{escape(label)}: "
        f"{count(sum(text != '…' for _, text in part), 'line')}</summary>{_assembly(part)}</details>"
        for label, part in line.code
    )
    return (f"<dl>{facts}</dl>" if facts else "") + code


def _assembly(part: Iterable[tuple[bool, str]]) -> str:
    rows = []
    for is_out, text in part:
        shown = escape(text if text.endswith(":") else f"    {text}")
        rows.append(f'<span class="od-out">{shown}</span>' if is_out else shown)
    return f'<pre class="od-asm">{chr(10).join(rows)}</pre>'


def _facts(function: dict[str, Any]) -> Iterator[str]:
    """Yield sentences about a function as a whole."""
    versions = function["versions"]
    for n, version in enumerate(versions, 1):
        how = "a running loop" if version["entry"] == "loop" else "calls"
        cached = ", machine code from the cache" if version["cached"] else ""
        number = f"Version {n}" if len(versions) > 1 else "Compiled"
        yield (
            f"{number} for {how} with <code>({escape(version['types'])})</code> in "
            f"{version['compile_ms']:.1f} ms{cached}; entered {count(version['entered'], 'time')}; "
            f"{version['code_size']:,} bytes of machine code"
        )
        if version["fastmath"]:
            called = ", ".join(version["vector_functions"]) or "none"
            yield (
                "fastmath: results may differ from CPython's in the last bits; functions of math called for "
                f"several elements at once: {escape(called)}"
            )
    left = sum(row["count"] for row in function.get("left", ()))
    if left:
        yield f"Left for CPython {count(left, 'time')} in all versions, those that were replaced included"
    refused = function.get("refused", ())
    for refusal in refused:
        yield f"Not compiled: {escape(refusal)}"
    if not versions and not refused:
        yield "Not called yet: the types of its arguments are unknown, so they count as objects here"
