"""Iterations side by side that each leave an inner loop at their own time: nothing may show that they do."""

import itertools
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import overdrive
import pytest

from tests.differential.compare import same

SEEDS = range(int(os.environ.get("LOCKSTEPS", "150")))


def escapes(width, height, limit):
    out = []
    for py in range(height):
        y0 = 2.0 * py / height - 1.0
        for px in range(width):
            x0 = 3.0 * px / width - 2.0
            x = y = 0.0
            i = 0
            while x * x + y * y <= 4.0 and i < limit:
                x, y = x * x - y * y + x0, 2.0 * x * y + y0
                i += 1
            out.append(i)
    return out


def remarks(jitted):
    return [line for line in str(overdrive.explain(jitted)).splitlines() if "side by side" in line]


@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 5, 7, 8, 9, 31])
def test_every_number_of_iterations(width):
    jitted = overdrive.jit(escapes)
    for limit in (0, 1, 2, 50):
        for _ in range(2):
            assert same(escapes(width, 5, limit), jitted(width, 5, limit))
    assert remarks(jitted)


def test_values_that_leave_64_bits_on_the_way():
    """The counters of some lanes run into 2^63 while others have left."""

    def count(n, start, factor):
        out = []
        for k in range(n):
            x, i = 1.0 + k, start
            while x < 1000.0 and x > 0.001:
                x = x * factor + 0.5 - x * 0.25
                i += 1
            out.append((i, x))
        return out

    jitted = overdrive.jit(count)
    jitted(11, 0, 1.5)
    assert remarks(jitted)
    for start, factor in itertools.product((0, 2**63 - 3, 2**63 - 9, -(2**63), 2**64), (1.5, 2.25)):
        for _ in range(2):
            assert same(count(11, start, factor), jitted(11, start, factor))


def test_what_lanes_carry_and_what_leaves_the_loop():
    """Several values leave, by two ways; a sum over the outer loop goes on in order."""

    def newton(n, tolerance, most):
        total, worst, seen = 0.0, 0, []
        for k in range(1, n):
            a = k * 0.37
            x, before, i = a, 0.0, 0
            while True:
                before, x = x, 0.5 * (x + a / (x + 1e-9))
                i += 1
                if (x - before) * (x - before) <= tolerance * x:
                    why = 1
                    break
                if i >= most:
                    why = 2
                    break
            total += x * i + why
            if i > worst:
                worst = i
                seen.append((k, i, why))
        return total, worst, seen

    jitted = overdrive.jit(newton)
    jitted(40, 1e-3, 100)
    assert remarks(jitted)
    for arguments in itertools.product((0, 1, 2, 6, 40), (0.0, 1e-3, 1e-15), (1, 3, 100)):
        assert same(newton(*arguments), jitted(*arguments)), arguments


def test_a_division_that_some_lanes_would_make_by_zero():
    def steps(n, shift):
        out = []
        for k in range(n):
            x, y, i = k * 0.5 - shift, 1.0, 0
            while y < 50.0 and i < 30:
                y = y + x * x + 1.0 / (x + i) * 0.125
                i += 1
            out.append(i)
        return out

    jitted = overdrive.jit(steps)
    for n, shift in itertools.product((1, 3, 4, 9, 12), (2.0, 2.25, 1e9)):
        outcomes = []
        for call in (steps, jitted):
            try:
                outcomes.append(call(n, shift))
            except ZeroDivisionError as error:
                outcomes.append((str(error), error.__traceback__.tb_next.tb_lineno))
        assert outcomes[0] == outcomes[1], n


def test_nan_and_infinity():
    def grow(n, seed):
        out = []
        for k in range(n):
            x, i = seed * (k + 1), 0
            while x == x and i < 40:
                x = x * x * x - x * 2.0
                i += 1
            out.append((i, repr(x)))
        return out

    jitted = overdrive.jit(grow)
    for seed in (0.0, -0.0, 0.1, 1.5, 1e300, float("inf"), float("nan"), -3.0):
        assert grow(10, seed) == jitted(10, seed), seed


def test_the_rest_leaves_the_function():
    def first(n, goal):
        for k in range(n):
            x, i = 0.1 * k, 0
            while x < goal and i < 500:
                x = x * 1.01 + 0.3 * 0.5 + x * 0.001
                i += 1
            if i == 7:
                return k, i, x
        return None

    jitted = overdrive.jit(first, strict=True)
    for n, goal in itertools.product((0, 3, 4, 50, 200), (0.5, 2.0, 10.0)):
        assert same(first(n, goal), jitted(n, goal))


