"""Metrics: every name, every label, and nobody's name in any of them."""

import asyncio
import math
import time

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from app.http.application import observed_lag
from app.metrics import (
    POOLS,
    AlterationMetrics,
    ClusterMetrics,
    DriftOrigin,
    FoundBy,
    KafkaResult,
    Metrics,
    Phase,
    exposed_name,
)
from tests.testkit.counted_metrics import CountedMetrics

CLUSTER = "prod"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def cluster(metrics: Metrics) -> ClusterMetrics:
    return metrics.of_cluster(CLUSTER)


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of a metric of the service, or null where nothing has been counted."""
    return metrics.registry.get_sample_value(name, labels)


def of_cluster(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the same of a metric of the cluster."""
    return sample(metrics, name, cluster=CLUSTER, **labels)


def test_the_phases_of_alterations_are_counted(metrics: Metrics, cluster: ClusterMetrics):
    alterations: AlterationMetrics = cluster.alterations
    alterations.phase_took(Phase.TX1, 0.004)
    alterations.slot_was_taken()
    alterations.recovered("applied", FoundBy.FENCES, 3.0)
    alterations.recovered("observed_other", FoundBy.LATE_ANSWER, 97.0)
    alterations.outcome_came_late()
    alterations.superseded()
    alterations.drifted(DriftOrigin.LATE_APPLY)
    alterations.audit_write_failed("tx2")
    assert of_cluster(metrics, "quota_alteration_phase_seconds_sum", phase="tx1") == 0.004
    assert of_cluster(metrics, "quota_slot_conflicts_total") == 1
    assert of_cluster(metrics, "quota_recovery_total", verdict="applied", fence="fences") == 1
    assert of_cluster(metrics, "quota_recovery_seconds_sum", fence="late_answer") == 97
    assert of_cluster(metrics, "quota_late_outcomes_total") == 1
    assert of_cluster(metrics, "quota_superseded_total") == 1
    assert of_cluster(metrics, "quota_drift_total", origin="late_apply") == 1
    assert of_cluster(metrics, "audit_write_failures_total", stage="tx2") == 1


def test_gauges_show_the_present(metrics: Metrics, cluster: ClusterMetrics):
    alterations = cluster.alterations
    alterations.intents_are_open(3, 12.5, 2)
    alterations.outcomes_are_waiting(7)
    cluster.acl_age.set(4.5)
    assert of_cluster(metrics, "quota_open_intents") == 3
    assert of_cluster(metrics, "quota_oldest_open_intent_seconds") == 12.5
    assert of_cluster(metrics, "quota_quarantined_slots") == 2
    assert of_cluster(metrics, "audit_outcomes_waiting") == 7
    assert of_cluster(metrics, "authz_acl_age_seconds") == 4.5


def test_the_age_of_the_scan_for_drift_grows_until_the_next_scan(
    metrics: Metrics, cluster: ClusterMetrics
):
    first = of_cluster(metrics, "quota_drift_scan_age_seconds")
    second = of_cluster(metrics, "quota_drift_scan_age_seconds")
    assert first is not None
    assert second is not None
    assert second > first >= 0
    began = time.monotonic()
    cluster.alterations.scanned_for_drift()
    third = of_cluster(metrics, "quota_drift_scan_age_seconds")
    assert third is not None
    assert third <= time.monotonic() - began


def test_what_goes_to_brokers_and_to_postgres_is_counted(metrics: Metrics, cluster: ClusterMetrics):
    counted = cluster.brokers
    counted.kafka_request_took("AlterClientQuotas", KafkaResult.LOST, 2.5)
    counted.kafka_error_came("AlterClientQuotas", "REQUEST_TIMED_OUT")
    metrics.database.pool_wait_took("writing", 0.25)
    labels = {"api": "AlterClientQuotas", "result": "lost"}
    assert of_cluster(metrics, "kafka_request_seconds_sum", **labels) == 2.5
    labels = {"api": "AlterClientQuotas", "code": "REQUEST_TIMED_OUT"}
    assert of_cluster(metrics, "kafka_errors_total", **labels) == 1
    assert sample(metrics, "db_pool_wait_seconds_sum", pool="writing") == 0.25


