"""The authorizer ``broker``: of callers whose requests run as theirs it decides itself."""

from typing import Final

from app.domain.authorization import Operation
from app.domain.entities import Caller
from app.domain.errors import ClusterAuthorizationError
from app.service.permissions.authorize import (
    MAX_ACL_AGE_S,
    Access,
    ClusterAuthorizer,
)
from app.service.permissions.cluster_rights import ClusterRights

RULE: Final = "broker"
"""How the audit log names what decided."""


class BrokerAuthorizer:
    """Passes on what a broker says of this one caller.

    Super users, and whatever an authorizer of another make goes by, need no mirror here. The host
    that ACLs are matched with is this service's: the broker sees no other.

    Args:
        rights: Asks as the caller.
        others: Decides for all other callers.
    """

    def __init__(self, rights: ClusterRights, others: ClusterAuthorizer) -> None:
        self._rights = rights
        self._others = others

    def is_auditor(self, caller: Caller) -> bool:
        """See ``Authorizer``."""
        return self._others.is_auditor(caller)

    async def decide(self, caller: Caller, operation: Operation) -> Access:
        """See ``Authorizer``."""
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
        return Access(evidence, None if rights.allowed else refused(caller.principal, operation))


def refused(principal: str, operation: Operation) -> ClusterAuthorizationError:
    """Return the refusal of a caller whom the broker does not allow an operation."""
    return ClusterAuthorizationError(lacks(principal, operation), kafka_error=NOT_AUTHORIZED)


def lacks(principal: str, operation: Operation) -> str:
    """Say in a sentence what the broker refused."""
    return (
        f"The broker says that {principal} lacks {operation.value} on the Cluster resource "
        "kafka-cluster."
    )


NOT_AUTHORIZED: Final = "CLUSTER_AUTHORIZATION_FAILED"