def test_exceptions_in_the_rest_come_in_order():
    def fill(n, out):
        for k in range(n):
            x, i = 0.1 * k, 0
            while x < 9.0 and i < 50:
                x = x * 1.1 + 0.3 * x + 0.25
                i += 1
            out[k] = i
        return out

    jitted = overdrive.jit(fill)
    for n in (1, 4, 6, 9, 13):
        outcomes = []
        for call in (fill, jitted):
            out = [None] * 6
            try:
                call(n, out)
                raised = None
            except IndexError as error:
                raised = str(error)
            outcomes.append((out, raised))
        assert outcomes[0] == outcomes[1]


def test_signals_are_heard_in_a_long_inner_loop():
    def spin(n, limit):
        out = []
        for k in range(n):
            x, i = 0.5, 0
            while x > -1.0 and i < limit:
                x = x * 0.5 + 0.25 * x + 0.125 * x + 0.01
                i += 1
            out.append(i)
        return out

    jitted = overdrive.jit(spin)
    assert jitted(8, 50) == spin(8, 50)
    heard = []

    def handler(number, frame):
        while frame is not None:
            heard.append(frame.f_code.co_name)
            frame = frame.f_back
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(TimeoutError):
            jitted(1000, 10**12)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert "spin" in heard


def test_other_threads_get_their_turn():
    jitted = overdrive.jit(escapes)
    jitted(8, 8, 10)
    done, turns = threading.Event(), 0

    def work():
        assert same(escapes(40, 30, 300), jitted(40, 30, 300))
        done.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        while not done.is_set():
            turns += 1
            time.sleep(0)
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert turns > 1


def generated(seed):
    """A loop with an inner loop of random float operations, counters and ways out, and a random rest."""
    rng = random.Random(seed)
    names = ["x", "y", "z"][: rng.randint(1, 3)]
    atom = lambda: rng.choice([*names, "a", f"{rng.uniform(-2, 2):.3f}", "i"])

    def expression(depth):
        if depth == 0 or rng.random() < 0.2:
            return atom()
        op = rng.choice(["+", "-", "*", "*", "+"])
        return f"({expression(depth - 1)} {op} {expression(depth - 1)})"

    condition = lambda: f"{expression(1)} {rng.choice(['<', '<=', '>', '!='])} {rng.uniform(-3, 9):.2f}"
    lines = ["def generated(n, most, table):", "    total, out = 0, []", "    for k in range(n):"]
    lines += [f"        a = k * {rng.uniform(-1, 1):.3f}", "        i = 0"]
    lines += [f"        {name} = {rng.choice(['0.0', 'a', '1.5', 'a * 0.5'])}" for name in names]
    endless = rng.random() < 0.3
    lines += ["        while True:" if endless else f"        while {condition()} and i < most:"]
    for name in rng.sample(names, len(names)):
        lines.append(f"            {name} = {expression(3)}")
    if rng.random() < 0.4:
        lines += [
            f"            if {condition()}:",
            f"                {rng.choice(['i += 2', 'x = 0.5'])}",
        ] * rng.randint(0, 1)
        lines += [f"            if {condition()}:", "                break"]
    lines.append(f"            i += {rng.choice([1, 1, 2, 3])}")
    if endless:
        lines += ["            if i >= most:", "                break"]
    elif rng.random() < 0.3:
        lines.append(f"            i = {rng.choice(['i * 2 - 1', '(i & 1023) + 1', 'i - 0'])}")
    rest = [
        "out.append(i)",
        f"out.append({names[0]})",
        "total += i",
        f"total = total + {names[-1]} * 0.5",
        "table[i % len(table)] += 1",
        "if i > 5: out.append((k, i))",
        "if i == 11: return total, out, k",
        f"if {names[0]} != {names[0]}: continue",
    ]
    lines += [f"        {line}" for line in rng.sample(rest, rng.randint(1, 4))]
    lines.append("    return total, out")
    return "\n".join(lines)


def outcome(call, arguments):
    try:
        return repr(call(*arguments)), arguments[-1]
    except Exception as error:
        return type(error), str(error), arguments[-1]


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_loops(seed):
    source = generated(seed)
    names = {}
    exec(compile(source, f"<generated {seed}>", "exec"), names)
    plain = names["generated"]
    jitted = overdrive.jit(plain)
    for n, most in [(7, 9), (9, 40), (3, 5), (12, 0), (5, 70)]:
        want = outcome(plain, (n, most, [0] * 5))
        got = outcome(jitted, (n, most, [0] * 5))
        assert got == want, source


def test_numpy_scalars_and_arrays_in_the_rest():
    def fill(out, limit):
        for k in range(out.shape[0]):
            x, i = 0.1 * k, 0
            while x < 9.0 and i < limit:
                x = x * 1.1 + 0.3 * x + 0.25
                i += 1
            out[k] = x + i
        return out

    jitted = overdrive.jit(fill, strict=True)
    for n in (0, 3, 4, 10, 33):
        assert same(fill(np.zeros(n), 20), jitted(np.zeros(n), 20))
    assert remarks(jitted)
