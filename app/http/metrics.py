"""Metrics of the HTTP interface, for Prometheus. No label names an entity or a principal."""

import asyncio
import math
import os
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Metric,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    exposition,
    values,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from app.http.rate_limits import TokenBucket
from app.http.service_metrics import (
    Instruments,
    PrometheusAlterationMetrics,
    PrometheusDependencyMetrics,
    PrometheusPolicyMetrics,
)

_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Where the workers of one service count.

    Attributes:
        folder: Of all of them.
        number: Of this worker. Whoever takes its turn after its end counts on in its files, so no
            sum falls, and there are no more files than workers.
    """

    folder: Path
    number: int

    def begin(self) -> None:
        """Have every metric that is made from now on counted there."""
        os.environ[_FOLDER] = str(self.folder)
        values.ValueClass = values.MultiProcessValue(lambda: self.number)  # type: ignore[no-untyped-call]
        self.folder.joinpath(f"{self.number}.pid").write_text(str(os.getpid()))

    def registry(self) -> CollectorRegistry:
        """Return what shows the counts of all workers."""
        registry = CollectorRegistry()
        PlatformCollector(registry=registry)
        registry.register(_Counts(self.folder))
        registry.register(_Processes(self.folder))
        return registry


def forget_worker(folder: Path, number: int) -> None:
    """Take the gauges of a worker away that has ended; what it counted stays."""
    mark_process_dead(number, str(folder))  # type: ignore[no-untyped-call]
    folder.joinpath(f"{number}.pid").unlink(missing_ok=True)


class _Counts(Collector):
    """What the workers counted, added up; gauges that are each worker's have a label for it."""

    def __init__(self, folder: Path) -> None:
        self._of_all = MultiProcessCollector(None, str(folder))  # type: ignore[no-untyped-call]

    def collect(self) -> Iterable[Metric]:
        for metric in self._of_all.collect():  # type: ignore[no-untyped-call]
            for index, sample in enumerate(metric.samples):
                labels = dict(sample.labels)
                if "pid" in labels:
                    metric.samples[index] = sample._replace(
                        labels={"worker": labels.pop("pid"), **labels}
                    )
            yield metric


