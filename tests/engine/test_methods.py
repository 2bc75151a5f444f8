"""Methods of ordinary classes: found by the class's version, translated in place with their stores made last. Equal to
CPython whatever is changed, shared or missing."""

from __future__ import annotations

import math
import sys

import overdrive
import pytest
from overdrive import _core

from .test_exits import fresh
from .test_members import alike, is_native


class Account:
    def __init__(self, balance, n=0):
        self.y = balance
        self.n = n

    def add(self, amount):
        self.y += amount
        self.n += 1

    def take(self, amount, fee=1):
        self.y -= amount + fee
        return self.y

    def twice(self, amount):
        self.add(amount)
        self.add(amount)
        return self.n

    def give(self, other, amount):
        self.y -= amount
        other.y += amount
        return self.y - other.y

    def exchange(self):
        kept = self.y
        self.y = self.n
        self.n = kept
        return kept

    def sum_up(self, amounts):
        for x in amounts:
            self.y += x
        return self.y

    def grow(self, amounts):
        s = self.n
        self.n = 0
        for x in amounts:
            s += x * self.y
        self.y = s
        return self.n

    def settle(self, other):
        if self.y > other.y:
            self.y = other.y
        return other.y


class Slots:
    __slots__ = ("n", "y")
    __init__ = Account.__init__
    add = Account.add
    take = Account.take
    twice = Account.twice
    give = Account.give
    exchange = Account.exchange
    sum_up = Account.sum_up
    grow = Account.grow
    settle = Account.settle


class Heir(Account):
    def add(self, amount):
        self.y += amount + 1
        self.n += 2


CLASSES = [Account, Slots, Heir]


def adds(accounts, amounts):
    for a in accounts:
        for x in amounts:
            a.add(x)
    return accounts[0].y


def takes(accounts, amounts):
    s = 0
    for a in accounts:
        for x in amounts:
            s += a.take(x) + a.take(x, 0) + a.take(fee=2, amount=x)
    return s


def twices(accounts, amounts):
    return [a.twice(x) for a in accounts for x in amounts]


def gives(accounts, amounts):
    s = 0
    for a in accounts:
        for b in accounts:
            for x in amounts:
                s += a.give(b, x)
    return s


def exchanges(accounts, amounts):
    kept = []
    for a in accounts:
        for _ in amounts:
            kept.append(a.exchange())
    return kept


def settles(accounts, amounts):
    s = 0
    for a in accounts:
        for b in accounts:
            s += a.settle(b)
    return s


def sums(accounts, amounts):
    s = 0
    for a in accounts:
        s += a.sum_up(amounts)
    return s


def grows(accounts, amounts):
    s = 0
    for a in accounts:
        s += a.grow(amounts)
        s += a.y
    return s


FUNCTIONS = [adds, takes, twices, gives, exchanges, settles, sums, grows]
STARTS = [(1, 2), (0.5, 0.25), (2**62, 1), (2**63 - 3, 0), (1, 2**63 - 2), (True, 2.5), (math.inf, math.nan)]


def some(cls, start):
    return lambda: [[cls(*start), cls(3, 4), cls(start[1], start[0])], [1, 2, 3]]


@pytest.mark.parametrize("start", STARTS, ids=str)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_all(f, start):
    for cls in CLASSES:
        alike(f, some(cls, start), 4)


@pytest.mark.parametrize("f", [adds, takes], ids=lambda f: f.__name__)
def test_they_are_translated_in_place(f):
    for cls in CLASSES:
        compiled = alike(f, some(cls, (1, 2)), 4)
        assert is_native(compiled), overdrive.explain(compiled)
        assert f"{cls.__name__ if cls is Heir and f is adds else 'Account'}.{f.__name__[:-1]} inlined" in str(
            overdrive.explain(compiled)
        )


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_each_exit_by_number(f):
    for start in ((1, 2), (0.5, 0.25)):
        n_exits = _core.debug_exit_count(alike(f, some(Account, start), 3))
        for k in range(n_exits):
            _core.debug_force(k)
            alike(f, some(Account, start), 2)
        _core.debug_force(None)


