"""Refused credentials: counted exactly, stored for each minute and network, never singly.

Whoever presents bad credentials by the thousand must not be able to fill the log with rows.
"""

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import uuid4

from app.domain.errors import NotSentError
from app.service.ports.metrics import AlterationMetrics
from app.service.runtime.clock import utc_now

logger = logging.getLogger(__name__)

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


class FailureWriter:
    """Writes what was counted, once a minute and at the end."""

    def __init__(
        self, failures: AuthenticationFailures, record: RecordFailures, metrics: AlterationMetrics
    ) -> None:
        self._failures = failures
        self._record = record
        self._metrics = metrics
        self._waiting: list[FailureCount] = []
        self._begun: list[FailureCount] = []

    async def run(self) -> None:
        """Write each minute's counts soon after its end, until cancelled."""
        while True:
            await asyncio.sleep(_MINUTE_S - utc_now().timestamp() % _MINUTE_S)
            try:
                await self.write()
            except Exception:  # the outermost boundary of this task, which must not end
                self._metrics.audit_write_failed(_STAGE)
                logger.exception("counts of refused credentials wait")

    async def write(self, *, with_present: bool = False) -> bool:
        """Write what is over; tell whether nothing is left waiting."""
        self._waiting += self._failures.take(with_present=with_present)
        try:
            while self._begun or self._waiting:
                await self._write_some()
        except NotSentError as error:
            self._metrics.audit_write_failed(_STAGE)
            logger.warning("counts of refused credentials wait for Postgres: %s", error.detail)
            if len(self._waiting) > MAX_WAITING:
                self._waiting = _add_up(self._waiting)
            return False
        return True

    async def close(self) -> None:
        """Write everything, or say in the log what is lost."""
        if not await self.write(with_present=True):
            lost = sum(count.number for count in (*self._begun, *self._waiting))
            logger.error("%d refused credentials were counted and could not be recorded", lost)

    async def _write_some(self) -> None:
        """Write some; what was begun is repeated unchanged, since its commit may be in doubt."""
        if not self._begun:
            self._begun, self._waiting = (
                self._waiting[:ROWS_AT_ONCE],
                self._waiting[ROWS_AT_ONCE:],
            )
        await self._record(self._begun)
        self._begun = []


def _add_up(counts: Iterable[FailureCount]) -> list[FailureCount]:
    """Return the counts without their sources: fewer rows, the same numbers for each minute."""
    sums: dict[tuple[datetime, str, str], FailureCount] = {}
    for count in counts:
        key = (count.minute, count.method, count.reason)
        sum_so_far = sums.get(key)
        number = count.number + (sum_so_far.number if sum_so_far else 0)
        sums[key] = replace(sum_so_far or count, source=None, number=number)
    return list(sums.values())
