"""The table ``[tool.overdrive]`` of a project's ``pyproject.toml``: defaults of ``overdrive run``.

In: the directory that the search begins in. Out: `Settings`, with every value checked, or `SettingsError`,
which names the file and the key. Only ``overdrive run`` obeys them; `overdrive.start` is told by its
arguments alone.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

FILE = "pyproject.toml"
POLICIES = ("default", "eager", "observe")
FORMATS = ("text", "json", "html", "none")
VERIFY_CALLS = 3
MOST_VERIFY_CALLS = 1000


class SettingsError(ValueError):
    """A settings file that cannot be obeyed: which, and what is wrong with it."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"{file}: {problem}")


class Settings:
    """What the table says; None or empty where it says nothing. ``file`` is None without a table."""

    def __init__(self) -> None:
        self.file: str | None = None
        self.policy: str | None = None
        self.only: list[str] = []
        self.skip: list[str] = []
        self.report: str | None = None
        self.report_file: str | None = None
        self.verify: bool | None = None
        self.verify_calls: int | None = None


def find(directory: str) -> Settings:
    """Return the settings of the nearest ``pyproject.toml``, from ``directory`` upwards, that has the table.

    >>> find("/").file
    """
    while True:
        file = os.path.join(directory, FILE)
        if os.path.isfile(file):
            table = _table_of(file)
            if table is not None:
                return _checked(file, table)
        above = os.path.dirname(directory)
        if above == directory:
            return Settings()
        directory = above


def _table_of(file: str) -> Mapping[str, Any] | None:
    try:
        with open(file, "rb") as opened:
            data = opened.read()
    except OSError as error:
        raise SettingsError(file, f"cannot be read: {error.strerror}") from None
    if b"overdrive" not in data:
        return None  # most files of most projects: nothing need be imported for them
    try:
        tool = _parsed(data.decode()).get("tool", {})
    except ValueError as error:
        raise SettingsError(file, f"is not valid TOML: {error}") from None
    if not isinstance(tool, dict) or "overdrive" not in tool:
        return None
    table = tool["overdrive"]
    if not isinstance(table, dict):
        raise SettingsError(file, f"tool.overdrive is a table, not {_type_name(table)}")
    return table


def _parsed(text: str) -> dict[str, Any]:
    before = set(sys.modules)
    import tomllib

    table = tomllib.loads(text)
    # A program must find the interpreter as `python` leaves it: see `overdrive.cli.run`.
    for module in set(sys.modules) - before:
        del sys.modules[module]
    return table


def _checked(file: str, table: Mapping[str, Any]) -> Settings:
    settings = Settings()
    settings.file = file
    for key, value in table.items():
        if key not in _CHECKS:
            raise SettingsError(
                file, f"tool.overdrive has no key {key!r}; the keys are {', '.join(sorted(_CHECKS))}"
            )
        try:
            setattr(settings, key.replace("-", "_"), _CHECKS[key](value))
        except ValueError as error:
            raise SettingsError(file, f"tool.overdrive.{key} {error}") from None
    if settings.report_file is not None:
        settings.report_file = _inside(file, settings.report_file)
    return settings


def _inside(file: str, path: str) -> str:
    """Resolve the report's path: a project may not have files overwritten elsewhere."""
    directory = os.path.realpath(os.path.dirname(file))
    resolved = os.path.realpath(os.path.join(directory, path))
    if os.path.isabs(path) or not resolved.startswith(os.path.join(directory, "")):
        raise SettingsError(
            file, f"tool.overdrive.report-file is a path inside the file's directory, not {path!r}"
        )
    return resolved


def one_of(allowed: tuple[str, ...]) -> Callable[[Any], str]:
    """Return a check that lets these words through and raises ValueError for anything else."""

    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"is one of {', '.join(allowed)}, not {value!r}")
        return str(value)

    return check


def number_of_calls(value: Any) -> int:
    """Check ``verify-calls``. Raises ValueError."""
    if type(value) is not int or not 1 <= value <= MOST_VERIFY_CALLS:
        raise ValueError(f"is a whole number from 1 to {MOST_VERIFY_CALLS}, not {value!r}")
    return value


def _patterns(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(f"is an array of strings, not {_type_name(value)}")
    for item in value:
        if not isinstance(item, str):
            raise ValueError(f"is an array of strings; it holds {item!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"is a string that is not empty, not {value!r}")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"is true or false, not {value!r}")
    return value


def _type_name(value: Any) -> str:
    names = {dict: "a table", list: "an array", str: "a string", bool: "a boolean", int: "an integer"}
    return names.get(type(value), f"a {type(value).__name__}")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "policy": one_of(POLICIES),
    "only": _patterns,
    "skip": _patterns,
    "report": one_of(FORMATS),
    "report-file": _text,
    "verify": _truth,
    "verify-calls": number_of_calls,
}
KEYS = tuple(_CHECKS)
