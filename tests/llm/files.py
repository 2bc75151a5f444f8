"""GGUF files for tests, written by the format's own words and not by the code under test."""

import struct

# GGUF's numbers of the types of values, with their struct letter.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Number of a format: values and bytes of a block.
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2),
}  # fmt: skip


def string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, item):
    """A value without its type; an array is (type of its elements, list)."""
    if kind == STRING:
        return string(item)
    if kind == ARRAY:
        inner, items = item
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, each) for each in items)
    return struct.pack(f"<{NUMBERS[kind]}", item)


def gguf(metadata=(), tensors=(), version=3, alignment=32):
    """``metadata``: (key, type, value). ``tensors``: (name, shape as NumPy's, format, bytes)."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    for key, kind, item in metadata:
        head += string(key) + struct.pack("<I", kind) + value(kind, item)
    data = b""
    for name, shape, number, raw in tensors:
        head += string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", length) for length in reversed(shape))
        head += struct.pack("<IQ", number, len(data))
        data += raw + bytes(-len(raw) % alignment)
    return head + bytes(-len(head) % alignment) + data


def tokenizer(metadata):
    """The metadata of a tokenizer, from a dictionary, as ``gguf`` takes them."""
    kinds = {str: STRING, bool: 7, int: 4, float: 6}
    return [
        (key, ARRAY, ({str: STRING, int: 5, float: 6}[type(item[0])], item))
        if isinstance(item, list)
        else (key, kinds[type(item)], item)
        for key, item in metadata.items()
    ]