@pytest.mark.parametrize("seed", range(6))
def test_exits_at_random(seed):
    _core.debug_force(("seed", seed, 0.1))
    for f in FUNCTIONS:
        alike(f, some(Account, STARTS[seed % len(STARTS)]), 3)


def test_what_was_done_before_an_error_stays():
    """The second store of a body fails: the first one is there, once, and the traceback shows the method."""

    class Own(Account):
        def add(self, amount):
            self.y += amount
            self.n += amount

    def f(accounts, amounts):
        for a in accounts:
            for x in amounts:
                a.add(x)

    for bad in ("text", None, 2**64):
        compiled = fresh(f)
        for n in (1, 2, bad, 3, bad):
            alike(f, lambda n=n: [[Own(1, 1), Own(2, n), Own(3, 3)], [1, 2]], 2, compiled)

    def missing():
        accounts = [Own(1, 1), Own(2, 2)]
        del accounts[1].n
        return [accounts, [1, 2]]

    compiled = alike(f, some(Own, (1, 2)), 4)
    alike(f, missing, 4, compiled)


def test_a_result_and_an_attribute_are_one_object():
    class Own:
        def __init__(self):
            self.x = 1.0
            self.y = 2.0

        def put(self, a, b):
            self.x = a * b
            return self.x

        def keep(self, a):
            x = a * 0.0
            self.x = x
            return x

        def both(self, a):
            self.x = self.y = a * 0.0
            return self.x

    def f(o, a, b):
        r = o.put(a, b)
        s = o.keep(a)
        kept = r is o.x, s is o.x, s in [o.x], r != r
        t = o.both(a)
        return kept, t is o.x, o.x is o.y, t is s, t in [o.y]

    def g(items, a, b):
        x = a * b
        items[0] = x
        found = items[0] is x, x in items
        y = x + b
        items[0] = items[1] = y
        return found, items[0] is y, items[1] is y, x in items, y in items

    alike(f, lambda: [Own(), math.inf, 0.0])
    alike(g, lambda: [[1.5, 2.5], math.inf, 0.0])


class TestChanges:
    @pytest.mark.parametrize("change", ["class", "object", "property", "class attribute"])
    def test_in_the_middle(self, change):
        def f(accounts, act):
            for i, a in enumerate(accounts):
                act(i, accounts)
                a.add(1)
                a.add(2)
            return [a.y for a in accounts]

        results = []
        for g in (f, fresh(f)):
            runs = []
            for round in range(5):

                class Own(Account):
                    pass

                def act(i, accounts, cls=Own, round=round):
                    if i != 3 or round < 3:
                        return
                    if change == "class":
                        cls.add = lambda self, x: setattr(self, "y", x * 100)
                    elif change == "object":
                        accounts[3].add = lambda x: None
                    elif change == "property":
                        cls.y = property(lambda self: 5, lambda self, v: None)
                    else:
                        cls.add = len

                try:
                    runs.append(g([Own(i) for i in range(6)], act))
                except TypeError as error:
                    runs.append(str(error))
            results.append(runs)
        assert results[0] == results[1]

    def test_an_object_that_hides_the_method(self):
        def f(accounts):
            for a in accounts:
                a.add(1)
            return [a.y for a in accounts]

        class Own(Account):
            pass

        def make(at=None):
            accounts = [Own(i) for i in range(6)]
            if at is not None:
                accounts[at].add = lambda x: None
            return [accounts]

        compiled = alike(f, make)
        for at in (0, 3, 5, None):
            alike(f, lambda at=at: make(at), 3, compiled)

        def through_dictionary():
            (accounts,) = make()
            vars(accounts[2])["add"] = lambda x: None
            return [accounts]

        alike(f, through_dictionary, 3, compiled)

    def test_a_name_that_came_by_a_dictionary(self):
        """The class numbers it although it is not interned; an object that has it hides the method."""

        class Own(Account):
            pass

        def f(accounts):
            for a in accounts:
                a.add(1)
            return [a.y for a in accounts]

        Own(0).__dict__["".join(["a", "d", "d"])] = None

        def make(hides):
            accounts = [Own(i) for i in range(4)]
            if hides:
                accounts[2].add = lambda x: None
            return [accounts]

        compiled = fresh(f)
        for hides in (False, False, False, True, False, True):
            alike(f, lambda hides=hides: make(hides), 3, compiled)

    def test_the_code_of_the_method(self):
        class Own(Account):
            def add(self, amount):
                self.y += amount

        def other(self, amount):
            self.y += 1000

        def f(a):
            a.add(1)
            a.add(1)
            return a.y

        compiled = fresh(f)
        for _ in range(5):
            assert compiled(Own(0)) == 2
        before = Own.add.__code__
        Own.add.__code__ = other.__code__
        assert compiled(Own(0)) == 2000
        Own.add.__code__ = before
        assert compiled(Own(0)) == 2


