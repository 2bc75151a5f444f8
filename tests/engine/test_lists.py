"""Lists of numbers and strings: what native code does to them without CPython is what CPython does, to the last count."""

import ctypes
import itertools
import math
import sys
import weakref

import overdrive
import pytest
from overdrive import _core

from .test_exits import fresh, same

NAN = float("nan")


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), error.args


def agree(fn, make_args, n=4):
    """The compiled function does what the interpreted one does, to its arguments too."""
    jitted = overdrive.jit(fn)
    for _ in range(n):
        a, b = make_args(), make_args()
        want, got = outcome(fn, *a), outcome(jitted, *b)
        assert same(got, want) and same(b, a)
    return jitted


# --- appending


def growing(xs, n):
    out = []
    sizes = []
    for i in range(n):
        out.append(xs[i % len(xs)])
        sizes.append(sys.getsizeof(out))
    return out, sizes


def test_appending_grows_a_list_as_cpython_does():
    # Beyond what fits each time; the list's memory tells how it grew.
    agree(growing, lambda: ([1.5, 2.5, NAN], 2000))
    agree(growing, lambda: ([300, -6, 0, 1 << 70, True], 2000))


def test_what_is_appended_belongs_to_the_list_alone():
    class Item:
        pass

    def collect(items):
        out = []
        for item in items:
            out.append(item)
        return out

    jitted = overdrive.jit(collect)
    for _ in range(4):
        items = [Item() for _ in range(50)]
        before = sys.getrefcount(items[7])
        got = jitted(items)
        assert all(a is b for a, b in zip(got, items, strict=True))
        after = sys.getrefcount(items[7])
        assert after == before + 1
        watch = weakref.ref(items[7])
        del items
        assert watch() is not None
        del got
        assert watch() is None


def test_a_computed_float_is_appended_as_one_object():
    def twice(x, n):
        out = []
        for i in range(n):
            y = x * i
            out.append(y)
            out.append(y)
        return out

    jitted = agree(twice, lambda: (1.5, 100))
    got = jitted(NAN, 40)
    assert all(got[i] is got[i + 1] for i in range(0, 80, 2))
    assert all(
        sys.getrefcount(v) == 4 for v in itertools.islice(got, 0, 80, 2)
    )  # two items, the loop's, the call's


def test_a_list_appended_to_itself_and_while_it_is_iterated():
    def itself(n):
        out = []
        for _ in range(n):
            out.append(out)
        return len(out), out[0] is out

    def longer(items):
        seen = 0
        for x in items:
            seen += 1
            if seen < 500:
                items.append(x)
        return seen

    agree(itself, lambda: (40,))
    agree(longer, lambda: ([1.5, 2.5],))


def test_a_list_that_is_being_sorted_stays_as_cpython_leaves_it():
    def spoil(target, value):
        for _ in range(3):
            target.append(value)
        return len(target)

    def run(spoiler):
        items = [3, 1, 2]

        def key(x):
            spoiler(items, x)
            return x

        try:
            items.sort(key=key)
        except ValueError as error:
            return str(error), items
        return items

    jitted = overdrive.jit(spoil)
    for _ in range(3):
        jitted([], 1)
    assert run(jitted) == run(spoil)


def test_a_subclass_of_list_appends_by_its_own_method():
    class Loud(list):
        def append(self, item):
            list.append(self, [item])

    def fill(target, n):
        for i in range(n):
            target.append(i)
        return target

    jitted = overdrive.jit(fill)
    for _ in range(3):
        assert jitted([], 3) == [0, 1, 2]
    assert jitted(Loud(), 3) == [[0], [1], [2]] and type(jitted(Loud(), 1)) is Loud


def test_no_memory_for_an_append_is_an_error_without_a_trace():
    capi = pytest.importorskip("_testcapi")

    def fill(out, item, n):
        for _ in range(n):
            out.append(item)

    jitted = overdrive.jit(fill)
    item = object()
    for _ in range(3):
        jitted([], item, 10)
    before = sys.getrefcount(item)
    failed = 0
    for start in range(30):
        out = []
        capi.set_nomemory(start, start + 1)
        try:
            jitted(out, item, 100)
        except MemoryError:
            failed += 1
        finally:
            capi.remove_mem_hooks()
        assert sys.getrefcount(item) == before + len(out)
        assert all(x is item for x in out)
    assert failed


# --- small ints


def test_small_ints_are_cpythons_own():
    def around(n):
        out = []
        for i in range(-300, n):
            out.append(i)
        return out

    jitted = agree(around, lambda: (300,))
    counts = [sys.getrefcount(i) for i in (-5, 0, 7, 256)]
    for _ in range(50):
        got = jitted(300)
    assert all((x is y) == (-5 <= x <= 256) for x, y in zip(got, jitted(300), strict=True))
    del got
    assert [sys.getrefcount(i) for i in (-5, 0, 7, 256)] == counts


