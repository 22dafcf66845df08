"""Temporary values for readers: the list, and what stands beside the values of quotas."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.alterations import restore
from app.domain.entities import ClientQuotaFilter, SortKey
from app.domain.errors import NotSentError
from app.domain.expiry import Expiries, TemporaryValue, by_entity
from app.domain.validation import check_filter
from app.service.ports.alterations import Change
from app.service.ports.brokers import ClusterIdentity
from app.service.ports.temporary import Asked, TemporaryJournal
from app.service.runtime.tasks import off_loop

logger = logging.getLogger(__name__)


class TemporaryImage:
    """The temporary values of the cluster, in memory: no read of quotas waits for Postgres.

    A change of this process is in it before that is answered, one of another within a second.

    Attributes:
        values: By entity and key; never changed, another one takes its place.
    """

    def __init__(self, journal: TemporaryJournal, cluster: ClusterIdentity) -> None:
        self._journal = journal
        self._cluster = cluster
        self._fingerprint: int | None = None
        self.values: Expiries = {}

    async def follow(self, fingerprint: int) -> None:
        """Read them again where they are not those of the fingerprint that was read last.

        Raises:
            NotSentError: The log cannot be read.
        """
        if fingerprint != self._fingerprint:
            await self._read()
            self._fingerprint = fingerprint

    async def reload(self) -> None:
        """Read what has just been changed; where that fails the next round does it."""
        self._fingerprint = None
        try:
            await self._read()
        except NotSentError as error:
            logger.info("temporary values were not read: %s", error.detail)

    async def _read(self) -> None:
        values = await self._journal.values(await self._cluster.cluster_id())
        self.values = await off_loop(len(values), by_entity, values)


@dataclass(frozen=True, slots=True)
class TemporaryValues:
    """Answers ``GET /quotas/temporary`` and ``PUT /quotas/alterations/{alteration_id}/expiry``."""

    journal: TemporaryJournal
    cluster: ClusterIdentity
    image: "TemporaryImage"

    async def matching(
        self, quota_filter: ClientQuotaFilter, has_key: Collection[str] = ()
    ) -> Sequence[TemporaryValue]:
        """Return those of the entities that match, in the order of ``GET /quotas``, then by key.

        Raises:
            InvalidRequestError: The filter breaks a rule.
            NotSentError: The log cannot be read.
        """
        check_filter(quota_filter)
        values = await self.journal.values(await self.cluster.cluster_id())
        return await off_loop(len(values), _matching, values, quota_filter, has_key)

    async def set_by(self, alteration_id: str) -> tuple[Change, ...]:
        """Return what is left of an alteration for a time, as what it set."""
        values = await self.journal.values(await self.cluster.cluster_id())
        return tuple(
            Change(value.entity, (restore(value.key, value.value),))
            for value in values
            if value.alteration_id == alteration_id
        )

    async def change_expiry(
        self, alteration_id: str, expires_at: datetime | None, asked: Asked
    ) -> Sequence[TemporaryValue]:
        """Let what is left of an alteration for a time end at another time, or never.

        Raises:
            NotFoundError: Nothing of it is pending.
            EntityBusyError: An alteration of one of its entities is in flight.
            NotSentError: The log cannot be written.
        """
        cluster_id = await self.cluster.cluster_id()
        changed = await self.journal.change_expiry(cluster_id, alteration_id, expires_at, asked)
        await self.image.reload()
        return sorted(changed, key=_order)


def _order(value: TemporaryValue) -> tuple[SortKey, str]:
    return value.entity.sort_key(), value.key


def _matching(
    values: Iterable[TemporaryValue], quota_filter: ClientQuotaFilter, has_key: Collection[str]
) -> Sequence[TemporaryValue]:
    found = (
        value
        for value in values
        if (not has_key or value.key in has_key) and quota_filter.matches(value.entity)
    )
    return sorted(found, key=_order)
