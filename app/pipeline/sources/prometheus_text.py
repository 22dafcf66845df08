"""Quota metrics in Prometheus text, whichever exporter wrote it."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

_NAME: Final = re.compile(
    r"kafka_server_(quota|produce|fetch|request|controllermutation)_"
    r"(byte_rate|request_time|mutation_rate|tokens|throttle_time)",
    re.IGNORECASE,
)
"""Source: the examples of the JMX exporter; Strimzi's KafkaMetricWrapper."""

_LABELS: Final[Mapping[str, str]] = {
    "resource": "resource",
    "type": "resource",
    "user": "user",
    "clientid": "client_id",
}


_COLUMNS: Final = ("resource", "user", "client_id")


class Sample(NamedTuple):
    """One sample; labels as exported, '' where absent.

    Attributes:
        metric: The name as exported.
        resource: ``Produce``, ``Fetch``, ``Request`` or ``ControllerMutation`` as exported;
            '' where the metric's name tells it.
        user: Still URL-encoded where the exporter leaves it so.
        client_id: Still quoted where the exporter leaves it so.
        value: NaN where nothing was recorded of late.
    """

    metric: str
    resource: str
    user: str
    client_id: str
    value: float


def quota_samples(text: str) -> Iterator[Sample]:
    """Return the quota metrics of a scrape; everything else is left out.

    Raises:
        ValueError: This is not Prometheus text.
    """
    for family in text_string_to_metric_families(_quota_lines(text)):
        for sample in family.samples:
            labels = _labels(sample.labels)
            resource, user, client = (labels.get(column, "") for column in _COLUMNS)
            yield Sample(sample.name, resource, user, client, float(sample.value))


def _quota_lines(text: str) -> str:
    """Return the lines of quota metrics: a broker exports thousands of others.

    Their types are left out too: one exporter's untyped counter is another's error.

    Raises:
        ValueError: No line looks like a metric.
    """
    lines = text.split("\n")
    samples = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if samples and not any(_SAMPLE.match(line) for line in samples):
        raise ValueError("no line of it is a metric")
    return "".join(f"{_hyphenless(line)}\n" for line in samples if _NAME.match(line))


_SAMPLE: Final = re.compile(r"\s*[a-zA-Z_:][a-zA-Z0-9_:]*\s*(\{.*\})?\s+\S+")


def _hyphenless(line: str) -> str:
    return _HYPHENED.sub(lambda item: f"{item[1]}client_id=" if item[1] else item[0], line)


_HYPHENED: Final = re.compile(r'"(?:\\.|[^"\\])*"|([{,]\s*)client-id=', re.IGNORECASE)
"""A label that Prometheus does not allow, but some exporters write; text in quotes is left."""


def _labels(exported: Mapping[str, str]) -> Mapping[str, str]:
    named = {name.lower().replace("_", ""): value for name, value in exported.items()}
    return {ours: named[name] for name, ours in _LABELS.items() if name in named}
