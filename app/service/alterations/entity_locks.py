"""One alteration in flight for each entity: a queue in this process, a durable lock in the log."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from app.domain.entities import ClientQuotaEntity
from app.domain.errors import EntityBusyError, Retry
from app.service.alterations.context import Failpoints
from app.service.ports.audit_log import AuditJournal, CommittedIntent, Intent
from app.service.runtime.clock import USUAL, boot_time

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.25

_SOON_S: Final = 1.0
"""What the log says of an entity whose holder is at work: it may be free at any time."""


class EntityLocks:
    """Locks are taken for all entities of a request or for none, so nobody waits in a circle.

    Args:
        wait_s: How long an alteration waits for another one of the same entity, in seconds.
    """

    def __init__(self, wait_s: float = USUAL.entity_wait_s) -> None:
        self._wait_s = wait_s
        self._held: dict[ClientQuotaEntity, str] = {}
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def hold(
        self, entities: Iterable[ClientQuotaEntity], alteration_id: str
    ) -> AsyncIterator[float]:
        """Hold the entities in this process; yield the deadline of the waiting.

        Raises:
            EntityBusyError: Another alteration of this process holds one of them for too long.
        """
        wanted = tuple(entities)
        deadline = time.monotonic() + self._wait_s
        await self._take(wanted, alteration_id, deadline)
        try:
            yield deadline
        finally:
            for entity in wanted:
                del self._held[entity]
            self._freed.set()
            self._freed = asyncio.Event()

    async def _take(
        self, wanted: tuple[ClientQuotaEntity, ...], alteration_id: str, deadline: float
    ) -> None:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                while self._taken(wanted) is not None:
                    await self._freed.wait()
        except TimeoutError:
            taken = self._taken(wanted)
            if taken is not None:  # it may have been freed just now
                raise self._busy(taken) from None
        self._held.update(dict.fromkeys(wanted, alteration_id))

    def _taken(self, wanted: Iterable[ClientQuotaEntity]) -> ClientQuotaEntity | None:
        return next((one for one in wanted if one in self._held), None)

    def _busy(self, entity: ClientQuotaEntity) -> EntityBusyError:
        return EntityBusyError(
            f"Another alteration ({self._held[entity]}) of {entity} is in "
            "flight; nothing was sent. Try again when it is done.",
            retry=Retry.SAFE,
            retry_after_s=1,
        )


async def commit_intent(
    journal: AuditJournal, intent: Intent, deadline: float, failpoints: Failpoints
) -> CommittedIntent:
    """Commit an intent with its durable locks, waiting for other processes until the deadline.

    Its ``began`` is taken before each transaction: the database, which adds the same
    ``send_within_s``, takes its own time later.

    Raises:
        EntityBusyError: Another alteration holds a lock until the deadline, or for longer by what
            the log says: then nobody waits.
        KeyTakenError: The idempotency key was used before.
        NotSentError: Postgres does not do it.
    """
    pause = _FIRST_PAUSE_S
    while True:
        try:
            intent = replace(intent, began=boot_time())
            failpoints.reach("intent_begun")
            return await journal.record_intent(intent)
        except EntityBusyError as error:
            held_for_s = error.retry_after_s or 0
            if time.monotonic() + (held_for_s if held_for_s > _SOON_S else pause) > deadline:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret
        pause = min(pause * 2, _LONGEST_PAUSE_S)
