"""Making functions, importing, iterating: what the opcodes make, and how an import fails in each version."""

import gc
import sys
import types

import numpy as np
import pytest

from .support import NULL, leaks_nothing, outcome, table


def test_make_function():
    def template(a, b=2, *, c=3):
        return (a, b, c, cell)

    cell = "enclosed"
    scope = {"__name__": "there"}
    code, closure = template.__code__, template.__closure__
    made = table("make_function", code, scope, NULL, ([5],), {"c": 6}, ("a", int), closure)
    assert type(made) is types.FunctionType
    assert made(1) == (1, [5], 6, "enclosed")
    assert made.__globals__ is scope and made.__module__ == "there"
    assert made.__qualname__ == template.__qualname__ and made.__annotations__ == {"a": int}
    assert gc.is_tracked(made)
    bare = table("make_function", code, scope, "other.name", NULL, NULL, NULL, closure)
    assert bare.__qualname__ == "other.name" and bare.__defaults__ is None and bare.__kwdefaults__ is None
    for attribute in (scope, closure, code):
        before = sys.getrefcount(attribute)
        for _ in range(10):
            table("make_function", code, scope, NULL, (1,), NULL, NULL, closure)
        assert sys.getrefcount(attribute) == before
    leaks_nothing(lambda: table("make_function", code, scope, NULL, ([5],), {"c": 6}, ("a", int), closure))


def test_import_name(monkeypatch):
    assert table("import_name", globals(), "os.path", None, 0) is __import__("os")
    assert table("import_name", globals(), "os", ("path",), 0) is sys.modules["os"]

    def python():
        import not_there_at_all  # noqa: F401

    assert outcome(lambda: table("import_name", globals(), "not_there_at_all", None, 0)) == outcome(python)
    calls = []
    monkeypatch.setattr("builtins.__import__", lambda *args: calls.append(args) or "mine")
    assert table("import_name", {"g": 1}, "x", ("y",), 2) == "mine"
    monkeypatch.undo()
    assert calls == [("x", {"g": 1}, None, ("y",), 2)]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "plain_one.py").write_text("here = 5\n")
    (tmp_path / "with_getattr.py").write_text(
        "asked = []\n"
        "def __getattr__(name):\n"
        "    asked.append(name)\n"
        "    if name == 'lazy':\n"
        "        return 7\n"
        "    if name == 'bad':\n"
        "        raise ValueError(name)\n"
        "    raise AttributeError(name)\n"
    )
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sub.py").write_text("x = 1\n")
    (tmp_path / "circular_a.py").write_text("import circular_b\nvalue = 1\n")
    (tmp_path / "circular_b.py").write_text("import circular_a\nseen = circular_a\n")
    return tmp_path


def from_import(module, name):
    scope = {"__builtins__": {"__import__": lambda *_: module}}
    exec(f"from m import {name} as found", scope)
    return scope["found"]


def test_import_from(modules):
    import plain_one
    import some_package
    import with_getattr

    nameless = types.ModuleType("nameless")
    del nameless.__name__
    odd = types.ModuleType("odd")
    odd.__name__ = 5
    fileless = types.ModuleType("fileless")
    shadow = types.ModuleType("random")
    shadow.__file__ = str(modules / "random.py")
    for module in [
        plain_one,
        some_package,
        with_getattr,
        nameless,
        odd,
        fileless,
        shadow,
        sys,
        np,
        5,
        None,
        "text",
    ]:
        for name in ["here", "lazy", "bad", "missing", "real", "sub"]:
            ours = outcome(lambda: table("import_from", module, name))
            assert ours == outcome(from_import, module, name), (module, name)
    import some_package.sub

    assert table("import_from", some_package, "sub") is sys.modules["some_package.sub"]
    del some_package.sub
    assert table("import_from", some_package, "sub") is sys.modules["some_package.sub"]
    with_getattr.asked.clear()
    outcome(lambda: table("import_from", with_getattr, "missing"))
    outcome(lambda: table("import_from", with_getattr, "lazy"))
    # `__path__` and `__spec__` questions aside, the user's function is asked once per name.
    assert with_getattr.asked.count("missing") == 1 and with_getattr.asked.count("lazy") == 1
    leaks_nothing(lambda: table("import_from", plain_one, "here"))


def test_a_failed_import_shows_no_frame_of_ours():
    with pytest.raises(ImportError) as caught:
        table("import_from", types.ModuleType("m"), "missing")
    assert caught.value.__traceback__.tb_next is None or caught.value.__traceback__.tb_next.tb_next is None
    names = [entry.name for entry in caught.traceback]
    assert "cannot_import" not in names and "<module>" not in names


class Stops:
    def __init__(self, error):
        self.error = error

    def __iter__(self):
        return self

    def __next__(self):
        raise self.error


def test_iteration():
    for source in [
        [1, 2],
        (3,),
        "ab",
        {"k": 1},
        range(3),
        (x for x in [1, [2]]),
        np.arange(2),
        map(str, [1, 2]),
    ]:
        expected = list(source) if not hasattr(source, "send") and not isinstance(source, map) else None
        iterator = table("iter", source)
        got = []
        while (item := table("next", iterator)) is not NULL:
            got.append(item)
        assert expected is None or got == expected
        assert len(got) > 0
        assert table("next", iterator) is NULL
    assert table("next_failed") == 0
    assert table("next", Stops(StopIteration(5))) is NULL
    for error in [ValueError("x"), KeyError(1)]:
        assert outcome(lambda: table("next", Stops(error)))[1][0] is type(error)
    for bad in [5, None, object]:
        assert outcome(lambda: table("iter", bad)) == outcome(iter, bad)
    leaks_nothing(lambda: table("next", table("iter", [[1]])))
    leaks_nothing(lambda: table("next", Stops(ValueError(1))))


@pytest.mark.parametrize("args", [(0, 10, 1), (5, -20, -7), (0, 0, 1), (3, 4, 100), (-(2**62), 2**62, 2**60)])
def test_range_iterators_of_a_frame(args):
    for advanced in range(4):
        iterator = iter(range(*args))
        for _ in range(advanced):
            next(iterator, None)
        parts = [table(f"range_iter_{part}", iterator) for part in ("next", "stop", "step")]
        rebuilt = table("box_range_iter", *parts)
        assert type(rebuilt) is type(iterator)
        assert list(rebuilt) == list(iterator)
        assert table("range_iter_next", iterator) == table("range_iter_stop", iterator)


def test_sequence_iterators_of_a_frame():
    for source in ([[1], [2]], ([1], [2])):
        iterator = iter(source)
        assert table("seq_iter_seq", iterator) is source and table("seq_iter_pos", iterator) == 0
        next(iterator)
        assert table("seq_iter_pos", iterator) == 1
        assert list(iterator) and table("seq_iter_seq", iterator) is NotImplemented


def test_is_unique():
    held = [1]
    assert table("is_unique", held) is False
    assert table("is_unique", *[[[] for _ in range(1)]]) in (True, False)  # depends on who holds the argument
