"""What authorization needs of the brokers: the ACLs of the cluster."""

from datetime import datetime
from typing import NamedTuple, Protocol

from app.domain.authorization import AclBinding


class AclSnapshot(NamedTuple):
    """The ACLs of the Cluster resource.

    Attributes:
        bindings: Every ACL whose resource type is Cluster.
        taken_at: When the request was sent (UTC).
        age_s: Seconds since then, by the monotonic clock.
        has_authorizer: False where the cluster has none (SECURITY_DISABLED).
    """

    bindings: tuple[AclBinding, ...]
    taken_at: datetime
    age_s: float
    has_authorizer: bool = True


class ClusterAclSource(Protocol):
    """DescribeAcls on the cluster; a short-lived, bounded copy, refreshed by one task at a time."""

    async def cluster_acls(self, *, max_age_s: float) -> AclSnapshot:
        """Return a snapshot that is at most ``max_age_s`` old.

        Raises:
            NotSentError: No snapshot that young can be had; the caller must fail closed.
        """
        ...
