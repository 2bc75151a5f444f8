"""What all pages share: escaping, the frame of a document with its style in it, and writing it as a whole.

Everything that comes from a program (names, paths, source) goes through `escape` before it is in a page.
"""

from __future__ import annotations

import html
import os

_HERE = os.path.dirname(__file__)

# What a page may not contain as it is: control characters become their pictures (U+2400 …); halves of
# characters, which a file name may bring, become the sign for what cannot be read.
_SHOWN = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}
_SHOWN[127] = 0x2421
_SHOWN.update(dict.fromkeys(range(0x80, 0xA0), 0xFFFD))
_SHOWN.update(dict.fromkeys(range(0xD800, 0xE000), 0xFFFD))

MARKS = {"native": "N", "cpython": "C", "not compiled": "I"}
"""The letter that stands beside each line, so that colour is not the only sign."""
CLASSES = {"native": "od-native", "cpython": "od-cpython", "not compiled": "od-interpreted"}


def escape(text: object) -> str:
    """Return a text that HTML shows as it is, in elements and in quoted attributes.

    >>> escape('<script>"')
    '&lt;script&gt;&quot;'
    """
    return html.escape(str(text).translate(_SHOWN), quote=True)


def style() -> str:
    """Return the style of all pages. It touches only what is inside ``class="od"``."""
    with open(os.path.join(_HERE, "style.css"), encoding="utf-8") as file:
        return file.read()


def document(title: str, body: str, css: str) -> str:
    """Return a whole page. ``body`` is HTML, ``title`` is not."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n"
        f"body{{margin:0;padding:1rem 1.5rem}}\n{css}</style>\n</head>\n"
        f'<body>\n<main class="od od-page">\n{body}</main>\n</body>\n</html>\n'
    )


def legend() -> str:
    """Return what the letters and colours of source lines mean."""
    meanings = (
        ("native", "native: machine code on unboxed values"),
        ("cpython", "through CPython: an operation on objects, inline"),
        ("not compiled", "interpreted: not compiled, CPython runs it"),
    )
    items = "".join(
        f'<li><span class="od-mark {CLASSES[status]}">{MARKS[status]}</span> {meaning}</li>'
        for status, meaning in meanings
    )
    return f'<ul class="od-legend">{items}</ul>\n'


def count(n: int, word: str) -> str:
    """Write a number with its noun.

    >>> count(1, "exit"), count(1200, "exit")
    ('1 exit', '1,200 exits')
    """
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def write(path: str, text: str) -> None:
    """Write a file as a whole: a failure leaves what was there before. Raises `OSError`.

    What is no plain file (a pipe, a terminal) is written to as it is.
    """
    data = text.encode("utf-8", "backslashreplace")
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "ab") as file:
            file.write(data)
        return
    path = os.path.realpath(path)
    mode = None
    if os.path.exists(path):
        # A file that may not be written is not to be replaced either.
        with open(path, "ab"):
            mode = os.stat(path).st_mode & 0o7777
    new = f"{path}.{os.getpid()}.new"
    with open(new, "xb") as file:
        try:
            file.write(data)
            file.flush()
            if mode is not None:
                os.chmod(new, mode)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
