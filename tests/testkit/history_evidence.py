"""What a run left behind, with an index over it."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from app.domain.entities import ClientQuotaEntity
from tests.testkit.history import Call, Write
from tests.testkit.history_audit import Audit, AuditedEntity
from tests.testkit.oracle import LogRecord, Oracle

Described = Mapping[ClientQuotaEntity, Mapping[str, float]]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Evidence:
    """Everything that is known after a run has come to rest.

    Attributes:
        calls: What the clients saw.
        audit: What the log says.
        oracle: What the cluster did.
        described: What a broker shows at the end.
        documents: What the service shows at the end of each alteration that a client knows.
        outside: What others wrote on purpose.
        bounded: Whether nothing was applied later than the final verdict allows for; otherwise a
            late apply must be in the log as drift.
    """

    calls: Sequence[Call]
    audit: Audit
    oracle: Oracle
    described: Described
    documents: Mapping[str, Mapping[ClientQuotaEntity, str]] = field(default_factory=dict)
    outside: frozenset[Write] = field(default_factory=frozenset)
    bounded: bool = True

    @cached_property
    def records_of(self) -> Mapping[Write, list[LogRecord]]:
        """The records that a write left in the metadata log."""
        return _grouped((record.write, record) for record in self.oracle.records)

    @cached_property
    def records_by_key(self) -> Mapping[tuple[ClientQuotaEntity, str], list[LogRecord]]:
        """The records of one key of one entity, in the order of the log."""
        return _grouped((record.write[:2], record) for record in self.oracle.records)

    @cached_property
    def audited_of(self) -> Mapping[Write, list[AuditedEntity]]:
        """The intents that name a write."""
        return _grouped((write, one) for one in self.audit.entities for write in one.writes)

    @cached_property
    def recorded(self) -> Mapping[tuple[str, Write], list[LogRecord]]:
        """The records that a write of an alteration left, by the alteration's id.

        A request of which nothing was sent may be repeated with its key, and is another alteration
        then: a record is of the last one that was committed when it was written.
        """
        return _grouped(
            ((self._owner_of(record).alteration_id, record.write), record)
            for record in self.oracle.records
            if record.write in self.audited_of
        )

    def _owner_of(self, record: LogRecord) -> AuditedEntity:
        intents = self.audited_of[record.write]
        before = [one for one in intents if one.committed_at <= record.latest]
        return before[-1] if before else intents[0]

    @cached_property
    def calls_of(self) -> Mapping[Write, list[Call]]:
        """The calls that asked for a write."""
        return _grouped((write, call) for call in self.calls for write in call.writes)

    @cached_property
    def audited_by_id(self) -> Mapping[str, list[AuditedEntity]]:
        """The entities of each alteration, by ordinal."""
        return _grouped((one.alteration_id, one) for one in self.audit.entities)


def _grouped(pairs: Iterable[tuple[K, V]]) -> Mapping[K, list[V]]:
    groups: defaultdict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
