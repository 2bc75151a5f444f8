"""Every exit of every version is taken, and the result stays CPython's (the exit fuzz of the engine's rules)."""

import overdrive
import pytest
from overdrive import _core

from .subjects import SUBJECTS


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return a.hex() == b.hex()
    return a == b


def outcome(fn, args):
    try:
        return fn(*args), args
    except Exception as error:
        return (type(error), error.args), args


def fresh(fn):
    """The function anew, so that its compiled versions are made under the present switch."""
    return overdrive.jit(type(fn)(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__))


@pytest.mark.parametrize("fn, make_args", SUBJECTS, ids=lambda x: getattr(x, "__name__", "args"))
def test_each_exit_by_number(fn, make_args):
    want = outcome(fn, make_args())
    plain = fresh(fn)
    for _ in range(3):
        assert same(outcome(plain, make_args()), want)
    n_exits = _core.debug_exit_count(plain)
    assert n_exits > 0
    for k in range(n_exits):
        _core.debug_force(k)
        forced = fresh(fn)
        for call in range(2):
            assert same(outcome(forced, make_args()), want), f"exit {k}, call {call}"


@pytest.mark.parametrize("seed", range(6))
def test_exits_at_random(seed):
    _core.debug_force(("seed", seed, 0.08))
    for fn, make_args in SUBJECTS:
        want = outcome(fn, make_args())
        forced = fresh(fn)
        for _ in range(3):
            assert same(outcome(forced, make_args()), want), fn.__name__


def test_an_exit_is_counted_and_explained():
    def f(a, b):
        return a + b

    jitted = overdrive.jit(f)
    assert jitted(1, 2) == 3
    assert jitted(2**62, 2**62) == 2**63
    data = _core.explain_data(jitted)
    assert data["exits"] == 1
    (taken,) = [e for v in data["versions"] for e in v["exits"]]
    assert taken["count"] == 1 and taken["line"] == f.__code__.co_firstlineno + 1 and taken["why"]


def test_a_guard_that_fails_often_goes():
    def f(n):
        return n * n + 1

    jitted = overdrive.jit(f)
    for k in range(40):
        big = 2**40 + k
        assert jitted(big) == big * big + 1
    data = _core.explain_data(jitted)
    assert data["exits"] < 10 and data["compiles"] >= 2


def test_compiles_are_bounded():
    def f(a, b):
        return a + b

    jitted = overdrive.jit(f)

    class Number(int):
        pass

    kinds = [1, 1.5, "a", b"a", (1,), [1], Number(3), 1j, None, True, {1}, range(3)]
    for _ in range(20):
        for a in kinds:
            for b in kinds:
                try:
                    want = f(a, b)
                except TypeError as error:
                    with pytest.raises(TypeError) as caught:
                        jitted(a, b)
                    assert caught.value.args == error.args
                else:
                    assert same(jitted(a, b), want)
    assert _core.explain_data(jitted)["compiles"] <= 24


class Answers:
    """Compares to whatever is next."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def __lt__(self, other):
        return next(self.answers)


def test_a_comparison_of_objects_that_gives_no_bool():
    """On CPython 3.13 a comparison in front of a branch converts its result itself."""

    def count(a, n):
        seen = []
        for i in range(n):
            if a < i:
                seen.append(i)
            while not a < i:
                seen.append(-i)
        return seen

    class Refuses:
        def __bool__(self):
            raise ValueError("neither")

    bools = [True, False, False, True] * 20
    for others in ([0, "", "x", 1], [[], [0], None, 2.5], [True, 0.0, Refuses()]):
        jitted = overdrive.jit(count)
        for answers in (bools, bools, bools, others * 20, bools, others * 20):
            outcomes = []
            for call in (count, jitted):
                try:
                    outcomes.append(call(Answers(answers), 5))
                except (ValueError, StopIteration) as error:
                    outcomes.append((type(error), str(error), error.__traceback__.tb_next.tb_lineno))
            assert outcomes[0] == outcomes[1]
