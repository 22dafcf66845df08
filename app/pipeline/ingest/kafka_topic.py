"""A Kafka topic of metrics in JSON, read between offsets that are fixed beforehand."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.pipeline.errors import InfrastructureError, UsageError
from app.pipeline.ingest.inputs import KAFKA, Inputs
from app.pipeline.options import read_file

SCHEME: Final = "kafka://"
_REQUEST_S: Final = 15.0
_SILENCE_S: Final = 60.0
_RANGE: Final = 500_000
_BATCH: Final = 20_000
_NUMBERS: Final = ("partition", "from", "to")

Settings = Mapping[str, str]
"""librdkafka's, such as ``bootstrap.servers`` and ``security.protocol``."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Messages of a partition from ``first`` (inclusive) to ``end`` (exclusive)."""

    topic: str
    partition: int
    first: int
    end: int

    def as_json(self) -> Mapping[str, Any]:
        """Return it as the report has it, and the file of ``--offsets``."""
        span = {"from": self.first, "to": self.end}
        return {"topic": self.topic, "partition": self.partition, **span}


def topic_of(uri: str) -> tuple[str, str]:
    """Return servers and topic of ``kafka://host:port[,host:port]/topic``.

    Raises:
        UsageError: It names no topic.
    """
    servers, _, topic = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not servers or not topic or "/" in topic:
        message = "--input is not kafka://HOST:PORT[,HOST:PORT]/TOPIC."
        raise UsageError(message)
    return servers, topic


