"""The audit trail: who may read which rows."""

from dataclasses import dataclass, replace

from app.domain.entities import Caller, check_filter
from app.domain.errors import ClusterAuthorizationError, NotFoundError
from app.service.auth.authorize import ClusterAuthorizer
from app.service.ports.audit_log import AlterationRecord, AuditJournal, AuditPage, AuditQuery
from app.service.ports.brokers import ClusterIdentity


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Answers ``GET /audit`` and ``GET /quotas/alterations/{alteration_id}`` of one cluster."""

    journal: AuditJournal
    authorizer: ClusterAuthorizer
    cluster: ClusterIdentity

    async def rows(self, caller: Caller, query: AuditQuery) -> AuditPage:
        """Return one page: all rows for an auditor, one's own for anybody else.

        Raises:
            ClusterAuthorizationError: Another ``actor`` was asked for without the permission.
            InvalidRequestError: The entity filter breaks a rule.
        """
        if not self.authorizer.is_auditor(caller):
            query = _own(caller, query)
        if query.entity is not None:
            check_filter(query.entity, "entity")
        own = replace(query, cluster_id=await self.cluster.cluster_id())
        return await self.journal.audit_rows(own)

    async def alteration(self, caller: Caller, alteration_id: str) -> AlterationRecord:
        """Return one alteration to its principal or to an auditor.

        Raises:
            NotFoundError: There is none of this cluster, or it is another caller's.
        """
        cluster_id = await self.cluster.cluster_id()
        record = await self.journal.alteration(alteration_id)
        if record is None or not (
            record.request.cluster_id == cluster_id
            and (
                record.request.caller.principal == caller.principal
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
