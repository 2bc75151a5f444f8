"""GGUF files: metadata and tensors, on the file's own memory.

>>> from overdrive.llm import read_gguf
>>> read_gguf(b"GGUF" + bytes(20))
Traceback (most recent call last):
    ...
ValueError: version 0 of GGUF; versions 2 and 3 are read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from overdrive._core import GgufFile as _File
from overdrive._core import GgufTensor, Quantisation
from overdrive._core import read_gguf as _read

if TYPE_CHECKING:
    import os

    from typing_extensions import Buffer

__all__ = ["GgufFile", "GgufTensor", "Quantisation", "read_gguf"]


class _Metadata(Mapping[str, Any]):
    """Values by key, made into Python objects when they are asked for; each list is the caller's own."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._keys = dict.fromkeys(file.keys())

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._file.value(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{len(self)} keys>"


class _Tensors(Mapping[str, GgufTensor]):
    """Tensors by name, in the file's order."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._names = dict.fromkeys(file.names())

    def __getitem__(self, name: str) -> GgufTensor:
        if name not in self._names:
            raise KeyError(name)
        return self._file.tensor(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<{len(self)} tensors>"


class GgufFile:
    """What a GGUF file says of itself, and its tensors.

    ``metadata`` and ``tensors`` are mappings in the file's order. Nothing of a tensor is read before its
    ``data`` are.
    """

    def __init__(self, file: _File) -> None:
        self._file = file
        self._metadata = _Metadata(file)
        self._tensors = _Tensors(file)

    @property
    def version(self) -> int:
        """2 or 3."""
        return self._file.version

    @property
    def alignment(self) -> int:
        """Of the tensors, in bytes."""
        return self._file.alignment

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return self._file.nbytes

    @property
    def path(self) -> str | None:
        """Where it was read from; None for a buffer."""
        return self._file.path

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Values by key. A string that is not UTF-8 is given as bytes."""
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, GgufTensor]:
        """Tensors by name."""
        return self._tensors

    def length(self, key: str) -> int | None:
        """Return how many elements the list under a key has; None where there is no list."""
        return self._file.length(key)

    def __repr__(self) -> str:
        where = "" if self.path is None else f" {self.path!r}"
        return f"<GgufFile{where}, {len(self._metadata)} keys, {len(self._tensors)} tensors>"


def read_gguf(file: str | os.PathLike[str] | Buffer, /) -> GgufFile:
    """Read a GGUF file from a path, which is mapped into memory, or from a buffer that holds one.

    All of it but the tensors' values is checked before anything is used. ValueError names the key or the
    tensor that is wrong, NotImplementedError what is sound but not supported: big-endian and split files,
    and formats that `dequantize` does not decode. OSError is the system's.

    The mapping lives as long as any tensor on it. Who changes the file meanwhile changes the tensors; who
    cuts it has the process killed when it touches what is gone, as with every mapping.
    """
    return GgufFile(_read(file))
