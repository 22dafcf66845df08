"""An alteration on its way: what is asked, concluded and recorded; where tests may end it."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Expected,
    KafkaRefusal,
    Outcome,
    Overall,
    Precondition,
    Quotas,
    Values,
    overall_outcome,
)
from app.domain.budgets import Budget, budget_violations
from app.domain.callbacks.callback import IGNORED, CallbackModel, ignored_by
from app.domain.drastic import DRASTIC, drastic_changes
from app.domain.entities import Caller, ClientQuotaEntity
from app.domain.errors import InvalidRequestError, QuotaError, Violation
from app.domain.expiry import broken_returns, keys_changed_since
from app.domain.validation import Judgement, judge, refusal_of
from app.service.ports.brokers import Handover
from app.service.ports.plans import PlanApplication

Confirm = Callable[[Sequence[ClientQuotaAlteration], str | None], Awaitable[Mapping[str, Any]]]
"""Returns the evidence, decided again where it is old; takes what is asked for. See ``Grant``."""


DEFAULT_WAIT_MS: Final = 5_000
"""How long an answer waits for the change to be readable, in milliseconds."""


class Wait(StrEnum):
    """When an alteration answers, once it is acknowledged."""

    READABLE = "readable"
    ALL_BROKERS = "all_brokers"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key as the caller gave it, and the SHA-256 of what is asked, equal as JSON."""

    text: str
    fingerprint: bytes

    def hash_for(self, principal: str, cluster_id: str) -> bytes:
        """Return what the log finds it by: a key belongs to one principal on one cluster."""
        scope = json.dumps([principal, cluster_id, self.text])
        return hashlib.sha256(scope.encode()).digest()


@dataclass(frozen=True, slots=True)
class Change(ClientQuotaAlteration):
    """The operations on one entity, as one of an alteration.

    Attributes:
        ordinal: Its position in the request.
        expected: What must hold now.
        before: What held, read under the entity's lock; null where nobody has, as in every intent.
        warnings: Sentences about its names.
    """

    ordinal: int = 0
    expected: Expected = field(default_factory=dict)
    before: Values | None = None
    warnings: tuple[str, ...] = ()

    @property
    def expected_values(self) -> Mapping[str, float | None]:
        """What must hold now, as it is stored."""
        return {
            key: None if value is None else float(value) for key, value in self.expected.items()
        }


