"""A jitted function answers like a function: attributes, signature, pickling, copying, weak references."""

import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import textwrap
import weakref

import overdrive
import pytest


def area(width: float, height: float = 2.0, *, scale: int = 1) -> float:
    """Area of a rectangle."""
    return width * height * scale


fast_area = overdrive.jit(area)


@overdrive.jit
def decorated(a, b=1):
    """Decorated."""
    return a + b


def test_attributes_are_the_functions():
    names = "__name__ __qualname__ __doc__ __module__ __defaults__ __kwdefaults__ __annotations__ __code__ __globals__ __closure__"
    for name in names.split():
        assert getattr(fast_area, name) == getattr(area, name)
    assert fast_area.__wrapped__ is area
    assert callable(fast_area) and "area" in repr(fast_area)
    if sys.version_info >= (3, 12):
        assert fast_area.__type_params__ == ()


def test_inspect():
    assert str(inspect.signature(decorated)) == "(a, b=1)"
    assert inspect.signature(fast_area) == inspect.signature(area)
    assert inspect.getsource(decorated).startswith("@overdrive.jit\ndef decorated")
    assert inspect.getdoc(decorated) == "Decorated."
    assert inspect.isroutine(decorated)

    class C:
        @overdrive.jit
        def method(self, x):
            return x

    assert str(inspect.signature(C().method)) == "(x)"


def test_attributes_can_be_set():
    f = overdrive.jit(lambda: 1)
    f.tag = "x"
    assert f.tag == "x" and f.__dict__ == {"tag": "x"} and f.__wrapped__.tag == "x"
    f.__name__, f.__qualname__, f.__doc__ = "g", "h.g", "text"
    assert (f.__name__, f.__qualname__, f.__doc__) == ("g", "h.g", "text")
    del f.tag
    assert not hasattr(f, "tag")
    with pytest.raises(AttributeError):
        f.__globals__ = {}
    with pytest.raises(TypeError):
        f.__name__ = 3


def test_new_code_is_what_runs():
    f = overdrive.jit(lambda a: a + 1)
    assert f(1) == f(1) == 2
    f.__code__ = (lambda a: a * 10).__code__
    assert f(2) == 20 and f.__wrapped__(2) == 20


def test_wraps_and_partial_and_caches_take_it():
    @functools.wraps(decorated)
    def wrapper(*args):
        return decorated(*args)

    assert wrapper.__name__ == "decorated" and wrapper(1) == 2
    assert functools.partial(decorated, 1)(5) == 6
    assert functools.lru_cache(decorated)(1) == 2
    assert list(map(decorated, [1, 2])) == [2, 3]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_by_name(protocol):
    assert pickle.loads(pickle.dumps(decorated, protocol)) is decorated


def test_a_local_function_does_not_pickle():
    f = overdrive.jit(lambda: 1)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(f)


def test_cloudpickle_stores_functions_by_value():
    cloudpickle = pytest.importorskip("cloudpickle")
    k = 5
    f = overdrive.jit(lambda x: x + k)
    f(1)
    blob = cloudpickle.dumps(f)
    program = f"""
        import pickle
        f = pickle.loads({blob!r})
        assert f(1) == 6 and f(1.5) == 6.5 and f.__wrapped__(1) == 6
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_copies_are_the_object_itself():
    assert copy.copy(decorated) is decorated and copy.deepcopy([decorated])[0] is decorated


def test_weak_references_end_with_the_object():
    f = overdrive.jit(lambda x: x + 1)
    f(1), f(1)
    seen = []
    ref = weakref.ref(f, lambda _: seen.append(1))
    original = weakref.ref(f.__wrapped__)
    assert ref() is f
    del f
    gc.collect()
    assert ref() is None and original() is None and seen == [1]


def test_cycles_through_the_function_are_collected():
    def make():
        def f(x):
            return f, x

        jitted = f = overdrive.jit(f)
        jitted.me = jitted
        jitted(1)
        return weakref.ref(jitted)

    ref = make()
    gc.collect()
    assert ref() is None


def test_off_returns_the_function():
    program = "import overdrive\ndef f(): pass\nassert overdrive.jit(f) is f and overdrive.promote(f) is f"
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={"OVERDRIVE": "0", "PYTHONPATH": ":".join(sys.path)}
    )
