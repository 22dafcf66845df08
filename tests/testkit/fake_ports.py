"""Brokers and an audit log in memory, with the faults that the real ones cannot be made to show.

The contract tests run the real adapters; here the question is what the use cases do with answers.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    KafkaRefusal,
    Outcome,
    Quotas,
    Values,
    apply_ops,
)
from app.domain.authorization import Operation
from app.domain.entities import ALL_ENTITIES, Caller, ClientQuotaEntity, ClientQuotaFilter
from app.domain.errors import EntityBusyError, NotFoundError, NotSentError
from app.domain.expiry import TemporaryValue
from app.domain.plan_impact import BucketName, PublishedBucket
from app.domain.plans import Holding, Holdings
from app.metrics import AlterationMetrics
from app.service.alterations.alter import AlterQuotas
from app.service.alterations.barrier import Barrier, CurrentValues
from app.service.alterations.pipeline import AlterPipeline
from app.service.alterations.write_ahead import EntityLocks, OutcomeWriter
from app.service.auth.actors import Actor
from app.service.auth.authorize import Access
from app.service.ports.alterations import Alteration, AlterationRecord, Conclusion
from app.service.ports.audit_log import (
    AuditPage,
    AuditQuery,
    AuditRow,
    KeyTakenError,
    OpenAlteration,
    OpenIntents,
    Recovered,
    RecoveryKey,
    StoredKey,
)
from app.service.ports.brokers import (
    BarrierUnavailableError,
    Described,
    Handover,
    QuorumState,
    QuotaChanges,
    ScramCredential,
    ScramUsers,
    Verdict,
)
from app.service.ports.events import (
    BEGINNING,
    EventPage,
    LoggedEvent,
    LogPosition,
    end_of,
)
from app.service.ports.plans import StoredPlan
from app.service.ports.temporary import Asked, Pending
from app.service.queries.analytics import (
    AnalyticsPage,
    AnalyticsQuery,
    BucketUsage,
    Result,
    Row,
)
from app.service.queries.callbacks import NO_CALLBACK, CallbackInUse
from app.service.queries.resolve import IndexedImage, QuotaImage
from app.service.queries.temporary import TemporaryImage
from app.service.runtime.tasks import AlterationTasks

Verdicts = Mapping[ClientQuotaEntity, Verdict]
Fault = Callable[[Sequence[ClientQuotaAlteration], bool], Verdicts | None]

EPOCH = datetime(2026, 11, 21, tzinfo=UTC)


def refused(kafka_error: str, message: str = "no", throttle_time_ms: int = 0) -> Verdict:
    return Verdict(Outcome.REFUSED, KafkaRefusal(kafka_error, message), throttle_time_ms)


class FakeBrokers:
    """Applies what it is sent, unless ``fault`` answers first.

    ``log`` lists what happened, in order, together with the journal's own events.
    """

    def __init__(self, log: list[str], cluster: str = "fake") -> None:
        self.log = log
        self.cluster = cluster
        self.quotas: dict[ClientQuotaEntity, dict[str, float]] = {}
        self.fault: Fault | None = None
        self.reachable = True
        self.gate: asyncio.Event | None = None
        self.stale_reads = 0
        self.permits_quorum = True
        self.all_fenced = False
        self.leader_epoch = 1
        self.committed = 9
        self._visible: dict[ClientQuotaEntity, dict[str, float]] = {}

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float = 5.0,
    ) -> Described:
        """Describe; ``stale_reads`` answers show the state before the last change."""
        self._check_reachable()
        if self.stale_reads:
            self.stale_reads -= 1
        else:
            self._visible = {entity: dict(values) for entity, values in self.quotas.items()}
        matching = {
            key: values for key, values in self._visible.items() if quota_filter.matches(key)
        }
        return Described(matching, EPOCH, self.cluster, broker_id or 1)

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float = 15.0,
        send_by: float | None = None,
    ) -> Handover:
        """Alter; a fault may answer instead, or apply nothing by leaving entities out."""
        self._check_reachable()
        self.log.append("validate" if validate_only else "send")
        if self.gate is not None and not validate_only:
            await self.gate.wait()
        verdicts = dict(self.fault(alterations, validate_only) or {}) if self.fault else {}
        for alteration in alterations:
            if alteration.entity in verdicts:
                continue
            outcome = Outcome.VALIDATED if validate_only else Outcome.APPLIED
            verdicts[alteration.entity] = Verdict(outcome)
            if not validate_only:
                before = self.quotas.get(alteration.entity, {})
                self.quotas[alteration.entity] = apply_ops(before, alteration.ops)
        return Handover(verdicts, 1, EPOCH, EPOCH)

    async def live_brokers(self, *, timeout_s: float = 5.0) -> Sequence[int]:
        """Return two brokers, unless they are not to be found."""
        self._check_reachable()
        if self.all_fenced:
            raise NotSentError("The cluster has no live broker.", code="cluster-unreachable")
        return (1, 2)

    async def preferred_broker(self, *, timeout_s: float = 5.0) -> int:
        self._check_reachable()
        return 1

    async def quorum(self, *, broker_id: int | None = None, timeout_s: float = 2.0) -> QuorumState:
        """Return a quorum in which every broker has seen everything."""
        self._check_reachable()
        self.log.append("quorum")
        if not self.permits_quorum:
            raise BarrierUnavailableError
        self.stale_reads = 0
        return QuorumState(self.leader_epoch, self.committed + 1)

    async def published_offset(self, *, broker_id: int | None, timeout_s: float) -> int:
        """Return the last committed offset, or one before it while reads are stale."""
        self._check_reachable()
        return self.committed - 1 if self.stale_reads else self.committed

    async def cluster_id(self, *, timeout_s: float = 5.0) -> str:
        return self.cluster

    def check_cluster(self) -> None:
        """It is the cluster."""

    def _check_reachable(self) -> None:
        if not self.reachable:
            raise NotSentError("No broker answers.", code="cluster-unreachable")


async def no_callback() -> CallbackInUse:
    """Answer as brokers without ``client.quota.callback.class``."""
    return NO_CALLBACK


class FakeImage(QuotaImage):
    """Describes anew at each call; notes what was made of changes."""

    def __init__(self, brokers: FakeBrokers) -> None:
        super().__init__(brokers, no_callback)
        self.forgotten = 0
        self.noted: list[Quotas] = []

    async def image(self, *, max_age_ms: int) -> Described:
        return await super().image(max_age_ms=0)

    async def indexed(self, *, max_age_ms: int) -> IndexedImage:
        return await self.index_of(await self.now())

    async def note(self, after: Quotas) -> None:
        self.noted.append(after)

    def forget(self) -> None:
        self.forgotten += 1


class FakeEventLog:
    """A log of events, a hundred on each page."""

    def __init__(self) -> None:
        self.events: list[LoggedEvent] = []

    def add(self, *rows: AuditRow, document: bytes = b"{}") -> None:
        """Add the outcome of each row."""
        for row in rows:
            position, now = LogPosition(len(self.events) + 1, 0), datetime.now(UTC)
            self.events.append(LoggedEvent(position, "outcome", 1, now, row, document))

    async def settled(self) -> LogPosition:
        return end_of(len(self.events))

    async def page(self, cluster_id: str, after: LogPosition, up_to: LogPosition) -> EventPage:
        found = [event for event in self.events if after < event.position <= up_to][:100]
        return EventPage(found, found[-1].position if len(found) == 100 else up_to)

    async def position_of(self, cluster_id: str, event_id: str) -> LogPosition | None:
        return next((event.position for event in self.events if event.id == event_id), None)

    async def position_at(self, cluster_id: str, since: datetime) -> LogPosition:
        return BEGINNING


class FakeJournal:
    """Keeps what is recorded; ``broken`` names the methods that fail."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.broken: set[str] = set()
        self.intents: list[Alteration] = []
        self.conclusions: list[Conclusion] = []
        self.finals: list[tuple[Alteration, Mapping[int, AlterationResult]]] = []
        self.locks: dict[ClientQuotaEntity, str] = {}
        self.held_for_s = 1.0
        self.keys: dict[bytes, StoredKey] = {}
        self.applied: dict[ClientQuotaEntity, Values] = {}
        self.open: list[OpenAlteration] = []
        self.recovered: list[Recovered] = []
        self.concluded: set[RecoveryKey] = set()

    async def record_intents(self, intents: Sequence[Alteration]) -> Sequence[Exception | None]:
        """Keep intents with their locks and their keys."""
        answers = await asyncio.gather(*map(self.record_intent, intents), return_exceptions=True)
        return [answer if isinstance(answer, Exception) else None for answer in answers]

    async def record_intent(self, intent: Alteration) -> None:
        """Keep one of them."""
        self._do("record_intent")
        key, key_hash = intent.key, intent.key_hash
        if key_hash is not None and key_hash in self.keys:
            raise KeyTakenError(self.keys[key_hash])
        free = (None, intent.supersedes)
        entities = [change.entity for change in intent.changes]
        taken = [entity for entity in entities if self.locks.get(entity) not in free]
        if taken:
            holder = self.locks[taken[0]]
            raise EntityBusyError("Busy.", alteration_id=holder, retry_after_s=self.held_for_s)
        self.locks |= dict.fromkeys(entities, intent.alteration_id)
        if key is not None and key_hash is not None:
            self.keys[key_hash] = StoredKey(intent.alteration_id, key.fingerprint)
        self.intents.append(intent)

    async def record_returns(self, intents: Sequence[Alteration]) -> None:
        self._do("record_returns")

    async def recent_values(self, intent: Alteration) -> Quotas:
        return {entity: self.applied[entity] for entity in intent.locked if entity in self.applied}

    async def stored_key(self, key_hash: bytes) -> StoredKey | None:
        self._do("stored_key")
        return self.keys.get(key_hash)

    async def record_conclusions(
        self, conclusions: Sequence[Conclusion]
    ) -> Sequence[Exception | None]:
        """Keep conclusions; free the locks of what is certain."""
        answers = await asyncio.gather(
            *map(self.record_conclusion, conclusions), return_exceptions=True
        )
        return [answer if isinstance(answer, Exception) else None for answer in answers]

    async def record_conclusion(self, conclusion: Conclusion) -> None:
        """Keep one of them."""
        self._do("record_conclusion")
        self.conclusions.append(conclusion)
        for result in conclusion.results.values():
            if result.outcome is not Outcome.UNKNOWN:
                self.locks.pop(result.entity, None)
            if result.outcome is Outcome.APPLIED:
                self.applied[result.entity] = result.after or {}
        outcomes = {item.outcome for item in conclusion.results.values()}
        if conclusion.is_repeatable or outcomes == {Outcome.NOT_SENT}:
            freed = conclusion.alteration_id
            self.keys = {
                key: stored for key, stored in self.keys.items() if stored.alteration_id != freed
            }

    async def beat(self, cluster_id: str, owner: str) -> None:
        self._do("beat")

    async def claim_open(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[OpenAlteration]:
        self._do("claim_open")
        claimed, self.open = self.open[:limit], self.open[limit:]
        return claimed

    async def give_back(self, cluster_id: str, owner: str) -> None:
        """Do nothing: each claim is handed out once."""

    async def open_intents(self, cluster_id: str) -> OpenIntents:
        return OpenIntents(len(self.open), 0.0, len(self.open))

    async def record_recovery(self, recovered: Sequence[Recovered]) -> Mapping[RecoveryKey, str]:
        """Keep what recovery found; ``concluded`` is left as it is."""
        self._do("record_recovery")
        left = {item.key: "concluded" for item in recovered if item.key in self.concluded}
        self.recovered += [item for item in recovered if item.key not in left]
        return left

    async def record_final(
        self, request: Alteration, results: Mapping[int, AlterationResult]
    ) -> datetime:
        self._do("record_final")
        self.finals.append((request, results))
        return EPOCH

    async def alteration(self, alteration_id: str) -> AlterationRecord | None:
        self._do("alteration")
        for request in self.intents:
            if request.alteration_id == alteration_id:
                return self._record(request)
        return None

    def _record(self, request: Alteration) -> AlterationRecord:
        results: dict[int, AlterationResult] = {}
        history: list[tuple[datetime, str, str]] = []
        for conclusion in self.conclusions:
            if conclusion.alteration_id == request.alteration_id:
                results |= {**conclusion.rejected, **conclusion.results}
                refusals = {**request.local_refusals, **conclusion.rejected}
                request = replace(request, local_refusals=refusals)
                history += conclusion.events
        return AlterationRecord(
            request, dict(sorted(results.items())), EPOCH, concluded=bool(results), history=history
        )

    async def audit_rows(self, query: AuditQuery) -> AuditPage:
        """Return nothing, and remember the query."""
        self._do("audit_rows")
        self.query = query
        return AuditPage((), None)

    async def check_writable(self) -> None:
        self._do("check_writable")

    def _do(self, name: str) -> None:
        self.log.append(name)
        if name in self.broken:
            raise NotSentError("Postgres is down.", code="audit-log-unavailable")


class FakeTemporary:
    """Keeps temporary values; a test says which, and what is due."""

    def __init__(self) -> None:
        self.held: list[TemporaryValue] = []
        self.due: list[TemporaryValue] = []

    async def claim_due(
        self, cluster_id: str, owner: str, *, limit: int
    ) -> Sequence[TemporaryValue]:
        return self.due[:limit]

    async def pending(self, cluster_id: str) -> Pending:
        return Pending(len(self.held), 0.0, hash(tuple(self.held)))

    async def values(
        self, cluster_id: str, entities: Iterable[ClientQuotaEntity] | None = None
    ) -> Sequence[TemporaryValue]:
        wanted = None if entities is None else set(entities)
        return [value for value in self.held if wanted is None or value.entity in wanted]

    async def change_expiry(
        self, cluster_id: str, alteration_id: str, expires_at: datetime | None, change: Asked
    ) -> Sequence[TemporaryValue]:
        """Change those of an alteration, as the database does."""
        found = [value for value in self.held if value.alteration_id == alteration_id]
        if not found:
            raise NotFoundError("Nothing of it is for a time.")
        self.held = [value for value in self.held if value not in found]
        if expires_at is None:
            return found
        changed = [replace(value, expires_at=expires_at) for value in found]
        self.held += changed
        return changed


class FakePlans:
    """Keeps what is recorded; a test says who holds what."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredPlan] = {}
        self.most = 1_000
        self.held: dict[ClientQuotaEntity, dict[str, Holding]] = {}

    async def holdings(
        self, cluster_id: str, owner: str, entities: Iterable[ClientQuotaEntity]
    ) -> Holdings:
        return self.held

    async def owned(self, cluster_id: str, owners: Collection[str] | None) -> Holdings:
        return {
            entity: keys
            for entity, keys in self.held.items()
            if owners is None or {holding.owner for holding in keys.values()} & set(owners)
        }

    async def keep(self, plan: StoredPlan) -> bool:
        """Keep a plan, unless there are as many as there may be."""
        if len(self.stored) < self.most:
            self.stored[plan.plan_id] = plan
        return plan.plan_id in self.stored

    async def plan(self, cluster_id: str, plan_id: str) -> StoredPlan | None:
        plan = self.stored.get(plan_id)
        return plan if plan is not None and plan.cluster_id == cluster_id else None


async def fake_scram_users() -> ScramUsers:
    """Return that one user has credentials."""
    return ScramUsers({"alice": (ScramCredential("SCRAM-SHA-512", 4096),)}, EPOCH, "cluster")


@dataclass
class FakeAnalytics:
    """Without results; a test may add runs."""

    runs: dict[str, Row] = field(default_factory=dict)
    buckets: list[PublishedBucket] | None = None
    shares: dict[int, float] = field(default_factory=dict)
    down: bool = False

    async def page(self, query: AnalyticsQuery) -> AnalyticsPage:
        rows = [*self.runs.values()] if query.table is Result.RUNS else []
        return AnalyticsPage(None, rows[: query.limit], [], None)

    async def run(self, cluster_id: str, run_id: str) -> Row | None:
        return self.runs.get(run_id)

    async def whatif_run(self, cluster_id: str, run_id: str) -> Row | None:
        return None

    async def usage(
        self, cluster_id: str, buckets: Sequence[BucketName]
    ) -> Mapping[BucketName, BucketUsage]:
        if self.down:
            raise NotSentError("Postgres does not answer.")
        return {}

    async def published_buckets(
        self, cluster_id: str, users: Sequence[tuple[str, str]], keys: Sequence[str]
    ) -> Sequence[PublishedBucket] | None:
        if self.down:
            raise NotSentError("Postgres does not answer.")
        return self.buckets

    async def shares_over(self, cluster_id: str, bins: Mapping[int, int]) -> Mapping[int, float]:
        return self.shares


def alter_pipeline(
    journal: FakeJournal, tasks: AlterationTasks, metrics: AlterationMetrics
) -> AlterPipeline:
    """Return a pipeline in which nothing is broken yet."""
    outcomes = OutcomeWriter(journal, tasks, metrics)
    return AlterPipeline(journal, journal, outcomes, metrics, "test")


def alter_quotas(
    pipeline: AlterPipeline,
    image: QuotaImage,
    temporary: TemporaryImage | None = None,
    **others: Any,
) -> AlterQuotas:
    """Return what alters quotas there; nothing is for a time, unless a test says so."""
    expiries = temporary or TemporaryImage(FakeTemporary(), FakeBrokers([]))
    return AlterQuotas(pipeline, image, expiries, EntityLocks(pipeline.metrics), **others)


CI = Caller("User:ci", "127.0.0.1", "bearer")


class EverybodyMay:
    """Judges that everybody may everything."""

    def is_auditor(self, caller: Caller) -> bool:
        return False

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        return Access({"rule": "allow-acl"})


def fake_actor(
    brokers: FakeBrokers, tasks: AlterationTasks | None = None, caller: Caller = CI, **others: Any
) -> Actor:
    """Return who acts at these brokers; ``others`` are attributes of the actor."""
    return Actor(
        caller,
        **{
            "authorizer": EverybodyMay(),
            "admin": brokers,
            "reader": brokers,
            "describe_now": partial(brokers.describe_client_quotas, ALL_ENTITIES),
            "barrier": Barrier(brokers, CurrentValues(brokers)),
            "tasks": tasks or AlterationTasks(),
            **others,
        },
    )


def changes_between(before: Quotas, after: Quotas) -> QuotaChanges:
    """Return what a decoder reports as changed between two responses."""
    gone = {item: {} for item in before if item not in after}
    new = {key: values for key, values in after.items() if before.get(key) != values}
    return QuotaChanges(before, {**gone, **new})
