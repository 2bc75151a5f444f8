"""The programs in docs/kernels.md: the C compiles without a warning, the Python gives what it says."""

import re
import subprocess
from pathlib import Path

import pytest
from overdrive import kernel

PAGE = (Path(__file__).parents[2] / "docs/kernels.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def test_the_library(tmp_path, monkeypatch):
    (c,) = blocks("c")
    (tmp_path / "rows.c").write_text(c)
    options = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", kernel.get_include()]
    subprocess.run(["cc", *options, "rows.c", "-o", "librows.so"], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    exec(blocks("python")[0], {})


def test_the_operator(tmp_path):
    pytest.importorskip("torch")
    exec(blocks("python")[1], {})
