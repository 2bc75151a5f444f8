"""Names, keywords and comments in source lines, so that a variable can show its type where it stands.

In: the lines of a file, and for each line the variables that something is known of. Out: HTML for a line. A
file that cannot be tokenised (broken, or no Python) is shown without.
"""

from __future__ import annotations

import io
import keyword
import linecache
import tokenize

from overdrive.html.page import escape


def read(file: str) -> list[str]:
    """Return the lines of a source: a file, or what `linecache` was told of; none where there is none."""
    linecache.checkcache(file)
    known = linecache.cache.get(file)
    if known is None:
        # Not by `linecache`, which imports its helpers only now: at the end they may be the program's.
        try:
            with tokenize.open(file) as stream:
                return stream.readlines()
        except (OSError, SyntaxError, ValueError):
            return []
    return linecache.getlines(file)


class Lines:
    """The lines of one source text."""

    def __init__(self, source: list[str]) -> None:
        self._source = [line.rstrip("\r\n") for line in source]
        self._spans = _spans(self._source)

    def __len__(self) -> int:
        return len(self._source)

    def html(self, number: int, types: dict[str, str]) -> str:
        """Return line ``number`` (from 1); variables in ``types`` (name to text) are explained on hover."""
        if not 1 <= number <= len(self._source):
            return ""
        line = self._source[number - 1]
        out: list[str] = []
        at = 0
        for begin, end, kind in self._spans.get(number, ()):
            word = line[begin:end]
            if kind == "name":
                if word not in types:
                    continue
                title = escape(f"{word}: {types[word]}")
                shown = f'<span class="od-type" title="{title}">{escape(word)}</span>'
            else:
                shown = f'<span class="od-{kind}">{escape(word)}</span>'
            out += (escape(line[at:begin]), shown)
            at = end
        out.append(escape(line[at:]))
        return "".join(out)


def _spans(source: list[str]) -> dict[int, list[tuple[int, int, str]]]:
    """Begin, end and kind (``name``, ``kw``, ``com``) of what is marked, by line."""
    spans: dict[int, list[tuple[int, int, str]]] = {}
    before, depth = "", 0
    waiting: tuple[int, int, int] | None = None

    def add(row: int, begin: int, end: int, kind: str) -> None:
        spans.setdefault(row, []).append((begin, end, kind))

    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(source) + "\n").readline):
            (row, begin), (_, end), text = token.start, token.end, token.string
            if waiting is not None:
                # `name=` between brackets is a keyword argument, no variable.
                if not (depth and text == "="):
                    add(*waiting, "name")
                waiting = None
            if token.type == tokenize.NAME and keyword.iskeyword(text):
                add(row, begin, end, "kw")
            elif token.type == tokenize.NAME and before != ".":
                waiting = (row, begin, end)
            elif token.type == tokenize.COMMENT:
                add(row, begin, end, "com")
            elif token.type == tokenize.OP:
                depth += (text in "([{") - (text in ")]}")
            before = text
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass
    return spans
