"""Lines of text, each sent to a Kafka topic as one record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.pipeline.errors import InfrastructureError, UsageError

_FLUSH_S = 60.0
_GIVE_UP_MS = 30_000


@dataclass(frozen=True)
class KafkaTopic:
    """A topic, as ``kafka://HOST:PORT/TOPIC`` names it; HOST:PORT may be a list."""

    bootstrap_servers: str
    name: str

    @classmethod
    def of(cls, uri: str) -> Self:
        """Read the address.

        Raises:
            UsageError: It has another form.
        """
        parts = urlsplit(uri)
        name = parts.path.strip("/")
        if parts.scheme != "kafka" or not parts.netloc or not name or "/" in name:
            message = f"--topic {uri}: write kafka://HOST:PORT/TOPIC."
            raise UsageError(message)
        return cls(parts.netloc, name)

    def send(self, folder: Path) -> int:
        """Send each line of the files of a folder; return how many there were.

        Raises:
            InfrastructureError: The broker did not take them all.
        """
        refused: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": _GIVE_UP_MS,
            }
        )

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        sent = 0
        for file in sorted(folder.glob("*.jsonl")):
            with file.open("rb") as lines:
                for line in lines:
                    self._send(producer, line.rstrip(b"\n"), delivered)
                    sent += 1
        left = producer.flush(_FLUSH_S)
        if left or refused:
            why = refused[0] if refused else "no answer"
            message = f"{self.bootstrap_servers} did not take all records of {self.name}: {why}."
            raise InfrastructureError(message)
        return sent

    def _send(self, producer: Producer, line: bytes, delivered: object) -> None:
        while True:
            try:
                producer.produce(self.name, line, on_delivery=delivered)
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                message = f"--topic {self.name} cannot be used: {error}."
                raise UsageError(message) from error
            else:
                producer.poll(0)
                return
