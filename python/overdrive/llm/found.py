"""Where models lie on this machine: files, directories, Hugging Face's cache, the package with the default.

In: what a user calls a model. Out: the path of a GGUF file, or an error that says where it was looked for.
Nothing is downloaded.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from overdrive.llm.models import default_model

_HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+?)(?:/(.+\.gguf))?", re.ASCII)


def find(name: str | os.PathLike[str] | None = None) -> str:
    """Return the path of a model's file. FileNotFoundError where there is none, ValueError for several."""
    if name is None:
        return default_model()
    name = os.fspath(name)
    if not isinstance(name, str):
        raise TypeError(f"a model is named by a str or a path, not by {type(name).__name__}")
    if os.path.isdir(name):
        return _only(name, _files(Path(name)))
    if os.path.exists(name):
        return name
    match = _HUB_NAME.fullmatch(name)
    if match and not match[1].endswith(".gguf"):
        return _cached(name, match[1], match[2])
    raise FileNotFoundError(f"there is no model at {name}")


def _cached(name: str, repository: str, file: str | None) -> str:
    """Look into Hugging Face's cache, laid out as models--ORGANISATION--NAME/snapshots/COMMIT/FILE."""
    hub = _hub()
    base = hub / ("models--" + repository.replace("/", "--"))
    if not base.is_dir():
        raise FileNotFoundError(
            f"there is no file {name}, and no such model in Hugging Face's cache, {hub}; "
            f"nothing is downloaded: hf download {repository} does that"
        )
    snapshots = sorted((base / "snapshots").glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
    main = base / "refs" / "main"
    if main.is_file():
        current = base / "snapshots" / main.read_text().strip()
        snapshots = [current, *(snapshot for snapshot in snapshots if snapshot != current)]
    for snapshot in snapshots:
        if file is not None and (snapshot / file).exists():
            return str(snapshot / file)
        if file is None and (files := _files(snapshot)):
            return _only(name, files)
    what = file or "GGUF file"
    raise FileNotFoundError(f"{repository} is in Hugging Face's cache, {base}, but without {what}")


def _hub() -> Path:
    """Return Hugging Face's cache, found as its own tools find it."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    if "HF_HOME" in os.environ:
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "huggingface" / "hub"


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.gguf"))


def _only(where: str | os.PathLike[str], files: list[Path]) -> str:
    if len(files) == 1:
        return str(files[0])
    if not files:
        raise FileNotFoundError(f"there is no GGUF file in {os.fspath(where)}")
    names = ", ".join(file.name for file in files)
    raise ValueError(f"{os.fspath(where)} has several GGUF files; name one of them: {names}")
