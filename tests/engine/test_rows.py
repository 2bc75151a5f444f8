"""Nests over lists of lists: what is tested once, before the nest, holds in all of it, and nothing else is taken for granted."""

import copy
import random

import overdrive
import pytest
from overdrive import _core

from .test_exits import fresh, outcome, same

NAN = float("nan")


def product(a, b, out, n, m, p):
    for i in range(n):
        for j in range(p):
            s = 0.0
            for k in range(m):
                s += a[i][k] * b[k][j]
            out[i][j] = s
    return out


def shifted(a, out, i, n):
    """Indices that begin below zero, and a row that is written while it is read."""
    for r in range(4):
        for j in range(n):
            out[i][j] = a[i][j - 1] + a[i - 1][j] + r
    return out


def deep(a, i, j, n):
    s = 0.0
    for r in range(3):
        for k in range(n):
            s += a[i][j][k]
    return s


def columns(b, lo, hi, m):
    """Indices into rows of different lengths, that may count from their ends."""
    sums = []
    for j in range(lo, hi):
        s = 0.0
        for k in range(m):
            s += b[k][j]
        sums.append(s)
    return sums


def column_sum(b, lo, hi, m):
    s = 0.0
    for j in range(lo, hi):
        for k in range(m):
            s += b[k][j] * (j + 5)
    return s


def mixed(a, out, n):
    """Rows are read under a condition only."""
    hits = 0
    for r in range(3):
        for j in range(n):
            x = 1.0
            if j % 3 == 0:
                x = a[r][j]
            if x > 0.5:
                hits += 1
            out[r][j] = x * 2.0
    return hits


def matrix(n, m, seed=1):
    r = random.Random(seed)
    return [[r.random() for _ in range(m)] for _ in range(n)]


def agree(fn, make_args, n=4):
    jitted = fresh(fn)
    for _ in range(n):
        want, got = outcome(fn, make_args()), outcome(jitted, make_args())
        assert same(got, want)
    return jitted


SIZES = [(12, 12, 12), (1, 40, 70), (70, 3, 1), (3, 0, 5), (0, 4, 4), (9, 90, 9)]


@pytest.mark.parametrize("n, m, p", SIZES)
def test_products(n, m, p):
    agree(product, lambda: (matrix(n, m), matrix(m, p, 2), [[0.0] * p for _ in range(n)], n, m, p))


def test_products_are_tested_once():
    jitted = fresh(product)
    for _ in range(4):
        jitted(matrix(12, 12), matrix(12, 12), matrix(12, 12), 12, 12, 12)
    assert "tested once, before the loop" in str(overdrive.explain(jitted))


class Row(list):
    def __getitem__(self, i):
        return 2.0


