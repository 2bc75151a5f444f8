"""Arguments for the functions of `benches/kernels.py` that break what a compiler assumed from ordinary ones.

In: nothing. Out: `HOSTILE`, from a function's name to the tuples of arguments, and `TWICE`, the functions that also
get one array as two arguments. Callers copy before they call.
"""

import numpy as np

NAN, INF = float("nan"), float("inf")
LOG = []


class Loud(float):
    """A float that says when it is multiplied."""

    def __mul__(self, other):
        LOG.append("mul")
        return float(self) * other

    __rmul__ = __mul__


class Shrinking(list):
    """A list that loses items while it is iterated."""

    def __iter__(self):
        for x in list.__iter__(self):
            if len(self) > 3:
                self.pop()
            yield x


class Counted(int):
    """An int that says when it is compared."""

    def __lt__(self, other):
        LOG.append("lt")
        return int(self) < other

    def __eq__(self, other):
        LOG.append("eq")
        return int(self) == other

    __hash__ = int.__hash__


class OneByOne:
    """A sequence that is no list: `len`, items by number, and an end."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        LOG.append("len")
        return len(self.items)

    def __getitem__(self, i):
        LOG.append(i)
        return self.items[i]


class Array(np.ndarray):
    """An ndarray subclass whose items are its own business."""

    def __getitem__(self, i):
        LOG.append("item")
        return super().__getitem__(i)


class Point:
    """Something with the attributes that `particles` moves; more attributes by name."""

    def __init__(self, x=0.5, y=0.5, vx=1.0, vy=-1.0, **more):
        self.x, self.y, self.vx, self.vy = x, y, vx, vy
        vars(self).update(more)


class Watched(Point):
    """A point that says when an attribute is set."""

    def __setattr__(self, name, value):
        LOG.append((name, value))
        super().__setattr__(name, value)


class Computed(Point):
    """A point whose x is a property, and whose vx is none of its attributes but answered for."""

    def __init__(self):
        super().__init__()
        del self.vx

    x = property(lambda self: self.at, lambda self, value: vars(self).update(at=value))

    def __getattr__(self, name):
        LOG.append(name)
        if name != "vx":
            raise AttributeError(name)
        return 0.25


class Slotted:
    """A point without a dict."""

    __slots__ = ("x", "y", "vx", "vy")

    def __init__(self):
        self.x, self.y, self.vx, self.vy = 0.0, 1.0, -2.0, 3


class Emptied(Point):
    """A point that loses its x when it gets another speed."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "vy":
            del self.x


class Purse:
    """An account by other means: adding is a function of the object, and may refuse."""

    def __init__(self, balance, add=None):
        self.balance = balance
        if add is not None:
            self.add = add

    def add(self, amount):
        LOG.append(amount)
        if amount == 13:
            raise ValueError(amount)
        self.balance = self.balance + amount


def without(name, *arguments):
    """A point that lacks an attribute."""
    made = Point(*arguments)
    delattr(made, name)
    return made


def twice(made):
    """A list that holds one object twice."""
    return [made, made]


def read_only(a):
    """The array, not writable."""
    a.flags.writeable = False
    return a


def square(n, dtype=float, seed=3):
    """An n × n array of numbers below 9."""
    return (np.random.default_rng(seed).random((n, n)) * 9).astype(dtype)


def unaligned(n):
    """An n × n array of float64 at an odd address."""
    return np.frombuffer(bytearray(8 * n * n + 1), np.float64, n * n, 1).reshape(n, n)


def row_is_itself():
    """Two bodies that are one list."""
    body = [1.0, 2.0, 3.0, 0.1, 0.2, 0.3, 4.0]
    return [body, body]


