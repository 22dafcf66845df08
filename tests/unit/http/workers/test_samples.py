"""What several workers have counted, as one service."""

import math
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.http.metrics import HttpMetrics
from app.http.workers.board import Board
from app.http.workers.gauges import OF_GAUGES
from app.http.workers.samples import Family, add_gauges, families_of, read, written
from app.http.workers.service_metrics import ServiceMetrics
from app.http.workers.team import Team


def worker(folder: Path, number: int) -> tuple[HttpMetrics, ServiceMetrics]:
    """Return a worker that listens nowhere, so that the others read its file."""
    metrics = HttpMetrics()
    return metrics, ServiceMetrics(metrics, Team(2, folder, Board(2), mine=number))


async def shown(service: ServiceMetrics) -> dict[str, float]:
    text, content_type = await service.exposition()
    assert content_type.startswith("text/plain")
    return {
        ",".join([one.name, *(f"{name}={value}" for name, value in sorted(one.labels.items()))]): (
            one.value
        )
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    }


def test_what_is_written_is_read_again():
    metrics = HttpMetrics()
    metrics.observe_request("/quotas", "GET", 200, 0.1)
    families = families_of(metrics.registry.collect())
    again = read(written(families))
    assert {name: family.kind for name, family in again.items()} == {
        name: family.kind for name, family in families.items()
    }
    for name, family in families.items():
        assert list(again[name].samples) == list(family.samples)
    unknown = "audit_partition_months_ahead"
    assert math.isnan(again[unknown].samples[unknown, ()])


async def test_counters_and_histograms_are_added(tmp_path: Path):
    one, one_service = worker(tmp_path, 1)
    two, two_service = worker(tmp_path, 2)
    one.observe_request("/quotas", "GET", 200, 0.1)
    for _ in range(2):
        two.observe_request("/quotas", "GET", 200, 0.001)
    two.count_rejected("not-found")
    two_service.own()
    of_all = await shown(one_service)
    series = "http_server_request_duration_seconds_{},{}method=GET,route=/quotas,status=200"
    assert of_all[series.format("count", "")] == 3
    assert of_all[series.format("bucket", "le=0.005,")] == 2
    assert of_all[series.format("bucket", "le=+Inf,")] == 3
    assert of_all["request_rejected_total,reason=not-found"] == 1


async def test_what_was_shown_once_is_counted_on_by_the_next_in_the_place(tmp_path: Path):
    _, one_service = worker(tmp_path, 1)
    dead, dead_service = worker(tmp_path, 2)
    dead.count_rejected("not-found")
    dead_service.own()
    name = "request_rejected_total,reason=not-found"
    assert (await shown(one_service))[name] == 1
    following, following_service = worker(tmp_path, 2)
    assert (await shown(one_service))[name] == 1
    following_service.own()
    assert (await shown(one_service))[name] == 1
    following.count_rejected("not-found")
    assert (await shown(following_service))[name] == 2
    assert (await shown(one_service))[name] == 2


async def test_gauges_of_a_worker_that_does_not_answer_are_left_out(tmp_path: Path):
    _, one_service = worker(tmp_path, 1)
    two, two_service = worker(tmp_path, 2)
    two.active_requests.value += 5
    two_service.own()
    of_all = await shown(one_service)
    assert of_all["http_server_active_requests"] == 0
    assert "breaker_state,dependency=postgres,worker=2" not in of_all
    assert of_all["policy_rules,worker=1"] == 0


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("http_server_active_requests", (2.0, 3.0), {(): 5.0}),
        ("quota_open_intents", (2.0, 3.0), {(): 3.0}),
        ("audit_partition_months_ahead", (math.nan, 3.0), {(): 3.0}),
        ("audit_partition_months_ahead", (2.0, math.nan), {(): 2.0}),
        ("quota_drift_scan_age_seconds", (2.0, 3.0), {(): 2.0}),
        ("policy_rules", (2.0, 3.0), {(("worker", "1"),): 2.0, (("worker", "2"),): 3.0}),
        ("process_open_fds", (2.0, 3.0), {(("worker", "1"),): 2.0, (("worker", "2"),): 3.0}),
    ],
)
def test_gauges_are_joined_as_their_meaning_asks(
    name: str,
    values: tuple[float, float],
    expected: dict[tuple[tuple[str, str], ...], float],
):
    service: dict[str, Family] = {}
    for number, value in enumerate(values, 1):
        add_gauges(service, {name: Family("text", "gauge", {(name, ()): value})}, number)
    assert service[name].samples == {(name, labels): at for labels, at in expected.items()}


def test_it_is_written_down_of_every_gauge_how_it_is_joined():
    families = families_of(HttpMetrics().registry.collect())
    gauges = {name for name, family in families.items() if family.kind == "gauge"}
    own = {name for name in gauges if not name.startswith(("process_", "python_"))}
    assert own == set(OF_GAUGES)
