"""The topic of events: an idempotent producer, one batch at a time."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.domain.errors import NotSentError
from app.kafka.config import CLIENT_ID, KafkaSettings
from app.service.ports.events import Record

_WITHIN_S: Final = 8.0
_LOOK_S: Final = 5.0
_POLL_S: Final = 0.1

_PRODUCER: Final = {
    "client.id": CLIENT_ID,
    "acks": "all",
    "enable.idempotence": True,
    "allow.auto.create.topics": False,
    "partitioner": "murmur2_random",  # as Java's
    "linger.ms": 5,
    "reconnect.backoff.max.ms": 1_000,
    "message.timeout.ms": 30_000,  # longer than we wait: until then it is sent again in order
    "log_level": 0,  # what goes wrong is ours to report
}


class KafkaTopic:
    """The port ``Topic`` on a Kafka cluster; nothing is connected before the first record.

    A producer that has failed is given up: what it still has in flight repeats records that the
    next one appends from the first on, and changes the order of none that is new.

    Args:
        name: Of the topic; it is not created.
        settings: Where its brokers are, and as which user.
    """

    def __init__(self, name: str, settings: KafkaSettings) -> None:
        self.name = name
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, "events-topic")
        self._producer: Producer | None = None
        self._exists = False
        self._closing = Event()
        self._last_error = ""

    async def append(self, records: Sequence[Record]) -> None:
        """See ``Topic``."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._append, records)

    async def close(self) -> None:
        """See ``Topic``; what is waited for ends within a tenth of a second."""
        self._closing.set()
        await asyncio.to_thread(self._thread.shutdown)

    def _append(self, records: Sequence[Record]) -> None:
        producer = self._producer = self._producer or self._connect()
        if not self._exists:
            self._look(producer)
        failures: list[KafkaError] = []
        missing = len(records)

        def note(error: KafkaError | None, _: Message) -> None:
            nonlocal missing
            missing -= 1
            if error is not None:
                failures.append(error)

        for record in records:
            headers = list(record.headers)
            producer.produce(self.name, record.value, record.key, headers=headers, on_delivery=note)
        deadline = time.monotonic() + _WITHIN_S
        while missing and not failures and not self._closing.is_set():
            if time.monotonic() > deadline:
                break
            producer.poll(_POLL_S)
        if missing or failures:
            self._producer, self._exists = None, False
            producer.purge()
            producer.poll(0)
            raise self._error(failures[0] if failures else None)

    def _connect(self) -> Producer:
        self._last_error = ""
        config = {**_PRODUCER, **connection_config(self._settings), "error_cb": self._note}
        try:
            return Producer(config)
        except KafkaException as error:
            raise self._error(error.args[0]) from error

    def _look(self, producer: Producer) -> None:
        """See that the topic exists; to look at it does not create it.

        Raises:
            NotSentError: It does not, or no broker answers.
        """
        try:
            found = producer.list_topics(self.name, _LOOK_S).topics[self.name].error
        except KafkaException as error:
            raise self._error(error.args[0]) from error
        if found is not None:
            raise self._error(found)
        self._exists = True

    def _note(self, error: KafkaError) -> None:
        self._last_error = error.name()

    def _error(self, error: KafkaError | None) -> NotSentError:
        """Say what is wrong in a sentence that stays the same as long as that is so."""
        servers = self._settings.bootstrap_servers
        if error is not None and error.code() in _UNKNOWN:
            return NotSentError(
                f"The topic {self.name} does not exist at {servers}: create it. Until then the "
                "audit log keeps the events."
            )
        reason = self._last_error or (error.name() if error else "no answer")
        return NotSentError(
            f"The topic {self.name} at {servers} does not take events ({reason}); the audit log "
            "keeps them."
        )


_UNKNOWN: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, -188})
"""The broker's code and librdkafka's own. Source: ``RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC``."""


def connection_config(settings: KafkaSettings) -> dict[str, Any]:
    """Return settings as librdkafka names them. Source: its CONFIGURATION.md."""
    config = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol.value,
        "sasl.mechanism": settings.sasl_mechanism and settings.sasl_mechanism.value,
        "sasl.username": settings.sasl_username,
        "sasl.password": settings.sasl_password,
    }
    if settings.security_protocol.uses_tls:
        config |= {
            "ssl.ca.location": settings.ssl_ca_file,
            "ssl.certificate.location": settings.ssl_cert_file,
            "ssl.key.location": settings.ssl_key_file or settings.ssl_cert_file,
            "ssl.key.password": settings.ssl_key_password,
        }
    return {name: value for name, value in config.items() if value is not None}