def spoil_row(i, row):
    def spoil(a, b, out):
        (a, b, out)[i % 3][5 + i // 3] = row

    return spoil


def spoil_item(which, i, j, item):
    def spoil(a, b, out):
        (a, b, out)[which][i][j] = item

    return spoil


SPOILT = [
    *(spoil_row(i, row) for i in range(6) for row in ((1.0,) * 12, Row([0.5] * 12), [1.0] * 4, None, [])),
    *(spoil_item(w, 7, 3, x) for w in range(3) for x in (1, True, 1 << 70, NAN, float("inf"), "x", None)),
    *(spoil_item(w, 0, 0, x) for w in range(3) for x in (7, NAN)),
    lambda a, b, out: a.pop(),
    lambda a, b, out: b.pop(),
    lambda a, b, out: out.pop(),
    lambda a, b, out: out.__setitem__(slice(None), a),
    lambda a, b, out: out.__setitem__(slice(None), b),
    lambda a, b, out: b.__setitem__(slice(None), [b[0]] * 12),
    lambda a, b, out: out.__setitem__(slice(None), [out[0]] * 12),
    lambda a, b, out: out.__setitem__(3, b[4]),
    lambda a, b, out: out.__setitem__(3, a[3]),
    lambda a, b, out: [out[i].__setitem__(j, b[i][j]) for i in range(12) for j in range(12)],
]


def spoilt(spoil):
    def make():
        args = matrix(12, 12), matrix(12, 12, 2), matrix(12, 12, 3)
        spoil(*args)
        return (*args, 12, 12, 12)

    return make


@pytest.mark.parametrize("spoil", SPOILT)
def test_what_does_not_fit_is_found(spoil):
    agree(product, spoilt(spoil))
    # And by a version that was made for what fits.
    jitted = fresh(product)
    for _ in range(3):
        jitted(matrix(12, 12), matrix(12, 12), matrix(12, 12), 12, 12, 12)
    assert same(outcome(jitted, spoilt(spoil)()), outcome(product, spoilt(spoil)()))


def test_indices_from_the_end_and_rows_read_while_written():
    for i in (0, 1, 3, -1, -4, -5, 4):
        agree(shifted, lambda i=i: (matrix(4, 30), matrix(4, 30, 5), i, 30))

        def itself(i=i):
            a = matrix(4, 30)
            return a, a, i, 30

        agree(shifted, itself)


@pytest.mark.parametrize("fn", [columns, column_sum])
def test_columns_from_the_end(fn):
    def ragged():
        return [[float(100 * k + j) for j in range(6 + k % 3)] for k in range(40)]

    for lo, hi in [(0, 6), (-3, 6), (-6, 0), (-7, 2), (0, 7), (-1, 1)]:
        agree(fn, lambda lo=lo, hi=hi: (ragged(), lo, hi, 40))
        # By a version for indices that do not.
        jitted = fresh(fn)
        for _ in range(3):
            jitted(ragged(), 0, 6, 40)
        assert same(outcome(jitted, (ragged(), lo, hi, 40)), outcome(fn, (ragged(), lo, hi, 40)))


def test_lists_in_lists_in_lists():
    def make(i, j):
        return lambda: ([matrix(3, 40, s) for s in range(3)], i, j, 40)

    for i in (-4, -3, -1, 0, 2, 3):
        for j in (-3, 0, 2, 3):
            agree(deep, make(i, j), n=2)
    for odd in ((1.0, 2.0), None, Row([[1.0] * 40]), [(1.0,) * 40], [Row([1.0] * 40)], [7], []):
        agree(deep, lambda odd=odd: ([matrix(3, 40), odd], 1, 0, 40), n=2)
        jitted = fresh(deep)
        for _ in range(3):
            jitted([matrix(3, 40), matrix(3, 40)], 1, 0, 40)
        assert same(outcome(jitted, ([[], odd], 1, 0, 40)), outcome(deep, ([[], odd], 1, 0, 40)))
    ragged = [matrix(3, 40), [[1.5] * 40], [[2.5] * 9]]
    for i in range(3):
        agree(deep, lambda i=i: (copy.deepcopy(ragged), i, 0, 40))


def halved(a, i, n):
    for _ in range(n):
        a[i][0] = a[i][0] * 0.5 + a[i][1]
    return a


def test_an_item_is_read_anew_behind_each_store():
    jitted = agree(halved, lambda: ([[1024.0, 0.25, 3.0]], 0, 100))
    for _ in range(3):
        a = [[float("1024.5"), 0.25]]
        held = a[0][0]
        assert same(jitted(a, 0, 100), halved([[1024.5, 0.25]], 0, 100)) and held == 1024.5


def test_rows_under_a_condition():
    agree(mixed, lambda: (matrix(3, 60), matrix(3, 60, 2), 60))
    # The rows are shorter than the loop, but are read where they are long enough only.
    agree(mixed, lambda: (matrix(3, 58), matrix(3, 60, 2), 60))
    agree(mixed, lambda: ([matrix(1, 60)[0], (0.5,) * 60, matrix(1, 60)[0]], matrix(3, 60, 2), 60))


def test_each_exit_of_a_product():
    def make():
        return matrix(9, 9), matrix(9, 9, 2), matrix(9, 9, 3), 9, 9, 9

    want = outcome(product, make())
    jitted = fresh(product)
    for _ in range(3):
        assert same(outcome(jitted, make()), want)
    for k in range(_core.debug_exit_count(jitted)):
        _core.debug_force(k)
        forced = fresh(product)
        for _ in range(2):
            assert same(outcome(forced, make()), want), k
    for seed in range(4):
        _core.debug_force(("seed", seed, 0.02))
        forced = fresh(product)
        for _ in range(3):
            assert same(outcome(forced, make()), want), seed


def test_another_thread_that_changes_rows_waits_for_its_turn():
    """A poll comes between strips; a list that changed by then is looked at again."""
    import threading

    n = 40
    a, b = matrix(n, n), matrix(n, n, 2)
    out = matrix(n, n, 3)
    jitted = fresh(product)
    for _ in range(3):
        jitted(a, b, out, n, n, n)
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            for i in range(0, n, 3):
                b[i] = list(b[i])
                out[i] = out[i][:]
                a[i] = [*a[i]]

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(300):
            jitted(a, b, out, n, n, n)
    finally:
        stop.set()
        thread.join()
    jitted(a, b, out, n, n, n)
    want = product(a, b, [[0.0] * n for _ in range(n)], n, n, n)
    assert same(out, want)
