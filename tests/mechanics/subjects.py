"""Functions that use every construct whose bytecode holds a surprise for exits: each takes a fresh list to log into."""

import contextlib

GLOBAL = 10


class Thing:
    def __init__(self, value):
        self.value = value

    def plus(self, other, *, scale=1):
        return self.value + other * scale


@contextlib.contextmanager
def noisy(log, suppress=()):
    log.append("enter")
    try:
        yield "managed"
    except suppress as error:
        log.append(f"suppressed {error!r}")
    finally:
        log.append("leave")


def helper(*args, **kwargs):
    return args, sorted(kwargs.items())


def arithmetic(log):
    a, b = 7, 3.5
    c = a * b - a // 2 + (a % 4) ** 2
    c += 1
    log.append(c)
    d = -a if a > 5 else +a
    e = not a
    return (a, b, c, d, e, a < b < c, a is None, a in (1, 7), ~a)


def calls(log):
    thing = Thing(4)
    r = helper(1, *[2, 3], x=4, **{"y": 5})
    s = thing.plus(3, scale=thing.value)
    t = helper(x=1, y=thing.plus(1))
    log.append(f"{r!r:>40} {s:04d} {t}")
    u = max([s, len(t)], key=lambda v: -v)
    return r, s, t, u, print("", end="")


def loops(log):
    total = 0
    for i in range(4):
        if i == 1:
            continue
        for j, k in zip([1, 2], "ab"):
            total += i * j
            if j == 2 and i == 2:
                break
        else:
            log.append(("else", i))
    while total > 0:
        total -= 3
        if total == -100:
            break
    else:
        log.append("exhausted")
    return total, i, j, k


def comprehensions(log):
    n = 3
    a = [x * n for x in range(4) if x != 1]
    b = {x: y for x, y in zip("ab", a)}
    c = {x + n for x in a}
    d = sum(x for x in a)
    e = [[x + y for x in range(2)] for y in range(2)]
    x = "kept"
    log.append(x)
    return a, b, sorted(c), d, e, x


def closures(log):
    count = 0
    step = [2]

    def bump(by=1):
        nonlocal count
        count += by * step[0]
        return count

    first = bump()
    second = bump(3)
    log.append((first, second))
    hidden = lambda: (count, log[-1])  # noqa: E731
    return first, second, count, hidden()


def argument_cells(log):
    def inner():
        return len(log)

    log.append("x")
    return inner(), [inner() for _ in range(2)]


def handlers(log):
    out = []
    for value in (1, 0, "x", None):
        try:
            try:
                out.append(10 / value)
            except ZeroDivisionError as error:
                log.append(repr(error))
                out.append("zero")
            else:
                log.append("fine")
            finally:
                log.append("finally")
        except TypeError as error:
            log.append((type(error).__name__, error.__context__))
            out.append(str(error)[:11])
    return out


def raises(log):
    try:
        log.append("before")
        {}["missing"]
    except KeyError as error:
        log.append("handler")
        raise ValueError("converted") from error
    finally:
        log.append("cleanup")


def raises_later(log):
    with noisy(log):
        log.append("inside")
        Thing(1).plus("no number")
    return "unreachable"


def contexts(log):
    with noisy(log, (ZeroDivisionError,)) as name, noisy(log):
        log.append(name)
        1 / (len(log) - 3)
    with noisy(log):
        for i in range(3):
            if i == 1:
                break
    return name, i


def return_in_finally(log):
    for i in range(3):
        try:
            if i == 1:
                return "from try"
            log.append(i)
        finally:
            log.append("always")
            if i == 1:
                return "from finally"


def unset(log):
    if len(log) > 100:
        ghost = 1
    try:
        log.append(ghost)
    except UnboundLocalError as error:
        log.append(str(error))
    keep = 1
    del keep
    try:
        return keep
    except NameError:
        return "gone"


def unpacking(log):
    a, (b, *c), d = 1, (2, 3, 4), [5]
    [e, f] = "xy"
    first, *middle, last = range(6)
    log.append((*c, *middle))
    text = "abcdef"
    return a, b, c, d, e, f, first, last, text[1:3], text[::-1], [*c, *d], {**{"k": a}}, {1, *c} == {1, 3, 4}


def stores(log):
    thing = Thing([1, 2, 3])
    thing.value[1] += 5
    thing.value[0:1] = [9, 9]
    thing.other = {"a": 1}
    thing.other["a"] += 1
    del thing.value[0]
    del thing.other
    global GLOBAL
    GLOBAL += 0
    log.append(thing.value)
    return thing.value, hasattr(thing, "other"), GLOBAL


def matching(log):
    out = []
    for subject in ([1, 2], {"k": 3}, Thing(5), "text", 7):
        match subject:
            case [a, *rest]:
                out.append((a, rest))
            case {"k": v, **others}:
                out.append((v, others))
            case Thing(value=v) if v > 4:
                out.append(v)
            case str() as s:
                out.append(s)
            case _:
                out.append("other")
    log.append(len(out))
    return out


def local_class(log):
    class Local(Thing):
        limit = 3

        def plus(self, other, **options):
            return super().plus(other, **options) + self.limit

    log.append(Local.__qualname__)
    return Local(1).plus(2), Local(1).plus(2, scale=3)


def groups(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as caught:
        log.append(len(caught.exceptions))
    except* (TypeError, KeyError) as caught:
        log.append(len(caught.exceptions))
    return "done"


def imports(log):
    import os.path as path
    from math import floor, pi

    log.append(path.basename("/a/b"))
    assert floor(pi) == 3, "arithmetic"
    return (y := floor(pi)) + y


def conditions(log):
    a, b, c = 0, "x", None
    r = a or b or c
    s = a and b
    t = b if c is None else a
    u = b and (c is not None or a == 0) and not c
    if not a and b or c:
        log.append("yes")
    return r, s, t, u, 1 < 2 < 3 != 4


def consuming(log):
    def generate(n):
        for i in range(n):
            log.append(i)
            yield i

    total = 0
    for value in generate(3):
        total += value
    return total, list(generate(2)), dict(enumerate(generate(1)))


def strings(log):
    text = ""
    for word in ("a", "b", "c"):
        text += word
    log.append(f"{text!s:>{5}}|{len(text)=}")
    return text, b"x" + bytes(1), "%s" % (text,)


def keyword_only(log, a=1, *rest, b=2, **options):
    c = a + b
    log.append((rest, options))
    return a, b, c, rest, options


def nothing():
    return len(())


def _long():
    lines = ["def long_function(log):", "    total = 0", "    for i in range(3):"]
    lines += [f"        total += {1000 + k} * i + GLOBAL" for k in range(60)]
    lines += ["        if total < 0:", "            break"]
    lines += ["    try:"] + [f"        log.append({k}.5)" for k in range(40)]
    lines += ["        total / 0", "    except ZeroDivisionError:", "        log.append('zero')"]
    lines += ["    return total, log[-1]"]
    namespace = {"GLOBAL": GLOBAL}
    exec(compile("\n".join(lines), __file__, "exec"), namespace)
    return namespace["long_function"]


long_function = _long()

SUBJECTS = [
    arithmetic,
    calls,
    loops,
    comprehensions,
    closures,
    argument_cells,
    handlers,
    raises,
    raises_later,
    contexts,
    return_in_finally,
    unset,
    unpacking,
    stores,
    matching,
    local_class,
    groups,
    imports,
    conditions,
    consuming,
    strings,
    keyword_only,
    long_function,
]
