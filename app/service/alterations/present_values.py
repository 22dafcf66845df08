"""The present values of entities, and the wait until a change can be read."""

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol

from app.domain.alterations import Quotas, Values, same_values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity, EntityType
from app.domain.errors import QuotaError
from app.domain.filters import ALL_ENTITIES, ClientQuotaFilter, ClientQuotaFilterComponent
from app.service.cluster_ports import Described
from app.service.off_loop import off_loop
from app.service.shared_turns import SharedTurns

MOST_SINGLE_READS: Final = 4
"""From how many entities on one describe-all is cheaper than a describe for each."""

MOST_AT_ONCE: Final = 8
"""How many describes of single entities are under way; who comes then shares one of everything."""

SLOW_S: Final = 0.02
"""A single one that takes longer scans a large cluster: then nobody reads singly beside others, so
that those who come together stay together, and are sent together."""

PATIENCE_S: Final = 1.0
"""A describe of everything that takes longer holds up nobody else."""

LONGEST_STORED_NAME_BYTES: Final = 32_767
"""What the protocol can say, in bytes of UTF-8; a broker hangs up on more."""

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1


class QuotaReader(Protocol):
    """The part of ``ClientQuotaAdmin`` that reads."""

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        """See ``ClientQuotaAdmin``."""
        ...


class PresentValues:
    """Reads what a broker shows now; it may be older than the last acknowledged alteration."""

    def __init__(self, admin: QuotaReader) -> None:
        self._admin = admin
        self._single_reads = 0
        self._sharing = 0
        self._took_s = 0.0
        self._everything = SharedTurns(
            self._describe_everything, OfOneBroker, patience_s=PATIENCE_S
        )

    async def read(
        self, entities: Sequence[ClientQuotaEntity], broker_id: int | None = None
    ) -> dict[ClientQuotaEntity, Values]:
        """Return the values of the entities; an entity without any is left out."""
        wanted = await off_loop(len(entities), _storable_ones, entities)
        if not wanted:
            return {}
        if self._are_read_singly(wanted):
            return await self._read_singly(wanted, broker_id)
        self._sharing += 1
        began = time.monotonic()
        try:
            described = await self._everything.take(broker_id)
        finally:
            self._sharing -= 1
        self._took_s = min(self._took_s, time.monotonic() - began)  # one is no slower than all
        return await off_loop(len(wanted), _of_these, described.quotas, wanted)

    def _are_read_singly(self, wanted: Collection[ClientQuotaEntity]) -> bool:
        if self._took_s > SLOW_S:
            has_room = not self._single_reads and not self._sharing
        else:
            has_room = self._single_reads + len(wanted) <= MOST_AT_ONCE
        few = len(wanted) <= MOST_SINGLE_READS
        return few and has_room and all(_describable(one) for one in wanted)

    async def _read_singly(
        self, wanted: Collection[ClientQuotaEntity], broker_id: int | None
    ) -> dict[ClientQuotaEntity, Values]:
        self._single_reads += len(wanted)
        began = time.monotonic()
        try:
            answers = await asyncio.gather(*(self._read_one(one, broker_id) for one in wanted))
        finally:
            self._single_reads -= len(wanted)
            self._took_s = time.monotonic() - began
        return {entity: values for entity, values in answers if values}

    async def _describe_everything(self, brokers: Sequence[int | None]) -> Sequence[Described]:
        described = await self._admin.describe_client_quotas(ALL_ENTITIES, broker_id=brokers[0])
        return [described] * len(brokers)

    async def _read_one(
        self, entity: ClientQuotaEntity, broker_id: int | None
    ) -> tuple[ClientQuotaEntity, Values]:
        components = (
            ClientQuotaFilterComponent.of_default_entity(kind)
            if name is None
            else ClientQuotaFilterComponent.of_entity(kind, name)
            for kind, name in entity.entries
        )
        quota_filter = ClientQuotaFilter(tuple(components), strict=True)
        described = await self._admin.describe_client_quotas(quota_filter, broker_id=broker_id)
        return entity, described.quotas.get(entity, {})

    async def until_readable(
        self, after: Quotas, *, within_s: float, brokers: Sequence[int | None] = (None,)
    ) -> bool:
        """Wait until each of the brokers shows these values; tell whether they all did."""
        shown = True
        try:
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
                for broker in brokers:
                    group.create_task(self._shown_by(after, broker))
        except* (TimeoutError, QuotaError):
            shown = False
        return shown

    async def _shown_by(self, after: Quotas, broker_id: int | None) -> None:
        waiting = after
        pauses = _pauses()
        while True:
            shown = await self.read(tuple(waiting), broker_id)
            waiting = await off_loop(len(waiting), _not_shown, waiting, shown)
            if not waiting:
                return
            await asyncio.sleep(next(pauses))


class OfOneBroker:
    """Who shares a request: those who ask the same broker."""

    def __init__(self) -> None:
        self._brokers: set[int | None] = set()

    def __call__(self, broker_id: int | None) -> bool:
        """Take one more in, if he asks the broker of the first."""
        if not self._brokers:
            self._brokers.add(broker_id)
        return broker_id in self._brokers


def _storable_ones(entities: Sequence[ClientQuotaEntity]) -> set[ClientQuotaEntity]:
    return {one for one in entities if _storable(one)}


def _of_these(
    quotas: Quotas, wanted: Iterable[ClientQuotaEntity]
) -> dict[ClientQuotaEntity, Values]:
    return {one: quotas[one] for one in wanted if one in quotas}


def _not_shown(expected: Quotas, shown: Quotas) -> Quotas:
    """Return those of the expected values that do not hold in what is shown."""
    return {
        entity: values
        for entity, values in expected.items()
        if not same_values(shown.get(entity, {}), values)
    }


def _pauses() -> Iterator[float]:
    """Yield the seconds between looks, longer and longer."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _describable(entity: ClientQuotaEntity) -> bool:
    """Tell whether a broker accepts a filter of exactly this entity."""
    types = entity.types
    mixed = EntityType.IP in types and len(types) > 1
    return bool(types) and types <= set(ENTITY_TYPES) and not mixed


def _storable(entity: ClientQuotaEntity) -> bool:
    """Tell whether a broker can hold the entity: only then is there something to ask for."""
    return all(name is None or _fits(name) for _, name in entity.entries)


def _fits(name: str) -> bool:
    try:
        return len(name.encode()) <= LONGEST_STORED_NAME_BYTES
    except UnicodeEncodeError:
        return False
