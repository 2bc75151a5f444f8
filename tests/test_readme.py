"""The program in README.md runs as it stands there, and prints what plain Python would."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs_and_is_right(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    script = tmp_path / "program.py"
    script.write_text(program)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second, explanation = done.stdout.split("\n", 2)
    assert int(first) == sum(i**3 for i in range(1_000))
    assert int(second) == sum(i**3 for i in range(200_000))
    assert "power_sum" in explanation
