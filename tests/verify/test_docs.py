"""The examples in the documentation of `verify` do what they say."""

import doctest
import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "verify.md"


def test_examples():
    blocks = re.findall(r"^```pycon\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    assert len(blocks) == 2
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "verify.md", str(DOCUMENT), 0)
    out = []
    doctest.DocTestRunner().run(test, out=out.append)
    assert not out, "".join(out)
