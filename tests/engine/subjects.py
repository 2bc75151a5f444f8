"""Functions whose exits are all taken, one by one, with arguments that leave nothing to chance."""

import math


def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def mean(items):
    total = 0.0
    for x in items:
        total += x
    return total / len(items)


def matmul(a, b):
    n = len(b[0])
    out = []
    for row in a:
        line = []
        for j in range(n):
            s = 0.0
            for k, x in enumerate(row):
                s += x * b[k][j]
            line.append(s)
        out.append(line)
    return out


def sieve(n):
    flags = bytearray([1]) * (n + 1)
    i = 2
    while i * i <= n:
        if flags[i]:
            for j in range(i * i, n + 1, i):
                flags[j] = 0
        i += 1
    count = 0
    for k in range(2, n + 1):
        count += flags[k]
    return count


def words(items):
    seen = {}
    for w in items:
        if w in seen:
            seen[w] += 1
        else:
            seen[w] = 1
    return sorted(seen.items(), key=lambda kv: (-kv[1], kv[0]))


def pairs(a, b):
    best = None
    for i, (x, y) in enumerate(zip(a, b)):
        d = abs(x - y)
        if best is None or d < best[0]:
            best = (d, i)
    return best


def waves(n):
    out = [0.0] * n
    for i in range(n):
        t = i / n
        out[i] = math.sin(t) * math.sqrt(t) + math.floor(t * 3) - (i % 3) ** 2
    return out


def guarded(items):
    good, bad = 0, []
    for i, x in enumerate(items):
        try:
            good += 10 // x
        except ZeroDivisionError as e:
            bad.append((i, str(e)))
        finally:
            good += 1
    return good, bad


def strings(n):
    s = ""
    for i in range(n):
        s += chr(97 + i % 26)
        if len(s) > 5:
            s = s[2:]
    return s, f"{n:>4}|{s!r}"


def nested(n):
    return [[i * j for j in range(i)] for i in range(n) if i % 2], {i: i * i for i in range(n)}


def counters(n):
    total = 0

    def bump(k):
        nonlocal total
        total += k
        return total

    for i in range(n):
        bump(i)
    return total


def collatz(limit):
    best, where = 0, 0
    for start in range(1, limit):
        n, steps = start, 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        if steps > best:
            best, where = steps, start
    return best, where


def swap_in_place(items):
    n = len(items)
    for i in range(n):
        for j in range(n - 1 - i):
            if items[j] > items[j + 1]:
                items[j], items[j + 1] = items[j + 1], items[j]
    return items


def leaf(a, b):
    c = a * b + a
    return c - b if c > a else c // (b + 1)


SUBJECTS = [
    (fib, lambda: (60,)),
    (fib, lambda: (120,)),
    (mean, lambda: ([1.0, 2.5, float("nan"), -0.0],)),
    (mean, lambda: ([1, 2.5, True],)),
    (matmul, lambda: ([[1.0, 2.0], [3.0, 4.0]], [[0.5, 1.5], [2.5, -1.0]])),
    (sieve, lambda: (60,)),
    (words, lambda: (["a", "b", "a", "c", "b", "a"],)),
    (pairs, lambda: ([1, 5, 2.5], (3, 4.5, 2.25, 9))),
    (waves, lambda: (12,)),
    (guarded, lambda: ([1, 0, 3, 0, -4],)),
    (strings, lambda: (30,)),
    (nested, lambda: (6,)),
    (counters, lambda: (9,)),
    (collatz, lambda: (20,)),
    (swap_in_place, lambda: ([3, 1.5, 2, -7, 2**70, 0],)),
    (leaf, lambda: (3, 4)),
    (leaf, lambda: (2.5, -1.0)),
]
