"""What `overdrive.info` and ``overdrive info`` tell about this installation."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

import overdrive
from overdrive import _loaded, settings


def collect() -> dict[str, Any]:
    """Return versions, system and processor, and what the engine says about itself."""
    facts: dict[str, Any] = {
        "overdrive": overdrive.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.machine()}",
        "extension": None if _loaded.core is None else _loaded.core.__file__,
    }
    facts["settings"] = _settings()
    off = _loaded.problem()
    facts["on"] = off is None
    if off is not None:
        facts["why not"] = off
    if _loaded.core is not None:
        facts.update(_loaded.core.info())
        facts["cache"] = of_cache()
    return facts


def _settings() -> str | None:
    """Tell which settings are in force in the working directory, or what is wrong with them."""
    try:
        return settings.find(os.getcwd()).file
    except (settings.SettingsError, OSError) as error:
        return str(error)


def of_cache() -> dict[str, Any]:
    """Return what there is of the cache on the disk.

    ``directory`` (None without one), ``entries`` and their ``bytes``, the ``limit`` of these, how many
    versions this process has ``loaded`` and how many ``made`` that were not there; ``problem`` only where
    there is one.
    """
    assert _loaded.core is not None
    facts: dict[str, Any] = _loaded.core.cache_info()
    if facts["problem"] is None:
        del facts["problem"]
    return facts


def to_text(facts: dict[str, Any]) -> str:
    """Lay the facts out, one a line; nested ones are indented."""
    lines: list[str] = []
    _lay_out(facts, 0, lines)
    return "\n".join(lines)


def _lay_out(facts: dict[str, Any], depth: int, lines: list[str]) -> None:
    width = max((len(key) for key in facts), default=0)
    for key, value in facts.items():
        if isinstance(value, dict):
            lines.append(f"{'  ' * depth}{key}")
            _lay_out(value, depth + 1, lines)
            continue
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, (list, tuple)):
            value = ", ".join(map(str, value))
        lines.append(f"{'  ' * depth}{key.ljust(width)}  {value}")
