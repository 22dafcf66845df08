"""What brokers and Postgres are like to work with, in numbers for operators."""

from enum import StrEnum
from typing import Protocol


class KafkaResult(StrEnum):
    """What became of a request that was handed to a broker."""

    ANSWERED = "answered"
    LOST = "lost"
    ABANDONED = "abandoned"


class DependencyMetrics(Protocol):
    """Counts what goes to brokers and to Postgres; no call waits or fails."""

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        """Note a request that was handed over.

        Args:
            api: Kafka's name, such as ``AlterClientQuotas``.
            result: Answered, lost, or no longer waited for when the connection ended.
            seconds: Until then.
        """
        ...

    def kafka_error_came(self, api: str, code: str) -> None:
        """Note an answer with an error; ``code`` is Kafka's name, or a number without one."""
        ...

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        """Note how long a piece of work waited for a connection of a pool to Postgres."""
        ...


class Uncounted:
    """For whoever has nobody to tell, such as a command that runs once."""

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        """Tell nobody."""

    def kafka_error_came(self, api: str, code: str) -> None:
        """Tell nobody."""

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        """Tell nobody."""
