"""Metrics for Prometheus: of requests, alterations, dependencies, the policy.

No label names an entity or a principal. No call waits or fails.
"""

import math
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    exposition,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


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


class KafkaResult(StrEnum):
    """What became of a request that was handed to a broker."""

    ANSWERED = "answered"
    LOST = "lost"
    ABANDONED = "abandoned"


_CLUSTER: Final = "cluster"

_PHASE_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60)
_RECOVERY_BUCKETS_S: Final = (1, 2, 5, 10, 15, 30, 60, 95, 100, 110, 120, 150, 180, 300)


class Instruments:
    """Makes metrics in a registry of their own.

    Args:
        cluster: The value of the label ``cluster`` that each has first; null leaves the label out.
        others: Those of another cluster, which have the same metrics.

    Attributes:
        made: What has the label ``cluster``, by name.
    """

    def __init__(self, cluster: str | None = None, others: "Instruments | None" = None) -> None:
        self.registry: CollectorRegistry = others.registry if others else CollectorRegistry()
        self.made: dict[str, Any] = others.made if others else {}
        self._cluster = cluster

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Any:
        """Return a counter; with labels what takes their values by ``labels``."""
        return self._of_cluster(Counter, name, text, labels)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Any:
        """Return a gauge; with labels what takes their values by ``labels``."""
        return self._of_cluster(Gauge, name, text, labels)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]
    ) -> Any:
        """Return a histogram; with labels what takes their values by ``labels``."""
        return self._of_cluster(Histogram, name, text, labels, buckets=buckets)

    def count(self, name: str, text: str, labels: Sequence[str]) -> Callable[..., None]:
        """Return what counts one more; it takes the values of the labels."""
        counter = self.counter(name, text, labels)
        return lambda *values: counter.labels(*values).inc()

    def time(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> Callable[..., None]:
        """Return what notes a duration; it takes the values of the labels, then seconds."""
        histogram = self.histogram(name, text, labels, buckets=buckets)
        return lambda *values: histogram.labels(*values[:-1]).observe(values[-1])

    def forget(self, cluster: str) -> None:
        """Take what a cluster has counted out of the registry."""
        for metric in self.made.values():
            metric.remove_by_labels({_CLUSTER: cluster})

    def _of_cluster(
        self, kind: Any, name: str, text: str, labels: Sequence[str], **options: Any
    ) -> Any:
        if self._cluster is None:
            return kind(name, text, labels, registry=self.registry, **options)
        metric = self.made.get(name)
        if metric is None:
            named = [_CLUSTER, *labels]
            metric = kind(name, text, named, registry=self.registry, **options)
            self.made[name] = metric
        return _Labelled(metric, self._cluster) if labels else metric.labels(self._cluster)


class _Labelled(NamedTuple):
    """A metric of which the first label is known."""

    metric: Any
    cluster: str

    def labels(self, *values: object) -> Any:
        return self.metric.labels(self.cluster, *values)

    def remove(self, *values: object) -> None:
        self.metric.remove(self.cluster, *values)


class AlterationMetrics:
    """What becomes of alterations.

    ``drifted`` and ``audit_write_failed`` take the value of their label, ``phase_took`` a ``Phase``
    and seconds, ``barrier_may_take`` seconds, and ``outcomes_are_waiting`` a number.
    """

    def __init__(self, make: Instruments) -> None:
        self.phase_took = make.time(
            "quota_alteration_phase_seconds",
            "Time that a phase of an alteration took.",
            ["phase"],
            _PHASE_BUCKETS_S,
        )
        self.barrier_may_take = make.gauge(
            "quota_barrier_deadline_seconds",
            "How long an alteration waits for its broker to catch up: three times the slowest of a "
            "minute, 5 to 20 s.",
        ).set
        self._recovery_took = make.time(
            "quota_recovery_seconds",
            "Time from the sending to a verdict of recovery, by what the verdict rests on.",
            ["fence"],
            _RECOVERY_BUCKETS_S,
        )
        self._count_recovered = make.count(
            "quota_recovery",
            "Verdicts on entities whose answer was lost; investigate observed_other.",
            ["verdict", "fence"],
        )
        self._count_budgets = make.count(
            "quota_budget_decisions",
            "Alterations that set a value of a budget's, by whether its sum stays within.",
            ["result"],
        )
        self._budgets = make.gauge(
            "quota_budget_filled_ratio",
            "What the stored values of a budget add up to, of the most that it lets through: over "
            "1 other tools set more. From the process that watches for drift.",
            ["budget", "key"],
        )
        self._filled: set[tuple[str, str]] = set()
        self.slot_was_taken = make.counter(
            "quota_slot_conflicts", "Alterations refused because another one held an entity."
        ).inc
        self.outcome_came_late = make.counter(
            "quota_late_outcomes", "Definite answers that came after the caller had a 504."
        ).inc
        self._temporary = make.gauge(
            "quota_temporary_values", "Values that end by themselves, on this cluster."
        )
        self._late = make.gauge(
            "quota_expiry_late_seconds",
            "How long ago the first of them was due that is not ended; must stay below 10 while "
            "brokers and Postgres are there.",
        )
        self.superseded = make.counter(
            "quota_superseded", "Alterations of unknown outcome that another one took over from."
        ).inc
        self.drifted = make.count(
            "quota_drift",
            "Changes that no alteration accounts for; late_apply is one of our own, too late.",
            ["origin"],
        )
        self.audit_write_failed = make.count(
            "audit_write_failures", "Writes that the audit log did not take.", ["stage"]
        )
        self._open = make.gauge(
            "quota_open_intents",
            "Entities of alterations without a definite outcome.",
        )
        self._oldest = make.gauge(
            "quota_oldest_open_intent_seconds",
            "Age of the oldest of them; must stay below 180.",
        )
        self._quarantined = make.gauge(
            "quota_quarantined_slots",
            "Entities held because a request's outcome is unknown.",
        )
        self.outcomes_are_waiting = make.gauge(
            "audit_outcomes_waiting",
            "Outcomes in the memory of this process, not yet recorded.",
        ).set
        self._scanned_at = time.monotonic()
        age = make.gauge(
            "quota_drift_scan_age_seconds",
            "Time since this process looked for drift, or began.",
        )
        age.set_function(lambda: time.monotonic() - self._scanned_at)

    @contextmanager
    def timed(self, phase: Phase) -> Iterator[None]:
        """Note how long the block takes, however it ends."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phase_took(phase, time.perf_counter() - began)

    def recovered(self, verdict: str, found_by: FoundBy, seconds: float) -> None:
        """Note a verdict on an entity whose answer was lost, such as ``applied``, and its time."""
        self._count_recovered(verdict, found_by)
        self._recovery_took(found_by, seconds)

    def judged_by_budgets(self, *, within: bool) -> None:
        """Note whether an alteration stays within its budgets."""
        self._count_budgets("within" if within else "exceeded")

    def budgets_are_filled(self, ratios: Mapping[tuple[str, str], float]) -> None:
        """Note how full budgets are, by name and key; all others are forgotten."""
        for gone in self._filled - ratios.keys():
            self._budgets.remove(*gone)
        self._filled = set(ratios)
        for (budget, key), ratio in ratios.items():
            self._budgets.labels(budget, key).set(ratio)

    def scanned_for_drift(self) -> None:
        """Note that a scan was completed just now."""
        self._scanned_at = time.monotonic()

    def temporary_values(self, number: int, late_s: float) -> None:
        """Note how many there are, and how late the first of them is."""
        self._temporary.set(number)
        self._late.set(late_s)

    def intents_are_open(self, number: int, oldest_s: float, quarantined: int) -> None:
        """Tell what has no definite outcome at present; see ``OpenIntents``."""
        self._open.set(number)
        self._oldest.set(oldest_s)
        self._quarantined.set(quarantined)


_REQUEST_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 95)
_WAIT_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5)

STATES: Final = ("idle", "busy")
POOLS: Final = ("writing", "recovering", "querying", "denying", "leading")

Numbers = Callable[[], Mapping[str, int]]


class BrokerMetrics:
    """What goes to the brokers of a cluster.

    ``kafka_request_took`` takes Kafka's name of the request, a ``KafkaResult`` and seconds,
    ``kafka_error_came`` the request and Kafka's name of the error.

    Args:
        make: Null counts in a registry that nobody reads, for a command that runs once.
    """

    def __init__(self, make: Instruments | None = None) -> None:
        make = make or Instruments()
        self.kafka_request_took = make.time(
            "kafka_request_seconds",
            "Time from handing a request to a broker to the end of the wait: answered, lost (with "
            "the connection) or abandoned.",
            ["api", "result"],
            _REQUEST_BUCKETS_S,
        )
        self.kafka_error_came = make.count(
            "kafka_errors",
            "Answers of brokers with an error, by Kafka's name; an alteration counts each name "
            "once.",
            ["api", "code"],
        )
        self._connections = make.gauge(
            "kafka_connections",
            "Open connections to brokers: idle, or busy with a request.",
            ["state"],
        )
        self._wrong_cluster = make.gauge(
            "kafka_wrong_cluster",
            "Whether the brokers that answer are of another cluster than the one that is served, "
            "or of one that is served under another name: 1, else 0; nothing is served or "
            "concluded then.",
        )

    def watch(self, connections: Numbers, another_answers: Callable[[], bool]) -> None:
        """Show at each scrape what these return: connections by state, and more."""
        self._wrong_cluster.set_function(another_answers)
        for state in STATES:
            self._connections.labels(state).set_function(partial(_number_of, connections, state))


class DatabaseMetrics:
    """What goes to Postgres.

    ``pool_wait_took`` takes a pool and seconds, ``partitions_reach`` how many months after the
    present one have partitions; -1: not even it.

    Args:
        make: As for ``BrokerMetrics``.
    """

    def __init__(self, make: Instruments | None = None) -> None:
        make = make or Instruments()
        self._clock_ahead = make.gauge(
            "database_clock_ahead_seconds",
            "How far the clock of Postgres is ahead of this machine's; over 5 or under -5 the "
            "service is not ready to write.",
        )
        self._in_use = make.gauge(
            "db_pool_in_use",
            "Connections to Postgres at work, or being opened: writing (intents and outcomes; 8 at "
            "most), recovering, querying, denying and leading.",
            ["pool"],
        )
        self.pool_wait_took = make.time(
            "db_pool_wait_seconds",
            "Time until a query had its connection to Postgres.",
            ["pool"],
            _WAIT_BUCKETS_S,
        )
        self.partitions_reach = make.gauge(
            "audit_partition_months_ahead",
            "Months after the present one that the audit log has partitions for; under 1 it is "
            "about to refuse alterations. NaN before the first check.",
        ).set
        self.partitions_reach(math.nan)

    def watch(self, in_use: Numbers, clock_ahead_s: Callable[[], float]) -> None:
        """Show at each scrape what these return: connections by pool, and the clock."""
        self._clock_ahead.set_function(clock_ahead_s)
        for pool in POOLS:
            self._in_use.labels(pool).set_function(partial(_number_of, in_use, pool))


def _number_of(numbers: Numbers, name: str) -> float:
    return numbers()[name]


class PolicyMetrics:
    """What the policy decides and how it is read; all zero where there is no policy."""

    def __init__(self, make: Instruments) -> None:
        self._count_decision = make.count(
            "policy_decisions",
            "Alterations that the policy judged, after the ACLs let them pass.",
            ["result"],
        )
        self._count_read = make.count(
            "policy_reads",
            "Times the policy file was read: used, or refused (keeping the previous policy).",
            ["result"],
        )
        self._rules = make.gauge("policy_rules", "Rules of the policy in force.")
        self._budgets = make.gauge("policy_budgets", "Budgets of the policy in force.")
        self._outdated = make.gauge(
            "policy_outdated",
            "Whether the policy file that was last read could not be used, so that an older one is "
            "in force: 0 or 1.",
        )

    def policy_decided(self, *, allowed: bool) -> None:
        """Note a decision."""
        self._count_decision("allowed" if allowed else "refused")

    def policy_read(self, *, usable: bool, rules: int, budgets: int) -> None:
        """Note that the file was read, and how many rules and budgets are in force since."""
        self._count_read("used" if usable else "refused")
        self._rules.set(rules)
        self._budgets.set(budgets)
        self._outdated.set(not usable)


class EventMetrics:
    """What becomes of the events of the log.

    ``events_produced`` takes how many, ``listeners_are`` how many there are.
    """

    def __init__(self, make: Instruments) -> None:
        self.events_produced = make.counter(
            "quota_events_produced", "Records that the topic of events has acknowledged."
        ).inc
        self.topic_failed = make.counter(
            "quota_events_failures",
            "Batches that the topic of events did not take; they are sent again.",
        ).inc
        self._behind = make.gauge(
            "quota_events_behind",
            "Events of the audit log that the topic of events does not have, counted to 10,000; "
            "NaN without a topic.",
        )
        self._behind_s = make.gauge(
            "quota_events_behind_seconds",
            "Age of the first of them; NaN without a topic.",
        )
        self.topic_is_behind(math.nan, math.nan)
        self.listeners_are = make.gauge(
            "quota_event_listeners", "Callers who follow the audit log through this process."
        ).set

    def topic_is_behind(self, events: float, oldest_s: float) -> None:
        """Tell what the topic does not have yet; see ``Backlog``."""
        self._behind.set(events)
        self._behind_s.set(oldest_s)


_METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
_LAG_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


PREFIX: Final = "quotas_"
"""Of every metric of ours."""

_OF_OTHERS: Final = ("process_", "python_")
_OLD_PREFIX: Final = "quota_"


def exposed_name(name: str) -> str:
    """Return the name under which a metric, or a sample of it, is exposed."""
    return name if name.startswith(_OF_OTHERS) else f"{PREFIX}{name.removeprefix(_OLD_PREFIX)}"


class _Prefixed(Collector):
    """The metrics of a registry under their exposed names; for one release under the old, too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield each metric, and then its old name, which says what takes its place."""
        for metric in self._registry.collect():
            name = exposed_name(metric.name)
            if name != metric.name:
                renamed = Metric(name, metric.documentation, metric.type)
                renamed.samples = [
                    sample._replace(name=exposed_name(sample.name)) for sample in metric.samples
                ]
                yield renamed
                metric.documentation = f"The old name of {name}; it goes with the next release."
            yield metric


class ClusterMetrics:
    """What is counted of one cluster.

    ``alterations`` counts what becomes of alterations, ``brokers`` what goes to brokers, ``policy``
    what the policy decides, ``events`` what becomes of the log's events.
    """

    def __init__(self, make: Instruments) -> None:
        self._alterations = make.counter(
            "quota_alterations", "What became of altered entities.", ["verdict"]
        )
        self.authorizations = make.counter(
            "authz", "Decisions on the cluster resource.", ["operation", "result"]
        )
        self.acl_age = make.gauge(
            "authz_acl_age_seconds", "Age of the ACLs that the last decision rested on."
        )
        self.idempotency = make.counter(
            "idempotency",
            "Alterations with an idempotency key: new, replay, conflict (it still runs) or "
            "mismatch (used for another request).",
            ["result"],
        )
        self.alterations = AlterationMetrics(make)
        self.brokers = BrokerMetrics(make)
        self.policy = PolicyMetrics(make)
        self.events = EventMetrics(make)

    def count_alterations(self, outcomes: Iterable[str]) -> None:
        """Note the outcome of each entity of an alteration."""
        for outcome, number in Tally(outcomes).items():
            self._alterations.labels(outcome).inc(number)


class Metrics:
    """All metrics of a process, in a registry of their own; its own are those of HTTP.

    ``database`` counts what goes to Postgres, ``of_cluster`` what is of one cluster.
    """

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        make = Instruments()
        self.registry = make.registry
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = make.histogram(
            "http_server_request_duration_seconds",
            "Time from the request's headers to the end of the answer; of requests to the service "
            "itself cluster is empty.",
            [_CLUSTER, "route", "method", "status"],
            buckets=_BUCKETS_S,
        )
        self.active_requests = make.gauge(
            "http_server_active_requests",
            "Requests that are being answered.",
        )
        self.rejected = make.counter(
            "request_rejected", "Requests answered with a problem, by its code.", ["reason"]
        )
        self._count_credential = make.count(
            "authn",
            "Judged credentials; reason is a problem's code.",
            ["method", "result", "reason"],
        )
        self.count_key_fetch = make.count(
            "authn_jwks_fetch", "Questions to the identity provider for its keys.", ["result"]
        )
        self._key_age = make.gauge(
            "authn_jwks_age_seconds", "Age of the identity provider's keys; NaN without any."
        )
        self.count_rate_limited = make.count(
            "rate_limited",
            "Requests over a limit of this service: reads, alterations, at_once, entities (in "
            "progress), streams, failures (of authentication), logins, public (without a "
            "credential).",
            ["scope"],
        )
        self.closed = make.counter(
            "receive_deadline_closed",
            "Connections closed because the caller was too slow: idle, headers, body, answer.",
            ["stage"],
        )
        self.count_dropped = make.count(
            "http_server_connections_dropped",
            "Connections closed for lack of a slot: refused, or idle and closed for a new "
            "connection because of a limit (address, handshakes, all) or for lack of descriptors.",
            ["reason"],
        )
        self.connections = make.gauge("http_server_open_connections", "Open connections.")
        self.observe_loop_lag = make.histogram(
            "event_loop_lag_seconds",
            "How late the event loop came to a task that was due.",
            buckets=_LAG_BUCKETS_S,
        ).observe
        self.database = DatabaseMetrics(make)
        self._make = make
        self._text: bytes | None = None

    def of_cluster(self, name: str) -> ClusterMetrics:
        """Return what counts for a cluster, whoever has counted for it before."""
        return ClusterMetrics(Instruments(name, self._make))

    def forget(self, cluster: str) -> None:
        """Show nothing any more of a cluster that is not served any more."""
        self._make.forget(cluster)
        self._requests.remove_by_labels({_CLUSTER: cluster})

    def observe_request(
        self, route: str, method: str, status: int, seconds: float, cluster: str = ""
    ) -> None:
        """Note an answered request; ``route`` is the template, such as ``/problems/{code}``.

        Methods that the route does not have are counted together: callers choose them.
        """
        allowed = method in _METHODS and status != HTTPStatus.METHOD_NOT_ALLOWED
        method = method if allowed else "_OTHER"
        self._requests.labels(cluster, route, method, status).observe(seconds)

    def count_authentication(self, method: str, reason: str | None = None) -> None:
        """Note a judged credential; ``reason`` is the problem's code where it was refused."""
        result = "accepted" if reason is None else "refused"
        self._count_credential(method, result, reason or "")

    def watch_key_age(self, age_s: Callable[[], float | None]) -> None:
        """Show how old the identity provider's keys are; null is none."""
        self._key_age.set_function(lambda: math.nan if (age := age_s()) is None else age)

    def exposition(self, *, anew: bool = True) -> tuple[bytes, str]:
        """Return the Prometheus text and its content type.

        Args:
            anew: Write the text, which takes some 20 ms; else return the last one.
        """
        if anew or self._text is None:
            self._text = exposition.generate_latest(_Prefixed(self.registry))
        return self._text, exposition.CONTENT_TYPE_PLAIN_0_0_4
