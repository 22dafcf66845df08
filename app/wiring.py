"""Wiring: what the whole service has is built here, and its clusters begin and end."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

from app.authenticators import Credentials
from app.cluster import Cluster, Shared
from app.cluster_settings import ClusterSettings, ClustersSettings, read_clusters
from app.http.authentication.proxies import TrustedProxies
from app.http.guards import ServedClusters
from app.http.rate_limits import Limits, RateLimits
from app.metrics import Metrics
from app.postgres.audit_log import PostgresJournal
from app.postgres.pool import Database
from app.postgres.recovery import PostgresRecovery
from app.postgres.schema import (
    clock_problem,
    keep_house,
    months_ahead,
    schema_problem,
    server_facts,
)
from app.postgres.temporary import PostgresTemporary
from app.service.runtime.clock import DATABASE_CLOCK
from app.service.runtime.readiness import Check, Readiness
from app.service.runtime.tasks import AlterationTasks, run_forever
from app.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

_LEAST_DRAIN_S: Final = 1.0

_CLOCK_S: Final = 10.0
"""How often Postgres's clock is read."""

_KEEP_S: Final = 60.0
"""How often missing partitions are made, three months ahead, and expired rows removed."""


class Wiring:
    """The objects that the settings ask for; ``serving`` opens them.

    Args:
        settings: As ``load_settings`` has checked them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self.proxies = TrustedProxies(settings.trusted_proxies, settings.forwarded_header)
        limits = Limits(
            settings.reads_per_s,
            settings.alterations_per_s,
            settings.requests_at_once,
            settings.authentication_failures_per_s,
            settings.public_requests_per_s,
            settings.streams_at_once,
            settings.max_streams,
        )
        self._limits = RateLimits(limits, self.metrics.count_rate_limited)
        self._clusters: dict[str, Cluster] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._shared: Shared
        self._served: ServedClusters | None = None
        self._reloading = asyncio.Lock()
        self._stops_at: float | None = None

    def begin_drain(self) -> bool:
        """Turn ``/readyz`` off; tell whether this is the first announcement of the stop."""
        if self._stops_at is not None:
            return False
        settings = self._settings
        self._stops_at = time.monotonic() + settings.stop_delay_s + settings.shutdown_grace_s
        if self._served is not None:
            self._served.readiness.draining = True
        return True

    def end_streams(self) -> None:
        """End answers that do not end by themselves: the server is about to wait for all."""
        for cluster in self._clusters.values():
            cluster.end_streams()

    def _time_to_drain(self) -> float:
        """Return how long alterations that still run may take to end, in seconds."""
        if self._stops_at is None:
            return self._settings.shutdown_grace_s
        return max(_LEAST_DRAIN_S, self._stops_at - time.monotonic())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ServedClusters]:
        """Open everything; close it when the application stops, alterations first."""
        wanted = read_clusters(self._settings)
        async with AsyncExitStack() as stack:
            patience, counted = self._settings.patience, self.metrics.database
            url = self._settings.database_url.get_secret_value()
            database = Database(url, counted, patience)
            stack.push_async_callback(database.close)
            keeping = AlterationTasks()
            counted.watch(database.in_use, DATABASE_CLOCK.ahead_s)
            self._shared = Shared(
                settings=self._settings,
                database=database,
                recoveries=PostgresRecovery(
                    database, final_after_s=self._settings.test_final_after_s
                ),
                expiries=PostgresTemporary(database),
                metrics=self.metrics,
                limits=self._limits,
                proxies=self.proxies,
                credentials=Credentials(self._settings, self.metrics, stack, wanted.privileged),
                served_as=self._served_as,
            )
            writing: Mapping[str, Check] = {
                "audit_log": PostgresJournal(database).check_writable,
                "schema": partial(schema_problem, database),
                "clock": partial(clock_problem, database),
            }
            readiness = Readiness({}, writing, patience=patience)
            self._served = ServedClusters(wanted.default, {}, readiness, self.metrics)
            for what, work, pause_s in (
                ("keeping the log", partial(keep_house, database), _KEEP_S),
                ("counting partitions", partial(self._count_partitions, database), _KEEP_S),
                ("reading the clock", partial(server_facts, database), _CLOCK_S),
            ):
                keeping.watch(run_forever(what, work, pause_s=pause_s, logger=logger))
            stack.push_async_callback(keeping.drain, 0.0)
            stack.push_async_callback(self._end_all)
            self._serve(wanted)
            yield self._served

    async def reload(self) -> None:
        """Read the file of clusters again, and the policy of each.

        New clusters begin, those that are gone end after their alterations, those that are changed
        do both. A file that cannot be used leaves the clusters as they are. The file of tokens is
        followed without being asked to.
        """
        async with self._reloading:
            if self._stops_at is not None:
                return
            in_force = {name: cluster.settings for name, cluster in self._clusters.items()}
            try:
                wanted = await asyncio.to_thread(read_clusters, self._settings, in_force)
                begun = self._serve(wanted)
                self._shared.credentials.protect(wanted.privileged)
            except (SettingsError, ValueError) as error:
                logger.error("keeping the clusters as they are: %s", error)  # noqa: TRY400
                begun = frozenset()
            policies = [
                await cluster.reload_policy()
                for name, cluster in self._clusters.items()
                if name not in begun
            ]
            if self._settings.clusters_file is None and not any(policies):
                logger.info("nothing to read again: there is no policy")

    def _serve(self, wanted: ClustersSettings) -> Collection[str]:
        """Serve these clusters from now on; return the names of those that have begun.

        Raises:
            ValueError: A file that one of them names cannot be used any more.
        """
        served = self._served
        if served is None:
            return ()
        before = self._clusters
        begun = self._begin_all(
            settings
            for name, settings in wanted.clusters.items()
            if name not in before or before[name].settings != settings
        )
        self._clusters = {name: begun.get(name) or before[name] for name in wanted.clusters}
        served.default = wanted.default
        served.services = {name: each.services for name, each in self._clusters.items()}
        for name, cluster in before.items():
            if self._clusters.get(name) is not cluster:
                self._end_later(cluster)
        return begun.keys()

    def _begin_all(self, wanted: Iterable[ClusterSettings]) -> Mapping[str, Cluster]:
        """Begin all of them, or none.

        Raises:
            ValueError: A file that one of them names cannot be used.
        """
        begun: dict[str, Cluster] = {}
        try:
            for settings in wanted:
                begun[settings.name] = Cluster(settings, self._shared)
        except ValueError:
            for cluster in begun.values():
                self._end_later(cluster)
            raise
        for name in begun:
            logger.info("the cluster %s is served", name)
        return begun

    def _end_later(self, cluster: Cluster) -> None:
        """End a cluster that is not served any more; requests that it has go on meanwhile."""
        task = asyncio.create_task(self._end(cluster))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, cluster: Cluster) -> None:
        name = cluster.settings.name
        await cluster.leave(self._settings.shutdown_grace_s)
        if name not in self._clusters:
            self.metrics.forget(name)
        logger.info("the cluster %s has ended as it was", name)

    async def _end_all(self) -> None:
        within_s = self._time_to_drain()
        await asyncio.gather(
            *(cluster.end(within_s) for cluster in self._clusters.values()), *self._ending
        )

    def _served_as(self, name: str, cluster_id: str) -> str | None:
        """Return the earlier name of the file under which a cluster is served."""
        for other, cluster in self._clusters.items():
            if other == name:
                return None
            if cluster.cluster_id == cluster_id:
                return other
        return None

    async def _count_partitions(self, database: Database) -> None:
        self.metrics.database.partitions_reach(await months_ahead(database))
