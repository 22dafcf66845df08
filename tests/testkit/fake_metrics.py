"""Metrics that a test can look at."""

from collections import Counter

from app.service.ports.metrics import (
    DependencyMetrics,
    DriftOrigin,
    FoundBy,
    KafkaResult,
    OpenIntents,
    Phase,
)


class CountedMetrics:
    """Counts each call by its words."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def phase_took(self, phase: Phase, seconds: float) -> None:
        self.counts[phase.value] += 1

    def barrier_may_take(self, seconds: float) -> None:
        self.counts["barrier deadline"] = int(seconds)

    def slot_was_taken(self) -> None:
        self.counts["lock taken"] += 1

    def recovered(self, verdict: str, found_by: FoundBy, seconds: float) -> None:
        self.counts[f"{verdict} by {found_by.value}"] += 1

    def outcome_came_late(self) -> None:
        self.counts["late"] += 1

    def superseded(self) -> None:
        self.counts["superseded"] += 1

    def drifted(self, origin: DriftOrigin) -> None:
        self.counts[origin.value] += 1

    def scanned_for_drift(self) -> None:
        self.counts["scanned"] += 1

    def intents_are_open(self, intents: OpenIntents) -> None:
        self.counts["open"] = intents.number

    def audit_write_failed(self, stage: str) -> None:
        self.counts[f"{stage} failed"] += 1

    def outcomes_are_waiting(self, number: int) -> None:
        self.counts["waiting"] = number

    def partitions_reach(self, months: int) -> None:
        self.counts["months ahead"] = months


class CountedDependencies(DependencyMetrics):
    """Counts each call by its words; ``seconds`` are all that were reported."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        self.counts[f"{api} {result.value}"] += 1
        self.seconds.append(seconds)

    def kafka_error_came(self, api: str, code: str) -> None:
        self.counts[f"{api} {code}"] += 1

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        self.counts[pool] += 1
        self.seconds.append(seconds)
