"""What the use cases report to operators in numbers; no number names an entity or a principal."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Phase(StrEnum):
    """The steps of an alteration that take time."""

    AUTHZ = "authz"
    TX1 = "tx1"
    SLOT_WAIT = "slot_wait"
    GROUP_WAIT = "group_wait"
    BARRIER = "barrier"
    KAFKA = "kafka"
    TX2 = "tx2"


class DriftOrigin(StrEnum):
    """Where a change comes from that no alteration accounts for."""

    OUTSIDE = "outside"
    LATE_APPLY = "late_apply"


class FoundBy(StrEnum):
    """How recovery came to its verdict."""

    FENCES = "fences"
    LATE_ANSWER = "late_answer"


@dataclass(frozen=True, slots=True)
class OpenIntents:
    """What has no definite outcome yet, of all processes.

    Attributes:
        number: Entities of alterations that were recorded and not concluded.
        oldest_s: The age of the oldest one, in seconds; 0 where there is none.
        quarantined: How many of them were sent and have no definite answer.
    """

    number: int
    oldest_s: float
    quarantined: int


class AlterationMetrics(Protocol):
    """Counts what becomes of alterations; no call waits or fails."""

    def phase_took(self, phase: Phase, seconds: float) -> None:
        """Note how long a step of an alteration took."""

    def barrier_may_take(self, seconds: float) -> None:
        """Tell the present deadline of a barrier: it follows what barriers have lately taken."""

    def slot_was_taken(self) -> None:
        """Note an alteration that was refused because another one held an entity."""

    def recovered(self, verdict: str, found_by: FoundBy, seconds: float) -> None:
        """Note a verdict for one entity whose answer was lost.

        Args:
            verdict: An outcome, such as ``applied``.
            found_by: What it rests on.
            seconds: Since the sending.
        """

    def outcome_came_late(self) -> None:
        """Note a definite answer that came after the caller got the answer that there was none."""

    def superseded(self) -> None:
        """Note an alteration that another one took over from."""

    def drifted(self, origin: DriftOrigin) -> None:
        """Note a change of one entity that no alteration accounts for."""

    def scanned_for_drift(self) -> None:
        """Note that a scan for drift was completed just now."""

    def intents_are_open(self, intents: OpenIntents) -> None:
        """Tell what has no definite outcome at present."""

    def audit_write_failed(self, stage: str) -> None:
        """Note a write that Postgres did not do; ``stage`` is such as ``tx1`` or ``tx2``."""

    def outcomes_are_waiting(self, number: int) -> None:
        """Tell how many outcomes wait for Postgres in this process."""

    def partitions_reach(self, months: int) -> None:
        """Tell for how many months after the present one there are partitions; -1: not even it."""


class KafkaResult(StrEnum):
    """What became of a request that was handed to a broker."""

    ANSWERED = "answered"
    LOST = "lost"
    ABANDONED = "abandoned"


class DependencyMetrics:
    """Counts what goes to brokers and to Postgres; this one nothing, for a command that runs once.

    No call waits or fails.
    """

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        """Note a request that was handed over.

        Args:
            api: Kafka's name, such as ``AlterClientQuotas``.
            result: Answered, lost, or no longer waited for when the connection ended.
            seconds: Until then.
        """

    def kafka_error_came(self, api: str, code: str) -> None:
        """Note an answer with an error; ``code`` is Kafka's name, or a number without one."""

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        """Note how long a transaction waited for a connection of a pool to Postgres."""