NO_REQUEST: Final = frozenset({"denied", "drift"})
"""Actions of rows that nobody's options belong to: refused before an intent, or not ours."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """Who asks for what, with which options; then its id, what the log claims for it, what held.

    It is made of a request, and each step returns it with more: ``judged``, ``identified``,
    ``begun``, ``confirmed``, ``with_values``.

    Attributes:
        changes: In request order: as proposed; once judged, what may reach the cluster.
        action: ``alter``, ``validate``, ``denied``, ``revert``, ``apply_plan``, ``drift`` or
            ``expire``.
        reason: The caller's own words, or null.
        evidence: How authorization decided: rule, operation, age of the ACLs.
        confirm: Decides again right before the act, where the evidence has become old; null for
            what nobody asked for.
        precondition: Whether an entity's present values are those that the caller has seen; null
            where the caller did not say.
        violations: Broken rules of the request's own fields, found while it was read; once judged,
            those of ``local_refusals``.
        wait_ms: How long to wait for the change to be readable, in milliseconds.
        supersedes: The alteration of unknown outcome whose locks are taken over, or null.
        plan: The plan behind it: its owner will hold the keys that are applied; or null.
        budgets: Those of which it sets a value: it is judged by them. The end of a temporary value
            is not.
        refuses_drastic: Whether the policy lets it lower nothing by much.
        expires_at: When what it sets is to return to what held before, or null.
        expires: The alteration whose values it ends, or null. What its changes expect are the
            values of that one: a key that has another is left.
        left: Results by ordinal of entities of which it leaves every key.
        partly_left: Ordinals of those of which it leaves some.
        local_refusals: Results by ordinal of entities that our own rules refused
            (``all_or_nothing`` false): in the alteration's document, not in the log's rows.
        refused_late: Those of them that were refused behind the barrier, by what is stored: the
            log has rows of these.
        is_unjudged: Whether it keeps the rules only by what was stored when it was read.
        alteration_id: A UUIDv7; its time orders the log.
        broker_id: The broker chosen to send through, or null.
        owner: The process that sends; its heartbeat tells whether it is alive.
        send_within_s: How long after its transaction was begun it may still be handed over.
        send_by: Until when that is at the earliest, by ``boot_time``.
        ready_at: When it was ready for a group, by ``time.monotonic``.
    """

    caller: Caller
    request_id: str
    changes: tuple[Change, ...] = ()
    action: str = "alter"
    reason: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    confirm: Confirm | None = None
    precondition: Precondition | None = None
    violations: tuple[Violation, ...] = ()
    validate_only: bool = False
    all_or_nothing: bool = True
    wait: Wait = Wait.READABLE
    wait_ms: int = DEFAULT_WAIT_MS
    key: IdempotencyKey | None = None
    supersedes: str | None = None
    plan: PlanApplication | None = None
    budgets: tuple[Budget, ...] = ()
    refuses_drastic: bool = False
    expires_at: datetime | None = None
    expires: str | None = None
    left: Mapping[int, AlterationResult] = field(default_factory=dict)
    partly_left: frozenset[int] = frozenset()
    local_refusals: Mapping[int, AlterationResult] = field(default_factory=dict)
    refused_late: frozenset[int] = frozenset()
    is_unjudged: bool = False
    alteration_id: str = ""
    cluster_id: str = ""
    broker_id: int | None = None
    owner: str = ""
    send_within_s: float = 0.0
    send_by: float = 0.0
    ready_at: float = 0.0

    def __hash__(self) -> int:
        """Return that of its id: nothing else of it may be used as a key."""
        return hash(self.alteration_id)

    @property
    def options(self) -> dict[str, Any]:
        """The options as the log has them, the plan among them."""
        if self.action in NO_REQUEST:
            return {}
        options: dict[str, Any] = {
            "validate_only": self.validate_only,
            "all_or_nothing": self.all_or_nothing,
            "wait": self.wait.value,
            "wait_ms": self.wait_ms,
        }
        if self.expires_at is not None:
            options["expires_at"] = self.expires_at.isoformat()
        if self.expires is not None:
            options["expires"] = self.expires
        return options if self.plan is None else {**options, "plan": self.plan.record}

    @property
    def key_hash(self) -> bytes | None:
        """What the log finds its idempotency key by; null without one."""
        if self.key is None:
            return None
        return self.key.hash_for(self.caller.principal, self.cluster_id)

    @property
    def rests_on(self) -> Sequence[ClientQuotaEntity]:
        """What it depends on beside what is altered: of its plan, and its budgets.

        It is locked, too, and free again with the last entity of the request: the log has no events
        of it, and nothing is to be recovered.
        """
        if not self.changes:
            return ()
        budgets = () if self.expires is not None else (budget.lock for budget in self.budgets)
        return [*(self.plan.beside if self.plan is not None else ()), *budgets]

    @property
    def locked(self) -> Sequence[ClientQuotaEntity]:
        """What is altered, and what that rests on."""
        return [*(change.entity for change in self.changes), *self.rests_on]

    @property
    def entities(self) -> Iterator[ClientQuotaEntity]:
        """What is read: what it alters, what is refused of it, what its plan rests on."""
        yield from (change.entity for change in self.changes)
        yield from (refused.entity for refused in self.local_refusals.values())
        if self.plan is not None:
            yield from self.plan.beside

    @property
    def validates_first(self) -> bool:
        """Whether the broker is to judge all entities before any is applied."""
        return self.all_or_nothing and len(self.changes) > 1

    def refuse_if_broken(self) -> None:
        """Refuse what the request alone shows to be wrong, before anything is looked up.

        Raises:
            InvalidRequestError: With every violation.
        """
        Judgement((), self.violations, (), needs_stored=False).raise_violations()

    def judged(self, judgement: Judgement, *, is_unjudged: bool = False) -> "Alteration":
        """Return it as it would be sent, without what breaks a rule."""
        changes = zip(self.changes, judgement.alterations, judgement.warnings, strict=True)
        spelled = tuple(
            replace(change, entity=sent.entity, warnings=warnings)
            if sent is not change or warnings != change.warnings
            else change
            for change, sent, warnings in changes
        )
        judged = replace(self, changes=spelled, violations=(), is_unjudged=is_unjudged)
        return judged.refused(judgement.violations)

    def warned_of_ignored(self, model: CallbackModel) -> "Alteration":
        """Return it with a warning for each key that the brokers' quota callback ignores."""
        changes = tuple(
            replace(
                change,
                warnings=(*change.warnings, *(f"{IGNORED}: {each.detail}" for each in ignored)),
            )
            if (ignored := ignored_by(model, [change]))
            else change
            for change in self.changes
        )
        return replace(self, changes=changes)

    def refused(self, violations: Sequence[Violation]) -> "Alteration":
        """Return it without what breaks these rules, refused with its first violation each.

        What holds is read behind the barrier. The index of a violation is an ordinal.
        """
        if not violations:
            return self
        first: dict[int | None, Violation] = {}
        for violation in violations:
            first.setdefault(violation.index, violation)
        refused = {
            change.ordinal: AlterationResult(
                change.entity,
                Outcome.REFUSED,
                changed=False,
                error=KafkaRefusal(broken.kafka_error, broken.detail),
            )
            for change in self.changes
            if (broken := first.get(change.ordinal)) is not None
        }
        return replace(
            self,
            changes=tuple(each for each in self.changes if each.ordinal not in refused),
            violations=(*self.violations, *violations),
            local_refusals={**self.local_refusals, **refused},
        )

    def judged_late(self, stored: Quotas) -> "tuple[Alteration, InvalidRequestError | None]":
        """Judge by what is stored behind the barrier: what it excuses, and what could not return.

        Returns:
            It without what breaks a rule, and why all of it is refused, or null.
        """
        violations: list[Violation] = []
        if self.is_unjudged:
            violations += judge(self.changes, stored).violations
        if self.expires_at is not None:
            violations += broken_returns(self.changes, stored)
        if not violations and not self.is_unjudged:
            return self, None
        judged = self.refused([_in_request(each, self.changes) for each in violations])
        late = judged.local_refusals.keys() - self.local_refusals.keys()
        refusal = refusal_of(
            sorted(judged.violations, key=lambda each: (each.index is None, each.index or 0)),
            len(self.changes) + len(self.local_refusals),
            all_or_nothing=self.all_or_nothing,
        )
        return replace(judged, refused_late=frozenset(late)), refusal

    def over_budget(self, stored: Quotas) -> Sequence[Violation]:
        """Return an entry for each budget whose sum it would raise to more than may be.

        Args:
            stored: Behind the barrier, with every entity that counts.
        """
        found = budget_violations(self.budgets, self.changes, stored) if self.budgets else ()
        return [_in_request(each, self.changes) for each in found]

    def too_drastic(self) -> Sequence[Violation]:
        """Return an entry for each value that would be lowered by more than the policy lets it.

        What holds has been read.
        """
        if not self.refuses_drastic:
            return ()
        return [
            Violation(
                f"/alterations/{change.ordinal}/ops/{at}/value",
                DRASTIC,
                drastic.detail,
                index=change.ordinal,
            )
            for change in self.changes
            for at, op in enumerate(change.ops)
            for drastic in drastic_changes(change.before or {}, [op])
        ]

    def identified(self, alteration_id: str, cluster_id: str, broker_id: int) -> "Alteration":
        """Return it with its id, for a cluster, through a broker."""
        return replace(
            self,
            alteration_id=alteration_id,
            cluster_id=cluster_id,
            broker_id=broker_id,
            action="validate" if self.validate_only else self.action,
        )

    def begun(self, owner: str, send_within_s: float, ready_at: float) -> "Alteration":
        """Return it as this process's, with the time that it has."""
        return replace(self, owner=owner, send_within_s=send_within_s, ready_at=ready_at)

    async def confirmed(self) -> "Alteration":
        """Return it with how authorization decides now, and what the policy said.

        Raises:
            QuotaError: The refusal.
        """
        if self.confirm is None:
            return self
        now = await self.confirm(self.changes, self.reason)
        return replace(self, evidence={**self.evidence, **now})

    def with_values(self, values: Quotas) -> "Alteration":
        """Return it with these values before, of what may be sent and of what is refused."""
        changes = [replace(each, before=values.get(each.entity, {})) for each in self.changes]
        refusals = {
            ordinal: replace(refused, before=present, after=present)
            for ordinal, refused in self.local_refusals.items()
            for present in (values.get(refused.entity, {}),)
        }
        return replace(self, changes=tuple(changes), local_refusals=refusals)

    def without_changed(self) -> "Alteration":
        """Return it without the keys that have other values than it is to end.

        What holds has been read. An entity of which nothing is left to do has its result.
        """
        changes: list[Change] = []
        left: dict[int, AlterationResult] = {}
        partly: set[int] = set()
        for change in self.changes:
            before = change.before or {}
            changed = keys_changed_since(before, change.ops, change.expected_values)
            warnings = tuple(
                f"{key} has another value now and was left." for key in sorted(changed)
            )
            ops = tuple(op for op in change.ops if op.key not in changed)
            if ops:
                changes.append(replace(change, ops=ops, warnings=(*change.warnings, *warnings)))
                partly |= {change.ordinal} if changed else set()
            else:
                left[change.ordinal] = AlterationResult(
                    change.entity,
                    Outcome.OBSERVED_OTHER,
                    changed=False,
                    before=before,
                    after=before,
                    warnings=warnings,
                )
        return replace(self, changes=tuple(changes), left=left, partly_left=frozenset(partly))

    def with_warnings(self, over_budget: Sequence[Violation]) -> "Alteration":
        """Return it with a warning at each change that first raises a sum to more than may be."""
        if not over_budget:
            return self
        changes = (
            replace(
                change,
                warnings=(
                    *change.warnings,
                    *(each.detail for each in over_budget if each.index == change.ordinal),
                ),
            )
            for change in self.changes
        )
        return replace(self, changes=tuple(changes))


