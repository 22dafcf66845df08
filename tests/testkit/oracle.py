"""What really happened: the records that the controller wrote, whatever anybody was told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history import Write, wall_clock

_CLOCKS_DIFFER: Final = timedelta(milliseconds=1)


class LogRecord(NamedTuple):
    """One client-quota record; a value of null is a removal.

    Attributes:
        at: Not earlier was it written, and
        latest: not later.
    """

    at: datetime
    write: Write
    latest: datetime


@dataclass(frozen=True, slots=True)
class Oracle:
    """The metadata log.

    Attributes:
        records: In the order of the log.
    """

    records: Sequence[LogRecord]

    def without_first(self, number: int) -> "Oracle":
        """Leave out what an earlier run has written."""
        return replace(self, records=self.records[number:])


class AppliedRecord(Protocol):
    """An entry of the apply log of a fake cluster; ``at`` is by the monotonic clock."""

    @property
    def at(self) -> float: ...
    @property
    def entity(self) -> ClientQuotaEntity: ...
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> float | None: ...


def of_apply_log(applied: Iterable[AppliedRecord]) -> Oracle:
    """Return what a fake cluster applied."""
    return Oracle([_applied(one) for one in applied])


def _applied(one: AppliedRecord) -> LogRecord:
    at = wall_clock(one.at)
    return LogRecord(at, Write(one.entity, one.key, one.value), at + _CLOCKS_DIFFER)
