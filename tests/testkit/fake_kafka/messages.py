"""Kafka's messages to and from plain values: quotas, cluster, principals and ACLs."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeQuorumResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from app.domain.authorization import AclBinding
from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_kafka.quotas import Component, Entry, Quotas, Verdict


class AlterAsked(NamedTuple):
    """A decoded AlterClientQuotas request."""

    client_id: str
    entries: tuple[Entry, ...]
    validate_only: bool


class DescribeAsked(NamedTuple):
    """A decoded DescribeClientQuotas request."""

    components: tuple[Component, ...]
    strict: bool


class QuorumView(NamedTuple):
    """What the leader of the metadata log says."""

    leader_id: int
    epoch: int
    high_watermark: int


def version_of(request: bytes) -> int:
    """Return the API version of a request."""
    version: int = struct.unpack(">h", request[2:4])[0]
    return version


def encoded(answer: Any, request: bytes) -> bytes:
    """Return an answer in the request's version, with what follows the correlation id."""
    version = version_of(request)
    tagged = b"\0" if type(answer).flexible_version_q(version) else b""
    return tagged + bytes(answer.encode(version=version))


def decoded(kind: Any, request: bytes) -> Any:
    """Read a request."""
    return kind.decode(request, version=version_of(request), header=True)


def alter_asked(request: bytes) -> AlterAsked:
    """Read an alter; of a type that comes twice in one entity the last name counts."""
    message = decoded(AlterClientQuotasRequest, request)
    entries = tuple(
        Entry(
            _entity(entry.entity),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops or ()),
        )
        for entry in message.entries or ()
    )
    return AlterAsked(message.header.client_id, entries, message.validate_only)


def alter_answer(verdicts: Sequence[Verdict]) -> Any:
    """Build the answer to an alter."""
    data = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            data(
                error_code=verdict.code,
                error_message=verdict.message,
                entity=_entity_data(data.EntityData, verdict.entity),
            )
            for verdict in verdicts
        ],
    )


def describe_asked(request: bytes) -> DescribeAsked:
    """Read a describe."""
    message = decoded(DescribeClientQuotasRequest, request)
    components = tuple(
        Component(item.entity_type, item.match_type, item.match)
        for item in message.components or ()
    )
    return DescribeAsked(components, message.strict)


def describe_answer(code: int, message: str | None, quotas: Quotas | None) -> Any:
    """Build the answer to a describe."""
    data = DescribeClientQuotasResponse.EntryData
    entries = (
        None
        if quotas is None
        else [
            data(
                entity=_entity_data(data.EntityData, entity),
                values=[data.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in quotas.items()
        ]
    )
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=message, entries=entries
    )


def quorum_answer(code: int, view: QuorumView | None) -> Any:
    """Build the answer to a DescribeQuorum; no quorum where the code is not 0."""
    topic: Any = DescribeQuorumResponse.TopicData
    partitions = (
        []
        if view is None
        else [
            topic.PartitionData(
                partition_index=0,
                error_code=0,
                error_message=None,
                leader_id=view.leader_id,
                leader_epoch=view.epoch,
                high_watermark=view.high_watermark,
                current_voters=[],
                observers=[],
            )
        ]
    )
    topics = [topic(topic_name="__cluster_metadata", partitions=partitions)] if partitions else []
    return DescribeQuorumResponse(error_code=code, error_message=None, topics=topics, nodes=[])


def configs_answer(request: bytes, callback: str | None) -> Any:
    """Build the answer to a DescribeConfigs for ``client.quota.callback.class``."""
    result: Any = DescribeConfigsResponse.DescribeConfigsResult
    value = result.DescribeConfigsResourceResult(name="client.quota.callback.class", value=callback)
    asked = decoded(DescribeConfigsRequest, request).resources
    return DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            result(
                error_code=0,
                error_message=None,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
                configs=[value],
            )
            for item in asked
        ],
    )


def _entity(components: Any) -> ClientQuotaEntity:
    return ClientQuotaEntity.of(
        {component.entity_type: component.entity_name for component in components or ()}
    )


def _entity_data(data: Any, entity: ClientQuotaEntity) -> list[Any]:
    return [data(entity_type=kind, entity_name=name) for kind, name in entity.entries]


_CLUSTER_RESOURCE = 4


def acls_answer(code: int, bindings: Sequence[AclBinding]) -> Any:
    """Build the answer to a DescribeAcls."""
    data: Any = DescribeAclsResponse.DescribeAclsResource
    resources: dict[tuple[str, str], list[AclBinding]] = {}
    for binding in bindings:
        resources.setdefault((binding.resource_name, binding.pattern_type), []).append(binding)
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=None,
        resources=[
            data(
                resource_type=_CLUSTER_RESOURCE,
                resource_name=name,
                pattern_type=ACLResourcePatternType[pattern].value,
                acls=[
                    data.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=ACLOperation[acl.operation].value,
                        permission_type=ACLPermissionType[acl.permission].value,
                    )
                    for acl in acls
                ],
            )
            for (name, pattern), acls in resources.items()
        ],
    )


def handshake_answer(request: bytes) -> Any:
    """Build the answer to a SaslHandshake: PLAIN alone is offered."""
    mechanism = decoded(SaslHandshakeRequest, request).mechanism
    code = 0 if mechanism == "PLAIN" else 33
    return SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN"])


def plain_credentials(request: bytes) -> tuple[str, str]:
    """Read user name and password from a SaslAuthenticate. Source: RFC 4616."""
    token = bytes(decoded(SaslAuthenticateRequest, request).auth_bytes)
    _, user, password = token.decode().split("\0")
    return user, password


def authenticate_answer(*, accepted: bool) -> Any:
    """Build the answer to a SaslAuthenticate."""
    return SaslAuthenticateResponse(
        error_code=0 if accepted else 58,
        error_message=None if accepted else "Authentication failed: Invalid username or password",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )
