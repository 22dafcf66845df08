"""May this caller do that? Kafka's own question, decided before any call that acts."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from app.domain.alterations import ClientQuotaAlteration
from app.domain.authorization import (
    AuthorizerSettings,
    DecisionRule,
    Operation,
    Policy,
    PolicyRule,
    authorize,
)
from app.domain.budgets import Budget, budgets_of
from app.domain.entities import Caller
from app.domain.errors import (
    ClusterAuthorizationError,
    NotFoundError,
    NotSentError,
    PolicyViolationError,
)
from app.domain.validation import check_filter
from app.metrics import PolicyMetrics
from app.service.auth.denials import DeniedAttempt, ReadChange, requested_change
from app.service.ports.alterations import Alteration, AlterationRecord
from app.service.ports.audit_log import AuditJournal, AuditPage, AuditQuery
from app.service.ports.brokers import (
    AclSnapshot,
    ClusterIdentity,
    ClusterRights,
    ModelNow,
    kafka_rules,
)
from app.service.runtime.clock import database_now
from app.service.runtime.tasks import Cache, off_loop

logger = logging.getLogger(__name__)

MAX_ACL_AGE_S: Final[Mapping[Operation, float]] = {
    Operation.ALTER_CONFIGS: 10.0,
    Operation.DESCRIBE_CONFIGS: 60.0,
    Operation.DESCRIBE: 60.0,
}
"""How old the ACLs may be that a decision rests on."""

ACL_REFRESH_AFTER_S: Final = 5.0
"""Older ones are asked for again in the background, so that nobody waits for them."""

NOT_AUTHORIZED: Final = "CLUSTER_AUTHORIZATION_FAILED"


@dataclass(frozen=True, slots=True)
class AuthorizationPolicy:
    """What no request reveals about the cluster's authorizer, mirrored in settings."""

    authorizer: AuthorizerSettings
    allow_without_authorizer: bool = False
    auditors: frozenset[str] = frozenset()


Evidence = Mapping[str, Any]
"""How a right was decided, as the audit row has it."""


class Access(NamedTuple):
    """A decision, as the audit row has it.

    Attributes:
        evidence: Operation, rule, the ACL that decided, the age of the ACLs in seconds.
        refusal: What is reported to the caller; null where the caller may.
    """

    evidence: Evidence
    refusal: ClusterAuthorizationError | None = None


AskAgain = Callable[[ReadChange], Awaitable[Evidence]]
"""Asks for the credential and the right again; records who may not any more, with what was asked
for, and raises the refusal."""


