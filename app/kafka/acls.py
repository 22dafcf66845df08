"""What callers may do, by the brokers: the cluster's ACLs, and the port ``ClusterRights``.

Not asked through librdkafka, whose DescribeAcls answers an empty list where the broker returned
CLUSTER_AUTHORIZATION_FAILED or SECURITY_DISABLED: "no ACL" and "unknown" must not look alike.
"""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import Any, Final, TypeVar

from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafka.protocol.admin.acl import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
)

from app.domain.alterations import ClientQuotaAlteration, Op, Outcome
from app.domain.authorization import AclBinding, Operation
from app.domain.entities import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
from app.domain.errors import BrokerError, NotSentError, QuotaError
from app.kafka.cluster_client import Brokers
from app.kafka.connection import BrokerLease, ask
from app.kafka.errors import NOT_AUTHORIZED, code_name, missing_acl
from app.kafka.quota_admin import KafkaClientQuotaAdmin
from app.service.ports.brokers import AclSnapshot, Rights
from app.service.runtime.tasks import Cache

T = TypeVar("T")

_LARGEST_ANSWER_BYTES: Final = 16_000_000
_SECURITY_DISABLED: Final = "SECURITY_DISABLED"
_UNREACHABLE: Final = "acl-source-unreachable"


def _name_of(kind: type[IntEnum], number: int) -> str:
    """Return Kafka's name of a number; one of another time is UNKNOWN."""
    try:
        return kind(number).name
    except ValueError:
        return "UNKNOWN"


async def cluster_acls(brokers: Brokers) -> AclSnapshot:
    """Ask a broker for every ACL on the Cluster resource.

    Raises:
        NotSentError: None could tell; the caller must fail closed.
    """
    try:
        return await brokers.read(_describe_acls, timeout_s=brokers.patience.fact_s)
    except QuotaError as error:
        if error.code == _UNREACHABLE:
            raise
        raise _acls_unknown(error.detail) from error


async def _describe_acls(lease: BrokerLease) -> AclSnapshot:
    """Ask for every ACL on the Cluster resource, of any name and pattern. Source: KIP-140."""
    request = DescribeAclsRequest(
        resource_type_filter=ACLResourceType.CLUSTER,
        resource_name_filter=None,
        pattern_type_filter=ACLResourcePatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
    )
    answer = await ask(
        lease.connection, request, DescribeAclsResponse, largest_answer=_LARGEST_ANSWER_BYTES
    )
    if answer.error_code == 0:
        return AclSnapshot(_bindings(answer))
    name = code_name(answer.error_code)
    if name == _SECURITY_DISABLED:
        return AclSnapshot((), has_authorizer=False)
    if name == NOT_AUTHORIZED:
        raise _acls_unknown(missing_acl("DESCRIBE"))
    refusal = f"The broker refused with {name}. {answer.error_message or ''}"
    raise _acls_unknown(refusal.rstrip())


