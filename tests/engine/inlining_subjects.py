"""Small functions and loops that call them: what `test_inlining` compares with CPython."""

import math

import numpy as np

SCALE = 3
LIMIT = 20


def step(state, i):
    return (state * 1103515245 + i) & 2147483647


def clamp(x, low, high):
    if x < low:
        return low
    return high if x > high else x


def mixed(x):
    """An int, a float or None."""
    if x % 3 == 0:
        return x
    if x % 3 == 1:
        return x / 2
    return None


def pair(a, b):
    return a + b, a - b


def shifted(x, by=2, *, sign=1):
    return (x + by) * sign


def scaled(x, by=2, up=1.5):
    return x * by * up + SCALE


def norm(x, y):
    return math.sqrt(square(x) + square(y))


def square(x):
    return x * x


def divide(a, b):
    c = a * 2
    return c / b


def bounded(x):
    if x >= 60:
        raise ValueError("too big")
    return min(x, LIMIT)


def at(items, i):
    return items[i] * 2


def cell(grid, i, j):
    return grid[i, j] + grid[j, i]


def first(text):
    return len(text) + 1


def same_float(x):
    y = x
    return y


def is_none(x):
    return x is None


def is_prime(n):
    if n < 2:
        return False
    d = 2
    while d * d <= n:
        if n % d == 0:
            return False
        d += 1
    return True


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def mandel(cx, cy, limit):
    x = y = 0.0
    for i in range(limit):
        x, y = x * x - y * y + cx, 2 * x * y + cy
        if x * x + y * y > 4.0:
            return i
    return limit


def dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


def index(items, wanted):
    for i, item in enumerate(items):
        if item == wanted:
            return i
    return -1


def total_of(rows):
    total = 0
    for row in rows:
        for x in row:
            total += norm(x, 1) if x > 2 else x
    return total


def widening(n):
    best = None
    for i in range(n):
        if best is None or i % 7 > best:
            best = i % 7 if i < 20 else i / 2
    return best


def use_step(n):
    state = 1
    for i in range(n):
        state = step(state, i)
    return state


def use_step_with_big(n):
    state = 2**61
    for i in range(n):
        state = step(state, i)
    return state


def use_clamp(n):
    total = 0.0
    for i in range(n):
        total += clamp(i * 0.25, 1.0, 9.0)
    return total


def use_clamp_of_many(items):
    return [clamp(x, 2, 7) for x in items]


def use_mixed(n):
    out = []
    for i in range(n):
        out.append(mixed(i))
    return out


def use_pair(n):
    a, b = 1.5, 2.5
    for i in range(n):
        a, b = pair(b * 0.5, i)
    return a, b


def use_pair_as_object(n):
    out = []
    for i in range(n):
        out.append(pair(i, 1))
    return out


def use_keywords(n):
    total = 0
    for i in range(n):
        total += step(i=i, state=total) + step(total, i=7)
    return total


def use_defaults(n):
    total = 0
    for i in range(n):
        total += scaled(i) + scaled(i, 3) + scaled(i, up=0.5)
    return total


def use_keyword_only(n):
    total = 0
    for i in range(n):
        total += shifted(i) + shifted(i, sign=-2)
    return total


def use_nested(n):
    total = 0.0
    for i in range(n):
        total += norm(i, i + 1)
    return total


def use_divide(n):
    total = 0.0
    for i in range(n):
        total += divide(i, n - i - 5)
    return total


def use_bounded(n):
    total = 0
    for i in range(n):
        total += bounded(i)
    return total


def use_at(items):
    total = 0
    for i in range(len(items) + 1):
        total += at(items, i)
    return total


def use_at_of_tuple(items):
    total = 0
    for i in range(len(items)):
        total += at(items, i)
    return total


def use_cell(grid):
    total = 0.0
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            total += cell(grid, i, j)
    return total


def use_first(words):
    total = 0
    for word in words:
        total += first(word)
    return total


