"""Metrics of what this service depends on, for Prometheus."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.http.alteration_metrics import Observe
from app.service.ports.metrics import KafkaResult

_REQUEST_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 95)
_WAIT_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5)

STATES: Final = ("idle", "busy")
POOLS: Final = ("writing", "recovering", "querying", "denying", "leading")

Numbers = Callable[[], Mapping[str, int]]


class PrometheusDependencyMetrics:
    """Counts in a registry; see ``DependencyMetrics``."""

    def __init__(self, registry: CollectorRegistry, observe: Observe) -> None:
        self._observe = observe
        self._requests = Histogram(
            "kafka_request_seconds",
            "Time from handing a request to a broker to the end of the wait: answered, lost (with "
            "the connection) or abandoned.",
            ["api", "result"],
            buckets=_REQUEST_BUCKETS_S,
            registry=registry,
        )
        self._errors = Counter(
            "kafka_errors",
            "Answers of brokers with an error, by Kafka's name; an alteration counts each name "
            "once.",
            ["api", "code"],
            registry=registry,
        )
        self._connections = Gauge(
            "kafka_connections",
            "Open connections to brokers: idle, or busy with a request.",
            ["state"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._wrong_cluster = Gauge(
            "kafka_wrong_cluster",
            "Whether the brokers that answer are of another cluster than the one that is served: "
            "1, else 0; nothing is served or concluded then.",
            registry=registry,
            multiprocess_mode="liveall",
        )
        self._in_use = Gauge(
            "db_pool_in_use",
            "Connections to Postgres at work: writing (intents and outcomes; 8 at most), "
            "recovering, querying, denying and leading.",
            ["pool"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._waits = Histogram(
            "db_pool_wait_seconds",
            "Time until a piece of work had its connection to Postgres.",
            ["pool"],
            buckets=_WAIT_BUCKETS_S,
            registry=registry,
        )

    def kafka_request_took(self, api: str, result: KafkaResult, seconds: float) -> None:
        """Note a request that was handed over, and how long it took."""
        self._requests.labels(api, result.value).observe(seconds)

    def kafka_error_came(self, api: str, code: str) -> None:
        """Note an answer with an error."""
        self._errors.labels(api, code).inc()

    def pool_wait_took(self, pool: str, seconds: float) -> None:
        """Note how long a piece of work waited for its connection."""
        self._waits.labels(pool).observe(seconds)

    def watch(
        self, connections: Numbers, in_use: Numbers, another_answers: Callable[[], bool]
    ) -> None:
        """Show the connections to brokers by state and to Postgres by pool, and which cluster is.

        Args:
            connections: To brokers, by state.
            in_use: To Postgres, by pool.
            another_answers: Whether brokers of another cluster than the service's answer.
        """
        self._observe(self._wrong_cluster, another_answers)
        for state in STATES:
            self._observe(self._connections.labels(state), partial(_one_of, connections, state))
        for pool in POOLS:
            self._observe(self._in_use.labels(pool), partial(_one_of, in_use, pool))


def _one_of(numbers: Numbers, name: str) -> float:
    return numbers()[name]
