"""May this caller do that? Kafka's own question, decided before any call that acts."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from app.domain.alterations import AlterationResult, ClientQuotaAlteration, KafkaRefusal, Outcome
from app.domain.authorization import (
    AclBinding,
    AuthorizerSettings,
    DecisionRule,
    Operation,
    authorize,
)
from app.domain.callers import Caller
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import ClusterAuthorizationError, NotSentError
from app.service.audit_records import AuditEntity, AuditRequest
from app.service.cluster_ports import ClientQuotaAdmin
from app.service.identifiers import new_alteration_id
from app.service.journal_ports import AuditJournal
from app.service.permissions.acl_ports import ClusterAclSource

MAX_ACL_AGE_S: Final[Mapping[Operation, float]] = {
    Operation.ALTER_CONFIGS: 10.0,
    Operation.DESCRIBE_CONFIGS: 60.0,
}
"""How old the ACLs may be that a decision rests on."""

_MOST_JUDGEMENTS: Final = 10_000
"""With so many callers and hosts they are judged anew."""

_NO_ENTITY: Final = ClientQuotaEntity(())

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AuthorizationPolicy:
    """What no request reveals about the cluster's authorizer, mirrored in settings."""

    authorizer: AuthorizerSettings
    allow_without_authorizer: bool = False
    auditors: frozenset[str] = frozenset()


class Access(NamedTuple):
    """A decision, as it is kept in the audit row.

    Attributes:
        evidence: Operation, rule, the ACL that decided, the age of the ACLs in seconds.
        refusal: What the caller is told; null where the caller may.
    """

    evidence: Mapping[str, Any]
    refusal: ClusterAuthorizationError | None = None


@dataclass(frozen=True, slots=True)
class DeniedAttempt:
    """What a denied caller had asked for, as far as it could be read."""

    request_id: str
    route: str
    evidence: Mapping[str, Any]
    alterations: tuple[ClientQuotaAlteration, ...] = ()
    reason: str | None = None


class Authorizer(Protocol):
    """Decides whether a caller may, and keeps the attempts of those who may not."""

    def is_auditor(self, caller: Caller) -> bool:
        """Tell whether the caller has the ``audit`` permission."""
        ...

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        """Decide whether the caller may.

        Raises:
            NotSentError: What decides cannot be had; nothing is allowed on doubt.
        """
        ...

    async def record_denied(
        self, caller: Caller, refusal: ClusterAuthorizationError, attempt: DeniedAttempt
    ) -> None:
        """Keep the attempt in the audit log; the refusal stands even if that fails."""
        ...


class ClusterAuthorizer:
    """Decides like the broker's StandardAuthorizer, from its ACLs; fails closed."""

    def __init__(
        self,
        acls: ClusterAclSource,
        admin: ClientQuotaAdmin,
        journal: AuditJournal,
        policy: AuthorizationPolicy,
    ) -> None:
        self._acls = acls
        self._admin = admin
        self._journal = journal
        self._policy = policy
        self._judged_by: tuple[AclBinding, ...] | None = None
        self._judgements: dict[tuple[str, str, Operation], tuple[bool, Mapping[str, Any]]] = {}

    def is_auditor(self, caller: Caller) -> bool:
        """Tell whether the caller has the ``audit`` permission."""
        return caller.principal in self._policy.auditors

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        """Decide whether the caller may.

        Raises:
            NotSentError: The ACLs cannot be had; nothing is allowed on doubt.
        """
        settings = self._policy.authorizer
        try:
            snapshot = await self._acls.cluster_acls(max_age_s=MAX_ACL_AGE_S[operation])
        except NotSentError:
            decision = authorize(caller.principal, caller.host, operation, (), settings)
            if decision.rule is not DecisionRule.SUPER_USER:
                raise
            return Access(decision.as_dict())
        if not snapshot.has_authorizer:
            return self.without_authorizer(operation)
        allowed, grounds = self._judged(caller, operation, snapshot.bindings)
        evidence = {**grounds, "acl_age_s": round(snapshot.age_s, 3)}
        return Access(evidence, None if allowed else _denial(caller, operation))

    def _judged(
        self, caller: Caller, operation: Operation, bindings: tuple[AclBinding, ...]
    ) -> tuple[bool, Mapping[str, Any]]:
        """Decide by these ACLs; the same ACLs decide the same again."""
        if self._judged_by is not bindings or len(self._judgements) >= _MOST_JUDGEMENTS:
            self._judged_by, self._judgements = bindings, {}
        asked = (caller.principal, caller.host, operation)
        known = self._judgements.get(asked)
        if known is None:
            decision = authorize(*asked, bindings, self._policy.authorizer)
            known = self._judgements[asked] = decision.allowed, decision.as_dict()
        return known

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

    async def record_denied(
        self, caller: Caller, refusal: ClusterAuthorizationError, attempt: DeniedAttempt
    ) -> None:
        """Keep the attempt in the audit log; the refusal stands even if that fails."""
        error = KafkaRefusal(refusal.kafka_error, refusal.detail)
        results = {
            ordinal: AlterationResult(one.entity, Outcome.REFUSED, error=error)
            for ordinal, one in enumerate(attempt.alterations)
        } or {0: AlterationResult(_NO_ENTITY, Outcome.REFUSED, error=error)}
        try:
            request = AuditRequest(
                alteration_id=new_alteration_id(),
                cluster_id=await self._admin.cluster_id(),
                caller=caller,
                action="denied",
                request_id=attempt.request_id,
                entities=tuple(
                    AuditEntity(ordinal, one) for ordinal, one in enumerate(attempt.alterations)
                ),
                reason=attempt.reason,
                decision={
                    **attempt.evidence,
                    "code": refusal.code,
                    "kafka_error": refusal.kafka_error,
                    "detail": refusal.detail,
                    "route": attempt.route,
                },
            )
            await self._journal.record_final(request, results)
        except NotSentError as failure:
            logger.warning("a denied attempt could not be recorded: %s", failure.detail)


def _denial(caller: Caller, operation: Operation) -> ClusterAuthorizationError:
    return ClusterAuthorizationError(
        f"{caller.principal} at {caller.host} lacks {operation.value} on the Cluster resource "
        "kafka-cluster.",
        kafka_error="CLUSTER_AUTHORIZATION_FAILED",
    )
