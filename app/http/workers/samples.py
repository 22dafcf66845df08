"""What a worker has counted, as another process can read it, and what all have counted together."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from app.http.workers.gauges import Joined, joined

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
"""The name of a sample, and its labels."""

GAUGE: Final = "gauge"


@dataclass(slots=True)
class Family:
    """The samples of one metric.

    Attributes:
        kind: ``counter``, ``gauge`` or ``histogram``.
        samples: In the order in which they are shown.
    """

    documentation: str
    kind: str
    samples: dict[Series, float] = field(default_factory=dict)


Families = dict[str, Family]
"""By the metric's name."""


def families_of(metrics: Iterable[Metric]) -> Families:
    """Return what a registry collects."""
    return {
        metric.name: Family(
            metric.documentation,
            metric.type,
            {(one.name, tuple(one.labels.items())): one.value for one in metric.samples},
        )
        for metric in metrics
    }


def written(families: Families) -> bytes:
    """Return the families as JSON; numbers that JSON lacks are written as Python reads them."""
    return json.dumps(
        [
            [name, family.documentation, family.kind, [[*key, at] for key, at in _items(family)]]
            for name, family in families.items()
        ]
    ).encode()


def _items(family: Family) -> Iterable[tuple[Series, float]]:
    return family.samples.items()


def read(text: bytes) -> Families:
    """Return families that were written."""
    return {
        name: Family(documentation, kind, {_series(*key): at for *key, at in samples})
        for name, documentation, kind, samples in json.loads(text)
    }


def _series(name: str, labels: Iterable[tuple[str, str]]) -> Series:
    return name, tuple((label, value) for label, value in labels)


def counted(families: Families) -> Families:
    """Return what only ever grows: counters and histograms."""
    return {name: family for name, family in families.items() if family.kind != GAUGE}


def add(to: Families, more: Families) -> None:
    """Add counters and histograms, sample by sample."""
    for name, family in more.items():
        into = to.setdefault(name, Family(family.documentation, family.kind))
        for series, value in family.samples.items():
            into.samples[series] = into.samples.get(series, 0.0) + value


_ONE_OF_TWO: Final[Mapping[Joined, Callable[[float, float], float]]] = {
    Joined.SUM: lambda one, other: one + other,
    Joined.MOST: max,
    Joined.LEAST: min,
}


def add_gauges(to: Families, more: Families, worker: int) -> None:
    """Put a worker's gauges beside or into those of the others; NaN, not known, counts for none."""
    for name, family in more.items():
        if family.kind != GAUGE:
            continue
        into = to.setdefault(name, Family(family.documentation, family.kind))
        how = joined(name)
        for (sample, labels), value in family.samples.items():
            if how is Joined.EACH:
                into.samples[sample, (*labels, ("worker", str(worker)))] = value
                continue
            before = into.samples.get((sample, labels), math.nan)
            both = not (math.isnan(before) or math.isnan(value))
            known = value if math.isnan(before) else before
            into.samples[sample, labels] = _ONE_OF_TWO[how](before, value) if both else known


class Shown(Collector):
    """Families as a registry collects them."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        for name, family in self._families.items():
            metric = Metric(name, family.documentation, family.kind)
            for (sample, labels), value in family.samples.items():
                metric.add_sample(sample, dict(labels), value)
            yield metric
