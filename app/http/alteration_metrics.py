"""Metrics of the life of alterations, for Prometheus."""

import math
import time
from collections.abc import Callable
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.service.ports.metrics import BreakerState, DriftOrigin, FoundBy, OpenIntents, Phase

_PHASE_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60)
_RECOVERY_BUCKETS_S: Final = (1, 2, 5, 10, 15, 30, 60, 95, 100, 110, 120, 150, 180, 300)


Observe = Callable[[Gauge, Callable[[], float]], None]
"""Has a gauge show what a function returns."""


class PrometheusAlterationMetrics:
    """Counts in a registry; see ``AlterationMetrics``."""

    def __init__(self, registry: CollectorRegistry, observe: Observe) -> None:
        self._registry = registry
        self._phases = Histogram(
            "quota_alteration_phase_seconds",
            "Time that a part of an alteration took.",
            ["phase"],
            buckets=_PHASE_BUCKETS_S,
            registry=registry,
        )
        self._recoveries = Histogram(
            "quota_recovery_seconds",
            "Time from the sending to a verdict of recovery, by what the verdict rests on.",
            ["fence"],
            buckets=_RECOVERY_BUCKETS_S,
            registry=registry,
        )
        self._recovered = self._counter(
            "quota_recovery",
            "Verdicts on entities whose answer was lost; observed_other wants a look.",
            "verdict",
            "fence",
        )
        self._conflicts = self._counter(
            "quota_slot_conflicts", "Alterations refused because another one held an entity."
        )
        self._late = self._counter(
            "quota_late_outcomes", "Definite answers that came after the caller had a 504."
        )
        self._superseded = self._counter(
            "quota_superseded", "Alterations of unknown outcome that another one took over from."
        )
        self._drift = self._counter(
            "quota_drift",
            "Changes that no alteration accounts for; late_apply is one of our own, too late.",
            "origin",
        )
        self._write_failures = self._counter(
            "audit_write_failures", "Writes that the audit log did not take.", "stage"
        )
        self._open = self._gauge(
            "quota_open_intents", "Entities of alterations without a definite outcome."
        )
        self._oldest = self._gauge(
            "quota_oldest_open_intent_seconds", "Age of the oldest of them; over 180 is wrong."
        )
        self._quarantined = self._gauge(
            "quota_quarantined_slots", "Entities held because a request's outcome is unknown."
        )
        self._waiting = self._gauge(
            "audit_outcomes_waiting",
            "Outcomes in the memory of this process, not yet recorded.",
            "livesum",
        )
        self._breakers = Gauge(
            "breaker_state",
            "Whether a dependency is refused for now: 1, else 0.",
            ["dependency"],
            registry=registry,
            multiprocess_mode="liveall",
        )
        self._months_ahead = self._gauge(
            "audit_partition_months_ahead",
            "Months after the present one that the audit log has partitions for; under 1 it is "
            "about to refuse alterations. NaN until that is known.",
            "livemostrecent",
        )
        self._months_ahead.set(math.nan)
        self._scanned_at = time.monotonic()
        age = self._gauge(
            "quota_drift_scan_age_seconds",
            "Time since this process looked for drift, or began.",
            "livemin",
        )
        observe(age, lambda: time.monotonic() - self._scanned_at)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)

    def _gauge(
        self,
        name: str,
        documentation: str,
        mode: Literal["livemax", "livemin", "livesum", "livemostrecent"] = "livemax",
    ) -> Gauge:
        return Gauge(name, documentation, registry=self._registry, multiprocess_mode=mode)

    def phase_took(self, phase: Phase, seconds: float) -> None:
        """Note how long a part of an alteration took."""
        self._phases.labels(phase.value).observe(seconds)

    def slot_was_taken(self) -> None:
        """Note an alteration that was refused because another one held an entity."""
        self._conflicts.inc()

    def recovered(self, verdict: str, found_by: FoundBy, seconds: float) -> None:
        """Note a verdict, and the seconds since the sending."""
        self._recovered.labels(verdict, found_by.value).inc()
        self._recoveries.labels(found_by.value).observe(seconds)

    def outcome_came_late(self) -> None:
        """Note a definite answer that came after the caller was told that there was none."""
        self._late.inc()

    def superseded(self) -> None:
        """Note an alteration that another one took over from."""
        self._superseded.inc()

    def drifted(self, origin: DriftOrigin) -> None:
        """Note a change of one entity that no alteration accounts for."""
        self._drift.labels(origin.value).inc()

    def scanned_for_drift(self) -> None:
        """Note that a scan was completed just now."""
        self._scanned_at = time.monotonic()

    def intents_are_open(self, intents: OpenIntents) -> None:
        """Tell what has no definite outcome at present."""
        self._open.set(intents.number)
        self._oldest.set(intents.oldest_s)
        self._quarantined.set(intents.quarantined)

    def audit_write_failed(self, stage: str) -> None:
        """Note a write that the audit log did not take."""
        self._write_failures.labels(stage).inc()

    def outcomes_are_waiting(self, number: int) -> None:
        """Tell how many outcomes wait in this process."""
        self._waiting.set(number)

    def partitions_reach(self, months: int) -> None:
        """Tell how many months ahead of the present one there are partitions for."""
        self._months_ahead.set(months)

    def breaker_is(self, dependency: str, state: BreakerState) -> None:
        """Tell the state of a circuit breaker."""
        self._breakers.labels(dependency).set(state is BreakerState.OPEN)
