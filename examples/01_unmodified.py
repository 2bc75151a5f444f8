"""An ordinary program: nothing in it knows of Overdrive.

python examples/01_unmodified.py                  runs it
overdrive run examples/01_unmodified.py           runs it faster: same output, and a table at the end
overdrive run examples/01_unmodified.py --time    also prints what two of the functions cost at first and at
last
"""

import sys
import time

import numpy as np

ROUNDS = 60


def matrix_multiply(a, b):
    n, m, p = len(a), len(b), len(b[0])
    out = [[0.0] * p for _ in range(n)]
    for i in range(n):
        for j in range(p):
            s = 0.0
            for k in range(m):
                s += a[i][k] * b[k][j]
            out[i][j] = s
    return out


def fibonacci_iter(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def blur(image, out):
    height, width = image.shape
    for y in range(1, height - 1):
        for x in range(1, width - 1):
            total = 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    total += int(image[y + dy, x + dx])
            out[y, x] = total // 9
    return out


def word_count(words):
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def main(timing):
    size = 32
    a = [[(i * 7 + j * 3) % 11 / 10 for j in range(size)] for i in range(size)]
    b = [[(i * 5 + j * 2) % 13 / 10 for j in range(size)] for i in range(size)]
    image = (np.arange(100 * 140, dtype=np.uint32).reshape(100, 140) * 2654435761 >> 13).astype(np.uint8)
    sentence = "the quick brown fox jumps over the lazy dog while the sun sets behind the hills"
    words = (f"{sentence} " * 1000).split()
    times = {"matrix_multiply": [], "fibonacci_iter": []}

    for _ in range(ROUNDS):
        started = time.perf_counter() if timing else 0.0
        for _ in range(30):
            product = matrix_multiply(a, b)
        between = time.perf_counter() if timing else 0.0
        for _ in range(8000):
            last = fibonacci_iter(90)
        if timing:
            times["matrix_multiply"].append((between - started) / 30)
            times["fibonacci_iter"].append((time.perf_counter() - between) / 8000)
        blurred = blur(image, np.zeros_like(image))
        for _ in range(20):
            counts = word_count(words)

    print(f"matrix_multiply: trace {sum(product[i][i] for i in range(size)):.6f}")
    print(f"fibonacci_iter(90) = {last}")
    print(f"blur: mean {blurred.mean():.4f}, corner {blurred[1, 1]}, {blurred[98, 138]}")
    print(f"word_count: {sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]}")
    for name, seconds in times.items():
        if seconds:
            early, late = sorted(seconds[:5])[2], sorted(seconds[-5:])[2]
            print(f"{name}: {early * 1e6:.2f} µs a call at first, {late * 1e6:.2f} µs at last")
            print(f"{name}: {early / late:.1f} times as fast")


main("--time" in sys.argv[1:])

# A long loop at module level, as scripts have it: there is no function to swap, it is entered while it runs.
state = 12345
inside = 0
for _ in range(10_000_000):
    state = (state * 1103515245 + 12345) % 2147483648
    x = state / 2147483648
    state = (state * 1103515245 + 12345) % 2147483648
    y = state / 2147483648
    if x * x + y * y <= 1.0:
        inside += 1
print(f"pi is about {4 * inside / 10_000_000:.4f}")