def _in_request(violation: Violation, changes: Sequence[Change]) -> Violation:
    """Return a violation with the position in the request, of which some may be refused already."""
    if violation.index is None:
        return violation
    ordinal = changes[violation.index].ordinal
    pointer = violation.pointer.removeprefix(f"/alterations/{violation.index}")
    return replace(violation, index=ordinal, pointer=f"/alterations/{ordinal}{pointer}")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What became of the entities of an intent, and how the request was sent.

    Attributes:
        results: One for each entity, by ordinal.
        rejected: The same of what our own rules refused, with what holds where that was read.
        events: (at, event, detail) with event ``sent``, ``outcome`` or ``recovery``.
        sent: Whether a request that changes something was handed to a broker.
        broker_id: The broker that answered, or null.
        retry_after_s: Where the broker throttles, in seconds.
        error: What the caller gets once it is in the log, where that is no report.
        is_repeatable: Whether the idempotency key is free again, as where nothing was recorded.
        late: The broker's answer that may still come, up to 95 s after the sending.
        readable: Tells whether the broker shows what was applied; null where nobody waits for it.
    """

    alteration_id: str
    results: Mapping[int, AlterationResult]
    events: Sequence[tuple[datetime, str, str]] = ()
    sent: bool = False
    broker_id: int | None = None
    retry_after_s: float | None = None
    error: QuotaError | None = None
    late: Awaitable[Handover] | None = None
    rejected: Mapping[int, AlterationResult] = field(default_factory=dict)
    is_repeatable: bool = False
    readable: "asyncio.Future[bool] | None" = None

    def with_refused(self, alteration: Alteration) -> "Conclusion":
        """Return it with what our own rules refused, of which the log has rows of the late.

        And with what an expiry leaves: an entity with a key that has another value now is observed
        otherwise, whatever became of its other keys.
        """
        refused = alteration.local_refusals
        late = {ordinal: refused[ordinal] for ordinal in alteration.refused_late}
        other = {
            ordinal: replace(self.results[ordinal], outcome=Outcome.OBSERVED_OTHER)
            for ordinal in alteration.partly_left
            if self.results[ordinal].outcome is Outcome.APPLIED
        }
        results = {**self.results, **other, **alteration.left, **late}
        return replace(self, results=results, rejected=refused)


@dataclass(frozen=True, slots=True)
class AlterationRecord:
    """An alteration and what became of it: what its caller is answered, and what the log has.

    Attributes:
        results: By ordinal, in request order, local refusals included; an entity without a
            conclusion yet is UNKNOWN once sent, or NOT_SENT.
        at: When the intent was committed; null in an answer.
        concluded: Whether every entity has a conclusion.
        history: (at, event, detail) in order: ``intent``, ``sent``, ``outcome``, ``recovery``.
        readable: Whether the change could be described in time; null where nobody waited.
        replayed: Whether an idempotency key found it.
    """

    alteration: Alteration
    results: Mapping[int, AlterationResult]
    at: datetime | None = None
    concluded: bool = True
    history: Sequence[tuple[datetime, str, str]] = ()
    readable: bool | None = None
    replayed: bool = False

    @property
    def overall(self) -> Overall:
        """The one word for all results; a denied attempt has none."""
        if self.alteration.action == "denied":
            return Overall.REFUSED
        return overall_outcome([result.outcome for result in self.results.values()])


POINTS: Final = (
    "before_intent",
    "intent_begun",
    "after_intent",
    "returns_recorded",
    "before_send",
    "before_last_check",
    "after_last_check",
    "handed_over",
    "after_answer",
    "after_conclusion",
    "recovery_before_record",
    "recovery_after_record",
)
"""Every failpoint, in the order in which an alteration and its recovery pass them."""

ACTIONS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Failpoints:
    """Named steps of an alteration, of which at most one is armed: where a test ends the process.

    They are always compiled in and armed only by ``QUOTAS_TEST_FAILPOINT`` in development mode, so
    that what is tested is what is shipped.

    Raises:
        ValueError: There is no such point or action.
    """

    armed: str | None = None
    action: str = "kill"

    def __post_init__(self) -> None:
        """Refuse what would never fire."""
        if (self.armed is not None and self.armed not in POINTS) or self.action not in ACTIONS:
            message = f"write one of {', '.join(POINTS)}, then :kill or :stop"
            raise ValueError(message)

    @classmethod
    def read(cls, text: str) -> "Failpoints":
        """Read ``after_intent:kill``; an empty text arms nothing."""
        point, _, action = text.partition(":")
        return cls(point or None, action or "kill")

    def reach(self, point: str) -> None:
        """Pass a point; where it is armed, this process is killed or frozen right here."""
        if point == self.armed:
            os.kill(os.getpid(), ACTIONS[self.action])
