"""Counters, gauges and histograms for what each request counts; of one thread, so without locks.

Those of ``prometheus_client`` take several times as long: they may be used by many threads.
Source of what a collector is: ``prometheus_client.registry.Collector``.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]
"""The values of the labels, in the order of their names."""


class Counts(Collector):
    """A counter for each combination of labels that has come up.

    Args:
        name: Of the metric, without ``_total``.
        documentation: Its help text.
        labels: The names of its labels.
        registry: Where it is shown.
    """

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._head: Final = (name, documentation)
        self._labelnames = tuple(labels)
        self._numbers: dict[Labels, int] = {}
        registry.register(self)

    def add(self, labels: Labels) -> None:
        """Count one more."""
        self._numbers[labels] = self._numbers.get(labels, 0) + 1

    def describe(self) -> Iterator[CounterMetricFamily]:
        """Return the head alone."""
        yield CounterMetricFamily(*self._head, labels=self._labelnames)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Return what was counted."""
        (family,) = self.describe()
        for labels, number in list(self._numbers.items()):
            family.add_metric(labels, number)
        yield family


class Level(Collector):
    """A gauge without labels.

    Attributes:
        value: What it shows.
    """

    _labelnames = ()

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._head: Final = (name, documentation)
        self.value = 0.0
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return the head alone."""
        yield GaugeMetricFamily(*self._head)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the value."""
        yield GaugeMetricFamily(*self._head, value=self.value)


class Durations(Collector):
    """A histogram of seconds for each combination of labels that has come up.

    Args:
        name: Of the metric.
        documentation: Its help text.
        labels: The names of its labels.
        bounds: The upper bounds of its buckets, ascending; that of the last one is infinite.
        registry: Where it is shown.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._head: Final = (name, documentation)
        self._labelnames = tuple(labels)
        self._bounds = tuple(bounds)
        to_text: Callable[[float], str] = floatToGoString
        self._texts = [to_text(bound) for bound in (*bounds, float("inf"))]
        self._numbers: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        registry.register(self)

    def observe(self, labels: Labels, seconds: float) -> None:
        """Count a duration; one that is as long as a bound is within it."""
        numbers = self._numbers.get(labels)
        if numbers is None:
            self._sums[labels] = 0.0  # first: the text may be made in another thread
            numbers = self._numbers[labels] = [0] * len(self._texts)
        numbers[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Return the head alone."""
        yield HistogramMetricFamily(*self._head, labels=self._labelnames)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return what was observed."""
        (family,) = self.describe()
        for labels, numbers in list(self._numbers.items()):
            buckets = list(zip(self._texts, accumulate(numbers), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        yield family
