"""What really happened: the records that the controller wrote, whatever anybody was told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from app.domain.entities import ClientQuotaEntity
from tests.support.history import Write, wall_clock


class LogRecord(NamedTuple):
    """One client-quota record; a value of null is a removal."""

    at: datetime
    write: Write


@dataclass(frozen=True, slots=True)
class Oracle:
    """The metadata log.

    Attributes:
        records: In the order of the log.
        uncertainty: So much later than its time a record may have been written.
    """

    records: Sequence[LogRecord]
    uncertainty: timedelta = timedelta(0)

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
    records = [
        LogRecord(wall_clock(one.at), Write(one.entity, one.key, one.value)) for one in applied
    ]
    return Oracle(records, timedelta(milliseconds=1))
