"""What the options of ``ingest`` name."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.pipeline.errors import UsageError
from app.pipeline.ingest.inputs import FORMATS, KAFKA, Inputs, file_inputs, topic_inputs
from app.pipeline.ingest.kafka_topic import settings_of_file
from app.pipeline.ingest.metric_map import MetricMap
from app.pipeline.ingest.points import Rules
from app.pipeline.job import Job


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is to read, and how.

    Attributes:
        kind: The format.
        uris: What ``--input`` names.
        rules: How points are judged.
    """

    kind: str
    uris: Sequence[str]
    rules: Rules


def request_of(job: Job) -> Request:
    """Read the options; no input is looked at.

    Raises:
        UsageError: An option is missing or wrong.
    """
    options = job.options
    kind = _format_of(options.format)
    metric_map = MetricMap.load(options.map)
    if not options.input:
        message = "--input is missing: name the files to read, a folder of them, or a topic."
        raise UsageError(message)
    tags = FORMATS[kind].tags if metric_map.urlencoded is None else metric_map.urlencoded
    since, until = (None if item is None else _micros_of(item) for item in job.period())
    return Request(kind, options.input, Rules(metric_map, tags, since, until, options.cluster))


def inputs_of(job: Job, request: Request) -> Inputs:
    """Find what the options name; nothing is read but headers and offsets.

    Raises:
        UsageError: There is no such input, or a file lacks a column.
        InfrastructureError: The brokers of a topic do not answer.
    """
    if request.kind == KAFKA:
        return topic_inputs(request.uris, settings_of_file(job.options.kafka_config))
    return file_inputs(job.session, request.uris, request.kind, request.rules.map)


def _format_of(name: str | None) -> str:
    if name is not None and name in FORMATS:
        return name
    fault = f"{name} is unknown" if name else "is missing"
    message = f"--format {fault}: it is one of {', '.join(FORMATS)}."
    raise UsageError(message)


def _micros_of(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