def test_bools_and_big_ints_between_small_ints():
    def add(items, n):
        out = []
        for x in items:
            out.append(x + n)
        return out

    agree(add, lambda: ([1, 2, 3, 255, 256, 257, -5, -6], 0))
    agree(add, lambda: ([1, True, False, 1 << 62, 1 << 63, -(1 << 70)], 5))


# --- floats in place


def move(items, n):
    for _ in range(n):
        for i in range(len(items)):
            items[i] = items[i] * 0.5 + items[0]
    return items[0]


def test_floats_are_written_where_they_are_unless_somebody_holds_them():
    agree(move, lambda: ([1.0, 2.0, 3.0], 20))
    jitted = overdrive.jit(move)
    for _ in range(4):
        items = [float(i) + 0.25 for i in range(4)]
        places = [id(x) for x in items]
        held = items[2]
        alone = [items[0], items[1], items[3]]
        del alone
        jitted(items, 3)
        assert held == 2.25
        assert [id(x) == p for x, p in zip(items, places, strict=True)] == [True, True, False, True]


def test_a_constant_and_an_item_of_two_lists_keep_their_values():
    def constants(n):
        items = [1.5, 1.5, 2.5]
        for _ in range(n):
            items[0] = items[0] + 1.0
            items[2] = items[2] * 2.0
        return items, 1.5, 2.5

    def shared(a, b):
        for i in range(len(a)):
            a[i] = a[i] + b[i]
            b[i] = a[i] - b[i]
        return a, b

    agree(constants, lambda: (5,))

    def same_items():
        items = [1.25, 2.25, NAN]
        return items, list(items)

    def same_list():
        items = [1.25, 2.25, 3.25]
        return items, items

    agree(shared, same_items)
    agree(shared, same_list)


def test_a_float_that_a_local_remembers_is_not_overwritten():
    def swap(items, n):
        seen = []
        for i in range(n):
            old = items[i % 3]
            items[i % 3] = old + 1.0
            seen.append(old)
        return seen

    def found(items):
        x = items[0]
        items[0] = x + 1.0
        return x in [x], x, items[0], items[0] is x

    agree(swap, lambda: ([1.0, 2.0, 3.0], 30))
    agree(found, lambda: ([NAN],))
    agree(found, lambda: ([math.inf],))


def test_a_callee_that_changes_the_list_is_seen():
    def outer(items, change, n):
        total = 0.0
        for i in range(n):
            items[0] = items[0] + 1.0
            change(items, i)
            total += items[0]
        return total

    def replace(items, i):
        if i == 7:
            items[0] = i  # an int
        elif i == 9:
            items[:] = [0.5]
        elif i == 12:
            items.insert(0, -1.5)

    agree(outer, lambda: ([1.0, 2.0], replace, 20))


# --- ints in place

EDGES = [
    0,
    1,
    -1,
    -5,
    -6,
    256,
    257,
    300,
    -300,
    (1 << 30) - 1,
    1 << 30,
    -(1 << 30),
    1 - (1 << 30),
    1 << 31,
    1 << 60,
]
EDGES += [(1 << 62) + 5, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 90]


def ints(n):
    """Numbers that nobody else holds."""
    return [int(str(EDGES[i % len(EDGES)])) for i in range(n)]


def store_each(items, values):
    for i in range(len(items)):
        for v in values:
            items[i] = v + 0
            items[i] = items[i] - 1
    return items


def add_each(items, n):
    for _ in range(n):
        for i in range(len(items)):
            items[i] += i * 7
    return items


def sort(items):
    n = len(items)
    for i in range(n):
        for j in range(n - 1 - i):
            if items[j] > items[j + 1]:
                items[j], items[j + 1] = items[j + 1], items[j]
    return items


def count(xs, n):
    out = [0] * n
    for x in xs:
        out[x] += 1
    return out


def test_ints_are_written_over_ints_of_all_sizes():
    small = [int(str(x)) for x in EDGES if abs(x) < 1 << 61]
    agree(store_each, lambda: (ints(len(EDGES)), small))
    agree(store_each, lambda: ([int("1000")] * 5, small))
    agree(store_each, lambda: ([int(str(1000 + i)) for i in range(5)], small))
    agree(add_each, lambda: (ints(10), 90))
    agree(add_each, lambda: ([int(str(290 + i)) for i in range(10)], 90))
    agree(sort, lambda: ([(i * 7919) % 1009 - 300 for i in range(60)],))
    agree(count, lambda: ([i % 7 for i in range(3000)], 9))


def test_ints_are_written_where_they_are_unless_somebody_holds_them():
    jitted = overdrive.jit(add_each)
    for _ in range(4):
        items = [int(str(1000 + i)) for i in range(5)]
        places = [id(x) for x in items]
        held = items[2], {items[3]: "key"}, frozenset([items[4]])
        jitted(items, 3)
        assert items == [1000 + i + 21 * i for i in range(5)]
        assert held == (1002, {1003: "key"}, frozenset([1004])) and 1003 in held[1] and 1004 in held[2]
        assert [id(x) == p for x, p in zip(items, places, strict=True)] == [True, True, False, False, False]


