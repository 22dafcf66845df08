"""From a judged command to the request as it is audited."""

from dataclasses import dataclass

from app.domain.alterations import Quotas
from app.domain.validation import Judgement
from app.service.alterations.alteration_command import AlterCommand
from app.service.alterations.refusals import refused_locally
from app.service.audit_records import AuditEntity, AuditRequest
from app.service.identifiers import new_alteration_id


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes: the cluster, and the broker that it is sent through."""

    cluster_id: str
    broker_id: int


def audit_request(
    command: AlterCommand, judgement: Judgement, stored: Quotas, target: Target
) -> AuditRequest:
    """Return what may be sent under a new id, and what our own rules refuse of it.

    Args:
        command: As read.
        judgement: Of its alterations.
        stored: The present values of their entities.
        target: Where it goes.
    """
    refused = {one.index for one in judgement.violations}
    return AuditRequest(
        alteration_id=new_alteration_id(),
        cluster_id=target.cluster_id,
        caller=command.caller,
        action="validate" if command.validate_only else command.action,
        request_id=command.request_id,
        entities=tuple(
            AuditEntity(ordinal, one, stored.get(one.entity, {}), judgement.warnings[ordinal])
            for ordinal, one in enumerate(judgement.alterations)
            if ordinal not in refused
        ),
        local_refusals=refused_locally(judgement, stored),
        reason=command.reason,
        decision=command.evidence,
        options=command.options,
        broker_id=target.broker_id,
    )