def test_other_kinds_of_methods():
    class Own:
        def __init__(self):
            self.y = 1

        @staticmethod
        def static(x):
            return x + 1

        @classmethod
        def of_class(cls, x):
            return cls.__name__, x

        @property
        def computed(self):
            return lambda x: x * 2

        builtin = len
        jitted = overdrive.jit(lambda self, x: self.y + x)

        def with_star(self, *args):
            return len(args)

        def generator(self, n):
            yield from range(n)

        def closed(self, x):
            return (lambda: x + self.y)()

    def f(o, x):
        out = []
        for i in range(3):
            out.append(o.static(i) + o.jitted(x) + o.with_star(1, 2, i))
            out.append((o.of_class(i), o.computed(x), o.builtin([1, 2]), list(o.generator(i)), o.closed(x)))
        return out

    alike(f, lambda: [Own(), 5])


def test_an_object_that_is_replaced_is_finalised_in_the_method():
    log = []

    class Noisy:
        def __del__(self):
            log.append(sys._getframe(1).f_code.co_name)

    class Own:
        def __init__(self):
            self.x = Noisy()
            self.y = 0

        def put(self, x):
            self.x = x
            self.y += 1

    def f(o, x):
        o.put(x)
        o.put(x)
        return o.y

    compiled = fresh(f)
    logs = []
    for g in (f, f, compiled, compiled, compiled, compiled):
        log.clear()
        assert g(Own(), None) == 2
        logs.append([*log])
    assert logs == [["put"]] * 6


def test_a_method_that_calls_itself():
    class Own:
        def __init__(self):
            self.y = 0

        def down(self, n):
            self.y += n
            if n:
                self.down(n - 1)

    def f(o, n):
        o.down(n)
        return o.y

    alike(f, lambda: [Own(), 20])


def test_a_tracer_sees_the_method():
    seen = []

    def tracer(frame, event, arg):
        if event == "call":
            seen.append(frame.f_code.co_name)

    compiled = alike(adds, some(Account, (1, 2)), 5)
    sys.settrace(tracer)
    try:
        compiled([Account(1)], [1, 2])
    finally:
        sys.settrace(None)
    assert seen.count("add") == 2


def test_two_stores_to_what_may_be_one_object_are_left_to_cpython():
    """The first may free what the second one would look at."""

    class Own:
        def __init__(self, y):
            self.y = y

        def put(self, other, a):
            self.y = a
            other.y = a + 1

    def f(o, p, a):
        o.put(p, a)
        return o.y, p.y

    for values in ((3, 5000), (3.0, 1.5), (5000, 3)):

        def same_object(values=values):
            o = Own(values[0])
            return [o, o, values[1]]

        compiled = alike(f, lambda values=values: [Own(values[0]), Own(values[0]), values[1]])
        alike(f, same_object, 4, compiled)
        assert "it may change an object twice" in str(overdrive.explain(compiled))
