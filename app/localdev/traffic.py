"""Producers and consumers over and under their limits, for a broker of this machine.

Run as a program: `python -m app.localdev.traffic BOOTSTRAP_SERVERS`, until SIGTERM.
What each client is for stands in ``CLIENTS``; the quotas that slow them down are set by whoever
starts it.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from app.domain.quantities import UNLIMITED, value_in_words
from app.localdev.kafka_admin import allow, allowed, silent_admin
from app.localdev.local_directory import LocalDevError
from app.localdev.service import LocalService

TOPIC: Final = "load"

_RECORD_BYTES: Final = 10_000
_TICK_S: Final = 0.1
_PARTITION_BYTES: Final = 64 * 2**20
_SEGMENT_BYTES: Final = 8 * 2**20
_FETCH_BYTES: Final = 1_000_000
_PARTITIONS: Final = 2
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True)
class TrafficClient:
    """One connection that moves data as fast as its target, or as its quota lets it."""

    user: str
    client_id: str
    bytes_per_s: int
    consumes: bool = False


CLIENTS: Final = (
    TrafficClient("alice", "etl", 6_000_000),
    TrafficClient("alice", "reader", 300_000, consumes=True),
    TrafficClient("bob", "report", 9_000_000, consumes=True),
    TrafficClient("bob", "web", 700_000),
)
"""By the example quotas: over the rule of its pair, under alice's rule, over the rule for every
user and client-id, under the rule for every user."""


def main(arguments: Sequence[str]) -> int:
    """Run every client until SIGTERM or SIGINT."""
    (bootstrap_servers,) = arguments
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: done.set())
    run_traffic(bootstrap_servers, CLIENTS, done)
    return 0


def run_traffic(
    bootstrap_servers: str, clients: Sequence[TrafficClient], done: threading.Event
) -> None:
    """Run clients, each in a thread, until the event is set."""
    threads = [
        threading.Thread(target=_run, args=(bootstrap_servers, client, done)) for client in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def prepare_traffic(bootstrap_servers: str) -> None:
    """Make the topic that the load goes through, and let every user write to it and read it."""
    admin = silent_admin(bootstrap_servers)
    retention = {"retention.bytes": str(_PARTITION_BYTES), "segment.bytes": str(_SEGMENT_BYTES)}
    topic = NewTopic(TOPIC, num_partitions=_PARTITIONS, replication_factor=1, config=retention)
    try:
        admin.create_topics([topic], request_timeout=_TIMEOUT_S)[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise LocalDevError(f"The topic {TOPIC} was not created: {error}.") from error
    everybody = "User:*"
    allow(
        bootstrap_servers,
        [
            allowed(ResourceType.TOPIC, TOPIC, everybody, AclOperation.ALL),
            allowed(ResourceType.GROUP, TOPIC, everybody, AclOperation.READ),
        ],
    )


def traffic_beside_limits(service: LocalService, token: str) -> list[str]:
    """Return a line for each client: what it tries, and the limit that applies to it."""
    identities = [{"user": client.user, "client-id": client.client_id} for client in CLIENTS]
    body = {"identities": identities, "max_age_ms": 0}
    _, answer = service.request("POST", "/quotas/resolve", token=token, body=body)
    return [
        _beside_limit(client, result["quotas"])
        for client, result in zip(CLIENTS, answer["results"], strict=True)
    ]


def _beside_limit(client: TrafficClient, quotas: Mapping[str, Any]) -> str:
    name = f"{client.user}/{client.client_id}"
    verb, key = (
        ("reads", "consumer_byte_rate") if client.consumes else ("writes", "producer_byte_rate")
    )
    limit = value_in_words(key, quotas[key]["value"])
    limited = limit if limit == UNLIMITED else f"limit {limit}"
    return f"  {name:14}{verb:7}{value_in_words(key, client.bytes_per_s):>12}   {limited}"


def _run(bootstrap_servers: str, client: TrafficClient, done: threading.Event) -> None:
    login = {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": client.user,
        "sasl.password": f"{client.user}-secret",
        "client.id": client.client_id,
        "log_level": 0,
    }
    if client.consumes:
        _consume(login, client, done)
    else:
        _produce(login, client, done)


def _produce(login: Mapping[str, object], client: TrafficClient, done: threading.Event) -> None:
    record = bytes(_RECORD_BYTES)
    producer = Producer(
        {
            **login,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 16_384,
            "message.timeout.ms": 300_000,
        }
    )
    for wanted in _amounts(client.bytes_per_s, done):
        for _ in range(wanted):
            try:
                producer.produce(TOPIC, record)
            except BufferError:
                break
        producer.poll(0)
    producer.purge()


def _consume(login: Mapping[str, object], client: TrafficClient, done: threading.Event) -> None:
    reading = {
        "group.id": TOPIC,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.max.bytes": _FETCH_BYTES,
        "queued.max.messages.kbytes": _FETCH_BYTES // 1000,
    }
    with closing(Consumer({**login, **reading})) as consumer:
        start = [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(_PARTITIONS)]
        consumer.assign(start)
        for wanted in _amounts(client.bytes_per_s, done):
            for message in consumer.consume(wanted, timeout=_TICK_S) if wanted else ():
                if message.error() is not None:
                    # At its end, mostly: what there is is read again and again.
                    partition = TopicPartition(TOPIC, message.partition(), OFFSET_BEGINNING)
                    consumer.incremental_unassign([partition])
                    consumer.incremental_assign([partition])


def _amounts(bytes_per_s: int, done: threading.Event) -> Iterator[int]:
    """Give, ten times a second, how many records are due."""
    begun, yielded = time.monotonic(), 0
    while not done.wait(_TICK_S):
        due = int((time.monotonic() - begun) * bytes_per_s / _RECORD_BYTES)
        yield due - yielded
        yielded = due


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
