"""What the options of ``ingest`` name."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.pipeline.errors import UsageError
from app.pipeline.job import Job
from app.pipeline.sources.formats import FORMATS, KAFKA
from app.pipeline.sources.inputs import Inputs, file_inputs, topic_inputs
from app.pipeline.sources.kafka_topic import settings_of_file
from app.pipeline.sources.metric_map import MetricMap
from app.pipeline.sources.points import Rules


@dataclass(frozen=True, slots=True)
class Material:
    """What a run reads, and how.

    Attributes:
        kind: The format.
        inputs: The files or offsets.
        rules: How points are judged.
    """

    kind: str
    inputs: Inputs
    rules: Rules


def material_of(job: Job) -> Material:
    """Find what the options name; nothing is read but headers and offsets.

    Raises:
        UsageError: An option is missing or wrong, or a file lacks a column.
        InfrastructureError: The brokers of a topic do not answer.
    """
    options = job.options
    kind = _format_of(options.format)
    told = MetricMap.load(options.map)
    if not options.input:
        message = "--input is missing: name the files to read, a folder of them, or a topic."
        raise UsageError(message)
    if kind == KAFKA:
        inputs = topic_inputs(options.input, settings_of_file(options.kafka_config))
    else:
        inputs = file_inputs(options.input, kind, told)
    tags = FORMATS[kind].tags if told.urlencoded is None else told.urlencoded
    since, until = (None if item is None else _micros_of(item) for item in job.period())
    return Material(kind, inputs, Rules(told, tags, since, until))


def _format_of(name: str | None) -> str:
    if name is not None and name in FORMATS:
        return name
    told = f"{name} is unknown" if name else "is missing"
    message = f"--format {told}: it is one of {', '.join(FORMATS)}."
    raise UsageError(message)


def _micros_of(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
