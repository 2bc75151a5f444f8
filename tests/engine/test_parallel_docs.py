"""The programs in docs/parallel.md give what the page says."""

import re
from pathlib import Path

import overdrive

PAGE = (Path(__file__).parents[2] / "docs/parallel.md").read_text()


def test_the_programs():
    programs = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    before = overdrive.get_num_threads()
    try:
        # One after the other, as a reader would; their source has lines, which `explain` needs.
        exec(compile("\n".join(programs), "docs/parallel.md", "exec"), {"__name__": "parallel_md"})
    finally:
        overdrive.set_num_threads(before)
    assert len(programs) >= 4
