"""Eighteen functions of the kind people try to speed up, with their inputs: ordinary Python.

In: nothing. Out: `CASES`, from a name to a `Case`. `tests/hostile` calls the same functions with inputs that
break a compiler's assumptions. Importable without NumPy (PyPy has none); the array cases are missing then.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

try:
    import numpy as np
except ImportError:
    np = None

# --- numbers alone


def fibonacci_iter(n):
    """The n-th Fibonacci number; leaves 64 bits at 93."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def collatz_longest(limit):
    """The start below the limit with the longest Collatz path, and its length."""
    best, best_n = 0, 0
    for n in range(1, limit):
        m, steps = n, 0
        while m != 1:
            m = m // 2 if m % 2 == 0 else 3 * m + 1
            steps += 1
        if steps > best:
            best, best_n = steps, n
    return best_n, best


def lcg_pi(n):
    """Pi, by points from a linear congruential generator."""
    state, hits = 12345, 0
    for _ in range(n):
        state = (state * 1103515245 + 12345) % 2147483648
        x = state / 2147483648
        state = (state * 1103515245 + 12345) % 2147483648
        y = state / 2147483648
        if x * x + y * y <= 1.0:
            hits += 1
    return 4.0 * hits / n


def mandelbrot(width, height, max_iter):
    """Iteration counts over a picture, row by row, as a list."""
    out = []
    for py in range(height):
        y0 = 2.0 * py / height - 1.0
        for px in range(width):
            x0 = 3.0 * px / width - 2.0
            x = y = 0.0
            i = 0
            while x * x + y * y <= 4.0 and i < max_iter:
                x, y = x * x - y * y + x0, 2.0 * x * y + y0
                i += 1
            out.append(i)
    return out


# --- lists, bytearrays, strings, dicts


def matrix_multiply(a, b):
    """Product of two nested lists."""
    n, m, p = len(a), len(b), len(b[0])
    out = [[0.0] * p for _ in range(n)]
    for i in range(n):
        for j in range(p):
            s = 0.0
            for k in range(m):
                s += a[i][k] * b[k][j]
            out[i][j] = s
    return out


def nbody(bodies, steps, dt):
    """Bodies [x, y, z, vx, vy, vz, mass] under gravity; moves them in place."""
    n = len(bodies)
    for _ in range(steps):
        for i in range(n):
            bi = bodies[i]
            for j in range(i + 1, n):
                bj = bodies[j]
                dx, dy, dz = bi[0] - bj[0], bi[1] - bj[1], bi[2] - bj[2]
                mag = dt / ((dx * dx + dy * dy + dz * dz) ** 1.5)
                bi[3] -= dx * bj[6] * mag
                bi[4] -= dy * bj[6] * mag
                bi[5] -= dz * bj[6] * mag
                bj[3] += dx * bi[6] * mag
                bj[4] += dy * bi[6] * mag
                bj[5] += dz * bi[6] * mag
        for b in bodies:
            b[0] += dt * b[3]
            b[1] += dt * b[4]
            b[2] += dt * b[5]
    return bodies[0][0]


def sieve(n):
    """How many primes there are up to n."""
    flags = bytearray([1]) * (n + 1)
    flags[0] = flags[1] = 0
    i = 2
    while i * i <= n:
        if flags[i]:
            for j in range(i * i, n + 1, i):
                flags[j] = 0
        i += 1
    count = 0
    for v in flags:
        count += v
    return count


def running_mean(xs, k):
    """Means of every k neighbours."""
    out = []
    s = 0.0
    for i, x in enumerate(xs):
        s += x
        if i >= k:
            s -= xs[i - k]
        if i >= k - 1:
            out.append(s / k)
    return out


def black_scholes(spots, strike, rate, vol, t):
    """Prices of a call option at every spot."""
    out = []
    for s in spots:
        d1 = (math.log(s / strike) + (rate + 0.5 * vol * vol) * t) / (vol * math.sqrt(t))
        d2 = d1 - vol * math.sqrt(t)
        n1 = 0.5 * (1.0 + math.erf(d1 / math.sqrt(2.0)))
        n2 = 0.5 * (1.0 + math.erf(d2 / math.sqrt(2.0)))
        out.append(s * n1 - strike * math.exp(-rate * t) * n2)
    return out


def levenshtein(a, b):
    """Edit distance of two sequences."""
    prev = list(range(len(b) + 1))
    for i, ca in enumerate(a):
        cur = [i + 1]
        for j, cb in enumerate(b):
            cost = 0 if ca == cb else 1
            cur.append(min(prev[j + 1] + 1, cur[j] + 1, prev[j] + cost))
        prev = cur
    return prev[-1]


def word_count(words):
    """How often each word occurs."""
    counts = {}
    for w in words:
        counts[w] = counts.get(w, 0) + 1
    return counts


# --- plain objects


class Particle:
    """A point that moves."""

    def __init__(self, x, y, vx, vy):
        self.x, self.y, self.vx, self.vy = x, y, vx, vy


def particles(cloud, steps, dt):
    """Particles in a unit box with walls that reflect; moves them in place and returns their kinetic energy."""
    for _ in range(steps):
        for p in cloud:
            p.vy -= 9.81 * dt
            p.x += p.vx * dt
            p.y += p.vy * dt
            if p.x < 0.0 or p.x > 1.0:
                p.vx = -p.vx
            if p.y < 0.0 or p.y > 1.0:
                p.vy = -p.vy
    energy = 0.0
    for p in cloud:
        energy += 0.5 * (p.vx * p.vx + p.vy * p.vy)
    return energy


class Account:
    """Money of one owner, in cents."""

    def __init__(self, balance):
        self.balance = balance
        self.n_moves = 0

    def add(self, amount):
        self.balance += amount
        self.n_moves += 1


