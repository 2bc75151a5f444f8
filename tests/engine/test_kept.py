"""References that are mostly not the last: loop variables, locals that are rebound, iterators that end. Objects die when they
do in CPython, and are not used after it, whoever let go of them meanwhile. `KEPT=n` tries n generated programs."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading

import pytest
from overdrive import _core

from .test_exits import fresh, same

N_PROGRAMS = int(os.environ.get("KEPT", "60"))


class Node:
    """An object whose end is seen."""

    log = []

    def __init__(self, x, after=None):
        self.x = x
        self.next = after

    def __del__(self):
        Node.log.append(self.x)


@pytest.fixture(autouse=True)
def unforced():
    gc.collect()
    yield
    _core.debug_force(None)
    Node.log.clear()


def events(f, make):
    """What a call gives or raises, and who died when. The arguments are held meanwhile: from 3.12 on a call of a Python
    function with a tuple of them gives them away, one of any other callable does not."""
    Node.log.clear()
    arguments = make()
    try:
        result = f(*arguments)
    except Exception as error:
        result = type(error).__name__, str(error)
    result = repr(result)
    Node.log.append("returned")
    del arguments
    gc.collect()
    return result, list(Node.log)


def alike(f, make, times=25, compiled=None):
    """Often enough for a guard that fails each time to go."""
    compiled = compiled or fresh(f)
    for _ in range(times):
        assert events(compiled, make) == events(f, make)
    return compiled


def forced(f, make):
    """The same with each exit forced, and with some at random."""
    for k in range(_core.debug_exit_count(alike(f, make))):
        _core.debug_force(k)
        alike(f, make, 3)
    for seed in range(5):
        _core.debug_force(("seed", seed, 0.2))
        alike(f, make, 4)
    _core.debug_force(None)


def chain(n):
    node = None
    for i in range(n):
        node = Node(i, node)
    return node


def walk(node, log):
    s = 0
    while node is not None:
        s += node.x
        log.append("step")
        node = node.next
    return s


def over(nodes, log):
    s = 0
    for p in nodes:
        s += p.x
        p.x = s
    log.append("done")
    return s


def popped(nodes, log):
    s = 0
    while nodes:
        p = nodes.pop()
        s += p.x
        log.append("round")
    return s


def picked(nodes, log):
    s = 0
    for i in range(len(nodes)):
        p = nodes[i]
        s += p.x
        if s > 4:
            nodes[i] = nodes[0]
        q = p
        s += q.x
    log.append("done")
    return s


def rows(lists, log):
    s = 0
    for i, row in enumerate(lists):
        for p in row:
            s += p.x
            lists[i] = [p]
            log.append("replaced")
    return s


def attributes(p, log):
    s = 0
    for q in p.next:
        s += q.x
        if s > 2:
            p.next = [q]
            log.append("replaced")
    q = p
    return s + q.x


def twice(nodes, log):
    s = 0
    p = nodes[0]
    for q in nodes:
        s += p.x - q.x
        p = q
        q = p
    nodes.clear()
    log.append("cleared")
    return s + p.x


SUBJECTS = [
    (walk, lambda: (chain(6), Node.log)),
    (over, lambda: ([Node(i) for i in range(5)], Node.log)),
    (popped, lambda: ([Node(i) for i in range(5)], Node.log)),
    (picked, lambda: ([Node(i) for i in range(5)], Node.log)),
    (rows, lambda: ([[Node(3 * i + k) for k in range(3)] for i in range(3)], Node.log)),
    (attributes, lambda: (Node(7, [Node(i) for i in range(4)]), Node.log)),
    (twice, lambda: ([Node(i) for i in range(4)], Node.log)),
]


@pytest.mark.parametrize("f, make", SUBJECTS, ids=lambda x: getattr(x, "__name__", "arguments"))
def test_objects_die_when_they_should(f, make):
    forced(f, make)


@pytest.mark.parametrize("f, make", SUBJECTS, ids=lambda x: getattr(x, "__name__", "arguments"))
def test_objects_that_the_caller_holds(f, make):
    def held():
        keep.append(make())
        return keep[-1]

    keep = []
    alike(f, held)
    keep.clear()
    gc.collect()


def test_a_call_lets_go_of_the_loop_s_object():
    def f(nodes, act):
        s = 0
        for p in nodes:
            s += p.x
            act(nodes)
            s += p.x
        return s

    def drop(nodes):
        if len(nodes) > 3:
            nodes[0] = nodes[-1]
            nodes[1] = None if len(nodes) == 4 else nodes[2]
            nodes.pop()

    forced(f, lambda: ([Node(i) for i in range(8)], drop))


def test_a_comparison_lets_go_of_the_loop_s_object():
    class Fickle(Node):
        def __lt__(self, other):
            self.next.clear()
            return True

    def f(nodes):
        s = 0
        for p in nodes:
            if p < 1:
                s += p.x
        return s

    def make():
        nodes = []
        nodes += [Fickle(i, nodes) for i in range(3)]
        return [nodes]

    forced(f, make)


def test_a_tuple_that_meets_an_object_is_made_before_it_is_asked_what_is_known():
    class Changing(Node):
        def __del__(self):
            self.next[0].x = 100

    def f(p, makes, n):
        s = 0
        for i in range(n):
            p.x = i
            makes(p)
            p.x = i + 1
            both = (p, i) if i % 3 else p
            s += p.x
            s += both is p
        return s

    def garbage(p):
        o = Changing(0)
        o.next = [p, o]

    before = gc.get_threshold()
    try:
        for threshold in (1, 2, 3, 5):
            gc.set_threshold(threshold, 1, 1)
            # How often something is allocated differs; what is read must be one of the two values.
            g = fresh(f)
            for _ in range(5):
                result = g(Node(0), garbage, 30)
                low = sum(range(1, 31)) + 10
                assert (result - low) % 1 == 0 and low <= result <= low + 30 * 100
    finally:
        gc.set_threshold(*before)


def test_a_thread_replaces_what_a_loop_goes_over():
    """In its polls a loop holds its objects itself."""
    n, n_made = 50, 0
    nodes = [Node(1) for _ in range(n)]
    made = threading.Event()

    def f(nodes, n_rounds):
        s = 0
        p = None
        for _ in range(n_rounds):
            q = p
            for p in nodes:
                s += p.x
                q = p
            if q is not None:
                s += q.x
        return s

    def replace():
        nonlocal n_made
        i = 0
        while not made.is_set():
            nodes[i % n] = Node(1)
            n_made += 1
            i += 7

    compiled = fresh(f)
    for _ in range(5):
        compiled(nodes, 3)
    Node.log.clear()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(30):
            assert compiled(nodes, 400) == 400 * (n + 1)
    finally:
        made.set()
        thread.join()
        sys.setswitchinterval(before)
    assert n_made > 30
    gc.collect()
    assert len(Node.log) == n_made
    assert all(sys.getrefcount(node) == 3 for node in nodes)  # the list, the loop's variable, the argument


def test_loops_leave_no_reference_behind():
    nodes = [Node(i) for i in range(10)]
    for f in (over, picked, twice):
        compiled = fresh(f)
        for _ in range(20):
            own = list(nodes)
            compiled(own, Node.log)
            del own
    assert {sys.getrefcount(node) for node in nodes} == {3}


class Program:
    """The text of a function `f(objs, log)` that binds, stores and drops objects."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        lines = ["def f(objs, log):", "    s = 0", "    p = q = objs[0]", *self.block(1, 3)]
        lines += ["    log.append('end')", "    return s"]
        self.text = "\n".join(lines)

    def place(self):
        return f"objs[{self.r.choice(['0', '-1', 's % len(objs)', '1 % len(objs)'])}]"

    def thing(self):
        return self.r.choice(["p", "q", self.place(), self.place()])

    def block(self, indent, depth):
        lines, pad = [], "    " * indent
        for _ in range(self.r.randint(1, 4)):
            kind = self.r.random()
            a, b = self.r.choice("pq"), self.r.choice("pq")
            if kind < 0.15:
                lines.append(f"{pad}s += {a}.x")
            elif kind < 0.3:
                lines.append(f"{pad}{a} = {self.thing()}")
            elif kind < 0.37:
                lines.append(f"{pad}{self.place()} = {self.thing()}")
            elif kind < 0.43:
                lines.append(f"{pad}{a}.x = s % 7")
            elif kind < 0.48:
                lines += [f"{pad}if {a}.next is not None:", f"{pad}    {b} = {a}.next"]
            elif kind < 0.52:
                lines.append(f"{pad}{a}.next = {self.r.choice(['p', 'q', 'None'])}")
            elif kind < 0.56:
                lines += [f"{pad}if len(objs) > 1:", f"{pad}    {a} = objs.pop()"]
            elif kind < 0.6:
                lines.append(f"{pad}log.append(s)")
            elif kind < 0.64:
                lines.append(f"{pad}{a} = Node(s % 5 + 10, {self.r.choice(['None', b])})")
            elif kind < 0.72 and depth:
                lines += [f"{pad}if s % 3 == {self.r.randint(0, 2)}:", *self.block(indent + 1, depth - 1)]
            elif kind < 0.86 and depth:
                lines += [f"{pad}for {a} in objs:", *self.block(indent + 1, depth - 1)]
                lines.append(f"{pad}    if s > 3000: break")
            elif depth:
                name = f"i{indent}"
                lines += [f"{pad}for {name} in range({self.r.randint(2, 4)}):", f"{pad}    s += {name}"]
                lines += self.block(indent + 1, depth - 1)
        return lines or [f"{pad}s += 1"]

    def arguments(self):
        for n in (1, 2, 4, 4, 4):
            yield lambda n=n: ([Node(i, Node(i + 50) if i % 2 else None) for i in range(n)], Node.log)


@pytest.mark.parametrize("seed", range(N_PROGRAMS))
def test_generated(seed):
    program = Program(seed)
    space = {"Node": Node}
    exec(compile(program.text, f"<kept {seed}>", "exec"), space)
    if seed % 3 == 2:
        _core.debug_force(("seed", seed, 0.1))
    compiled = fresh(space["f"])
    for _ in range(4):
        for make in program.arguments():
            assert same(events(compiled, make), events(space["f"], make)), program.text
