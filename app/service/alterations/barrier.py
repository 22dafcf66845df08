"""The current values of entities: read at once, behind a read barrier, or awaited after a change.

For a barrier two equal reads prove nothing: a broker that fetches metadata late shows the old state
as often as it is asked. The quorum's high watermark does, beside the offset that the broker has
published. Measured on release 4.3.1.
"""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.alterations import Quotas, Values, same_values
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import NotSentError, QuotaError
from app.domain.validation import filter_violations
from app.service.ports.brokers import (
    BarrierUnavailableError,
    MetadataQuorum,
    QuorumState,
    QuotaReader,
)
from app.service.runtime.clock import AdaptiveDeadline
from app.service.runtime.tasks import off_loop

logger = logging.getLogger(__name__)

MAX_SINGLE_READS: Final = 8
"""From how many entities on one describe-all is cheaper than a describe for each: a broker goes
over all entities for each describe."""

LONGEST_STORED_NAME_BYTES: Final = 32_767
"""What the protocol can say, in bytes of UTF-8; a broker hangs up on more."""

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1


class CurrentValues:
    """Reads what a broker shows now; it may be older than the last acknowledged alteration.

    Args:
        admin: Who describes.
        deadline: Of a read, in all; null is one that follows the reads of this object.
    """

    def __init__(self, admin: QuotaReader, deadline: AdaptiveDeadline | None = None) -> None:
        self.deadline = deadline or AdaptiveDeadline()
        self._admin = admin

    async def read(
        self,
        entities: Collection[ClientQuotaEntity],
        broker_id: int | None = None,
        *,
        beside: Collection[ClientQuotaFilter] = (),
    ) -> Quotas:
        """Return the values of the entities; an entity without any is left out.

        Args:
            entities: What is read.
            broker_id: Through which broker; null picks one.
            beside: Filters of a broker's: whatever matches one of them is read, too.

        Raises:
            QuotaError: As ``QuotaReader.describe_client_quotas``.
        """
        wanted = await off_loop(len(entities), set, filter(_storable, entities))
        if not wanted and not beside:
            return {}
        began = time.monotonic()
        if (
            len(wanted) + len(beside) > MAX_SINGLE_READS
            or ALL_ENTITIES in beside
            or not all(map(_describable, wanted))
        ):
            filters = [ALL_ENTITIES]
        else:
            filters = [*map(ClientQuotaFilter.of, wanted), *beside]
        timeout_s = self.deadline.seconds
        reads = (
            self._admin.describe_client_quotas(each, broker_id=broker_id, timeout_s=timeout_s)
            for each in filters
        )
        described = await asyncio.gather(*reads)
        self.deadline.note(time.monotonic() - began)
        if len(described) == 1 and beside:
            return described[0].quotas
        quotas = ChainMap(*(dict(each.quotas) for each in described))
        return quotas if beside else await off_loop(len(wanted), _of_these, quotas, wanted)

    async def show_each(
        self,
        waiting: Mapping["asyncio.Future[bool]", Quotas],
        broker_id: int | None,
        *,
        within_s: float,
    ) -> None:
        """Tell each of those who wait for their values whether the broker shows them in time."""
        left, pauses = dict(waiting), _pauses()
        try:
            async with asyncio.timeout(within_s):
                while left:
                    wanted = {entity for after in left.values() for entity in after}
                    visible = await self.read(wanted, broker_id)
                    for waiter, after in list(left.items()):
                        if not await off_loop(len(after), _not_visible, after, visible):
                            del left[waiter]
                            waiter.set_result(True)
                    if left:
                        await asyncio.sleep(next(pauses))
        except (TimeoutError, QuotaError):
            pass
        except Exception:  # whatever it is, the change was applied, and the caller must learn it
            logger.exception("whether a change is readable was not found out")
        finally:
            for waiter in left:
                waiter.set_result(False)

    async def until_readable(
        self, after: Quotas, *, within_s: float, brokers: Sequence[int | None] = (None,)
    ) -> bool:
        """Wait until each of the brokers shows these values; tell whether they all did."""
        visible = True
        try:
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
                for broker in brokers:
                    group.create_task(self._visible_through(after, broker))
        except* (TimeoutError, QuotaError):
            visible = False
        return visible

    async def _visible_through(self, after: Quotas, broker_id: int | None) -> None:
        waiting = after
        pauses = _pauses()
        while True:
            visible = await self.read(tuple(waiting), broker_id)
            waiting = await off_loop(len(waiting), _not_visible, waiting, visible)
            if not waiting:
                return
            await asyncio.sleep(next(pauses))


def _of_these(
    quotas: Quotas, wanted: Iterable[ClientQuotaEntity]
) -> dict[ClientQuotaEntity, Values]:
    return {entity: quotas[entity] for entity in wanted if entity in quotas}


def _not_visible(expected: Quotas, visible: Quotas) -> Quotas:
    """Return those of the expected values that a broker does not return yet."""
    return {
        entity: values
        for entity, values in expected.items()
        if not same_values(visible.get(entity, {}), values)
    }


def _pauses() -> Iterator[float]:
    """Yield the seconds between looks, longer and longer."""
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def _describable(entity: ClientQuotaEntity) -> bool:
    """Tell whether a broker accepts a filter of exactly this entity."""
    return bool(entity.entries) and not filter_violations(ClientQuotaFilter.of(entity))


def _storable(entity: ClientQuotaEntity) -> bool:
    """Tell whether a broker can hold the entity: only then is there something to ask for."""
    try:
        names = [(name or "").encode() for _, name in entity.entries]
    except UnicodeEncodeError:
        return False
    return all(len(name) <= LONGEST_STORED_NAME_BYTES for name in names)


