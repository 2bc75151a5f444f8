"""The programs of reports.md hold in plain CPython, decorated, and promoted by `overdrive run --policy eager`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parent / "reports.md").read_text()

HEAD = """\
import contextlib, math, os, signal, sys, time, timeit
import numpy as np

@contextlib.contextmanager
def raises(kind):
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")

"""
DECORATORS = {
    "cpython": "jit = lambda f: f\n",
    "promote": "jit = lambda f: f\n",
    "jit": "from overdrive import jit\n",
}


def programs():
    for part in re.split(r"^## ", TEXT, flags=re.M)[1:]:
        title, _, rest = part.partition("\n")
        yield pytest.param("\n".join(re.findall(r"^```python\n(.*?)^```", rest, re.M | re.S)), id=title)


@pytest.mark.parametrize("mode", list(DECORATORS))
@pytest.mark.parametrize("program", list(programs()))
def test_report(program, mode, tmp_path):
    script = tmp_path / "report.py"
    script.write_text(HEAD + DECORATORS[mode] + program)
    run = ["-m", "overdrive", "run", "--policy", "eager"] if mode == "promote" else []
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *run, script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""
