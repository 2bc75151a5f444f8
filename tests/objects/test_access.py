"""Attributes, subscripts, globals, cells, `with`, `super`: as the interpreter finds them, with its messages."""

import builtins
import sys
import types

import pytest

from .support import NULL, agree, chain, leaks_nothing, outcome, table


class Box:
    limit = 3

    def __init__(self, **fields):
        self.__dict__.update(fields)

    @property
    def fails(self):
        raise LookupError("property")

    def __repr__(self):
        return f"Box({self.__dict__})"

    def __eq__(self, other):
        return self.__dict__ == other.__dict__

    __hash__ = None


class Slotted:
    __slots__ = ("a",)


def put(o, k, v):
    o.__setattr__(k, v) if False else setattr(o, k, v)


def item_put(o, k, v):
    o[k] = v


def item_del(o, k):
    del o[k]


@pytest.mark.parametrize("name", ["a", "limit", "fails", "missing", "__class__", "real"])
@pytest.mark.parametrize(
    "make", [lambda: Box(a=1), Slotted, lambda: 3, lambda: None, lambda: Box, lambda: sys]
)
def test_attributes(make, name):
    assert outcome(lambda o: table("getattr", o, name), make()) == outcome(lambda o: getattr(o, name), make())
    if not isinstance(make(), (types.ModuleType, type)):
        for entry, python in [
            (lambda o: table("setattr", o, name, [1]) or None, lambda o: put(o, name, [1])),
            (lambda o: table("delattr", o, name) or None, lambda o: delattr(o, name)),
        ]:
            ours, theirs = make(), make()
            assert outcome(entry, ours)[0] == outcome(python, theirs)[0]
            assert repr(getattr(ours, "__dict__", None)) == repr(getattr(theirs, "__dict__", None))
            got, expected = outcome(entry, ours), outcome(python, theirs)
            if got[0] == "raises":
                assert got == expected


CONTAINERS = [[1, 2, 3], (1, 2), {"a": 1}, "abc", b"ab", bytearray(b"ab"), {1}, 5, None, range(4), int, list]


@pytest.mark.parametrize("container", CONTAINERS, ids=repr)
def test_subscripts(container):
    for key in [0, -1, 5, "a", "b", slice(0, 2), slice(None, None, 0), None, 1.5, [], True, 2**80]:
        agree(lambda c, k: table("getitem", c, k), lambda c, k: c[k], container, key)
        agree(lambda c, k: table("delitem", c, k) or None, item_del, container, key)
        for value in [1, "x", [7, 8], 300]:
            agree(lambda c, k, v: table("setitem", c, k, v) or None, item_put, container, key, value)


class Missing(dict):
    def __missing__(self, key):
        if key == "boom":
            raise ValueError(key)
        if key == "nothing":
            raise KeyError(key)
        return ("missing", key)


@pytest.mark.parametrize("names", [{}, {"a": 1}, {"len": 2}, Missing(), Missing(a=1), {1: 2, "a": 3}])
@pytest.mark.parametrize("inner", [vars(builtins), {"len": 5}, Missing(), types.MappingProxyType({"len": 1})])
@pytest.mark.parametrize("name", ["a", "len", "boom", "nothing", "nö", "x" * 300])
def test_load_global(names, inner, name):
    code = compile(f"def f():\n    return {name}", "", "exec").co_consts[0]
    # A function's globals must be a dict; its builtins may be any mapping.
    function = types.FunctionType(code, names | {"__builtins__": inner} if type(names) is dict else names)
    if type(names) is not dict:
        names["__builtins__"] = inner
        function = types.FunctionType(code, names)
    got = outcome(lambda: table("load_global", function.__globals__, inner, name))
    assert got == outcome(function)
    if got[0] == "raises" and got[1][0] is NameError:
        assert got[1][3]["name"] == name


def test_a_name_error_keeps_its_context():
    def ours():
        try:
            1 / 0
        except ZeroDivisionError:
            table("load_global", {}, {}, "nope")

    with pytest.raises(NameError) as caught:
        ours()
    assert type(caught.value.__context__) is ZeroDivisionError


def test_store_and_delete_global():
    scope = {"a": 1}
    assert table("store_global", scope, "b", [2]) == 0
    assert scope == {"a": 1, "b": [2]}
    assert table("del_global", scope, "b") == 0

    def python():
        global never_there
        del never_there

    expected = outcome(python)
    got = outcome(lambda: table("del_global", scope, "never_there"))
    assert got == expected
    assert scope == {"a": 1}


def test_identity_of_globals():
    value = object()
    assert table("global_is", {"a": value}, {}, "a", value) is True
    assert table("global_is", {}, {"a": value}, "a", value) is True
    assert table("global_is", {"a": 1}, {"a": value}, "a", value) is False
    assert table("global_is", {}, {}, "a", value) is False
    assert table("global_is", Missing(a=value), {}, "a", value) is False
    # Other keys force a search that compares nothing by Python code.
    assert table("global_is", {1: 2, "a": value}, {}, "a", value) is True
    assert table("global_is", {1: 2, b"a": 1}, {"a": value}, "a", value) is True


