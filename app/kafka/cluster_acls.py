"""The port ``ClusterAclSource``: DescribeAcls on the cluster, kept for a short while.

Not asked through librdkafka, whose DescribeAcls answers an empty list where the broker said
CLUSTER_AUTHORIZATION_FAILED or SECURITY_DISABLED: "no ACL" and "unknown" must not look alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kafka.protocol.admin import DescribeAclsRequest, DescribeAclsResponse

from app.domain.authorization import AclBinding
from app.domain.errors import NotSentError, QuotaError
from app.kafka.broker_lease import BrokerLease
from app.kafka.brokers import Brokers
from app.kafka.errors import code_name
from app.kafka.kept_answer import KeptAnswer
from app.kafka.questions import ask, newest_common
from app.kafka.reading import read
from app.service.permissions.acl_ports import AclSnapshot

_REFRESH_AFTER_S: Final = 5.0
_LARGEST_ANSWER_BYTES: Final = 16_000_000
_CLUSTER: Final = 4
_ANY: Final = 1
_SECURITY_DISABLED: Final = "SECURITY_DISABLED"
_UNREACHABLE: Final = "acl-source-unreachable"

_PATTERN_TYPES: Final[Mapping[int, str]] = {3: "LITERAL", 4: "PREFIXED"}
"""Source: ``org.apache.kafka.common.resource.PatternType``."""

_PERMISSIONS: Final[Mapping[int, str]] = {2: "DENY", 3: "ALLOW"}
"""Source: ``org.apache.kafka.common.acl.AclPermissionType``."""

_OPERATIONS: Final[Mapping[int, str]] = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
"""Source: ``org.apache.kafka.common.acl.AclOperation``."""


@dataclass(frozen=True, slots=True)
class _Acls:
    bindings: tuple[AclBinding, ...]
    taken_at: datetime
    has_authorizer: bool


class KafkaClusterAclSource:
    """Asks when the copy is older than the caller allows, and in the background from 5 s on.

    Only calls make it ask: a service that decides nothing asks nothing.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._timeout_s = brokers.patience.fact_s
        self._kept = KeptAnswer(self._ask)

    async def cluster_acls(self, *, max_age_s: float) -> AclSnapshot:
        """See ``ClusterAclSource``."""
        acls, age_s = self._kept.young(max_age_s) or await self._kept.at_most(max_age_s)
        if age_s > _REFRESH_AFTER_S:
            self._kept.refresh()
        return AclSnapshot(acls.bindings, acls.taken_at, age_s, acls.has_authorizer)

    async def close(self) -> None:
        """Stop asking."""
        await self._kept.close()

    async def _ask(self) -> _Acls:
        try:
            return await read(self._brokers, _describe_acls, timeout_s=self._timeout_s)
        except QuotaError as error:
            if error.code == _UNREACHABLE:
                raise
            raise _unreachable(error.detail) from error


async def _describe_acls(lease: BrokerLease) -> _Acls:
    """Ask for every ACL on the Cluster resource, of any name and pattern. Source: KIP-140."""
    request = DescribeAclsRequest(
        resource_type_filter=_CLUSTER,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    version = newest_common(lease.connection, DescribeAclsRequest)
    taken_at = datetime.now(UTC)
    answer = await ask(
        lease.connection, request, version, DescribeAclsResponse, _LARGEST_ANSWER_BYTES
    )
    if answer.error_code == 0:
        return _Acls(_bindings(answer), taken_at, has_authorizer=True)
    name = code_name(answer.error_code)
    lease.connection.note_error(name)
    if name == _SECURITY_DISABLED:
        return _Acls((), taken_at, has_authorizer=False)
    raise _unreachable(_refusal(name, answer.error_message))


def _bindings(answer: Any) -> tuple[AclBinding, ...]:
    return tuple(
        AclBinding(
            resource_name=resource.resource_name,
            pattern_type=_PATTERN_TYPES.get(resource.pattern_type, "UNKNOWN"),
            principal=acl.principal,
            host=acl.host,
            operation=_OPERATIONS.get(acl.operation, "UNKNOWN"),
            permission=_PERMISSIONS.get(acl.permission_type, "UNKNOWN"),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def _refusal(name: str, text: str | None) -> str:
    if name == "CLUSTER_AUTHORIZATION_FAILED":
        return (
            "The broker refused this service's own account: give it ALLOW DESCRIBE on "
            "Cluster kafka-cluster."
        )
    return f"The broker refused with {name}. {text or ''}".rstrip()


def _unreachable(reason: str) -> NotSentError:
    detail = f"The ACLs of the cluster are not known, so nothing can be allowed. {reason}"
    return NotSentError(detail, code=_UNREACHABLE)
