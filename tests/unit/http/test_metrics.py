"""Metrics: every name, every label, and nobody's name in any of them."""

import asyncio
import math
import time

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
from app.http.dependency_metrics import POOLS
from app.http.loop_lag import observed_lag
from app.http.metrics import HttpMetrics
from app.service.dependency_metrics import DependencyMetrics, KafkaResult
from app.service.metrics_port import (
    AlterationMetrics,
    BreakerState,
    DriftOrigin,
    FoundBy,
    OpenIntents,
    Phase,
    timed,
)
from tests.testkit.fake_metrics import CountedMetrics
from tests.unit.http.application import sample


def test_the_life_of_alterations_is_counted(metrics: HttpMetrics):
    lives: AlterationMetrics = metrics.lives
    lives.phase_took(Phase.TX1, 0.004)
    lives.slot_was_taken()
    lives.recovered("applied", FoundBy.FENCES, 3.0)
    lives.recovered("observed_other", FoundBy.LATE_ANSWER, 97.0)
    lives.outcome_came_late()
    lives.superseded()
    lives.drifted(DriftOrigin.LATE_APPLY)
    lives.audit_write_failed("tx2")
    assert sample(metrics, "quota_alteration_phase_seconds_sum", phase="tx1") == 0.004
    assert sample(metrics, "quota_slot_conflicts_total") == 1
    assert sample(metrics, "quota_recovery_total", verdict="applied", fence="fences") == 1
    assert sample(metrics, "quota_recovery_seconds_sum", fence="late_answer") == 97
    assert sample(metrics, "quota_late_outcomes_total") == 1
    assert sample(metrics, "quota_superseded_total") == 1
    assert sample(metrics, "quota_drift_total", origin="late_apply") == 1
    assert sample(metrics, "audit_write_failures_total", stage="tx2") == 1


def test_gauges_show_the_present(metrics: HttpMetrics):
    lives = metrics.lives
    lives.intents_are_open(OpenIntents(3, 12.5, 2))
    lives.outcomes_are_waiting(7)
    lives.breaker_is("postgres", BreakerState.OPEN)
    lives.breaker_is("kafka", BreakerState.CLOSED)
    metrics.observe_acl_age(4.5)
    assert sample(metrics, "quota_open_intents") == 3
    assert sample(metrics, "quota_oldest_open_intent_seconds") == 12.5
    assert sample(metrics, "quota_quarantined_slots") == 2
    assert sample(metrics, "audit_outcomes_waiting") == 7
    assert sample(metrics, "breaker_state", dependency="postgres") == 1
    assert sample(metrics, "breaker_state", dependency="kafka") == 0
    assert sample(metrics, "authz_acl_age_seconds") == 4.5
    lives.breaker_is("postgres", BreakerState.CLOSED)
    assert sample(metrics, "breaker_state", dependency="postgres") == 0


def test_the_age_of_the_scan_for_drift_grows_until_the_next_one(metrics: HttpMetrics):
    first = sample(metrics, "quota_drift_scan_age_seconds")
    second = sample(metrics, "quota_drift_scan_age_seconds")
    assert first is not None
    assert second is not None
    assert second > first >= 0
    began = time.monotonic()
    metrics.lives.scanned_for_drift()
    third = sample(metrics, "quota_drift_scan_age_seconds")
    assert third is not None
    assert third <= time.monotonic() - began


def test_what_goes_to_brokers_and_to_postgres_is_counted(metrics: HttpMetrics):
    counted: DependencyMetrics = metrics.dependencies
    counted.kafka_request_took("AlterClientQuotas", KafkaResult.LOST, 2.5)
    counted.kafka_error_came("AlterClientQuotas", "REQUEST_TIMED_OUT")
    counted.pool_wait_took("writing", 0.25)
    labels = {"api": "AlterClientQuotas", "result": "lost"}
    assert sample(metrics, "kafka_request_seconds_sum", **labels) == 2.5
    labels = {"api": "AlterClientQuotas", "code": "REQUEST_TIMED_OUT"}
    assert sample(metrics, "kafka_errors_total", **labels) == 1
    assert sample(metrics, "db_pool_wait_seconds_sum", pool="writing") == 0.25


def test_connections_are_shown_as_they_are_when_somebody_looks(metrics: HttpMetrics):
    connections, in_use = {"idle": 1, "busy": 2}, dict.fromkeys(POOLS, 0)
    elsewhere = [False]
    metrics.dependencies.watch(lambda: connections, lambda: in_use, lambda: elsewhere[0])
    assert sample(metrics, "kafka_connections", state="busy") == 2
    connections["busy"], in_use["querying"] = 5, 3
    assert sample(metrics, "kafka_connections", state="busy") == 5
    assert sample(metrics, "kafka_connections", state="idle") == 1
    assert sample(metrics, "db_pool_in_use", pool="querying") == 3
    assert sample(metrics, "db_pool_in_use", pool="writing") == 0
    for elsewhere[0] in (True, False):
        assert sample(metrics, "kafka_wrong_cluster") == elsewhere[0]


def test_how_far_partitions_reach_is_unknown_until_somebody_has_looked(metrics: HttpMetrics):
    assert math.isnan(sample(metrics, "audit_partition_months_ahead") or 0)
    metrics.lives.partitions_reach(-1)
    assert sample(metrics, "audit_partition_months_ahead") == -1


