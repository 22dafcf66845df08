"""Where the service's time went, from its own metric."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.errors import BenchmarkError
from benchmarks.http_connection import OK, open_http, prepared

_METRIC = "quota_alteration_phase_seconds"

Totals = Mapping[str, tuple[float, float]]
"""Seconds and number, by phase, since the service began."""


async def phase_totals(service_port: int) -> Totals:
    """Ask the service, over a new connection: it closes one that was idle for 10 s.

    Raises:
        BenchmarkError: It does not tell.
    """
    service = await open_http(service_port)
    try:
        answer = await service.exchange(prepared("GET", "/metrics"))
    finally:
        service.close()
    if answer.status != OK:
        raise BenchmarkError(f"/metrics answered {answer.status}")
    return read_totals(answer.body.decode())


def read_totals(text: str) -> Totals:
    """Read them from Prometheus' text format."""
    totals: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in (f"{_METRIC}_sum", f"{_METRIC}_count"):
                pair = totals.setdefault(sample.labels["phase"], [0.0, 0.0])
                pair[sample.name.endswith("_count")] = sample.value
    return {phase: (seconds, number) for phase, (seconds, number) in totals.items()}


def means_ms(before: Totals, after: Totals) -> Mapping[str, float]:
    """Return the mean milliseconds of each phase that was gone through in between."""
    means = {}
    for phase, (seconds, number) in after.items():
        seconds_before, number_before = before.get(phase, (0.0, 0.0))
        if number > number_before:
            means[phase] = (seconds - seconds_before) / (number - number_before) * 1000
    return means