class _Processes(Collector):
    """Memory, processor time and files of each worker's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        found: dict[str, Metric] = {}
        for file in sorted(self._folder.glob("*.pid")):
            try:
                pid = int(file.read_text())
            except (FileNotFoundError, ValueError):
                continue  # it has just ended, or begins
            for metric in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                into = found.setdefault(metric.name, metric)
                samples = [
                    sample._replace(labels={"worker": file.stem}) for sample in metric.samples
                ]
                into.samples = samples if into is metric else [*into.samples, *samples]
        return found.values()


EVERY_S: Final = 0.5


@asynccontextmanager
async def observed_lag(
    observe: Callable[[float], None], *, every_s: float = EVERY_S
) -> AsyncIterator[None]:
    """Measure while the block runs; ``observe`` receives the lag in seconds."""

    async def measure() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(every_s)
            observe(max(0.0, time.monotonic() - began - every_s))

    task = asyncio.create_task(measure())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


_METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)
_RENDERING_BURST_S: Final = 10.0
_LAG_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class HttpMetrics:
    """The counters and histograms, in a registry of their own.

    ``alterations`` counts what becomes of alterations, ``dependencies`` what goes to brokers and to
    Postgres, ``policy`` what the policy decides.

    Args:
        shared: Where the workers count; null for a process that serves alone.
    """

    def __init__(self, shared: SharedCounts | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        if shared is not None:
            shared.begin()
        make = Instruments()
        self.registry = make.registry
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = make.histogram(
            "http_server_request_duration_seconds",
            "Time from the request's headers to the end of the answer.",
            ["route", "method", "status"],
            buckets=_BUCKETS_S,
        )
        self.active_requests = make.gauge(
            "http_server_active_requests",
            "Requests that are being answered.",
            multiprocess_mode="livesum",
        )
        self.rejected = make.counter(
            "request_rejected", "Requests answered with a problem, by its code.", ["reason"]
        )
        self._alterations = make.counter(
            "quota_alterations", "What became of altered entities.", ["verdict"]
        )
        self._authentications = make.counter(
            "authn",
            "Judged credentials; reason is a problem's code.",
            ["method", "result", "reason"],
        )
        self._key_fetches = make.counter(
            "authn_jwks_fetch", "Questions to the identity provider for its keys.", ["result"]
        )
        self._key_age = make.gauge(
            "authn_jwks_age_seconds", "Age of the identity provider's keys; NaN without any."
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
        self._rate_limited = make.counter(
            "rate_limited",
            "Requests over a limit of this service: reads, alterations, at_once, failures (of "
            "authentication), logins, public (without a credential).",
            ["scope"],
        )
        self.closed = make.counter(
            "receive_deadline_closed",
            "Connections closed because the caller was too slow: idle, headers, body, answer.",
            ["stage"],
        )
        self._dropped = make.counter(
            "http_server_connections_dropped",
            "Connections closed for lack of a slot: refused, or idle and closed for a new "
            "connection because of a limit (address, handshakes, all) or for lack of descriptors.",
            ["reason"],
        )
        self.connections = make.gauge(
            "http_server_open_connections", "Open connections.", multiprocess_mode="livesum"
        )
        self._loop_lag = make.histogram(
            "event_loop_lag_seconds",
            "How late the event loop came to a task that was due.",
            buckets=_LAG_BUCKETS_S,
        )
        self.alterations = PrometheusAlterationMetrics(make)
        self.dependencies = PrometheusDependencyMetrics(make)
        self.policy = PrometheusPolicyMetrics(make)
        self._make = make
        self._exported = self.registry if shared is None else shared.registry()
        self._text: bytes | None = None
        self._renderings = TokenBucket(1.0, _RENDERING_BURST_S, time.monotonic())

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Note an answered request; ``route`` is the template, such as ``/problems/{code}``.

        Methods that the route does not have are counted together: callers choose them.
        """
        allowed = method in _METHODS and status != HTTPStatus.METHOD_NOT_ALLOWED
        self._requests.labels(route, method if allowed else "_OTHER", status).observe(seconds)

    def count_alterations(self, outcomes: Iterable[str]) -> None:
        """Note the outcome of each entity of an alteration."""
        for outcome, number in Tally(outcomes).items():
            self._alterations.labels(outcome).inc(number)

    def count_authentication(self, method: str, reason: str | None = None) -> None:
        """Note a judged credential; ``reason`` is the problem's code where it was refused."""
        result = "accepted" if reason is None else "refused"
        self._authentications.labels(method, result, reason or "").inc()

    def count_key_fetch(self, result: str) -> None:
        """Note a question to the identity provider: ``ok`` or ``failed``."""
        self._key_fetches.labels(result).inc()

    def watch_key_age(self, age_s: Callable[[], float | None]) -> None:
        """Show how old the identity provider's keys are; null is none."""
        self._make.observe(self._key_age, lambda: math.nan if (age := age_s()) is None else age)

    def count_rate_limited(self, scope: str) -> None:
        """Note a request over a limit; see ``Limited``."""
        self._rate_limited.labels(scope).inc()

    def count_dropped(self, reason: str) -> None:
        """Note a connection that was closed because there were too many."""
        self._dropped.labels(reason).inc()

    def observe_loop_lag(self, seconds: float) -> None:
        """Note how late the event loop was; comes twice a second."""
        self._loop_lag.observe(seconds)
        self._make.record_gauges()

    def exposition(self) -> tuple[bytes, str]:
        """Return the Prometheus text and its content type, for all workers.

        Whoever asks more than once a second, after a few times, gets the text of the time before:
        no credential is needed to ask, and each text takes some 20 ms.
        """
        if self._text is None or self._renderings.take(time.monotonic()) == 0:
            self._text = exposition.generate_latest(self._exported)
        return self._text, exposition.CONTENT_TYPE_PLAIN_0_0_4