def settings_of_file(file: str | None) -> Settings:
    """Read lines of ``name=value`` as the console tools of Kafka take them, in librdkafka's names.

    Raises:
        UsageError: The file cannot be read, or has other lines.
    """
    if file is None:
        return {}
    lines = [line.strip() for line in read_file("--kafka-config", file).splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if not all(name and equals for name, equals, _ in pairs):
        message = "The file of --kafka-config must hold lines of NAME=VALUE, in librdkafka's names."
        raise UsageError(message)
    return {name.strip(): value.strip() for name, _, value in pairs}


def offsets_of_file(file: str) -> list[OffsetRange]:
    """Read the offsets of an earlier report: its JSON, or the list below ``offsets``.

    Raises:
        UsageError: The file cannot be read, or holds something else.
    """
    try:
        document = json.loads(read_file("--offsets", file))
        listed = document["offsets"] if isinstance(document, dict) else document
        return [
            OffsetRange(str(item["topic"]), *(int(item[name]) for name in _NUMBERS))
            for item in listed
        ]
    except (ValueError, KeyError, TypeError) as error:
        message = "The file of --offsets is not the `offsets` of a report of ingest."
        raise UsageError(message) from error


def offsets_of(topic: str, settings: Settings) -> tuple[list[OffsetRange], date | None]:
    """Ask the brokers what the topic holds now, up to the first transaction that is open.

    The day is the last (UTC) of which retention has removed messages; null for none.

    Raises:
        UsageError: There is no such topic, or a setting is unknown.
        InfrastructureError: The brokers do not answer.
    """
    consumer = _consumer(settings)
    try:
        metadata = consumer.list_topics(topic, _REQUEST_S).topics[topic]
        if metadata.error is not None:
            message = f"--input: {topic} cannot be read: {metadata.error.str()}."
            raise UsageError(message)
        spans = []
        for number in sorted(metadata.partitions):
            ends = consumer.get_watermark_offsets(TopicPartition(topic, number), _REQUEST_S)
            spans.append(OffsetRange(topic, number, *ends))
        cut_days = [day for span in spans if (day := _cut_day(consumer, span))]
        return spans, max(cut_days, default=None)
    except KafkaException as error:
        raise InfrastructureError(_text_of(error, settings)) from error
    finally:
        consumer.close()


def topic_inputs(
    uris: Iterable[str], settings: Settings, offsets: Sequence[OffsetRange] | None = None
) -> Inputs:
    """Ask for the offsets of topics, unless they are those of an earlier run.

    Raises:
        UsageError: A URI is wrong, or there is no such topic.
        InfrastructureError: The brokers do not answer.
    """
    inputs = Inputs(KAFKA, read_item=partial(read_range, settings=settings))
    for number, uri in enumerate(dict.fromkeys(uris)):
        servers, topic = topic_of(uri)
        spans, cut_day = [item for item in offsets or () if item.topic == topic], None
        if offsets is None:
            spans, cut_day = offsets_of(topic, {**settings, "bootstrap.servers": servers})
        inputs.cut_day = max(filter(None, (inputs.cut_day, cut_day)), default=None)
        for span in spans:
            inputs.items += [(servers, each) for each in cut(span)]
            inputs.names.append(f"{SCHEME}{servers}/{topic}/{span.partition}")
            inputs.sources.append(number)
            inputs.read.append(span.as_json())
    inputs.keys = inputs.names
    return inputs


def cut(span: OffsetRange) -> Iterator[OffsetRange]:
    """Yield ranges that tasks can read side by side."""
    for first in range(span.first, span.end, _RANGE):
        yield OffsetRange(span.topic, span.partition, first, min(first + _RANGE, span.end))


def read_range(item: tuple[str, OffsetRange], settings: Settings) -> Iterator[pa.RecordBatch]:
    """Read messages from servers: source, line (the offset) and text.

    Raises:
        InfrastructureError: The brokers stop to answer.
    """
    servers, span = item
    settings = {**settings, "bootstrap.servers": servers}
    consumer = _consumer(settings)
    source = f"{SCHEME}{servers}/{span.topic}/{span.partition}"
    try:
        consumer.assign([TopicPartition(span.topic, span.partition, span.first)])
        messages = _messages(consumer, span, settings)
        while found := [(each.offset(), each.value()) for each in islice(messages, _BATCH)]:
            offsets, values = zip(*found, strict=True)
            # What is no UTF-8 stays as it is.
            texts = pa.array(values, pa.binary()).view(pa.string())
            columns = [pa.array([source] * len(found)), pa.array(offsets), texts]
            yield pa.record_batch(columns, ["source", "line", "text"])
    finally:
        consumer.close()


def _messages(consumer: Consumer, span: OffsetRange, settings: Settings) -> Iterator[Message]:
    while True:
        message = consumer.poll(_SILENCE_S)
        if message is None:
            where = f"{span.topic}, partition {span.partition}"
            message = f"No message of {where} arrived for {_SILENCE_S:.0f} s."
            raise InfrastructureError(message)
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            raise InfrastructureError(_text_of(KafkaException(error), settings))
        if error is not None or message.offset() >= span.end:
            return
        yield message
        if message.offset() == span.end - 1:
            return


def _cut_day(consumer: Consumer, span: OffsetRange) -> date | None:
    """Return the day of the first message where those before it are removed, else null."""
    if span.first in (0, span.end):
        return None
    consumer.assign([TopicPartition(span.topic, span.partition, span.first)])
    message = consumer.poll(_REQUEST_S)
    if message is None or message.error() is not None:
        return None
    return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC).date()


def _consumer(settings: Settings) -> Consumer:
    ours: dict[str, Any] = {
        "group.id": "quota-pipeline",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    try:
        return Consumer({**settings, **ours})
    except KafkaException as error:
        # librdkafka's own sentence repeats the value.
        wrong = [name for name in settings if f'"{name}"' in error.args[0].str()]
        what = (
            f"the setting {wrong[0]} is unknown or has no good value"
            if wrong
            else ("the settings contradict each other")
        )
        message = f"--kafka-config: {what}."
        raise UsageError(message, content=error.args[0].str()) from error


def _text_of(error: KafkaException, settings: Settings) -> str:
    return f"{settings['bootstrap.servers']}: {error.args[0].str()}"
