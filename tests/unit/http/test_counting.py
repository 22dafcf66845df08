"""What one thread counts is shown as prometheus_client shows its own."""

import pytest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest

from app.http.counting import Counts, Durations, Level

BOUNDS = (0.005, 0.5, 60.0)
SECONDS = [0.0, 0.005, 0.0050001, 0.3, 0.5, 59.0, 60.0, 61.0, 1e9]
LABELS = [("/quotas", "GET"), ('a "b"\n', "POST")]


@pytest.fixture(autouse=True)
def _without_times_of_creation() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]


@pytest.fixture
def ours() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def theirs() -> CollectorRegistry:
    return CollectorRegistry()


def test_durations_are_shown_as_a_histogram(ours: CollectorRegistry, theirs: CollectorRegistry):
    names = ("route", "method")
    durations = Durations("took_seconds", "Time.", names, BOUNDS, ours)
    histogram = Histogram("took_seconds", "Time.", names, buckets=BOUNDS, registry=theirs)
    for labels in LABELS:
        for seconds in SECONDS:
            durations.observe(labels, seconds)
            histogram.labels(*labels).observe(seconds)
    assert generate_latest(ours) == generate_latest(theirs)


def test_counts_are_shown_as_a_counter(ours: CollectorRegistry, theirs: CollectorRegistry):
    counts = Counts("asked", "Questions.", ("route", "method"), ours)
    counter = Counter("asked", "Questions.", ("route", "method"), registry=theirs)
    for labels in [*LABELS, LABELS[0]]:
        counts.add(labels)
        counter.labels(*labels).inc()
    assert generate_latest(ours) == generate_latest(theirs)


def test_a_level_is_shown_as_a_gauge(ours: CollectorRegistry, theirs: CollectorRegistry):
    level = Level("age_seconds", "Age.", ours)
    gauge = Gauge("age_seconds", "Age.", registry=theirs)
    assert generate_latest(ours) == generate_latest(theirs)
    level.value = 4.5
    gauge.set(4.5)
    assert generate_latest(ours) == generate_latest(theirs)


def test_what_was_never_counted_has_its_head_alone(
    ours: CollectorRegistry, theirs: CollectorRegistry
):
    Durations("took_seconds", "Time.", ("route",), BOUNDS, ours)
    Histogram("took_seconds", "Time.", ("route",), buckets=BOUNDS, registry=theirs)
    assert generate_latest(ours) == generate_latest(theirs)