def _bindings(answer: Any) -> tuple[AclBinding, ...]:
    return tuple(
        AclBinding(
            resource_name=resource.resource_name,
            pattern_type=_name_of(ACLResourcePatternType, resource.pattern_type),
            principal=acl.principal,
            host=acl.host,
            operation=_name_of(ACLOperation, acl.operation),
            permission=_name_of(ACLPermissionType, acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def _acls_unknown(reason: str) -> NotSentError:
    detail = f"The ACLs of the cluster could not be read, so nothing can be allowed. {reason}"
    return NotSentError(detail, code=_UNREACHABLE)


_AUTHORIZER_MAX_AGE_S: Final = 3600.0
"""Brokers have an authorizer from their start to their end, and a session is shorter than that."""

_NOBODY: Final = "kafka-quota-service asks whether it may"
_NO_CHANGE: Final = ClientQuotaAlteration(
    ClientQuotaEntity.of({"user": _NOBODY}), (Op("producer_byte_rate", remove=True),)
)
_NO_ENTITY: Final = ClientQuotaFilter(
    (ClientQuotaFilterComponent.of_entity("user", _NOBODY),), strict=True
)


class KafkaCallerRights:
    """Asks as the caller, by the request that tells it, or else by the act itself.

    DescribeCluster tells the operations on the cluster to those alone who have DESCRIBE on it, and
    tells the others nothing. For them the act is tried, where it changes nothing: a describe of a
    name that nobody has, a validation of a removal. Source: KIP-430, ``AuthHelper`` of release 4.3.
    """

    def __init__(self, brokers: Brokers, admin: KafkaClientQuotaAdmin) -> None:
        self._brokers = brokers
        self._timeout_s = brokers.patience.fact_s
        self._admin = admin
        self._authorizer = Cache(partial(self._read, _has_authorizer))
        self._reported = Cache(partial(self._read, _operations))
        self._tried = {
            Operation.DESCRIBE_CONFIGS: Cache(self._try_to_describe),
            Operation.ALTER_CONFIGS: Cache(self._try_to_alter),
        }

    async def rights(self, operation: Operation, *, max_age_s: float) -> Rights:
        """See ``ClusterRights``."""
        has_authorizer, age_s = await self._authorizer.get(_AUTHORIZER_MAX_AGE_S)
        if not has_authorizer:
            return Rights(True, "DescribeAcls", age_s, has_authorizer=False)
        reported, age_s = await self._reported.get(max_age_s)
        if reported or operation is Operation.DESCRIBE:
            return Rights(operation in reported, "DescribeCluster", age_s)
        allowed, age_s = await self._tried[operation].get(max_age_s)
        return Rights(allowed, _ACTS[operation], age_s)

    def forget(self) -> None:
        """See ``ClusterRights``."""
        self._reported.invalidate()
        for tried in self._tried.values():
            tried.invalidate()

    async def close(self) -> None:
        """Stop asking."""
        await self._authorizer.close()
        await self._reported.close()
        for tried in self._tried.values():
            await tried.close()

    async def _read(self, question: Callable[[BrokerLease], Awaitable[T]]) -> T:
        try:
            return await self._brokers.read(question, timeout_s=self._timeout_s)
        except BrokerError as error:
            raise _rights_unknown(error.detail) from error

    async def _try_to_describe(self) -> bool:
        try:
            await self._admin.describe_client_quotas(_NO_ENTITY, timeout_s=self._timeout_s)
        except NotSentError:
            raise
        except QuotaError as error:
            if error.kafka_error == NOT_AUTHORIZED:
                return False
            raise _rights_unknown(error.detail) from error
        return True

    async def _try_to_alter(self) -> bool:
        answer = await self._admin.alter_client_quotas(
            [_NO_CHANGE], validate_only=True, timeout_s=self._timeout_s
        )
        (verdict,) = answer.verdicts.values()
        if verdict.outcome is Outcome.VALIDATED:
            return True
        error = verdict.error
        if error is not None and error.kafka_error == NOT_AUTHORIZED:
            return False
        raise _rights_unknown(error.message if error is not None else "")


_ACTS: Final = {
    Operation.DESCRIBE_CONFIGS: "DescribeClientQuotas",
    Operation.ALTER_CONFIGS: "AlterClientQuotas",
}


async def _operations(lease: BrokerLease) -> frozenset[str]:
    """Return the names of the reported operations; none where nothing is reported."""
    if DescribeClusterRequest.API_KEY not in lease.connection.api_versions:
        return frozenset()
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await ask(lease.connection, request, DescribeClusterResponse)
    _check(answer)
    reported = answer.authorized_operations or ()
    return frozenset(_name_of(ACLOperation, number) for number in reported)


async def _has_authorizer(lease: BrokerLease) -> bool:
    """Tell it by a question about ACLs that nobody has; a refusal of it is an authorizer's too.

    Source: ``AclApis.handleDescribeAcls``.
    """
    request = DescribeAclsRequest(
        resource_type_filter=ACLResourceType.CLUSTER,
        resource_name_filter="kafka-cluster",
        pattern_type_filter=ACLResourcePatternType.LITERAL,
        principal_filter=f"User:{_NOBODY}",
        host_filter=None,
        operation=ACLOperation.ALL,
        permission_type=ACLPermissionType.ANY,
    )
    answer = await ask(lease.connection, request, DescribeAclsResponse)
    name = code_name(answer.error_code)
    if name == _SECURITY_DISABLED:
        return False
    if name != NOT_AUTHORIZED:
        _check(answer)
    return True


def _check(answer: Any) -> None:
    if answer.error_code:
        raise _rights_unknown(f"The broker answered {code_name(answer.error_code)}.")


def _rights_unknown(reason: str) -> NotSentError:
    detail = f"What the caller may do could not be read, so nothing is allowed. {reason}"
    return NotSentError(detail.rstrip(), code=_UNREACHABLE)
