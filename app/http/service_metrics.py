"""Metrics of alterations, of what this service depends on, and of the policy, for Prometheus."""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.service.ports.metrics import (
    BreakerState,
    DependencyMetrics,
    DriftOrigin,
    FoundBy,
    KafkaResult,
    OpenIntents,
    Phase,
)

_PHASE_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60)
_RECOVERY_BUCKETS_S: Final = (1, 2, 5, 10, 15, 30, 60, 95, 100, 110, 120, 150, 180, 300)


class Instruments:
    """Makes metrics in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counter = partial(Counter, registry=self.registry)
        self.gauge = partial(Gauge, registry=self.registry, multiprocess_mode="liveall")
        self.histogram = partial(Histogram, registry=self.registry)
        self._observed: list[tuple[Gauge, Callable[[], float]]] = []

    def observe(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Have a gauge show what a function returns."""
        gauge.set_function(read)
        self._observed.append((gauge, read))

    def record_gauges(self) -> None:
        """Write the gauges that show a function where other workers read them."""
        for gauge, read in self._observed:
            gauge.set(read())


class PrometheusAlterationMetrics:
    """Counts in a registry; see ``AlterationMetrics``."""

    def __init__(self, make: Instruments) -> None:
        self._phases = make.histogram(
            "quota_alteration_phase_seconds",
            "Time that a phase of an alteration took.",
            ["phase"],
            buckets=_PHASE_BUCKETS_S,
        )
        self._recoveries = make.histogram(
            "quota_recovery_seconds",
            "Time from the sending to a verdict of recovery, by what the verdict rests on.",
            ["fence"],
            buckets=_RECOVERY_BUCKETS_S,
        )
        self._recovered = make.counter(
            "quota_recovery",
            "Verdicts on entities whose answer was lost; investigate observed_other.",
            ["verdict", "fence"],
        )
        self.slot_was_taken = make.counter(
            "quota_slot_conflicts", "Alterations refused because another one held an entity."
        ).inc
        self.outcome_came_late = make.counter(
            "quota_late_outcomes", "Definite answers that came after the caller had a 504."
        ).inc
        self.superseded = make.counter(
            "quota_superseded", "Alterations of unknown outcome that another one took over from."
        ).inc
        self._drift = make.counter(
            "quota_drift",
            "Changes that no alteration accounts for; late_apply is one of our own, too late.",
            ["origin"],
        )
        self._write_failures = make.counter(
            "audit_write_failures", "Writes that the audit log did not take.", ["stage"]
        )
        self._open = make.gauge(
            "quota_open_intents",
            "Entities of alterations without a definite outcome.",
            multiprocess_mode="livemax",
        )
        self._oldest = make.gauge(
            "quota_oldest_open_intent_seconds",
            "Age of the oldest of them; must stay below 180.",
            multiprocess_mode="livemax",
        )
        self._quarantined = make.gauge(
            "quota_quarantined_slots",
            "Entities held because a request's outcome is unknown.",
            multiprocess_mode="livemax",
        )
        self.outcomes_are_waiting = make.gauge(
            "audit_outcomes_waiting",
            "Outcomes in the memory of this process, not yet recorded.",
            multiprocess_mode="livesum",
        ).set
        self._breakers = make.gauge(
            "breaker_state", "Whether a dependency is refused for now: 1, else 0.", ["dependency"]
        )
        self.partitions_reach = make.gauge(
            "audit_partition_months_ahead",
            "Months after the present one that the audit log has partitions for; under 1 it is "
            "about to refuse alterations. NaN before the first check.",
            multiprocess_mode="livemostrecent",
        ).set
        self.partitions_reach(math.nan)
        self._scanned_at = time.monotonic()
        age = make.gauge(
            "quota_drift_scan_age_seconds",
            "Time since this process looked for drift, or began.",
            multiprocess_mode="livemin",
        )
        make.observe(age, lambda: time.monotonic() - self._scanned_at)

    def phase_took(self, phase: Phase, seconds: float) -> None:
        """Note how long a phase of an alteration took."""
        self._phases.labels(phase.value).observe(seconds)

    def recovered(self, verdict: str, found_by: FoundBy, seconds: float) -> None:
        """Note a verdict, and the seconds since the sending."""
        self._recovered.labels(verdict, found_by.value).inc()
        self._recoveries.labels(found_by.value).observe(seconds)

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

    def breaker_is(self, dependency: str, state: BreakerState) -> None:
        """Tell the state of a circuit breaker."""
        self._breakers.labels(dependency).set(state is BreakerState.OPEN)


