"""One alteration in flight for each entity: a queue in this process, a durable slot in the log."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, Retry
from app.service.audit_records import AuditRequest
from app.service.journal_ports import AuditJournal, Claim, Intent
from app.service.patience import USUAL

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25


class EntitySlots:
    """Slots are taken for all entities of a request or for none, so nobody waits in a circle.

    Args:
        wait_s: How long an alteration waits for another one of the same entity, in seconds.
    """

    def __init__(self, wait_s: float = USUAL.entity_wait_s) -> None:
        self._wait_s = wait_s
        self._held: dict[ClientQuotaEntity, str] = {}
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def hold(
        self, entities: Iterable[ClientQuotaEntity], alteration_id: str
    ) -> AsyncIterator[float]:
        """Hold the places of the entities in this process; yield the deadline of the waiting.

        Raises:
            EntityBusyError: Another alteration of this process holds one of them for too long.
        """
        wanted = tuple(entities)
        deadline = time.monotonic() + self._wait_s
        await self._take(wanted, alteration_id, deadline)
        try:
            yield deadline
        finally:
            async with self._freed:
                for entity in wanted:
                    del self._held[entity]
                self._freed.notify_all()

    async def _take(
        self, wanted: tuple[ClientQuotaEntity, ...], alteration_id: str, deadline: float
    ) -> None:
        async with self._freed:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._freed.wait_for(lambda: not any(one in self._held for one in wanted))
            except TimeoutError:
                taken = next((one for one in wanted if one in self._held), None)
                if taken is not None:  # it may have been freed at this very moment
                    raise self._busy(taken) from None
            self._held.update(dict.fromkeys(wanted, alteration_id))

    def _busy(self, entity: ClientQuotaEntity) -> EntityBusyError:
        return EntityBusyError(
            f"Another alteration ({self._held[entity]}) of {entity.canonical_json()} is in "
            "flight; nothing was sent. Try again when it is done.",
            retry=Retry.SAFE,
            retry_after_s=1,
        )


async def commit_intent(
    journal: AuditJournal, request: AuditRequest, claim: Claim, deadline: float
) -> tuple[Intent, float]:
    """Commit an intent with its durable slots, waiting for other processes until the deadline.

    Returns:
        What the log gave back, and the monotonic time of the commit; the log reckons with the
        longest that a commit can take.

    Raises:
        EntityBusyError: Another alteration, here or elsewhere, holds a slot until the deadline.
        KeyTakenError: The idempotency key was used before.
        NotSentError: Postgres does not do it.
    """
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return await journal.record_intent(request, claim), time.monotonic()
        except EntityBusyError:
            if time.monotonic() + pause > deadline:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
        pause = min(pause * 2, _LONGEST_PAUSE_S)
