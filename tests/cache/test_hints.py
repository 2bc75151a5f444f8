"""What earlier processes learned of types: the first version is made with it, and nothing depends on its being right."""

import pytest

from .processes import entries, run

# What the dictionary and the callee give is not known before they were asked; `values` decides.
LEARNS = """
import json

def look(table, keys):
    s = 0
    for key in keys:
        s += table[key] * 2
    return s
{decorator}
f = {wrapped}
table = dict(enumerate({values}))
results = [f(table, list(table)) for _ in range(12)]
facts = overdrive.explain(f).functions[0]
print(results[0], all(r == results[0] and type(r) is type(results[0]) for r in results))
print(json.dumps([facts["compiles"], facts["exits"], facts["versions"][0]["cached"]]))
"""
FLOATS = "[i * 0.5 for i in range(300)]"
INTS = "list(range(300))"
MIXED = "[i if i % 2 else i * 0.5 for i in range(300)]"
LARGE = "[1 << 62] * 300"


def learns(values, caches, wrapped="overdrive.jit(look)"):
    program = LEARNS.format(decorator="", wrapped=wrapped, values=values)
    (result, facts), (loaded, made, problem) = run(program, caches)
    assert problem is None
    compiles, exits, cached = eval(facts, {"true": True, "false": False})
    return result, compiles, exits, cached, made


def expected(values):
    numbers = eval(values)
    s = 0
    for x in numbers:
        s += x * 2
    return f"{s} True"


@pytest.mark.parametrize("values", [FLOATS, INTS], ids=["floats", "ints"])
def test_the_second_process_need_not_learn(values, tmp_path):
    result, compiles, _, _, made = learns(values, tmp_path)
    assert result == expected(values)
    assert compiles >= 2 and made == compiles, "the first version watches, a later one knows"
    result, compiles, exits, cached, made = learns(values, tmp_path)
    assert result == expected(values)
    assert (compiles, exits, cached, made) == (1, 0, True, 0)


@pytest.mark.parametrize("then", [INTS, MIXED, LARGE, FLOATS.replace("0.5", "0.25")], ids=repr)
def test_a_hint_that_does_not_hold_is_forgotten(then, tmp_path):
    """Values of other types than in the process before: the results are theirs, and they are learned in turn."""
    learns(FLOATS, tmp_path)
    plain = tmp_path / "plain"
    alone = learns(then, plain)[0]
    assert alone == expected(then)
    for _ in range(3):
        assert learns(then, tmp_path)[0] == alone
    if then is INTS:
        assert learns(INTS, tmp_path)[1:4] == (1, 0, True)


def test_what_strict_functions_are_refused_for_does_not_depend_on_it(tmp_path):
    program = LEARNS.format(decorator="", wrapped="overdrive.jit(look, strict=True)", values=FLOATS)
    program = program.replace(
        "results = ",
        "try:\n    f({}, [])\nexcept overdrive.NotCompiledError as e:\n    print(e.args)\n    raise SystemExit\nresults = ",
    )
    before = ending(program, tmp_path / "empty")
    learns(FLOATS, tmp_path)
    assert ending(program, tmp_path) == before


def ending(program, caches):
    from .processes import start

    process = start(program, caches)
    out, err = process.communicate(timeout=240)
    return process.returncode, out.splitlines()[:2], err


def test_without_cache_there_are_none(tmp_path):
    wrapped = "overdrive.jit(look, cache=False)"
    first = learns(FLOATS, tmp_path, wrapped)
    assert first == learns(FLOATS, tmp_path, wrapped)
    assert entries(tmp_path) == []
    learns(FLOATS, tmp_path)
    assert learns(FLOATS, tmp_path, wrapped) == first