_REQUEST_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 95)
_WAIT_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5)

STATES: Final = ("idle", "busy")
POOLS: Final = ("writing", "recovering", "querying", "denying", "leading")

Numbers = Callable[[], Mapping[str, int]]


class PrometheusDependencyMetrics(DependencyMetrics):
    """Counts in a registry; see ``DependencyMetrics``."""

    def __init__(self, make: Instruments) -> None:
        self._observe = make.observe
        self._requests = make.histogram(
            "kafka_request_seconds",
            "Time from handing a request to a broker to the end of the wait: answered, lost (with "
            "the connection) or abandoned.",
            ["api", "result"],
            buckets=_REQUEST_BUCKETS_S,
        )
        self._errors = make.counter(
            "kafka_errors",
            "Answers of brokers with an error, by Kafka's name; an alteration counts each name "
            "once.",
            ["api", "code"],
        )
        self._connections = make.gauge(
            "kafka_connections",
            "Open connections to brokers: idle, or busy with a request.",
            ["state"],
            multiprocess_mode="livesum",
        )
        self._wrong_cluster = make.gauge(
            "kafka_wrong_cluster",
            "Whether the brokers that answer are of another cluster than the one that is served: "
            "1, else 0; nothing is served or concluded then.",
        )
        self._in_use = make.gauge(
            "db_pool_in_use",
            "Connections to Postgres at work: writing (intents and outcomes; 8 at most), "
            "recovering, querying, denying and leading.",
            ["pool"],
            multiprocess_mode="livesum",
        )
        self._waits = make.histogram(
            "db_pool_wait_seconds",
            "Time until a query had its connection to Postgres.",
            ["pool"],
            buckets=_WAIT_BUCKETS_S,
        )

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        """Note a request that was handed over, and how long it took."""
        self._requests.labels(api, result.value).observe(seconds)

    def kafka_error_came(self, api: str, code: str) -> None:
        """Note an answer with an error."""
        self._errors.labels(api, code).inc()

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        """Note how long a transaction waited for its connection."""
        self._waits.labels(pool).observe(seconds)

    def watch(
        self, connections: Numbers, in_use: Numbers, another_answers: Callable[[], bool]
    ) -> None:
        """Show connections to brokers by state, to Postgres by pool, and whether they are ours."""
        self._observe(self._wrong_cluster, another_answers)
        for state in STATES:
            self._observe(self._connections.labels(state), partial(_one_of, connections, state))
        for pool in POOLS:
            self._observe(self._in_use.labels(pool), partial(_one_of, in_use, pool))


def _one_of(numbers: Numbers, name: str) -> float:
    return numbers()[name]


class PrometheusPolicyMetrics:
    """Implements ``PolicyMetrics``; all zero where there is no policy."""

    def __init__(self, make: Instruments) -> None:
        self._decisions = make.counter(
            "policy_decisions",
            "Alterations that the policy judged, after the ACLs let them pass.",
            ["result"],
        )
        self._reads = make.counter(
            "policy_reads",
            "Times the policy file was read: used, or refused (keeping the previous policy).",
            ["result"],
        )
        self._rules = make.gauge("policy_rules", "Rules of the policy in force.")
        self._outdated = make.gauge(
            "policy_outdated",
            "Whether the policy file that was last read could not be used, so that an older one is "
            "in force: 0 or 1.",
        )

    def policy_decided(self, *, allowed: bool) -> None:
        """Note a decision."""
        self._decisions.labels("allowed" if allowed else "refused").inc()

    def policy_read(self, *, usable: bool, rules: int) -> None:
        """Note that the file was read, and how many rules are in force since."""
        self._reads.labels("used" if usable else "refused").inc()
        self._rules.set(rules)
        self._outdated.set(not usable)
