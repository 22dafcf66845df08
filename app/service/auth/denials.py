"""Refused callers in the log: bounded rows, whatever is asked for and however often.

Neither who may not nor who presents bad credentials by the thousand may fill a log that nobody can
delete from. The first denied attempt has a row at once, and further attempts are added up by
minute: a principal, action and address have at most two rows for a minute. Refused credentials are
counted exactly and stored for each minute and network, never singly.
"""

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

from app.domain.alterations import AlterationResult, ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import ClusterAuthorizationError, NotSentError
from app.service.ports.audit_log import AuditJournal, AuditRequest
from app.service.ports.metrics import AlterationMetrics
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

    request: AuditRequest
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

        The refusal stands even if that fails.
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
        request = _audit_request(replace(caller, host=source.address), refusal, attempt)
        self._addresses[source.principal] += 1
        self._further[source] = _Further(request)
        change = await attempt.read() if attempt.read else NOTHING_READ
        first = None if change.entities is None else [entity.as_dict() for entity in change.first]
        await self._append(request, 1, change.entities, first, change.reason)

    async def run(self) -> None:
        """Write what was counted soon after the end of each minute, until cancelled."""
        what = "writing denied attempts"
        await run_forever(what, self._write_past_minute, pause_s=_PAUSE_S, logger=logger)

    async def write(self) -> None:
        """Write a row for each source that made further attempts, and begin anew."""
        further, self._further = self._further, {}
        unrecorded, self._unrecorded = self._unrecorded, 0
        self._minute = self._present_minute()
        self._addresses.clear()
        for each in further.values():
            if each.number:
                await self._append(each.request, each.number)
        if unrecorded:
            logger.warning("%d denied attempts of further principals have no row", unrecorded)

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
        request: AuditRequest,
        attempts: int,
        entities: int | None = None,
        first: Sequence[Mapping[str, str | None]] | None = None,
        reason: str | None = None,
    ) -> None:
        denied = {"entities": entities, "first": first, "attempts": attempts}
        error = KafkaRefusal(request.decision["kafka_error"], request.decision["detail"])
        try:
            row = replace(
                request,
                alteration_id=new_alteration_id(),
                cluster_id=await self._cluster_id(),
                reason=reason,
                decision={**request.decision, "denied": denied},
            )
            refused = AlterationResult(_NO_ENTITY, Outcome.REFUSED, error=error)
            await self._journal.record_final(row, {0: refused})
        except NotSentError as failure:
            logger.warning("a denied attempt could not be recorded: %s", failure.detail)


def _audit_request(
    caller: Caller, refusal: ClusterAuthorizationError, attempt: DeniedAttempt
) -> AuditRequest:
    return AuditRequest(
        alteration_id="",
        cluster_id="",
        caller=caller,
        action="denied",
        request_id=attempt.request_id,
        entities=(),
        decision={
            **attempt.evidence,
            "code": refusal.code,
            "kafka_error": refusal.kafka_error,
            "detail": refusal.detail,
            "route": attempt.action,
        },
    )


MAX_SOURCES: Final = 10_000
"""So many networks are counted apart in a minute; the others are counted together."""

MAX_WAITING: Final = 50_000
"""So many rows wait for Postgres one by one; then those of a minute are added up."""

ROWS_AT_ONCE: Final = 1_000

_PREFIX_BITS: Final = {4: 24, 6: 64}
_MINUTE_S: Final = 60.0
_STAGE: Final = "authentication_failures"


@dataclass(frozen=True, slots=True)
class FailureCount:
    """What one process counted in one minute.

    Attributes:
        row_id: Chosen once, so that a write whose commit is in doubt can be repeated.
        minute: Its beginning, UTC.
        source: The network as ``203.0.113.0/24``; null where it is uncertain or not counted apart.
        method: The kind of credential; ``none`` where none was presented.
    """

    row_id: str
    minute: datetime
    source: str | None
    method: str
    reason: str
    number: int


RecordFailures = Callable[[Sequence[FailureCount]], Awaitable[None]]
"""Keeps counts, each once however often it comes; after a ``NotSentError`` they may not be stored
and can be passed again."""


def source_of(address: str) -> str | None:
    """Return the /24 of an IPv4 address or the /64 of an IPv6 one; null where it is neither."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return str(ipaddress.ip_network((parsed, _PREFIX_BITS[parsed.version]), strict=False))


class AuthenticationFailures:
    """Counts in bounded memory."""

    def __init__(self, *, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        self._counts: Counter[tuple[datetime, str | None, str, str]] = Counter()
        self._sources: set[str] = set()
        self._minute: datetime | None = None

    def count(self, address: str, method: str, reason: str) -> None:
        """Note a refused credential."""
        minute = self._now().replace(second=0, microsecond=0)
        if minute != self._minute:
            self._minute, self._sources = minute, set()
        source = source_of(address)
        if source is not None and source not in self._sources:
            if len(self._sources) < MAX_SOURCES:
                self._sources.add(source)
            else:
                source = None
        self._counts[minute, source, method, reason] += 1

    def take(self, *, with_present: bool = False) -> list[FailureCount]:
        """Return the counts of minutes that are over, once; of the present one too if asked."""
        present = self._now().replace(second=0, microsecond=0)
        over = [key for key in self._counts if with_present or key[0] != present]
        return [FailureCount(str(uuid4()), *key, self._counts.pop(key)) for key in over]


@dataclass(eq=False)
class FailureWriter:
    """Writes what was counted, once a minute and at the end."""

    failures: AuthenticationFailures
    record: RecordFailures
    metrics: AlterationMetrics
    _waiting: list[FailureCount] = field(default_factory=list, init=False)

    async def run(self) -> None:
        """Write each minute's counts soon after its end, until cancelled."""
        while True:
            await asyncio.sleep(_MINUTE_S - utc_now().timestamp() % _MINUTE_S)
            try:
                await self.write()
            except Exception:  # the outermost boundary of this task, which must not end
                self.metrics.audit_write_failed(_STAGE)
                logger.exception("counts of refused credentials wait")

    async def write(self, *, with_present: bool = False) -> bool:
        """Write what is over; tell whether nothing is left waiting.

        The first rows may have been written, their commit in doubt: they are repeated unchanged.
        """
        self._waiting += self.failures.take(with_present=with_present)
        try:
            while self._waiting:
                await self.record(self._waiting[:ROWS_AT_ONCE])
                del self._waiting[:ROWS_AT_ONCE]
        except NotSentError as error:
            self.metrics.audit_write_failed(_STAGE)
            logger.warning("counts of refused credentials wait for Postgres: %s", error.detail)
            if len(self._waiting) > MAX_WAITING:
                self._waiting[ROWS_AT_ONCE:] = _add_up(self._waiting[ROWS_AT_ONCE:])
            return False
        return True

    async def close(self) -> None:
        """Write everything, or say in the log what is lost."""
        if not await self.write(with_present=True):
            lost = sum(count.number for count in self._waiting)
            logger.error("%d refused credentials were counted and could not be recorded", lost)


def _add_up(counts: Iterable[FailureCount]) -> list[FailureCount]:
    """Return the counts without their sources: fewer rows, the same numbers for each minute."""
    sums: dict[tuple[datetime, str, str], FailureCount] = {}
    for count in counts:
        key = (count.minute, count.method, count.reason)
        sum_so_far = sums.get(key)
        number = count.number + (sum_so_far.number if sum_so_far else 0)
        sums[key] = replace(sum_so_far or count, source=None, number=number)
    return list(sums.values())