def test_what_the_http_interface_refuses_is_counted(metrics: HttpMetrics):
    metrics.count_idempotency("replay")
    metrics.count_rate_limited("reads")
    metrics.count_closed("headers")
    assert sample(metrics, "idempotency_total", result="replay") == 1
    assert sample(metrics, "rate_limited_total", scope="reads") == 1
    assert sample(metrics, "receive_deadline_closed_total", stage="headers") == 1


def test_no_label_can_name_an_entity_or_a_principal(metrics: HttpMetrics):
    labels = {
        label
        for collector in metrics.registry._collector_to_names
        for label in getattr(collector, "_labelnames", ())
    }
    assert labels == {
        *("route", "method", "status", "reason", "result", "operation", "verdict"),
        *("scope", "stage", "phase", "fence", "origin", "dependency"),
        *("api", "code", "state", "pool"),
    }


def test_a_phase_is_timed_however_it_ends():
    metrics = CountedMetrics()

    def fail() -> None:
        with timed(metrics, Phase.KAFKA):
            raise KeyError

    with timed(metrics, Phase.TX1):
        pass
    with pytest.raises(KeyError):
        fail()
    assert metrics.counts == {"tx1": 1, "kafka": 1}


async def test_the_lag_of_the_event_loop_is_seen(metrics: HttpMetrics):
    seen: list[float] = []
    enough = asyncio.Event()

    def observe(seconds: float) -> None:
        seen.append(seconds)
        metrics.observe_loop_lag(seconds)
        enough.set()

    async with observed_lag(observe, every_s=0.001):
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251 - what holds the loop up is the point
        await asyncio.wait_for(enough.wait(), 30)
    assert seen[0] >= 0.04
    assert (sample(metrics, "event_loop_lag_seconds_sum") or 0) >= 0.04


BOUNDS = (0.005, 0.5, 60.0)
SECONDS = [0.0, 0.005, 0.0050001, 0.3, 0.5, 59.0, 60.0, 61.0, 1e9]
LABELS = [("/quotas", "GET"), ('a "b"\n', "POST")]


@pytest.fixture
def _without_times_of_creation() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]


@pytest.fixture
def ours() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def theirs() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.mark.usefixtures("_without_times_of_creation")
def test_durations_are_shown_as_a_histogram(ours: CollectorRegistry, theirs: CollectorRegistry):
    names = ("route", "method")
    durations = Durations("took_seconds", "Time.", names, BOUNDS, ours)
    histogram = Histogram("took_seconds", "Time.", names, buckets=BOUNDS, registry=theirs)
    for labels in LABELS:
        for seconds in SECONDS:
            durations.observe(labels, seconds)
            histogram.labels(*labels).observe(seconds)
    assert generate_latest(ours) == generate_latest(theirs)


@pytest.mark.usefixtures("_without_times_of_creation")
def test_counts_are_shown_as_a_counter(ours: CollectorRegistry, theirs: CollectorRegistry):
    counts = Counts("asked", "Questions.", ("route", "method"), ours)
    counter = Counter("asked", "Questions.", ("route", "method"), registry=theirs)
    for labels in [*LABELS, LABELS[0]]:
        counts.add(labels)
        counter.labels(*labels).inc()
    assert generate_latest(ours) == generate_latest(theirs)


@pytest.mark.usefixtures("_without_times_of_creation")
def test_a_level_is_shown_as_a_gauge(ours: CollectorRegistry, theirs: CollectorRegistry):
    level = Level("age_seconds", "Age.", ours)
    gauge = Gauge("age_seconds", "Age.", registry=theirs)
    assert generate_latest(ours) == generate_latest(theirs)
    level.value = 4.5
    gauge.set(4.5)
    assert generate_latest(ours) == generate_latest(theirs)


@pytest.mark.usefixtures("_without_times_of_creation")
def test_what_was_never_counted_has_its_head_alone(
    ours: CollectorRegistry, theirs: CollectorRegistry
):
    Durations("took_seconds", "Time.", ("route",), BOUNDS, ours)
    Histogram("took_seconds", "Time.", ("route",), buckets=BOUNDS, registry=theirs)
    assert generate_latest(ours) == generate_latest(theirs)


def test_methods_that_a_route_does_not_have_are_counted_together(metrics: HttpMetrics):
    for method in ("DELETE", "PATCH", "PROPFIND", "TRACE"):
        metrics.observe_request("/livez", method, 405, 0.001)
    text, _ = metrics.exposition()
    counts = [line for line in text.splitlines() if b"_count{" in line and b"/livez" in line]
    assert [b"_OTHER" in line for line in counts] == [True]


def test_whoever_asks_again_and_again_gets_the_text_of_the_time_before(
    metrics: HttpMetrics, monkeypatch: pytest.MonkeyPatch
):
    now = time.monotonic()
    monkeypatch.setattr("app.http.metrics.time.monotonic", lambda: now)
    texts = []
    for _ in range(100):
        metrics.observe_request("/livez", "GET", 200, 0.001)
        texts.append(metrics.exposition()[0])
    assert len(set(texts)) < 15
    now += 1.0
    assert metrics.exposition()[0] not in texts