def test_connections_are_counted_at_each_scrape(metrics: Metrics, cluster: ClusterMetrics):
    connections, in_use = {"idle": 1, "busy": 2}, dict.fromkeys(POOLS, 0)
    elsewhere = [False]
    cluster.brokers.watch(lambda: connections, lambda: elsewhere[0])
    metrics.database.watch(lambda: in_use, lambda: 2.5)
    assert sample(metrics, "database_clock_ahead_seconds") == 2.5
    assert of_cluster(metrics, "kafka_connections", state="busy") == 2
    connections["busy"], in_use["querying"] = 5, 3
    assert of_cluster(metrics, "kafka_connections", state="busy") == 5
    assert of_cluster(metrics, "kafka_connections", state="idle") == 1
    assert sample(metrics, "db_pool_in_use", pool="querying") == 3
    assert sample(metrics, "db_pool_in_use", pool="writing") == 0
    for elsewhere[0] in (True, False):
        assert of_cluster(metrics, "kafka_wrong_cluster") == elsewhere[0]


def test_how_far_partitions_reach_is_unknown_until_it_is_counted(metrics: Metrics):
    assert math.isnan(sample(metrics, "audit_partition_months_ahead") or 0)
    metrics.database.partitions_reach(-1)
    assert sample(metrics, "audit_partition_months_ahead") == -1


def test_no_label_can_name_an_entity_or_a_principal(metrics: Metrics, cluster: ClusterMetrics):
    labels = {
        label
        for collector in metrics.registry._collector_to_names
        for label in getattr(collector, "_labelnames", ())
    }
    assert labels == {
        *("route", "method", "status", "reason", "result", "operation", "verdict"),
        *("scope", "stage", "phase", "fence", "origin"),
        *("api", "code", "state", "pool", "cluster"),
        # Of the policy file, and one of Kafka's.
        *("budget", "key"),
    }


def test_a_phase_is_timed_however_it_ends():
    metrics = CountedMetrics()

    def fail() -> None:
        with metrics.timed(Phase.KAFKA):
            raise KeyError

    with metrics.timed(Phase.TX1):
        pass
    with pytest.raises(KeyError):
        fail()
    phase = "quota_alteration_phase_seconds"
    assert metrics.counts == {f"{phase} tx1": 1, f"{phase} kafka": 1}


async def test_the_lag_of_the_event_loop_is_seen(metrics: Metrics):
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


def test_methods_that_a_route_does_not_have_are_counted_together(metrics: Metrics):
    for method in ("DELETE", "PATCH", "PROPFIND", "TRACE"):
        metrics.observe_request("/livez", method, 405, 0.001)
    text, _ = metrics.exposition()
    lines = [line for line in text.splitlines() if line.startswith(b"quotas_")]
    counts = [line for line in lines if b"_count{" in line and b"/livez" in line]
    assert [b"_OTHER" in line for line in counts] == [True]


def test_every_metric_of_ours_has_the_prefix_and_its_old_name_for_one_release(
    metrics: Metrics, cluster: ClusterMetrics
):
    metrics.rejected.labels("not-found").inc(3)
    cluster.alterations.phase_took(Phase.TX1, 0.004)
    cluster.count_alterations(["applied"])
    text, _ = metrics.exposition()
    families = {family.name: family for family in text_string_to_metric_families(text.decode())}
    ours = [name for name in families if not name.startswith(("process_", "python_"))]
    new = [name for name in ours if name.startswith("quotas_")]
    old = [name for name in ours if not name.startswith("quotas_")]
    assert {exposed_name(name) for name in old} == set(new)
    for name in old:
        samples = {(exposed_name(each[0]), *each[1:]) for each in hashable(families[name])}
        assert samples == set(hashable(families[exposed_name(name)]))
        assert f"The old name of {exposed_name(name)}" in families[name].documentation
    assert 'quotas_request_rejected_total{reason="not-found"} 3.0' in text.decode()
    assert 'quotas_alterations_total{cluster="prod",verdict="applied"} 1.0' in text.decode()


def hashable(family: Metric) -> list[tuple[str, tuple[tuple[str, str], ...], str]]:
    """Return the samples as values; the text of one, as NaN is unlike itself."""
    return [
        (each.name, tuple(sorted(each.labels.items())), str(each.value)) for each in family.samples
    ]
