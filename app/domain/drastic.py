"""Changes that may take away what somebody works with: a limit lowered by much, or next to nothing.

The service warns of them, or refuses them by its policy; the command asks first, and the page shows
them in red.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.domain.alterations import Op
from app.domain.quantities import UNLIMITED, factor_in_words, value_in_words
from app.domain.quota_keys import QuotaKey

DRASTIC: Final = "drastic"
"""The code of the warning."""

LARGEST_FACTOR: Final = 100
"""A value that is lowered by so many times, or more, is lowered drastically."""

SMALLEST_RATE: Final = 1024
"""In bytes/s; a byte rate under that is drastic."""

_BYTE_RATES: Final = frozenset({QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE})


@dataclass(frozen=True, slots=True)
class DrasticChange:
    """A change of one key; ``before`` is null where the entity had no value of its own."""

    key: str
    before: float | None
    after: float

    @property
    def lowers(self) -> bool:
        """Whether the entity had a higher value: then the command asks."""
        return self.before is not None

    @property
    def detail(self) -> str:
        """A sentence for people."""
        now = value_in_words(self.key, self.after)
        if self.before is None:
            return f"{self.key} is {now}, which lets next to nothing through."
        was = value_in_words(self.key, self.before)
        factor = "" if was == UNLIMITED else f", {factor_in_words(self.after / self.before)}"
        return f"{self.key} is lowered from {was} to {now}{factor}."


def drastic_changes(values: Mapping[str, float], ops: Iterable[Op]) -> Iterator[DrasticChange]:
    """Yield what is drastic of some operations on an entity with these values."""
    for op in ops:
        if op.value is None:
            continue
        before, after = values.get(op.key), float(op.value)
        lowered = before is not None and after < before
        tiny = op.key in _BYTE_RATES and after < SMALLEST_RATE and (lowered or before is None)
        if tiny or (lowered and before is not None and after * LARGEST_FACTOR <= before):
            yield DrasticChange(op.key, before, after)


def drastic_warnings(values: Mapping[str, float], ops: Iterable[Op]) -> tuple[str, ...]:
    """Return a sentence for each drastic change, which begins with the code."""
    return tuple([f"{DRASTIC}: {each.detail}" for each in drastic_changes(values, ops)])
