"""The programs in README.md run as they stand there, and print what plain Python would."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def output(which, tmp_path):
    programs = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    assert len(programs) == 3
    script = tmp_path / "program.py"
    script.write_text(programs[which])
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_one_function_by_decorator(tmp_path):
    first, second, explanation = output(0, tmp_path).split("\n", 2)
    assert int(first) == sum(i**3 for i in range(1_000))
    assert int(second) == sum(i**3 for i in range(200_000))
    assert "power_sum" in explanation


def test_one_piece_of_memory(tmp_path):
    assert output(1, tmp_path) == "108.0\n"


def test_a_language_model(tmp_path):
    first, *answer = output(2, tmp_path).splitlines()
    assert first.startswith(" Paris") and len("".join(answer)) > 20