def use_same_float(n):
    nan = float("nan")
    kept = same_float(nan)
    return [kept in [nan], n, same_float(nan) in [nan]]


def use_is_none(items):
    return [is_none(x) for x in items]


def use_wrong_arguments(n):
    total = 0
    for i in range(n):
        total += square(i) if i < 30 else square(i, i)
    return total


def in_a_condition(n):
    count = 0
    i = 0
    while square(i) < n and not is_none(i):
        count += 1 if clamp(i, 3, 5) == i else 0
        i += 1
    return count, i


def use_prime(n):
    count = 0
    for i in range(n):
        if is_prime(i):
            count += 1
    return count


def use_gcd(n):
    total = 0
    for i in range(1, n):
        total += gcd(i * 7919, 5040) + gcd(2**62 + i, 3)
    return total


def use_mandel(n):
    total = 0
    for i in range(n):
        for j in range(n):
            total += mandel(i * 3.0 / n - 2.0, j * 2.0 / n - 1.0, 20)
    return total


def use_dot(n, a, b):
    total = 0.0
    for _ in range(n):
        total += dot(a, b)
    return total


def use_index(items):
    return [index(items, wanted) for wanted in (3, 0.5, 2**70, None)]


def use_total_of(rows):
    total = 0
    for _ in range(5):
        total += total_of(rows)
    return total


def use_widening(n):
    out = []
    for i in range(n):
        out.append(widening(i))
    return out


LOOPING = [
    (use_prime, lambda: (60,)),
    (use_gcd, lambda: (30,)),
    (use_mandel, lambda: (9,)),
    (use_dot, lambda: (4, np.arange(100.0), np.arange(100.0))),
    (use_dot, lambda: (4, np.arange(100.0), np.arange(90.0))),
    (use_dot, lambda: (4, [1.5, 2.5], (1, 2))),
    (use_dot, lambda: (4, np.full(100, 1e300), np.full(100, 1e10))),
    (use_index, lambda: ([5, 4, 3, 2**70, 0.5],)),
    (use_total_of, lambda: ([[1, 2, 3], [4, 5], []],)),
    (use_total_of, lambda: ([(1.5, 2), [True, "a"]],)),
    (use_widening, lambda: (30,)),
]

SUBJECTS = LOOPING + [
    (use_step, lambda: (50,)),
    (use_step_with_big, lambda: (50,)),
    (use_clamp, lambda: (60,)),
    (use_clamp_of_many, lambda: ([1, 5.5, 2, True, 9, 7.0, -0.0],)),
    (use_clamp_of_many, lambda: ([1, 5.5, "a"],)),
    (use_mixed, lambda: (20,)),
    (use_pair, lambda: (40,)),
    (use_pair_as_object, lambda: (9,)),
    (use_keywords, lambda: (30,)),
    (use_defaults, lambda: (30,)),
    (use_keyword_only, lambda: (30,)),
    (use_nested, lambda: (30,)),
    (use_divide, lambda: (40,)),
    (use_divide, lambda: (4,)),
    (use_bounded, lambda: (50,)),
    (use_bounded, lambda: (70,)),
    (use_at, lambda: ([1, 2, 3],)),
    (use_at, lambda: ([1.5, 2, "x"],)),
    (use_at_of_tuple, lambda: ((1.5, 2.5) * 9,)),
    (use_cell, lambda: (np.arange(81.0).reshape(9, 9),)),
    (use_cell, lambda: (np.arange(90.0).reshape(9, 10),)),
    (use_first, lambda: (["", "a", "bcd"] * 9,)),
    (use_same_float, lambda: (1,)),
    (use_is_none, lambda: ([None, 1, 0.5, None],)),
    (use_wrong_arguments, lambda: (25,)),
    (use_wrong_arguments, lambda: (40,)),
    (in_a_condition, lambda: (2000,)),
]
