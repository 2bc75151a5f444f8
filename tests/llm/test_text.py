"""Text out of pieces of bytes."""

import random

import pytest
from overdrive import llm


def test_characters_over_several_pieces():
    pieces = [b"a\xc3", b"\xa9", b"\xf0\x9f", b"\x90", b"\x8d ", b"\xe8\xaa", b"\x9e!"]
    out = list(llm.stream_text(pieces))
    assert "".join(out) == "a\u00e9\U0001f40d \u8a9e!"
    assert "".join(llm.stream_text([b"ok", b"\xf0\x9f"])) == "ok\ufffd"
    assert list(llm.stream_text([])) == []


def test_text_comes_as_early_as_it_is_certain():
    stream = llm.stream_text(iter([b"a\xc3", b"", b"\xa9b", b"\xff"]))
    assert [next(stream), next(stream), next(stream)] == ["a", "\u00e9b", "\ufffd"]


def test_any_bytes_cut_anywhere_are_the_decoded_whole():
    source = random.Random(2)
    parts = [bytes([byte]) for byte in range(256)] + ["\u00e9", "\u8a9e", "\U0001f40d"]
    for _ in range(3000):
        picked = source.choices(parts, k=source.randrange(12))
        whole = b"".join(part if isinstance(part, bytes) else part.encode() for part in picked)
        cuts = sorted(source.randrange(len(whole) + 1) for _ in range(4))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert "".join(llm.stream_text(pieces)) == whole.decode(errors="replace")


def test_kinds_of_pieces():
    assert (
        "".join(llm.stream_text([bytearray(b"a"), memoryview(b"xbx")[1:2], memoryview(b"c-d-")[::2]]))
        == "abcd"
    )
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            list(llm.stream_text([wrong]))
