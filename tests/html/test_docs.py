"""The program in docs/explain.md runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "explain.md"


def test_the_example_runs(tmp_path):
    [program] = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    script = tmp_path / "program.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
