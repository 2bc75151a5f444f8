"""When a function is promoted: the numbers, what they mean, and the three named policies."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from overdrive._frozen import dataclass


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How promotion decides.

    A sampler looks at the program ``rate`` times a second. After each ``window`` seconds every function that
    was seen gets a score from 0 to 100, the weighted sum of three terms, each from 0 to 100:

    * call rate ``100 * min(1, log2(1 + A) / 10)``, where A is the larger of the counted calls per second and
      16 times the samples per second whose line lies in a loop of the function;
    * CPU share ``100 * min(1, share / 5 %)``, the part of the samples that were in the function itself;
    * complexity: 100 up to 1 KiB of bytecode, 20 less for each doubling.

    A function that reaches ``threshold`` in ``windows`` windows in a row is compiled in the background and
    swapped in. Windows in which it does not run are no part of the row: programs work in phases.

    >>> Policy(threshold=70).threshold
    70
    """

    call_rate_weight: float = 0.40
    """Weight of the call rate."""
    cpu_share_weight: float = 0.35
    """Weight of the CPU share."""
    complexity_weight: float = 0.25
    """Weight of the complexity."""
    threshold: float = 85
    """Score to reach, 0 to 100."""
    windows: int = 3
    """Windows in a row that must reach it."""
    most_missed: int = 20
    """Windows without the function that may lie between two of the row; with 0 the row is broken by one."""
    window: float = 0.5
    """Length of a window in seconds."""
    rate: float = 200
    """Samples per second. The sampler goes slower by itself where that would cost more than 1 % of a core."""
    max_counted: int = 8
    """Functions whose calls are counted (and some of them timed) in one window."""
    max_compiles: int = 4
    """Compilations in flight, best score first."""
    max_attempts: int = 3
    """How often a function that was refused, or lost time, is tried again."""
    back_off: int = 8
    """Windows until the second attempt; four times as many until the next."""
    least_gain: float = 50e-9
    """Seconds that a call must save at least; a function that saves less is put back."""
    eager: bool = False
    """Promote each function of the script's own project at its second call, without looking at scores.

    The project is every file that is neither in the standard library nor in ``site-packages``, and of those
    the files whose path a pattern of ``only`` names: one with a slash, as ``"*/json/*"``. For tests and for
    finding out what can be compiled, not for speed.
    """
    observe: bool = False
    """Only report what would be promoted."""

    def __post_init__(self) -> None:
        """Check the ranges, so that a mistake is seen here and not in the background thread."""
        for field, low, high in _RANGES:
            value = getattr(self, field)
            if not low <= value <= high:
                raise ValueError(f"Policy.{field} is {value!r}; it must lie between {low:g} and {high:g}")
        weights = self.call_rate_weight + self.cpu_share_weight + self.complexity_weight
        if abs(weights - 1) > 1e-9:
            raise ValueError(f"the three weights of a Policy add up to {weights:g}; they must add up to 1")

    @classmethod
    def named(cls, name: str) -> Policy:
        """Return the policy ``"default"``, ``"eager"`` or ``"observe"``."""
        try:
            return _NAMED[name]
        except KeyError:
            raise ValueError(f"unknown policy {name!r}: use {', '.join(map(repr, _NAMED))}") from None


_RANGES = (
    ("call_rate_weight", 0, 1),
    ("cpu_share_weight", 0, 1),
    ("complexity_weight", 0, 1),
    ("threshold", 0, 100),
    ("windows", 1, 1000),
    ("most_missed", 0, 100_000),
    ("window", 0.05, 3600),
    ("rate", 1, 1000),
    ("max_counted", 0, 64),
    ("max_compiles", 1, 64),
    ("max_attempts", 1, 100),
    ("back_off", 1, 100_000),
    ("least_gain", 0, 1),
)
_NAMED = {"default": Policy(), "eager": Policy(eager=True), "observe": Policy(observe=True)}
POLICIES = tuple(_NAMED)
