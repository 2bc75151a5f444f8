"""`overdrive.verify`: equal functions are equal, wrong native code is found, and nothing of the program changes."""

import dataclasses
import random
import sys
import threading
import time
import warnings

import numpy as np
import overdrive
import pytest
from overdrive import verification, verify

HISTORY = []
COUNT = 0


@dataclasses.dataclass
class Account:
    balance: float = 1.5

    def pay(self, amount, log=[]):
        log.append(amount)
        self.balance += amount
        return self, log


def total(values, scale, n=3):
    s = 0.0
    for i in range(len(values)):
        s += values[i] * scale
    values[0] = s
    return s, values


@pytest.fixture
def wrong(monkeypatch):
    """Puts other code in the place of the native one; gets the interpreted function."""

    def put(make):
        monkeypatch.setattr(verification, "jit", make)

    return put


def test_equal_and_native():
    values = [1.0, 2.0]
    found = verify(total, values, 2.5)
    assert found and found.equal and found.native and found.native_calls == verification.CALLS
    assert values == [1.0, 2.0]
    assert str(found).startswith("total (") and "equal to CPython (5 native calls" in str(found)
    found.check(native=True)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda s, values: (s + 1, values), "result[0]"),
        (lambda s, values: (-s, values), "result[0]"),
        (lambda s, values: (np.float64(s), values), "result[0]"),
        (lambda s, values: (s, list(values)), "args[0]"),
        (lambda s, values: [s, values], "result"),
        (lambda s, values: values.append(1) or (s, values), "result[1]"),
        (lambda s, values: print("x") or (s, values), "stdout"),
        (lambda s, values: warnings.warn("x") or (s, values), "warnings"),
        (lambda s, values: 1 / 0, "result"),
        (lambda s, values: HISTORY.append(1) or (s, values), None),
    ],
    ids=range(10),
)
def test_wrong_native_code_is_found(wrong, change, path):
    wrong(lambda function: lambda *args: change(*function(*args)))
    found = verify(total, [1.0, 2.0], 2.5)
    HISTORY.clear()
    if path is None:
        # A list that only the wrong code knows: outside of what can be seen.
        assert found
        return
    assert not found and found.repeatable
    assert any(difference.path.startswith(path) for difference in found.differences), str(found)
    with pytest.raises(overdrive.DifferenceError, match="differs from CPython"):
        found.check()


def test_a_difference_of_the_third_call_is_found(wrong):
    def make(function):
        calls = []

        def native(*args):
            calls.append(1)
            s, values = function(*args)
            return (s, values) if len(calls) < 3 else (s + 1, values)

        return native

    wrong(make)
    assert [d.path for d in verify(total, [1.0], 1.0).differences] == ["result[0]"]


def raises(kind, x):
    if kind:
        raise kind("no", x)
    return [x][1]


def test_exceptions_with_their_tracebacks(wrong):
    for kind in (ValueError, KeyError, StopIteration, None, SystemExit):
        assert verify(raises, kind, 3).equal

    def other_line(function):
        def native(kind, x):
            raise ValueError("no", x)

        return native

    wrong(other_line)
    found = verify(raises, ValueError, 3)
    assert {d.path.partition("[")[0] for d in found.differences} == {"traceback"}


def test_other_arguments_of_an_exception(wrong):
    def make(function):
        def native(kind, x):
            try:
                function(kind, x)
            except ValueError as error:
                error.args = ("yes", x)
                raise

        return native

    wrong(make)
    assert "exception.args[0]" in [d.path for d in verify(raises, ValueError, 3).differences]


def test_methods_defaults_and_keywords_are_copied():
    account = Account()
    found = verify(account.pay, amount=2)
    assert found.equal and found.native
    assert account.balance == 1.5 and Account.pay.__defaults__ == ([],)
    assert verify(Account.pay, account, 2, log=[1])


def counter():
    n, log = 0, []

    def count(by):
        nonlocal n
        n += by
        log.append(n)
        return n, log

    return count


def test_closure_variables_are_copied():
    count = counter()
    count(1)
    assert verify(count, 2)
    assert count(1) == (2, [1, 2])


def remembers(x):
    global COUNT
    COUNT += x
    HISTORY.append(COUNT)
    return COUNT, len(HISTORY)


def test_globals_are_put_back():
    assert verify(remembers, 3)
    assert (COUNT, HISTORY) == (0, [])


def test_changes_of_globals_are_compared(wrong):
    def make(function):
        def native(x):
            value = function(x)
            HISTORY.append("more")
            return value

        return native

    wrong(make)
    found = verify(remembers, 3)
    assert [d.path for d in found.differences] == ["HISTORY"]
    assert HISTORY == []


def draws(n):
    return [random.random() for _ in range(n)] + [float(np.random.rand())]


def test_random_numbers_are_the_same_in_each_run():
    np.random.seed(1)
    random.seed(1)
    assert verify(draws, 3)
    ours = random.random()
    random.seed(1)
    assert random.random() == ours


def test_what_is_not_repeatable_is_said():
    found = verify(lambda: time.perf_counter_ns())
    assert not found and not found.repeatable
    assert "not repeatable" in str(found) and "time.perf_counter_ns" in str(found)


def writes(a, b):
    for i in range(len(a)):
        a[i] += b[i] * 2
    return a


def test_views_of_one_array():
    base = np.arange(200.0)
    assert verify(writes, base[1:], base[:-1])
    assert verify(writes, base, base[::-1])
    assert base.tolist() == list(range(200))


@overdrive.jit
def jitted(n):
    s = 0
    for i in range(n):
        s += i * i
    return s


def test_a_jitted_function_is_verified_as_it_is():
    assert verify(jitted, 1000).native
    overflow = verify(jitted, 3_000_000)
    assert overflow.equal


def test_a_promoted_function():
    def square(x):
        return x * x

    code = overdrive.promote(square).__code__
    assert verify(square, 3).native and square.__code__ is code


def generator():
    yield 1


def test_nothing_native_is_said():
    found = verify(generator)
    assert found.equal and not found.native and "nothing ran natively" in str(found)
    with pytest.raises(overdrive.NotCompiledError):
        found.check(native=True)


def test_under_a_tracer_nothing_is_native():
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        found = verify(total, [1.0], 2.0)
    finally:
        sys.settrace(before)
    assert found.equal and not found.native and "tracer" in found.notes[0]


async def coroutine():
    pass


def test_what_verify_does_not_take():
    for function, message in [(len, "not <"), (3, "not 3"), (Account, "not <"), (coroutine, "coroutines")]:
        with pytest.raises(TypeError, match=message):
            verify(function)
    with pytest.raises(TypeError, match=r"args\[1\] cannot be copied"):
        verify(total, [1.0], threading.Lock())


def test_a_tracer_of_ours_is_gone_afterwards():
    before = sys.gettrace()
    verify(raises, ValueError, 1)
    assert sys.gettrace() is before


def test_calls_made_with_wrong_arguments():
    assert verify(total).equal
    assert verify(total, [1.0], 2.0, nonsense=1).equal
