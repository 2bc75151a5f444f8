"""Batches of token ids as their users hold them: lists, NumPy arrays, PyTorch tensors. Private.

In: such a batch, with an attention mask. Out: lists of ids without padding, and the way back into the same
container. Neither library is imported here: who has none of its arrays needs none of it.
"""

from __future__ import annotations

import random
import sys
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIST, NUMPY, TORCH = "list", "numpy", "torch"


class Batch(NamedTuple):
    """Rows of token ids, with what is needed to give others back as they came."""

    kind: str
    """One of `LIST`, `NUMPY`, `TORCH`."""
    is_flat: bool
    """A single row that came without the axis of the batch."""
    like: Any
    rows: list[list[int]]
    """As they came, with padding."""

    @staticmethod
    def of(x: Any, name: str) -> Batch:
        """Read a batch of integers. TypeError for anything else, ValueError for a third axis."""
        kind = _kind(x)
        if kind == LIST:
            rows = list(x)
            is_flat = not any(isinstance(row, (list, tuple)) for row in rows)
            if is_flat:
                rows = [rows]
            made = [[_integer(token, name) for token in row] for row in rows]
            return Batch(LIST, is_flat, x, made)
        if x.ndim not in (1, 2):
            raise ValueError(f"{name} has {x.ndim} axes; it must have two (batch, tokens) or one")
        if kind == NUMPY and x.dtype.kind not in "iub":
            raise TypeError(f"{name} holds {x.dtype}, which are no integers")
        if kind == TORCH and (x.is_floating_point() or x.is_complex()):
            raise TypeError(f"{name} holds {x.dtype}, which are no integers")
        if kind == TORCH and x.device.type != "cpu":
            raise ValueError(f"{name} is on {x.device}; models run on the processor: pass {name}.cpu()")
        is_flat = x.ndim == 1
        return Batch(
            kind, is_flat, x, [[int(i) for i in row] for row in ([x.tolist()] if is_flat else x.tolist())]
        )

    def back(self, rows: list[list[int]], padding: int) -> Any:
        """Return rows in the container of this batch. Arrays and tensors are padded on the right."""
        if self.kind == LIST:
            return rows[0] if self.is_flat and len(rows) == 1 else rows
        longest = max(map(len, rows), default=0)
        padded = [row + [padding] * (longest - len(row)) for row in rows]
        table = padded[0] if self.is_flat and len(rows) == 1 else padded
        if self.kind == TORCH:
            return sys.modules["torch"].tensor(table, dtype=self.like.dtype)
        return sys.modules["numpy"].array(table, dtype=self.like.dtype)

    def floats(self, array: Any) -> Any:
        """Return a float32 array in the same kind of container; without a copy but for lists."""
        if self.kind == TORCH:
            return sys.modules["torch"].from_numpy(array)
        return array if self.kind == NUMPY else array.tolist()

    def seed(self) -> int:
        """Draw a seed from the generator that belongs to the container: PyTorch's, NumPy's or Python's."""
        if self.kind == TORCH:
            return int(sys.modules["torch"].randint(0, 1 << 62, (1,)).item())
        if self.kind == NUMPY:
            return int(sys.modules["numpy"].random.randint(0, 1 << 62))
        return random.getrandbits(62)


def unpadded(batch: Batch, mask: Any, padding: int | None) -> list[list[int]]:
    """Return the rows without the padding on their left.

    ``mask`` has 0 where padding is and 1 elsewhere; without one, ``padding`` is the id that pads, if any.
    Zeros between or behind ones are refused: what they would hide is part of the text for a model that
    reads from left to right.
    """
    if mask is None:
        if padding is None or not any(padding in row for row in batch.rows):
            return batch.rows
        bits = [[int(token != padding) for token in row] for row in batch.rows]
        said = f"the padding {padding} in input_ids"
    else:
        bits = Batch.of(mask, "attention_mask").rows
        said = "attention_mask"
        if [len(row) for row in bits] != [len(row) for row in batch.rows]:
            raise ValueError("attention_mask has not the shape of input_ids")
        if any(bit not in (0, 1) for row in bits for bit in row):
            raise ValueError("attention_mask must hold 0 and 1 only")
    rows = []
    for number, (tokens, seen) in enumerate(zip(batch.rows, bits, strict=True)):
        n_padding = seen.index(1) if 1 in seen else len(seen)
        if 0 in seen[n_padding:]:
            raise ValueError(
                f"row {number}: {said} has padding behind a token; pad on the left (padding_side='left')"
            )
        rows.append(tokens[n_padding:])
    return rows


def _kind(x: Any) -> str:
    if isinstance(x, (list, tuple)):
        return LIST
    # Only who has imported a library can have one of its arrays.
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return TORCH
    if numpy is not None and isinstance(x, numpy.ndarray):
        return NUMPY
    raise TypeError(f"input_ids must be a list, a NumPy array or a PyTorch tensor, not {type(x).__name__}")


def _integer(token: Any, name: str) -> int:
    if not hasattr(token, "__index__") or getattr(token, "shape", None):
        raise TypeError(f"{name} holds {token!r}, which is no integer")
    return int(token.__index__())
