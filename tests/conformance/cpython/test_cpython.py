"""CPython's own tests do the same when they are promoted: the modules that take a second or two. `make cpython-tests` runs all."""

import importlib.util

import pytest

from . import run

CHEAP = """
test_augassign test_bisect test_bool test_contains test_dictcomps test_int test_raise test_string_literals test_structseq
test_unpack test_unpack_ex
""".split()
PASSES = 3


@pytest.mark.skipif(
    importlib.util.find_spec("test.support") is None, reason="this CPython came without its tests"
)
@pytest.mark.parametrize("module", CHEAP)
def test_module(module):
    result = run.compare(
        f"test.{module}",
        run.wanted(module, library=False),
        passes=PASSES,
        seconds=250,
        expected=run.expected_differences(),
    )
    assert not result.problems(), "\n".join(result.problems())


def of_sample(name, seconds=60, expected=()):
    return run.compare(
        f"sample.{name}",
        [f"{run.HERE}/sample.py"],
        passes=2,
        seconds=seconds,
        expected=expected,
        path=run.HERE,
    )


def test_a_difference_is_found_with_its_test():
    result = of_sample("Sees")
    assert result.plain.death is None and result.eager.death is None
    assert [(d.test, d.change, d.number) for d in result.differences] == [
        ("sample.Sees.test_in_subtests", "ok -> FAIL", 2),
        ("sample.Sees.test_other", "ok -> FAIL", 2),
    ]
    assert "number=1" in result.differences[0].detail
    assert len(result.problems()) == 2
    names = {row[2] for row in result.eager.rows if row[0] == "promoted"}
    assert {"Sees.test_same", "Sees.test_other", "Sees.test_in_subtests"} <= names


def test_an_expected_difference_is_no_problem():
    line = run.Expected((run.VERSION,), "sample.Sees.test_*", "ok -> FAIL", "it looks at its own code")
    assert of_sample("Sees", expected=[line]).problems() == []
    other = run.Expected((run.VERSION,), "sample.Sees.test_other", "ok -> ERROR", "another change")
    assert len(of_sample("Sees", expected=[other]).problems()) == 2


def test_a_death_is_found_with_its_test():
    (problem,) = of_sample("Dies").problems()
    assert "in sample.Dies.test_death, pass 2" in problem
    assert "ended with status -6" in problem


def test_a_hang_is_found_with_its_test():
    (problem,) = of_sample("Hangs", seconds=12).problems()
    assert "in sample.Hangs.test_hang, pass 2" in problem
    assert "did not end in 12 s" in problem


def test_nothing_promoted_is_a_problem():
    result = run.compare("sample.Sees", [f"{run.HERE}/other.py"], passes=1, path=run.HERE)
    assert result.problems() == ["nothing was promoted, so that nothing was compared"]


def test_lines_of_the_list_of_expected_differences():
    for line in run.expected_differences():
        assert set(line.versions) <= {"3.11", "3.12", "3.13"}
        assert line.test.startswith("test.") and " -> " in line.change and line.reason
