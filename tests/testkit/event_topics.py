"""Topics of events: making one, reading one, and holding it against the log."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.patience import DEADLINE_S, wait_until

LOGGED = """
    select event.alteration_id || '/' || event.seq || '/' || entity.ordinal as id,
      nullif(start.document::json ->> 'entity', 'null') as key
    from audit_event as event join audit_entity as entity using (received_at, alteration_id, seq)
      join audit_entity as start on start.received_at = entity.received_at
        and start.alteration_id = entity.alteration_id and start.ordinal = entity.ordinal
        and start.seq = 0
    order by event.occurred_at, event.log_position, entity.ordinal
"""
"""By time, which is taken under the locks, too: not by what the service goes by."""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A record: its attributes, its key, the row."""

    headers: dict[str, str]
    key: str | None
    row: Any

    @property
    def id(self) -> str:
        return self.headers["ce_id"]


_LEADER_TO_COME = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""What a broker says of a topic that was made just now."""


def create_topic(servers: str, name: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(DEADLINE_S)


def read_topic(servers: str, name: str) -> list[EventRecord]:
    """Return everything that the topic has now; of a partition in order."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    )
    try:
        found = consumer.list_topics(name, timeout=DEADLINE_S).topics[name]
        if found.error is not None:
            raise KafkaException(found.error)
        return [
            record
            for partition in found.partitions
            for record in _read(consumer, TopicPartition(name, partition, OFFSET_BEGINNING))
        ]
    finally:
        consumer.close()


def _read(consumer: Consumer, partition: TopicPartition) -> Iterator[EventRecord]:
    end = _end_of(consumer, partition)
    consumer.assign([partition])
    at = 0
    while at < end:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        at = message.offset() + 1
        key = message.key()
        headers = {header: text.decode() for header, text in message.headers()}
        yield EventRecord(headers, key and key.decode(), json.loads(message.value()))


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the offset behind the last record, once the partition has a leader."""
    ends: list[int] = []

    def has_end() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(partition, timeout=DEADLINE_S)[1])
        except KafkaException as error:
            if error.args[0].code() not in _LEADER_TO_COME:
                raise
        return bool(ends)

    wait_until(has_end, f"{partition} has no leader")
    return ends[0]


class LoggedEntity(NamedTuple):
    """One entity of an event of the log: the id, and the key of its record."""

    id: str
    key: str | None


def read_log(url: str) -> list[LoggedEntity]:
    """Return what the log has, in its order."""
    with psycopg.connect(url, autocommit=True) as connection:
        return [LoggedEntity(*row) for row in connection.execute(LOGGED)]


def check_order(logged: Sequence[LoggedEntity], records: Sequence[EventRecord]) -> int:
    """Check that of each entity what is new comes in the order of the log; return the repeats."""
    first = list({record.id: record for record in records}.values())
    for key in {event.key for event in logged} - {None}:
        in_log = [event.id for event in logged if event.key == key]
        in_topic = [record.id for record in first if record.key == key]
        assert in_topic[: len(in_log)] == in_log
    return len(records) - len(first)
