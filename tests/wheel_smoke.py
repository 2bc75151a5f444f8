"""What an installed wheel must be able to do, run by scripts/test_wheel in an empty environment (no pytest)."""

import struct
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
assert ".od-native" in overdrive.explain(power_sum).html(), "the style of pages is not in the wheel"
assert "define" in overdrive.explain(power_sum).emit("llvm"), "LLVM is not in the wheel"

# A file with one tensor of one block, read and shown where there is neither NumPy nor a model.
table = struct.pack("<Q1sIQIQ", 1, b"w", 1, 32, 8, 0)
model = struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + table
model += bytes(-len(model) % 32) + struct.pack("<e32b", 0.5, *range(32))
tensor = overdrive.llm.read_gguf(model).tensors["w"]
assert (tensor.type, tensor.shape, bytes(tensor.data)[2:]) == ("Q8_0", (32,), bytes(range(32)))

with tempfile.TemporaryDirectory() as directory:
    script = Path(directory, "program.py")
    script.write_text(PROGRAM)
    file = Path(directory, "model.gguf")
    file.write_bytes(model)
    command = Path(sys.executable).with_name("overdrive")
    assert run(command, "run", "--policy", "eager", script) == run(sys.executable, script)
    assert "Q8_0" in run(command, "llm", "inspect", file)
print(f"overdrive {overdrive.__version__} works on Python {sys.version.split()[0]}")