HOSTILE = {
    "fibonacci_iter": [
        *((93,), (200,), (0,), (-3,), (True,), (5.0,), ("5",), (np.int64(90),), (np.uint8(10),)),
        *((np.int64(95),), (None,), (2**40 - 2**40 + 100,), (Counted(6),), (-(2**70),), (np.bool_(True),)),
    ],
    "matrix_multiply": [
        ([[1, 2], [3, 4]], [[1.5, 2], [3, 4]]),
        ([[1.0], [2.0]], [[NAN]]),
        ([[1.0, 2.0]], [[1.0]]),
        ([], [[1.0]]),
        ([[2**40] * 3] * 3, [[2**40] * 3] * 3),
        ([[Loud(2.0)]], [[3.0]]),
        (((1.0, 2.0),), ((1.0,), (2.0,))),
        ([[1.0, None]], [[1.0], [2.0]]),
        (np.ones((3, 3)), np.ones((3, 3))),
        ([[1.0, 2.0]], [[1.0], [2]]),
        ([[1.0, 2.0], [3.0]], [[1.0], [2.0]]),
        ([[True, 2.0]], [[1], [np.float64(3)]]),
        ([[1e308, 1e308]], [[10.0], [-10.0]]),
        ([bytearray(b"ab")], [[1.0], [2.0]]),
        ([[1.0]], []),
        (OneByOne([[1.0, 2.0]]), [[1.0], [2.0]]),
        ([[-0.0, 0.0]], [[1.0], [-1.0]]),
    ],
    "matmul_array": [
        (square(5), square(5), np.zeros((5, 5), np.float32)),
        (square(5, np.float32), square(5), np.zeros((5, 5))),
        (square(6)[::-1, ::2], square(3).T, np.zeros((6, 3), order="F")),
        (square(4), square(4), read_only(np.zeros((4, 4)))),
        (square(4), square(3), np.zeros((4, 3))),
        (square(3, int), square(3, int), np.zeros((3, 3), np.uint8)),
        (np.full((3, 3), INF), np.zeros((3, 3)), np.zeros((3, 3))),
        (np.zeros((0, 3)), square(3), np.zeros((0, 3))),
        (square(3, complex), square(3), np.zeros((3, 3), complex)),
        (square(3, ">f8"), square(3), np.zeros((3, 3))),
        (unaligned(3), square(3), unaligned(3)),
        (square(3), square(3), np.zeros((2, 2))),
        (square(3).view(Array), square(3), np.zeros((3, 3))),
        (np.ma.masked_array(square(2), [[0, 1], [0, 0]]), square(2), np.zeros((2, 2))),
        (square(3, object), square(3), np.zeros((3, 3))),
        (square(3), square(3), np.zeros((3, 3), np.float16)),
        (square(2), square(2), [[0, 0], [0, 0]]),
        (np.broadcast_to(2.0, (3, 3)), square(3), np.zeros((3, 3))),
        (square(3, np.int64) * 2**61, square(3, np.int64) * 2**61, np.zeros((3, 3))),
        (square(3), np.zeros(3), np.zeros((3, 3))),
    ],
    "collatz_longest": [(1,), (0,), (2.0,), (40,), (np.int32(50),), (-1,), (True,), (np.int64(30),), ("9",), (Counted(9),)],
    "mandelbrot": [(3, 2, 0), (0, 2, 5), (3.0, 2, 5), (1, 1, 2**70), (4, 4, 7.5), (3, -1, 5), (True, 2, 5), (np.int64(3), 2, 9), (2, 2, NAN), (2, 2, None)],
    "nbody": [
        ([[0.0] * 7] * 2, 1, 0.1),
        ([[1, 2, 3, 0, 0, 0, 1], [0.0, 0, 0, 0, 0, 0, 2]], 3, 0.5),
        ([], 1, 0.1),
        ([[1.0] * 6, [2.0] * 7], 1, 0.1),
        ([[1e308] * 7, [-1e308] * 7], 1, 1e10),
        ([[NAN] * 7, [1.0] * 7], 2, 0.1),
        (row_is_itself(), 1, 0.1),
        ([[np.float64(i)] * 7 for i in range(2)], 2, 0.1),
        ([(1.0,) * 7, [2.0] * 7], 1, 0.1),
        ([[1.0] * 7, [2.0, 1.0, 1.0, 0.0, 0.0, 0.0, "m"]], 1, 0.1),
        (np.arange(14.0).reshape(2, 7), 3, 0.25),
        ([[2**1030, 0, 0, 0, 0, 0, 1], [0.0] * 7], 1, 1),
        ([[1.0] * 7, [3.0] * 7], True, 1),
    ],
    "sieve": [(1,), (0,), (2,), (-5,), (30.0,), (100,), (True,), (np.int64(100),), (-1,), (-2,), (4,), (2**70,), ("3",)],
    "levenshtein": [
        *(("", ""), ("abc", ""), ("", "abc"), (["a", 1], ["a", 1.0]), ("日本語", "日本"), (b"abc", "abc"), ([NAN], [NAN])),
        *((b"abc", b"abd"), (["ab", NAN], ("ab", NAN)), (None, "a"), ("a", 3), (range(4), [0, 1.0, 2]), ([Counted(3)], [3, 4])),
    ],
    "lcg_pi": [(0,), (1,), (-1,), (2.5,), (True,), (np.int64(20),), (np.uint8(200),), ("a",), (None,)],
    "jacobi": [
        (square(5), square(5), 1),
        (square(5, np.float32), square(5), 2),
        (np.full((4, 4), INF), np.zeros((4, 4)), 1),
        (np.array([[INF, -INF, 1.0]] * 3), np.zeros((3, 3)), 1),
        (square(4), np.zeros((3, 3)), 1),
        (square(4), read_only(np.zeros((4, 4))), 1),
        (np.full((4, 4), 1e308), np.zeros((4, 4)), 1),
        (square(5, np.int16), np.zeros((5, 5), np.int16), 1),
        (square(5, np.uint8), np.zeros((5, 5), np.uint8), 2),
        (np.full((4, 4), NAN), np.zeros((4, 4)), 2),
        (square(6)[::-1, ::-1], np.zeros((12, 12))[::2, ::2], 3),
        (square(5), read_only(square(5)), 2),
        (square(5), square(5), 0),
        (square(5), square(5), -1),
        (square(5), square(5), 2.0),
        (np.full((4, 4), 5e-324), np.zeros((4, 4)), 2),
        (np.zeros((2, 2)), np.zeros((2, 2)), 1),
        (np.zeros((3, 3, 3)), np.zeros((3, 3, 3)), 1),
        (square(4, bool), np.zeros((4, 4), bool), 1),
        ([[1.0] * 3] * 3, [[1.0] * 3] * 3, 1),
    ],
    "histogram": [
        *((np.array([1.0, 2.0, NAN]), 4), (np.array([1.0]), 4), (np.array([]), 4), ([1, 2, 3], 3), (np.array([3, 1, 2]), 2)),
        *((np.array([1.0, INF]), 3), (np.array([1.0, 2.0]), 0), (np.array([0.0, 1.0], np.float32), 8)),
        *((np.array([NAN, 1.0]), 4), (np.array([-0.0, 0.0, 1.0]), 3), (np.arange(10)[::-3], 4), (np.array([0, 255, 7], np.uint8), 5)),
        *((np.array([True, False]), 2), (np.arange(6.0).reshape(2, 3), 2), ((1.0, 2), 2), ([Loud(1.0), 2.0], 2), ([1.0, "x"], 2)),
        *((np.array([-1e308, 1e308]), 3), (np.array([1.0, 2.0], ">f8"), 2), (np.array([0, 2**63], np.uint64), 4), (np.array([1.0, 2.0]), 2.5)),
        *((np.array([-(2**31), 2**31 - 1], np.int32), 3), (np.array(["a", "b"]), 2), ([], 3), (np.array([1.0, 3.0]), -2)),
    ],
    "black_scholes": [
        *(([0.0], 100.0, 0.02, 0.3, 1.5), ([-1.0], 100.0, 0.02, 0.3, 1.5), ([100], 100, 0, 0.3, 1), ([100.0], 100.0, 0.02, 0.0, 1.5)),
        *(([NAN, INF], 100.0, 0.02, 0.3, 1.5), ((90.0, "x"), 100.0, 0.02, 0.3, 1.5), ([2**2000], 100.0, 0.02, 0.3, 1.5)),
        *(([1.0], 0.0, 0.02, 0.3, 1.5), ([1.0], 2.0, 0.02, 0.3, -1.0), ([1.0], 2.0, -1e6, 0.3, 1.5), (np.array([90.0, 0.0]), 100.0, 0.02, 0.3, 1.5)),
        *(([np.float64(90)], 100.0, 0.02, 0.3, 1.5), ([True], 1, 0, 1, 1), ([Loud(90.0)], 100.0, 0.02, 0.3, 1.5), ([90.0], 100.0, 0.02, None, 1.5)),
        *((iter([90.0, 91.0]), 100.0, 0.02, 0.3, 1.5), ([90.0, 0.0, 91.0], 100.0, 0.02, 0.3, 1.5)),
    ],
    "box_blur": [
        (square(5, np.uint8), np.zeros((5, 5), np.int8)),
        (square(5, float), np.zeros((5, 5))),
        (square(5, np.uint8), np.zeros((2, 2), np.uint8)),
        (np.full((4, 4), NAN), np.zeros((4, 4))),
        (np.full((4, 4), 2**62), np.zeros((4, 4), np.int64)),
        (square(6, np.uint8)[::-1, ::-2], np.zeros((6, 3), np.uint8)),
        (np.full((4, 4), 300), np.zeros((4, 4), np.uint8)),
        (square(4, bool), np.zeros((4, 4), np.uint8)),
        (np.full((3, 3), INF), np.zeros((3, 3))),
        (np.full((3, 3), 1e19), np.zeros((3, 3))),
        (np.full((3, 3), -1), np.zeros((3, 3), np.uint8)),
        (np.full((3, 3), -1), np.zeros((3, 3), bool)),
        (square(5, np.int32), np.zeros((5, 5), np.float32)),
        (square(5, np.uint64), np.zeros((5, 5), np.int32)),
        (square(5, np.uint8), read_only(np.zeros((5, 5), np.uint8))),
        (np.zeros((0, 0), np.uint8), np.zeros((0, 0), np.uint8)),
        (np.zeros((2, 9), np.uint8), np.zeros((2, 9), np.uint8)),
        (square(5, object), np.zeros((5, 5), object)),
        (square(4, np.uint8).view(Array), np.zeros((4, 4), np.uint8)),
        (np.full((4, 4), 2**31 - 1, np.int32), np.zeros((4, 4), np.int32)),
    ],
    "kmeans_assign": [
        (square(4, np.float32), square(4, np.float32), np.zeros(4, np.int8)),
        (square(4), square(3), np.zeros(4, int)),
        (np.full((3, 2), NAN), np.zeros((2, 2)), np.zeros(3, int)),
        (square(3), np.zeros((0, 3)), np.zeros(3, int)),
        (np.full((2, 2), 1e200), np.zeros((2, 2)), np.zeros(2, int)),
        (square(4), square(4)[:, ::-1], np.zeros(8, int)[::-2]),
        (square(4), square(4), np.zeros(2, int)),
        (square(4), square(4), [0, 0, 0, 0]),
        (square(4, np.int32), square(4, np.int32), np.zeros(4, np.uint8)),
        (square(4, np.uint8), square(4, np.uint8)[::-1], np.zeros(4)),
        (np.zeros((3, 0)), np.zeros((2, 0)), np.zeros(3, int)),
        (square(3), square(3), np.zeros(3, bool)),
        (np.full((2, 2), INF), np.zeros((2, 2)), np.zeros(2, int)),
        (square(3), square(3), read_only(np.zeros(3, int))),
    ],
    "word_count": [
        *((["a", "a", 1, 1.0, True],), ([[1]],), ("banana",), ([NAN, NAN],), ({"x": 1},), (None,)),
        *(([NAN, float("nan")],), ([Counted(1), 1, Counted(1)],), (np.array([1, 1, 2]),), (b"aab",), ([0.0, -0.0, False],), (["a", [], "b"],)),
    ],
    "particles": [
        *(([], 3, 0.1), ([Point()], 0, 0.1), ([Point()], 3, 1), ([Point(1, 2, 3, 4)], 2, 1), ([Point(), Point(1)], 2, 0.1)),
        *(([Point(), without("vy")], 2, 0.1), ([Point(), None], 2, 0.1), ([Point(), without("x")], 1, 0.1), (None, 1, 0.1), (3, 1, 0.1)),
        *((twice(Point()), 3, 0.1), ([Watched(), Point()], 2, 0.1), ([Computed(), Computed()], 2, 0.1), ([without("vx"), Point()], 1, 0.1)),
        *(([Slotted(), Point(), Slotted()], 2, 0.1), ([Emptied(), Point()], 2, 0.1), ([Point(NAN, INF, -INF)], 2, 0.1), ([Point(-0.0, -0.0, 0.0)], 1, 0.0)),
        *(([Point(x=Loud(0.5), vx=Loud(2.0))], 2, 0.1), ([Point(True, "y")], 1, 0.1), ([Point(np.float64(0.5), np.float32(2))], 2, 0.1)),
        *((Shrinking([Point() for _ in range(9)]), 2, 0.1), ((Point(), Point(vy=2**70)), 2, 1), ([Point(mass=1.0), Point(a=1, b=2)], 3, 0.1)),
        *(([Point(1e308, 1e308, 1e308, 1e308)], 3, 1e10), ([Point()], 2.0, 0.1), ([Point()], 2, None)),
    ],
    "transfers": [
        *(([], []), ([Purse(10)], []), ([Purse(10), Purse(0)], [(0, 1, 5), (1, 0, 9), (0, 0, 1)]), ([Purse(10)], [(0, 3, 5)]), ([Purse(9)], [(-1, -1, 3)])),
        *(([Purse(99), Purse(9)], [(0, 1, 13)]), ([Purse(9)], [(0, 0)]), ([Purse(9)], [(0, 0, 1, 2)]), ([Purse(9)], [[0, 0, 2]]), ([Purse(9)], ["001"])),
        *(([Purse(9.5), Purse(2**63)], [(0, 1, 1), (1, 0, 2**62)]), ([Purse(2**63 - 1), Purse(0)], [(0, 1, -1), (1, 0, -1)]), ([Purse(NAN)], [(0, 0, 1)])),
        *((twice(Purse(5)), [(0, 1, 3)]), ([Purse(7, add=LOG.append), Purse(1)], [(0, 1, 2), (1, 0, 1)]), ([Purse(7, add=3)], [(0, 0, 2)])),
        *(({0: Purse(5), "a": Purse(3)}, [(0, "a", 2)]), ([Purse(5), object()], [(0, 1, 2)]), ([Purse(5), None], [(1, 0, 2)]), ([Purse(Counted(5))], [(0, 0, 2)])),
        *(([Purse(True), Purse("x")], [(0, 1, 1)]), ([Purse(np.int64(7)), Purse(np.uint8(250))], [(0, 1, 7)]), (None, [(0, 0, 1)]), ([Purse(1)], None)),
    ],
    "running_mean": [
        *(([], 3), ([1, 2, 3], 2), ([1.0, None], 1), ([INF, -INF, 1.0], 1), ([1.0, 2.0], 0), (Shrinking([1.0] * 9), 2), ((1.0, 2.0), 2.0)),
        *(([2**1100, 1.0], 1), ([1.0, 2.0, 3.0], -1), ([True, 2.0], 1), ([1.0, 2.0], np.int64(1)), (np.arange(6.0)[::-2], 2), (np.arange(5, dtype=np.uint8), 2)),
        *((OneByOne([1.0, 2.0, 3.0]), 2), ([1.0, np.float64(2.0), 3.0], 2), (iter([1.0, 2.0]), 1), ([1e308] * 3, 2), ([1.0, 2.0], 2**70), (bytes(5), 2)),
        *(([-0.0, -0.0], 1), ([1.0, Loud(2.0)], 1)),
    ],
}  # fmt: skip

TWICE = ("box_blur", "jacobi", "matrix_multiply", "matmul_array", "levenshtein")
