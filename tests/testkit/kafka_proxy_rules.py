"""What a proxy does to the frames that pass through it."""

from dataclasses import dataclass
from enum import Enum, auto


class Way(Enum):
    """Which way a frame goes."""

    TO_BROKER = auto()
    TO_CLIENT = auto()


class Doing(Enum):
    """What becomes of a frame."""

    PASS = auto()
    DROP = auto()
    CLOSE = auto()
    CUT = auto()
    HOLD = auto()


@dataclass(eq=False)
class Rule:
    """One rule; the first that fits counts.

    Attributes:
        way: Requests or answers.
        api_key: Of the request, or of the request that is answered; null is any.
        doing: What becomes of it.
        delay_s: How long it is kept back before that, in seconds.
        cut_after: With CUT: how many of its bytes pass, its length included.
        times: How often it happens; null is always.
    """

    way: Way
    api_key: int | None
    doing: Doing = Doing.PASS
    delay_s: float = 0.0
    cut_after: int = 0
    times: int | None = None

    def fits(self, way: Way, api_key: int) -> bool:
        """Tell whether the rule is about such a frame."""
        return self.way is way and self.api_key in (None, api_key) and self.times != 0

    def use(self) -> None:
        """Count it."""
        if self.times is not None:
            self.times -= 1


PASSING = Rule(Way.TO_BROKER, None)


class Rules:
    """The rules of one proxy, the newest first."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """Put a rule before the others."""
        self._rules.insert(0, rule)

    def clear(self) -> None:
        """Let everything pass."""
        self._rules.clear()

    def of(self, way: Way, api_key: int) -> Rule:
        """Return what counts for a frame, without counting it."""
        return next((rule for rule in self._rules if rule.fits(way, api_key)), PASSING)
