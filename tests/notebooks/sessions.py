"""Runs cells in a process of their own, in the terminal's shell or in a Jupyter kernel, and returns what each one printed."""

import json
import os
import subprocess
import sys

# The shell's answers go through a file: cells may write whatever they like.
TERMINAL = """\
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance(colors="nocolor")
outcomes = []
for cell in json.load(open(sys.argv[1])):
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=True)
    shown = captured.stdout + "".join(output.data.get("text/plain", "") + "\\n" for output in captured.outputs)
    outcomes.append({"text": shown, "errors": captured.stderr, "ok": result.success,
                     "html": "".join(output.data.get("text/html", "") for output in captured.outputs)})
json.dump(outcomes, open(sys.argv[2], "w"))
"""

KERNEL = """\
import json, sys
import nbformat
from nbclient import NotebookClient
cells = [nbformat.v4.new_code_cell(source) for source in json.load(open(sys.argv[1]))]
client = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=200, kernel_name="python3", allow_errors=True)
client.execute()
outcomes = []
for cell in cells:
    shown = {"text": "", "errors": "", "ok": True, "html": ""}
    for output in cell.outputs:
        if output.output_type == "stream":
            shown["text" if output.name == "stdout" else "errors"] += output.text
        elif output.output_type == "error":
            shown["ok"] = False
            shown["text"] += "\\n".join(output.traceback)
        else:
            shown["text"] += output.data.get("text/plain", "") + "\\n"
            shown["html"] += output.data.get("text/html", "")
    outcomes.append(shown)
json.dump(outcomes, open(sys.argv[2], "w"))
"""

SHELLS = {"terminal": TERMINAL, "kernel": KERNEL}


def run(shell, cells, directory, env=None):
    """Run ``cells`` one after the other; one dict with ``text``, ``html``, ``errors`` and ``ok`` for each."""
    given, answered = directory / "cells.json", directory / "outcomes.json"
    given.write_text(json.dumps(cells))
    own = {
        "IPYTHONDIR": str(directory),
        "JUPYTER_PLATFORM_DIRS": "1",
        "HOME": str(directory),
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SHELLS[shell], str(given), str(answered)],
        cwd=directory,
        env={**os.environ, **own, **(env or {})},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(answered.read_text())
