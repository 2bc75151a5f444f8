"""What an installed wheel must be able to do, run by scripts/test_wheel in an empty environment (no pytest)."""

import subprocess
import sys
import tempfile
from pathlib import Path

import overdrive

PROGRAM = """
def total(n):
    s = 0.0
    for i in range(n):
        s += i * 0.5
    return s

print(sum(total(2000) for _ in range(50)))
"""


@overdrive.jit
def power_sum(n):
    total = 0
    for i in range(n):
        total += i * i * i
    return total


def plain_power_sum(n):
    total = 0
    for i in range(n):
        total += i * i * i
    return total


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


assert overdrive.info()["overdrive"] == overdrive.__version__
assert (Path(overdrive.kernel.get_include()) / "overdrive.h").exists()
for n in (0, 1000, 200_000):  # the last leaves 64 bits on the way
    assert power_sum(n) == plain_power_sum(n), n
assert "define" in overdrive.explain(power_sum).emit("llvm"), "LLVM is not in the wheel"

with tempfile.TemporaryDirectory() as directory:
    script = Path(directory, "program.py")
    script.write_text(PROGRAM)
    command = Path(sys.executable).with_name("overdrive")
    assert run(command, "run", "--policy", "eager", script) == run(sys.executable, script)
print(f"overdrive {overdrive.__version__} works on Python {sys.version.split()[0]}")