class Grant:
    """That a caller may, and the evidence; asked again where that has become old meanwhile.

    A body may take 30 s to arrive, and an alteration may wait for others.

    Args:
        evidence: Of the decision just made.
        ask_again: What asks.
        max_age_s: How old the evidence may be at the act, in seconds.
        now: A clock in seconds that never goes back.
    """

    def __init__(
        self,
        evidence: Evidence,
        ask_again: AskAgain,
        max_age_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask_again = ask_again
        self._max_age_s = max_age_s
        self._now = now
        self._take(evidence)

    def _take(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self._from = self._now() - evidence.get("acl_age_s", 0.0)

    async def confirm(
        self, alterations: Sequence[ClientQuotaAlteration] = (), reason: str | None = None
    ) -> Evidence:
        """Return evidence that is young enough; call it right before the act.

        Args:
            alterations: What is asked for, for the record of an attempt that is denied.
            reason: Of that.

        Raises:
            UnauthenticatedError: The credential has expired or is gone.
            ClusterAuthorizationError: The caller may not any more.
            NotSentError: It cannot be found out.
        """
        if self._now() - self._from > self._max_age_s:
            self._take(await self._ask_again(requested_change(alterations, reason)))
        return self.evidence


class ClusterAuthorizer:
    """Decides like the broker's StandardAuthorizer, from its ACLs; fails closed."""

    def __init__(self, acls: Cache[AclSnapshot], policy: AuthorizationPolicy) -> None:
        self._acls = acls
        self._policy = policy

    def is_auditor(self, caller: Caller) -> bool:
        """Tell whether the caller has the ``audit`` permission."""
        return caller.principal in self._policy.auditors

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        """Decide whether the caller may.

        Raises:
            NotSentError: The ACLs cannot be had; nothing is allowed on doubt.
        """
        asked, settings = (caller.principal, caller.host, operation), self._policy.authorizer
        try:
            snapshot, age_s = await self._acls.get(MAX_ACL_AGE_S[operation])
        except NotSentError:
            decision = authorize(*asked, (), settings)
            if decision.rule is not DecisionRule.SUPER_USER:
                raise
            return Access(decision.as_dict())
        if not snapshot.has_authorizer:
            return self.without_authorizer(operation)
        decision = authorize(*asked, snapshot.bindings, settings)
        evidence = {**decision.as_dict(), "acl_age_s": round(age_s, 3)}
        return Access(evidence, None if decision.allowed else _denial(caller, operation))

    def without_authorizer(self, operation: Operation) -> Access:
        """Decide where the cluster has no authorizer that could."""
        evidence = {"operation": operation.value, "rule": "no-authorizer"}
        if self._policy.allow_without_authorizer:
            return Access(evidence)
        refusal = ClusterAuthorizationError(
            "The cluster has no authorizer, so nobody's rights can be judged. Enable one, or set "
            "QUOTAS_INSECURE_ALLOW_WITHOUT_AUTHORIZER=true.",
            code="no-authorizer",
            kafka_error="SECURITY_DISABLED",
        )
        return Access(evidence, refusal)


def _denial(caller: Caller, operation: Operation) -> ClusterAuthorizationError:
    return ClusterAuthorizationError(
        f"{caller.principal} at {caller.host} lacks {operation.value} on the Cluster resource "
        "kafka-cluster; ask for an ACL that allows it.",
        kafka_error=NOT_AUTHORIZED,
    )


RULE: Final = "broker"
"""How the audit log names what decided."""


class BrokerAuthorizer:
    """Passes on what a broker says of a caller.

    Super users, and whatever an authorizer of another make goes by, need no mirror here. The host
    that ACLs are matched with is this service's: the broker sees no other.
    """

    def __init__(self, rights: ClusterRights, others: ClusterAuthorizer) -> None:
        self._rights = rights
        self._others = others

    def is_auditor(self, caller: Caller) -> bool:
        """Tell whether the caller has the ``audit`` permission."""
        return self._others.is_auditor(caller)

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        """Decide whether the caller may.

        Raises:
            NotSentError: No broker tells; nothing is allowed on doubt.
        """
        rights = await self._rights.rights(operation, max_age_s=MAX_ACL_AGE_S[operation])
        if not rights.has_authorizer:
            return self._others.without_authorizer(operation)
        evidence = {
            "allowed": rights.allowed,
            "rule": RULE,
            "operation": operation.value,
            "acl": None,
            "asked": rights.asked,
            "acl_age_s": round(rights.age_s, 3),
        }
        if rights.allowed:
            return Access(evidence)
        detail = lacks(caller.principal, operation)
        return Access(evidence, ClusterAuthorizationError(detail, kafka_error=NOT_AUTHORIZED))


Authorizer = ClusterAuthorizer | BrokerAuthorizer
"""Decides whether a caller may."""


def lacks(principal: str, operation: Operation) -> str:
    """Say in a sentence what the broker refused."""
    return (
        f"The broker says that {principal} lacks {operation.value} on the Cluster resource "
        "kafka-cluster; ask for an ACL that allows it."
    )


_REFUSED: Final = (
    "The policy of this service does not let you change all of that; nothing was sent. Every "
    "violation is listed in errors."
)

RecordDenied = Callable[[Caller, ClusterAuthorizationError, DeniedAttempt], Awaitable[None]]


class NoPolicy:
    """Leaves everything to the ACLs."""

    def rules_of(self, _principal: str) -> None:
        """Return null: there are no rules."""

    async def admitted(self, alteration: Alteration) -> Alteration:
        """Return the alteration as it is."""
        return alteration

    def within_budgets(self, alteration: Alteration) -> Alteration:
        """Return the alteration as it is."""
        return alteration

    @property
    def budgets(self) -> Sequence[Budget]:
        """None at all."""
        return ()


class NarrowingPolicy:
    """Refuses the request as a whole where the policy forbids anything in it.

    Args:
        read: Reads the file again; raises ``ValueError`` with the faults where it is not usable.
        in_force: What was read at the start.
        record_denied: Keeps the attempts of those who may not.
        metrics: What counts.
        model: Returns by what brokers decide about quotas.
    """

    def __init__(
        self,
        read: Callable[[], Policy],
        in_force: Policy,
        record_denied: RecordDenied,
        metrics: PolicyMetrics,
        model: ModelNow = kafka_rules,
    ) -> None:
        self._model = model
        self._read = read
        self._in_force = in_force
        self._record_denied = record_denied
        self._metrics = metrics
        self._count_read(usable=True)

    async def reload(self) -> bool:
        """Read the file again; a bad one is logged, and the previous policy stays in force.

        Returns:
            Whether the file could be used.
        """
        try:
            self._in_force = await asyncio.to_thread(self._read)
        except ValueError as error:
            logger.error("keeping the previous policy: %s", error)  # noqa: TRY400
            self._count_read(usable=False)
            return False
        policy = self._in_force
        logger.info(
            "policy read again: %d rules, %d budgets, SHA-256 %s",
            len(policy.rules),
            len(policy.budgets),
            policy.digest,
        )
        self._count_read(usable=True)
        return True

    def _count_read(self, *, usable: bool) -> None:
        rules, budgets = len(self._in_force.rules), len(self._in_force.budgets)
        self._metrics.policy_read(usable=usable, rules=rules, budgets=budgets)

    def rules_of(self, principal: str) -> Sequence[PolicyRule] | None:
        """Return the rules that bound a principal's alterations; null where nothing does.

        No rule at all forbids everything, unless others may.
        """
        policy = self._in_force
        rules = policy.rules_of(principal)
        return None if policy.others_may and not rules else rules

    async def admitted(self, alteration: Alteration) -> Alteration:
        """Return the alteration, its evidence with the policy's verdict.

        Raises:
            PolicyViolationError: The policy forbids some of it; the attempt is in the audit log.
        """
        policy, principal = self._in_force, alteration.caller.principal
        number = len(alteration.changes)
        ends = alteration.expires_at
        lasts = None if ends is None else ends - database_now()
        violations = await off_loop(number, policy.violations, principal, alteration.changes, lasts)
        if policy.refuses_ignored:
            model = await self._model()
            violations += await off_loop(
                number, policy.ignored_violations, model, alteration.changes
            )
        self._metrics.policy_decided(allowed=not violations)
        evidence = _evidence(alteration, policy)
        if violations:
            refusal = PolicyViolationError(_REFUSED, violations=violations)
            await self._record_denied(alteration.caller, refusal, _attempt(alteration, evidence))
            raise refusal
        admitted = replace(alteration, evidence=evidence, refuses_drastic=policy.refuses_drastic)
        return self.within_budgets(admitted)

    def within_budgets(self, alteration: Alteration) -> Alteration:
        """Return the alteration with the budgets that it is to be judged by."""
        budgets = budgets_of(self._in_force.budgets, alteration.changes)
        return replace(alteration, budgets=budgets) if budgets else alteration

    @property
    def budgets(self) -> Sequence[Budget]:
        """The budgets in force."""
        return self._in_force.budgets


PolicyGuard = NoPolicy | NarrowingPolicy
"""Lets alterations pass, or some of them."""


def _evidence(alteration: Alteration, policy: Policy) -> Mapping[str, Any]:
    rules = [rule.name for rule in policy.rules_of(alteration.caller.principal)]
    return {**alteration.evidence, "policy": {"sha256": policy.digest, "rules": rules}}


def _attempt(alteration: Alteration, evidence: Mapping[str, Any]) -> DeniedAttempt:
    read = requested_change(alteration.changes, alteration.reason)
    return DeniedAttempt(alteration.request_id, alteration.action, evidence, read)


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Answers ``GET /audit`` and ``GET /quotas/alterations/{alteration_id}`` of one cluster."""

    journal: AuditJournal
    authorizer: ClusterAuthorizer
    cluster: ClusterIdentity

    async def rows(self, caller: Caller, query: AuditQuery) -> AuditPage:
        """Return one page: all rows for an auditor, one's own for anybody else.

        Raises:
            QuotaError: As ``visible``.
        """
        visible = self.visible(caller, query)
        own = replace(visible, cluster_id=await self.cluster.cluster_id())
        page = await self.journal.audit_rows(own)
        sees_all = self.authorizer.is_auditor(caller)
        return page if sees_all else replace(page, restricted_to=caller.principal)

    def visible(self, caller: Caller, query: AuditQuery) -> AuditQuery:
        """Return the query for what the caller may see of it.

        Raises:
            ClusterAuthorizationError: Another ``actor`` was asked for without the permission.
            InvalidRequestError: The entity filter breaks a rule.
        """
        if not self.authorizer.is_auditor(caller):
            query = _own(caller, query)
        if query.entity is not None:
            check_filter(query.entity, "entity")
        return query

    async def alteration(self, caller: Caller, alteration_id: str) -> AlterationRecord:
        """Return one alteration to its principal or to an auditor.

        Raises:
            NotFoundError: There is none of this cluster, or it is another caller's.
        """
        cluster_id = await self.cluster.cluster_id()
        record = await self.journal.alteration(alteration_id)
        if record is None or not (
            record.alteration.cluster_id == cluster_id
            and (
                record.alteration.caller.principal == caller.principal
                or self.authorizer.is_auditor(caller)
            )
        ):
            raise NotFoundError("There is no such alteration, or it is not yours.")
        return record


def _own(caller: Caller, query: AuditQuery) -> AuditQuery:
    if query.actor is not None and query.actor != caller.principal:
        raise ClusterAuthorizationError(
            "The rows of another actor need the audit permission (QUOTAS_AUDITORS).",
            code="audit-permission-needed",
        )
    return replace(query, actor=caller.principal)
