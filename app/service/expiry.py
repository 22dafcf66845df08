"""The end of temporary values, by the database's clock.

There is one alteration for each that has expired. It runs like any alteration, under the locks of
its entities, and its intent is only written where what it ends is still due. Its conclusion removes
what it ended. So whoever dies at whatever step, it is done once; what another tool has changed
meanwhile is left, and the log says so.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from app.domain.alterations import Outcome
from app.domain.entities import Caller
from app.domain.errors import ExpectationFailedError, QuotaError
from app.domain.expiry import TemporaryValue, by_entity, end_of
from app.metrics import AlterationMetrics
from app.service.alterations.alter import AlterQuotas
from app.service.auth.actors import ActorOf
from app.service.ports.alterations import Alteration, Change, Wait
from app.service.ports.temporary import TemporaryJournal
from app.service.queries.temporary import TemporaryImage
from app.service.runtime.tasks import run_forever

logger = logging.getLogger(__name__)


AT_ONCE: Final = 10_000
"""How many values one round claims: the largest alteration as a whole."""

_PAUSE_S: Final = 1.0
_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 600.0

_DONE: Final = frozenset({Outcome.APPLIED, Outcome.OBSERVED_OTHER, Outcome.UNKNOWN})
"""Outcomes after which nothing is to be tried again, or not by us: recovery finds what is unknown,
and only where that is not applied it is due once more."""


@dataclass(eq=False)
class ExpireQuotas:
    """Ends what is due; every process does it, each with its share.

    Attributes:
        image: What reads show of temporary values; each round follows those of other processes.
        own_account: Who acts, whoever asked for the temporary value.
    """

    alter: AlterQuotas
    journal: TemporaryJournal
    image: TemporaryImage
    own_account: ActorOf
    metrics: AlterationMetrics
    _again_at: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """End what is due until cancelled; what fails is tried again in the next round."""
        what = "a round of expiries"
        await run_forever(what, self.round, pause_s=_PAUSE_S, logger=logger, together=True)

    async def round(self) -> int:
        """End what is due now; return how many alterations were concluded for it.

        While no broker answers nothing is recorded.

        Raises:
            NotSentError: The log or the cluster cannot be reached.
        """
        actor = self.own_account(_SERVICE)
        cluster_id = await actor.admin.cluster_id()
        pending = await self.journal.pending(cluster_id)
        self.metrics.temporary_values(pending.number, pending.late_s)
        await self.image.follow(pending.fingerprint)
        if not pending.late_s:
            return 0
        owner = self.alter.pipeline.owner
        due = await self.journal.claim_due(cluster_id, owner, limit=AT_ONCE)
        wanted = self._to_be_tried(due)
        if not wanted:
            return 0
        await actor.barrier.read((), broker_id=await actor.admin.preferred_broker())
        return sum(await asyncio.gather(*map(self._expire, wanted)))

    def _to_be_tried(self, due: Sequence[TemporaryValue]) -> Collection[Sequence[TemporaryValue]]:
        """Return what is due by alteration, without what was refused a short while ago."""
        groups = defaultdict[str, list[TemporaryValue]](list)
        now = time.monotonic()
        for value in due:
            if self._again_at.get(value.alteration_id, (0.0, 0.0))[0] <= now:
                groups[value.alteration_id].append(value)
        return groups.values()

    async def _expire(self, values: Sequence[TemporaryValue]) -> bool:
        """End what one alteration has set; tell whether that was concluded."""
        expired = values[0].alteration_id
        try:
            conclusion = await self.alter.expire(self.own_account(_SERVICE), _end_of(values))
        except ExpectationFailedError:
            logger.debug("%s is not due any more", expired)
            return False
        except QuotaError as error:
            logger.info("%s is not ended yet: %s", expired, error.detail)
            return False
        except Exception:  # what is wrong with one must not keep the others
            logger.exception("%s is not ended", expired)
            self._put_off(expired)
            return False
        outcomes = {result.outcome for result in conclusion.results.values()}
        if outcomes <= _DONE:
            self._again_at.pop(expired, None)
            logger.info("%s ended by %s", expired, conclusion.alteration_id)
            for warning in chain(*(each.warnings for each in conclusion.results.values())):
                logger.warning("%s: %s", conclusion.alteration_id, warning)
            return True
        logger.warning("%s did not end what %s has set", conclusion.alteration_id, expired)
        self._put_off(expired)
        return False

    def _put_off(self, expired: str) -> None:
        """Try what is refused less and less often: each time the log has rows of it."""
        _, pause_s = self._again_at.get(expired, (0.0, _FIRST_PAUSE_S / 2))
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        self._again_at[expired] = time.monotonic() + pause_s, pause_s


_SERVICE: Final = Caller("service", "unknown", "service")


def _end_of(values: Sequence[TemporaryValue]) -> Alteration:
    """Return the alteration that ends what another one has set, in its principal's name."""
    first = values[0]
    entities = sorted(by_entity(values).items(), key=lambda pair: pair[0].sort_key())
    return Alteration(
        Caller(first.principal, _SERVICE.host, _SERVICE.authentication),
        f"expire-{first.alteration_id}",
        changes=tuple(
            Change(
                entity,
                end_of(of_entity),
                ordinal,
                expected={key: value.value for key, value in of_entity.items()},
            )
            for ordinal, (entity, of_entity) in enumerate(entities)
        ),
        action="expire",
        reason=first.reason,
        evidence={"rule": "expiry"},
        all_or_nothing=False,
        wait=Wait.NONE,
        expires=first.alteration_id,
    )