def transfers(accounts, orders):
    """Carries out orders (from, to, amount) that are covered; returns how many were not, and the largest balance."""
    refused = 0
    for source, target, amount in orders:
        payer = accounts[source]
        if payer.balance < amount:
            refused += 1
            continue
        payer.add(-amount)
        accounts[target].add(amount)
    largest = 0
    for account in accounts:
        if account.balance > largest:
            largest = account.balance
    return refused, largest


# --- NumPy arrays, element by element


def matmul_array(a, b, out):
    """Product of two arrays into a third."""
    n, m = a.shape
    p = b.shape[1]
    for i in range(n):
        for j in range(p):
            s = 0.0
            for k in range(m):
                s += a[i, k] * b[k, j]
            out[i, j] = s
    return out


def jacobi(grid, out, sweeps):
    """Sweeps of the four-neighbour mean; returns the array that holds the last one."""
    h, w = grid.shape
    for _ in range(sweeps):
        for i in range(1, h - 1):
            for j in range(1, w - 1):
                out[i, j] = 0.25 * (grid[i - 1, j] + grid[i + 1, j] + grid[i, j - 1] + grid[i, j + 1])
        grid, out = out, grid
    return grid


def histogram(values, n_bins):
    """Counts in equal bins between the smallest and the largest value."""
    counts = np.zeros(n_bins, dtype=np.int64)
    lo, hi = values[0], values[0]
    for v in values:
        if v < lo:
            lo = v
        if v > hi:
            hi = v
    scale = n_bins / (hi - lo)
    for v in values:
        b = int((v - lo) * scale)
        if b == n_bins:
            b -= 1
        counts[b] += 1
    return counts


def box_blur(image, out):
    """Mean of each pixel's nine neighbours."""
    h, w = image.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            s = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    s += int(image[y + dy, x + dx])
            out[y, x] = s // 9
    return out


def kmeans_assign(points, centres, labels):
    """The nearest centre of each point; returns the summed squared distances."""
    n, d = points.shape
    k = centres.shape[0]
    total = 0.0
    for i in range(n):
        best, best_c = 1e308, 0
        for c in range(k):
            dist = 0.0
            for j in range(d):
                diff = points[i, j] - centres[c, j]
                dist += diff * diff
            if dist < best:
                best, best_c = dist, c
        labels[i] = best_c
        total += best
    return total


# --- inputs


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, how to make its usual arguments, anew each time, and what it spends its time on."""

    function: Callable
    arguments: Callable
    kind: str  # "scalar", "list", "object" (strings, dicts, classes) or "array" (needs NumPy)


def _rows(n, seed):
    r = random.Random(seed)
    return [[r.random() for _ in range(n)] for _ in range(n)]


def _bodies():
    r = random.Random(5)
    return [[r.uniform(-9, 9) for _ in range(6)] + [r.uniform(0.1, 3)] for _ in range(5)]


def _letters(n, seed):
    r = random.Random(seed)
    return "".join(r.choice("abcdefghij") for _ in range(n))


def _cloud(n):
    r = random.Random(3)
    return [Particle(r.random(), r.random(), r.uniform(-1, 1), r.uniform(-1, 1)) for _ in range(n)]


def _orders(n, n_accounts):
    r = random.Random(11)
    return [(r.randrange(n_accounts), r.randrange(n_accounts), r.randrange(1, 20_000)) for _ in range(n)]


def _rng():
    return np.random.default_rng(7)


def _picture():
    return _rng().integers(0, 256, (200, 300), dtype=np.uint8), np.zeros((200, 300), np.uint8)


CASES = {
    "fibonacci_iter": Case(fibonacci_iter, lambda: (90,), "scalar"),
    "collatz_longest": Case(collatz_longest, lambda: (20_000,), "scalar"),
    "lcg_pi": Case(lcg_pi, lambda: (200_000,), "scalar"),
    "mandelbrot": Case(mandelbrot, lambda: (120, 80, 200), "scalar"),
    "matrix_multiply": Case(matrix_multiply, lambda: (_rows(48, 1), _rows(48, 2)), "list"),
    "nbody": Case(nbody, lambda: (_bodies(), 400, 0.001), "list"),
    "sieve": Case(sieve, lambda: (300_000,), "list"),
    "running_mean": Case(running_mean, lambda: ([math.sin(i) for i in range(100_000)], 50), "list"),
    "black_scholes": Case(
        black_scholes, lambda: ([80 + 0.01 * i for i in range(20_000)], 100.0, 0.02, 0.3, 1.5), "list"
    ),
    "levenshtein": Case(levenshtein, lambda: (_letters(300, 1), _letters(280, 2)), "list"),
    "word_count": Case(word_count, lambda: ([_letters(3, seed) for seed in range(40_000)],), "object"),
    "particles": Case(particles, lambda: (_cloud(500), 40, 0.001), "object"),
    "transfers": Case(
        transfers, lambda: ([Account(100_000) for _ in range(200)], _orders(20_000, 200)), "object"
    ),
    "matmul_array": Case(
        matmul_array,
        lambda: (_rng().random((96, 96)), _rng().random((96, 96)), np.zeros((96, 96))),
        "array",
    ),
    "jacobi": Case(jacobi, lambda: (_rng().random((160, 160)), np.zeros((160, 160)), 4), "array"),
    "histogram": Case(histogram, lambda: (_rng().normal(size=200_000), 64), "array"),
    "box_blur": Case(box_blur, _picture, "array"),
    "kmeans_assign": Case(
        kmeans_assign,
        lambda: (_rng().random((4000, 8)), _rng().random((12, 8)), np.zeros(4000, np.int64)),
        "array",
    ),
}
if np is None:
    CASES = {name: case for name, case in CASES.items() if case.kind != "array"}
