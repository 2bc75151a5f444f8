"""Text out of pieces of bytes, as a model's tokens give them."""

from __future__ import annotations

from overdrive._core import TextStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def stream_text(pieces: Iterable[bytes | bytearray | memoryview]) -> Iterator[str]:
    """Yield the text of ``pieces`` as early as it is certain.

    A character that spans several pieces is held back until it is complete. Joined, the yielded strings are
    what ``b"".join(pieces).decode("utf-8", errors="replace")`` gives: bytes that are no character, and a
    character that is cut off at the end, become U+FFFD. Only a piece that is no bytes raises (TypeError).

    >>> from overdrive import llm
    >>> list(llm.stream_text([b"caf", bytes([0xC3]), bytes([0xA9]), b"!"]))
    ['caf', 'é', '!']
    """
    stream = TextStream()
    for piece in pieces:
        text = stream.push(piece if isinstance(piece, bytes) else memoryview(piece).tobytes())
        if text:
            yield text
    text = stream.finish()
    if text:
        yield text