def test_identity_of_globals_runs_no_python_code():
    class Key:
        def __hash__(self):
            return hash("a")

        def __eq__(self, other):
            raise AssertionError("compared")

    value = object()
    assert table("global_is", {Key(): 1}, {"a": value}, "a", value) is False


def test_identity_of_module_attributes():
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            return 5

    module, value = types.ModuleType("m"), object()
    module.a = value
    assert table("module_attr_is", module, "a", value) is True
    assert table("module_attr_is", module, "a", 1) is False
    assert table("module_attr_is", module, "b", value) is False
    module.__dict__["__dict__"] = value  # hidden by the type's own descriptor
    assert table("module_attr_is", module, "__dict__", value) is False
    module.__class__ = Lazy
    assert table("module_attr_is", module, "a", value) is False
    assert table("module_attr_is", Box(a=value), "a", value) is False


def test_cells():
    value = [1]
    cell = table("make_cell", value)
    assert type(cell) is types.CellType and cell.cell_contents is value
    assert table("load_cell", cell) is value
    references = sys.getrefcount(value)
    assert table("store_cell", cell, 5) == 0
    assert cell.cell_contents == 5 and sys.getrefcount(value) == references - 1
    empty = table("make_cell", NULL)
    assert table("load_cell", empty) is NotImplemented
    table("store_cell", cell, NULL)
    assert table("load_cell", cell) is NotImplemented


class Manager:
    def __enter__(self):
        return ("entered", self.__class__)

    def __exit__(self, *args):
        return True


class NoExit:
    def __enter__(self):
        raise AssertionError("entered without an exit")


class Failing(Manager):
    def __enter__(self):
        raise OSError("door")


def test_before_with():
    manager = Manager()
    leave, entered = table("before_with", manager)
    assert entered == ("entered", Manager) and leave.__self__ is manager and leave(None, None, None)

    def python(m):
        with m:
            pass

    for broken in [NoExit(), Failing(), 3, None]:
        assert outcome(lambda: table("before_with", broken)) == outcome(python, broken)
    leaks_nothing(lambda: table("before_with", Manager()))
    leaks_nothing(lambda: table("before_with", NoExit()))


def test_super_attribute():
    class Base:
        limit = 1

        def who(self):
            return ("base", type(self))

    class Derived(Base):
        limit = 2

        def who(self):
            return "derived"

    this = Derived()
    assert table("super_attr", super, Derived, this, "who")() == ("base", Derived)
    assert table("super_attr", super, Derived, this, "limit") == 1
    for args in [(Derived, this, "nothing"), (Derived, 3, "who"), (5, this, "who")]:
        ours = outcome(lambda: table("super_attr", super, *args))
        assert ours == outcome(lambda c, s, n: getattr(super(c, s), n), *args)
    leaks_nothing(lambda: table("super_attr", super, Derived, this, "who"))


def test_exceptions_are_described_in_full():
    # The comparison itself must see differences, or nothing above means anything.
    assert chain(NameError("a")) != chain(NameError("b"))
    assert outcome(lambda: 1) != outcome(lambda: True)
    assert outcome(lambda: 0.0) != outcome(lambda: -0.0)


def test_numbers_of_globals():
    for value in [5, -(2**63), 2**63 - 1]:
        assert table("global_int", {"a": value}, {}, "a") == value
        assert table("global_int", {}, {"a": value}, "a") == value
    for value in [2**63, True, 1.5, "5", None]:
        assert table("global_int", {"a": value}, {"a": 1}, "a") is NotImplemented
    assert table("global_int", {}, {}, "a") is NotImplemented
    assert repr(table("global_float", {"a": -0.0}, {}, "a")) == "-0.0"
    for value in [1, True, "5", None]:
        assert table("global_float", {"a": value}, {"a": 1.0}, "a") is NotImplemented


def test_a_remembered_name_is_looked_up_again_after_a_change():
    """What a name stood for is remembered until a dictionary changes: by whatever change, also back and forth."""
    value, other = ["value"], ["other"]
    globals_, builtins = {"a": value}, {"b": value}

    def is_it(name, expected=value):
        return [table("global_is", globals_, builtins, name, expected) for _ in range(3)] == [True] * 3

    assert is_it("a") and is_it("b") and not is_it("a", other)
    globals_["a"] = other
    assert not is_it("a") and is_it("a", other)
    globals_["a"] = value
    assert is_it("a") and not is_it("a", other)
    globals_["b"] = other
    assert not is_it("b") and is_it("b", other)
    del globals_["b"]
    assert is_it("b")
    builtins.clear()
    assert not is_it("b")
    globals_ |= {"a": other}
    assert not is_it("a")
    for _ in range(100):
        fresh = {"a": value}
        assert table("global_is", fresh, {}, "a", value) is True
        assert table("global_is", fresh, {}, "a", other) is False

    module = types.ModuleType("module")
    module.a = value
    assert [table("module_attr_is", module, "a", value) for _ in range(3)] == [True] * 3
    module.a = other
    assert table("module_attr_is", module, "a", value) is False
    vars(module)["a"] = value
    assert table("module_attr_is", module, "a", value) is True
    del module.a
    assert table("module_attr_is", module, "a", value) is False