def test_small_ints_in_lists_stay_cpythons_own():
    jitted = overdrive.jit(add_each)
    counts = [sys.getrefcount(i) for i in range(-5, 257)]
    for _ in range(30):
        items = [int(str(x)) for x in (1000, 1, -1000, 256, 257)]
        jitted(items, 40)
        jitted([-28 * i for i in range(9)], 4)
        got = jitted([7 - 7 * i for i in range(9)], 1)
        assert all(x is y for x, y in zip(got, [7] * 9, strict=True))
        del got, items
    # The loop itself holds one of them.
    now = [sys.getrefcount(i) for i in range(-5, 257)]
    assert all(abs(a - b) < 5 for a, b in zip(now, counts, strict=True))


def test_ints_that_others_hold_keep_their_values():
    def shared(a, b):
        for i in range(len(a)):
            a[i] = a[i] + b[i]
            b[i] = a[i] - 2 * b[i]
        return a, b

    def snapshots(items, take, n):
        seen = []
        for k in range(n):
            for i in range(len(items)):
                items[i] = items[i] + 1
            if k % 3 == 0:
                seen.append(take(items))
        return seen, items

    def while_iterated(items):
        seen = []
        for k, x in enumerate(items):
            items[0] = items[0] + 1000
            items[k] = items[k] + 5
            seen.append(x)
            seen.append(items[k])
        return seen

    def remembered(items, n):
        x = items[0]
        for _ in range(n):
            items[0] = items[0] + 3
        return x, items[0]

    def own():
        return [int(str(1000 * i)) for i in range(1, 9)]

    def two_lists():
        items = own()
        return items, list(items)

    def one_list():
        items = own()
        return items, items

    agree(shared, two_lists)
    agree(shared, one_list)
    for take in (tuple, list, iter, lambda v: v[3], lambda v: dict(enumerate(v)), lambda v: max(v)):
        fn = (lambda v, take=take: list(take(v))) if take is iter else take
        agree(snapshots, lambda fn=fn: (own(), fn, 20))
    agree(while_iterated, lambda: (own(),))
    agree(remembered, lambda: (own(), 20))


def test_bools_subclasses_and_others_among_ints_are_replaced():
    class Int(int):
        pass

    def put(items, n):
        for i in range(len(items)):
            items[i] = n + i
        return items, [type(x) for x in items]

    for odd in (True, None, 1.5, Int(1000), "x", 1 << 80):
        agree(put, lambda odd=odd: ([int("1000"), odd, int("2000"), odd], 500))
        jitted = overdrive.jit(put)
        for _ in range(3):
            jitted([int("1000"), int("3000")], 5)
        held = Int(7000)
        got, want = jitted([int("1000"), odd, held], 700), put([int("1000"), odd, held], 700)
        assert got == want and held == 7000


def test_each_exit_of_stores_of_ints():
    values = [5, 300, 1 << 40, -7]
    for fn, make in [(store_each, lambda: (ints(6), values)), (add_each, lambda: (ints(8), 12))]:
        want = outcome(fn, *make())
        jitted = fresh(fn)
        for _ in range(3):
            assert same(outcome(jitted, *make()), want)
        for k in range(_core.debug_exit_count(jitted)):
            _core.debug_force(k)
            forced = fresh(fn)
            for _ in range(2):
                assert same(outcome(forced, *make()), want), k


# --- strings


def equal(a, b):
    out = []
    for x in a:
        for y in b:
            out.append(x == y)
            out.append(x != y)
    return out


TEXTS = ["", "a", "abc", "abca", "ab\x7f", "ab\x80\xff", "é", "\u20ac\u0141", "\U0001f600a", "\x00a\x00"]


@pytest.mark.parametrize("a", TEXTS)
@pytest.mark.parametrize("b", TEXTS)
def test_characters_compare_as_cpythons(a, b):
    agree(equal, lambda: (a, b), n=2)
    agree(equal, lambda: ([a, b, a + b], [b, a, b + a, a]), n=2)


def test_characters_are_cpythons_own():
    def split(text):
        out = []
        for i in range(len(text)):
            out.append(text[i])
        return out

    jitted = agree(split, lambda: ("".join(map(chr, range(300))),))
    for _ in range(20):
        got = jitted("hello, \x00\x7f")
    assert all(x is y for x, y in zip(got, "hello, \x00\x7f", strict=True))


def test_strings_of_one_character_that_are_not_the_usual_object():
    make = ctypes.pythonapi.PyUnicode_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_ssize_t, ctypes.c_uint32]

    def own(c):
        text = make(1, ord(c))
        ctypes.memmove(id(text) + sys.getsizeof("a") - 2, c.encode(), 1)
        return text

    other = own("q")
    assert other == "q" and other is not "".join(["q"])[0]
    agree(equal, lambda: (["q", other, "r"], [other, "q", own("r"), "qq", ""]))
