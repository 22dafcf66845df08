"""Figures of one arm, and its ratio to another arm that was measured at the same time."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One figure for each round, null where the arm sat the round out.

    All figures of a measure have one unit: milliseconds, or requests per second.
    """

    by_round: Sequence[float | None]

    @property
    def figures(self) -> list[float]:
        """The figures of the arm's rounds."""
        return [figure for figure in self.by_round if figure is not None]

    @property
    def n(self) -> int:
        """How many rounds that were."""
        return len(self.figures)

    @property
    def minimum(self) -> float:
        """The smallest figure."""
        return min(self.figures)

    @property
    def maximum(self) -> float:
        """The largest figure."""
        return max(self.figures)

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.figures)

    @property
    def p99(self) -> float:
        """The 99th percentile by nearest rank: up to n = 100 that is the maximum."""
        return percentile(sorted(self.figures), 0.99)

    def times(self, factor: float) -> "Measure":
        """Return the measure with every figure multiplied."""
        return Measure([None if item is None else item * factor for item in self.by_round])

    def ratio_to(self, other: "Measure") -> float:
        """Return the median of the ratios of each round in which both took section.

        What slows the machine down for a while slows both arms of a round, so their ratio stays.
        """
        return statistics.median(ours / theirs for ours, theirs in self._pairs(other))

    def excess_over(self, other: "Measure") -> float:
        """Return the median of the differences of each round in which both took section."""
        return statistics.median(ours - theirs for ours, theirs in self._pairs(other))

    def _pairs(self, other: "Measure") -> Iterator[tuple[float, float]]:
        for ours, theirs in zip(self.by_round, other.by_round, strict=True):
            if ours is not None and theirs is not None:
                yield ours, theirs


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile of ordered figures by nearest rank."""
    return ordered[math.ceil(share * len(ordered)) - 1]