class BarrierRead(NamedTuple):
    """Values that are at least as new as the barrier.

    Attributes:
        values: By entity; one without any is left out.
        quorum: As it was when the barrier was set; null where none can be set, so that the values
            may be stale.
    """

    values: Quotas
    quorum: QuorumState | None


class Seen(NamedTuple):
    """What a broker showed before a barrier was set.

    Attributes:
        published: The offset that it had published before: the values are at least that new.
        values: By entity, as ``BarrierRead.values``.
    """

    published: int
    values: Quotas


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A read that has begun ahead of its barrier.

    Attributes:
        entities: What is read.
        beside: As of ``CurrentValues.read``.
        broker_id: Through which broker.
        seeing: What comes of it; null where it failed, or would hardly have held.
    """

    entities: Collection[ClientQuotaEntity]
    beside: Collection[ClientQuotaFilter]
    broker_id: int
    seeing: "asyncio.Task[Seen | None]"


class Barrier:
    """Reads behind a barrier: once the broker has published all that was committed.

    A look ahead of it saves the read behind it, where it then turns out that nothing more was
    committed than the broker had published before the look. Where one has not held, the next ones
    see nothing, until a broker is found to keep up.

    Args:
        quorum: Tells what is committed, and what a broker has published.
        present: Reads; its deadline is that of the barrier.
    """

    def __init__(self, quorum: MetadataQuorum, present: CurrentValues) -> None:
        self.present = present
        self.deadline = present.deadline
        self._quorum = quorum
        self._keeps_up = True

    def look(
        self,
        entities: Collection[ClientQuotaEntity],
        beside: Collection[ClientQuotaFilter] = (),
        *,
        broker_id: int,
    ) -> Look:
        """Begin to read, for a barrier to come; whoever needs none cancels ``seeing``."""
        seeing = asyncio.create_task(self._see(entities, beside, broker_id))
        return Look(entities, beside, broker_id, seeing)

    async def read(
        self,
        entities: Collection[ClientQuotaEntity],
        *,
        broker_id: int,
        within_s: float | None = None,
    ) -> BarrierRead:
        """Read through the broker what holds at least since now; see ``read_behind``."""
        return await self.read_behind(self.look(entities, broker_id=broker_id), within_s=within_s)

    async def read_behind(
        self,
        look: Look,
        *,
        acknowledged: Callable[[], Awaitable[Quotas]] | None = None,
        within_s: float | None = None,
    ) -> BarrierRead:
        """Return what holds at least since now: what the look has seen, or what is read now.

        Args:
            look: What is read, through which broker.
            acknowledged: Returns what was last acknowledged; where no barrier can be set, the read
                waits until the broker shows it, and goes on without in the end: it is not verified.
            within_s: How long it may all take, in seconds; null is what the deadline says now.

        Raises:
            NotSentError: The barrier was not passed, or the values not read, in time.
        """
        within_s = self.deadline.seconds if within_s is None else within_s
        pass_s = min(within_s, self.deadline.seconds)
        began, is_silent = time.monotonic(), True
        broker_id, state = look.broker_id, None
        try:
            async with asyncio.timeout(within_s):
                try:
                    async with asyncio.timeout(pass_s):
                        state = await self._quorum.quorum(broker_id=broker_id, timeout_s=pass_s)
                        is_silent = False
                        if (seen := await look.seeing) and _has_published(seen.published, state):
                            self.deadline.note(time.monotonic() - began)
                            return BarrierRead(seen.values, state)
                        self._keeps_up = self._keeps_up and not seen
                        await self._catch_up(broker_id, state, pass_s, began)
                except BarrierUnavailableError:
                    state, is_silent, self._keeps_up = None, False, False
                    if acknowledged:
                        await self.present.until_readable(
                            await acknowledged(), within_s=within_s / 2, brokers=(broker_id,)
                        )
                values = await self.present.read(look.entities, broker_id, beside=look.beside)
        except TimeoutError:
            if is_silent:
                detail = f"Broker {broker_id} did not answer within {pass_s:.3g} s."
                raise NotSentError(detail, code="cluster-unreachable") from None
            detail = f"Broker {broker_id} did not catch up within {within_s:.3g} s."
            raise NotSentError(detail) from None
        finally:
            look.seeing.cancel()
        return BarrierRead(values, state)

    async def _see(
        self,
        entities: Collection[ClientQuotaEntity],
        beside: Collection[ClientQuotaFilter],
        broker_id: int,
    ) -> Seen | None:
        if not self._keeps_up:
            return None
        try:
            published = await self._quorum.published_offset(
                broker_id=broker_id, timeout_s=self.deadline.seconds
            )
            return Seen(published, await self.present.read(entities, broker_id, beside=beside))
        except (QuotaError, BarrierUnavailableError):
            return None

    async def _catch_up(
        self, broker_id: int, state: QuorumState, within_s: float, began: float
    ) -> None:
        """Wait until the broker has published all that was committed.

        What the barrier takes counts also where it is not passed in time; the read behind it does
        not, which counts by itself.
        """
        try:
            for number, pause in enumerate(_pauses()):
                published = await self._quorum.published_offset(
                    broker_id=broker_id, timeout_s=within_s
                )
                if _has_published(published, state):
                    self._keeps_up = number == 0
                    return
                await asyncio.sleep(pause)
        finally:
            self.deadline.note(time.monotonic() - began)


def _has_published(published: int, state: QuorumState) -> bool:
    """Tell whether a broker that has published up to an offset shows all that is committed."""
    return published >= state.high_watermark - 1
