"""The extension, or why this interpreter runs without it: a program that decorates its functions goes on."""

from __future__ import annotations

import os
import sys

# As in the package itself: nothing is imported that the interpreter has not loaded anyway.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SUPPORTED = ((3, 11), (3, 12), (3, 13))

core: Any = None
_missing: str | None = None

try:
    from overdrive import _core
except ImportError as error:

    def _why(error: ImportError) -> str | None:
        if "subinterpreters" in str(error) or "once per interpreter process" in str(error):
            return "this is a sub-interpreter; Overdrive works in the main interpreter only"
        if not getattr(sys, "_is_gil_enabled", lambda: True)() or "t" in getattr(sys, "abiflags", ""):
            return "this CPython is built to run without the GIL, which Overdrive does not support"
        if sys.implementation.name != "cpython" or sys.version_info[:2] not in SUPPORTED:
            versions = ", ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
            this = f"{sys.implementation.name} {sys.version.split()[0]}"
            return f"there is no extension for {this}: it is built for CPython {versions}"
        return None

    _missing = _why(error)
    if _missing is None:
        # A damaged installation, which must not look like a slow one.
        raise
else:
    core = _core

SWITCHED_OFF = "switched off by OVERDRIVE=0" if os.environ.get("OVERDRIVE") == "0" else None


def reason() -> str | None:
    """Why nothing is compiled here, as far as it is known without a try; ``None`` when it is."""
    return SWITCHED_OFF or _missing


def problem() -> str | None:
    """As `reason`, after the self-test of this interpreter's structs (2 ms, once)."""
    return reason() or next(
        (f"{feature}: {why}" for feature, holds, why in core.selftest() if not holds), None
    )
