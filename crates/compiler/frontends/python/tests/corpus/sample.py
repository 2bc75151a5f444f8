"""Small functions that between them use most of the instruction set; run and traced by trace_stacks.py.

What they compute does not matter. Each starts at a variable, call, loop or handler shape that the front end
has to follow, several with unset variables and with NULL on the stack at a call in progress.
"""

import asyncio


class Thing:
    kind = "thing"

    def __init__(self, value=1):
        self.value = value
        self.call = lambda *args: args

    def method(self, *args, **kwargs):
        return self.value + len(args) + len(kwargs)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return exc[0] is KeyError

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        return False


class Child(Thing):
    def method(self, *args, **kwargs):
        return super().method(*args, **kwargs) + super(Child, self).value_of()

    def value_of(self):
        return 1

    Thing.value_of = value_of


def arithmetic(a, b, c=3, *rest, d, e=5, **others):
    x = a + b * c - d // e % 7
    x += a
    x -= b
    x *= 2
    x /= 3
    y = -x, +x, ~a, not x
    z = a << 2 | b & c ^ d
    z >>= 1
    return x if x > y[0] else z, a ** b, rest, others, a is b, a is not c, a in rest, b not in rest


def calls(thing, items):
    first = thing.method(1, 2, key=3)
    second = thing.call(first, thing.method(*items), len(items))
    third = print("", end="", sep="") or thing.method(**{"a": 1}, **{"b": 2})
    fourth = (max if first else min)(second and 1, 2)
    nested = thing.method(thing.method(thing.call(1)), [thing.call(i) for i in items])
    return first, second, third, fourth, nested, dict(a=1, **{"c": 3}), thing.method(x=first if items else second)


def loops(n):
    total = 0
    for i in range(n):
        if i == 3:
            continue
        for j in range(i):
            if j == 5:
                break
            total += j
        else:
            total -= 1
    while total > 0:
        total -= 7
        if total == 2:
            break
    else:
        last = i
    while True:
        total += 1
        if total > 5 and n or total > 9:
            return total, i


def maybe_unset(flag):
    if flag:
        value = 1
    try:
        value
    except UnboundLocalError:
        pass
    if flag:
        del value
    for value in ():
        pass
    try:
        return value
    except UnboundLocalError as error:
        return str(error)


def comprehensions(items, x=None):
    squares = [x * x for x in items if x]
    nested = [[x + y for y in items] for x in items]
    mapping = {x: y for x, y in zip(items, squares)}
    closures = [lambda: x for x in items]
    unique = {x for x in items}
    z = [z for z in items]
    del z
    again = [z for z in items]
    return squares, nested, mapping, [f() for f in closures], unique, again, list(i for i in items), x


def closures(a, b):
    count = 0

    def inner(step=1, *, scale: int = 2) -> int:
        nonlocal count
        count += step * scale + a
        return count

    del b
    b = inner(scale=3)

    def reader():
        return b, inner

    return inner(), inner(2), reader()[0]


def handlers(n):
    seen = []
    for i in range(n):
        try:
            if i == 0:
                raise ValueError(i)
            elif i == 1:
                raise KeyError(i) from None
            elif i == 2:
                1 / 0
            seen.append(i)
        except ValueError as error:
            seen.append(error)
        except (KeyError, TypeError):
            continue
        except ZeroDivisionError:
            try:
                raise
            except ArithmeticError:
                seen.append("inner")
        else:
            seen.append("else")
        finally:
            seen.append("finally")
    try:
        try:
            return len(seen)
        finally:
            seen.clear()
    finally:
        assert not seen, "cleared"


def groups():
    try:
        raise ExceptionGroup("two", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        found = group
    except* TypeError:
        pass
    return found


def contexts():
    with Thing(1) as first, Thing(2):
        value = first.value
    with Thing(3):
        raise KeyError
    try:
        with Thing(4):
            raise IndexError
    except IndexError:
        pass
    with Thing():
        for i in range(3):
            with Thing():
                if i:
                    return value


def containers(items):
    a, *b, c = items
    (d, e), f = (a, c), b
    a, c = c, a
    a, c, d = d, a, c
    text = f"{a} {c!r:>{d}} {e!s} {f!a:10} {items}"
    table = {"a": a, "b": b, **{"c": c}}
    copy = [*items, *b]
    also = (*items, 1)
    some = {*items, 2}
    copy[0] = copy[1:2]
    copy[1:2] = copy[0]
    copy[::2] = copy[::2]
    del copy[0], table["a"]
    thing = Thing()
    thing.value += 1
    copy[0] = 1
    copy[0] += 5
    del thing.value
    return a < c <= d, text, also, some, 1 < len(copy) < 9, {"x": 1, "y": a, "z": 3}


def matching(subject):
    match subject:
        case 0 | 1:
            return "small"
        case [first, *others] if others:
            return first, others
        case {"key": value, **others}:
            return value, others
        case Thing(value=value) as thing:
            return value, thing
        case str():
            return "text"
        case None:
            return None
        case _:
            return "other"


def generator(n):
    received = yield
    for i in range(n):
        received = yield i, received
    result = yield from inner_generator()
    return result


def inner_generator():
    try:
        yield 1
    except GeneratorExit:
        return
    return 2


async def coroutine(n):
    total = 0
    async with Thing() as thing:
        async for item in async_generator(n):
            total += item
        total += thing.value
    found = [item async for item in async_generator(n) if await later(item)]
    return total, found


async def async_generator(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


async def later(value):
    return value


def global_state():
    global COUNTER, GONE
    COUNTER = 1
    COUNTER += 1
    GONE = 2
    del GONE
    import os.path as path
    from json import dumps, loads as read

    class Local:
        x = COUNTER
        y = [i for i in range(x)]
        annotated: int = 3

        def get(self):
            return self.x, __class__

    return Local().get(), path, dumps, read


def decorated():
    def wrap(function):
        return function

    @wrap
    def function(a, b=1, *, c=2):
        return lambda: a + b + c

    return function(1)()


def run():
    thing, child = Thing(), Child()
    arithmetic(1, 2, 3, 4, d=5, key=6)
    for one in (thing, child):
        calls(one, [1, 2])
    for n in (1, 4, 9):
        loops(n)
    maybe_unset(True)
    maybe_unset(False)
    comprehensions([1, 2, 3])
    closures(1, 2)
    handlers(5)
    groups()
    contexts()
    containers([1, 2, 3, 4])
    for subject in (0, [1, 2], {"key": 1, "b": 2}, thing, "text", None, 9.5):
        matching(subject)
    for closing in (False, True):
        running = generator(2)
        next(running)
        running.send(5)
        if closing:
            running.close()
        else:
            list(running)
    running = generator(0)
    next(running), next(running), running.close()
    asyncio.run(coroutine(3))
    global_state()
    decorated()


run()
