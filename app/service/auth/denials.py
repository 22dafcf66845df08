"""Refused callers in the log: few rows, whatever they ask for and however often.

Nobody can delete from the log, so a caller who is refused thousands of times must not fill it. The
first refused request is recorded at once. Those that follow from the same principal and address,
for the same action, are counted, and one row records their number after the end of the minute: two
rows a minute at most. Refused credentials have no row: the line of the request in the process's log
names the address, and a metric counts them.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from app.domain.alterations import AlterationResult, ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import ClusterAuthorizationError, NotSentError
from app.service.ports.alterations import Alteration
from app.service.ports.audit_log import AuditJournal
from app.service.runtime.clock import new_alteration_id, utc_now
from app.service.runtime.tasks import run_forever

logger = logging.getLogger(__name__)

MAX_FIRST_ENTITIES: Final = 20
"""So many entities of a denied request are named in its row."""

MAX_ADDRESSES: Final = 10
"""So many addresses of a principal have rows of their own in a minute."""

MAX_PRINCIPALS: Final = 10_000
"""So many principals have rows in a minute; the attempts of others are counted in the log."""

OTHER_ADDRESSES: Final = "*"
"""The address of a row that adds up the attempts from further addresses."""

_PAUSE_S: Final = 1.0
_NO_ENTITY: Final = ClientQuotaEntity(())


class RequestedChange(NamedTuple):
    """What a denied request asked for.

    Attributes:
        entities: How many; null where the body could not be read or was too large to look at.
        first: The first of them, at most ``MAX_FIRST_ENTITIES``.
    """

    entities: int | None = None
    first: Sequence[ClientQuotaEntity] = ()
    reason: str | None = None


NOTHING_READ: Final = RequestedChange()

ReadChange: TypeAlias = Callable[[], Awaitable[RequestedChange]]


def requested_change(
    alterations: Sequence[ClientQuotaAlteration], reason: str | None
) -> ReadChange:
    """Return what reads a change that is in memory already."""

    async def read() -> RequestedChange:
        first = [alteration.entity for alteration in alterations[:MAX_FIRST_ENTITIES]]
        return RequestedChange(len(alterations), first, reason)

    return read


@dataclass(frozen=True, slots=True)
class DeniedAttempt:
    """One refused request.

    Attributes:
        action: Method and path of the route, without what callers write into it.
        read: Reads what was asked for; called only for an attempt that gets a row of its own. Null
            where nothing is to be read.
    """

    request_id: str
    action: str
    evidence: Mapping[str, Any]
    read: ReadChange | None = None


class _Source(NamedTuple):
    principal: str
    action: str
    address: str


@dataclass(slots=True)
class _Further:
    """The latest of the attempts that have no row of their own yet, and their number."""

    request: Alteration
    number: int = 0


class DeniedAttempts:
    """Writes the rows."""

    def __init__(
        self,
        cluster_id: Callable[[], Awaitable[str]],
        journal: AuditJournal,
        *,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._cluster_id = cluster_id
        self._journal = journal
        self._now = now
        self._minute = self._present_minute()
        self._further: dict[_Source, _Further] = {}
        self._addresses: Counter[str] = Counter()
        self._unrecorded = 0

    async def record(
        self, caller: Caller, refusal: ClusterAuthorizationError, attempt: DeniedAttempt
    ) -> None:
        """Write the first attempt of a minute at once, and count the others.

        The refusal stands even if that fails; the attempt is then counted with the others.
        """
        await self._write_past_minute()
        source = self._source(caller, attempt.action)
        if source is None:
            self._unrecorded += 1
            return
        further = self._further.get(source)
        if further is not None:
            further.number += 1
            further.request = replace(further.request, request_id=attempt.request_id)
            return
        request = _denied(replace(caller, host=source.address), refusal, attempt)
        self._addresses[source.principal] += 1
        further = self._further[source] = _Further(request)
        change = await attempt.read() if attempt.read else NOTHING_READ
        first = None if change.entities is None else [entity.as_dict() for entity in change.first]
        if not await self._append(request, 1, change.entities, first, change.reason):
            further.number += 1

    async def run(self) -> None:
        """Write what was counted soon after the end of each minute, until cancelled."""
        what = "writing denied attempts"
        await run_forever(what, self._write_past_minute, pause_s=_PAUSE_S, logger=logger)

    async def write(self) -> None:
        """Write a row for each source that made further attempts, and begin anew.

        What the log does not take is added to the attempts of the next minute. It may have taken
        it without a word: then some are counted twice, and none is lost.
        """
        further, self._further = self._further, {}
        unrecorded, self._unrecorded = self._unrecorded, 0
        self._minute = self._present_minute()
        self._addresses.clear()
        takes = True
        for source, each in further.items():
            if each.number:
                takes = takes and await self._append(each.request, each.number)
                if not takes:
                    self._add(source, each)
        if unrecorded:
            logger.warning("%d denied attempts of further principals have no row", unrecorded)

    def _add(self, source: _Source, earlier: _Further) -> None:
        if source not in self._further:
            self._addresses[source.principal] += 1
            self._further[source] = _Further(earlier.request)
        self._further[source].number += earlier.number

    async def _write_past_minute(self) -> None:
        if self._minute != self._present_minute():
            await self.write()

    def _present_minute(self) -> datetime:
        return self._now().replace(second=0, microsecond=0)

    def _source(self, caller: Caller, action: str) -> _Source | None:
        """Return what the attempt is counted under; null where there are too many principals."""
        source = _Source(caller.principal, action, caller.host)
        if source in self._further:
            return source
        number = self._addresses[caller.principal]
        if not number and len(self._addresses) > MAX_PRINCIPALS:
            return None
        if number >= MAX_ADDRESSES:
            return source._replace(address=OTHER_ADDRESSES)
        return source

    async def _append(
        self,
        request: Alteration,
        attempts: int,
        entities: int | None = None,
        first: Sequence[Mapping[str, str | None]] | None = None,
        reason: str | None = None,
    ) -> bool:
        """Write a row; tell whether the log has taken it."""
        denied = {"entities": entities, "first": first, "attempts": attempts}
        error = KafkaRefusal(request.evidence["kafka_error"], request.evidence["detail"])
        try:
            row = replace(
                request,
                alteration_id=new_alteration_id(),
                cluster_id=await self._cluster_id(),
                reason=reason,
                evidence={**request.evidence, "denied": denied},
            )
            refused = AlterationResult(_NO_ENTITY, Outcome.REFUSED, error=error)
            await self._journal.record_final(row, {0: refused})
        except NotSentError as failure:
            logger.warning("a denied attempt is not recorded yet: %s", failure.detail)
            return False
        return True


def _denied(
    caller: Caller, refusal: ClusterAuthorizationError, attempt: DeniedAttempt
) -> Alteration:
    return Alteration(
        caller,
        attempt.request_id,
        action="denied",
        evidence={
            **attempt.evidence,
            "code": refusal.code,
            "kafka_error": refusal.kafka_error,
            "detail": refusal.detail,
            "route": attempt.action,
        },
    )
