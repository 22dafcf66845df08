"""Kafka's messages to and from plain values: quotas, cluster and ACLs."""

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
from kafka.protocol.metadata import ApiVersionsResponse

from app.domain.authorization import AclBinding
from app.domain.entities import ClientQuotaEntity
from tests.testkit.fake_kafka.quotas import Component, Entry, Quotas, Verdict


def framed(request: bytes, body: bytes) -> bytes:
    """Return an answer with its length and the request's correlation id."""
    payload = request[4:8] + body
    return struct.pack(">i", len(payload)) + payload


def encoded(answer: Any, request: bytes, version: int | None = None) -> bytes:
    """Return a message of kafka-python as an answer, in the request's version by default."""
    version = _version_of(request) if version is None else version
    kind = type(answer)
    flexible = kind is not ApiVersionsResponse and kind.flexible_version_q(version)
    return framed(request, b"\0" * flexible + bytes(answer.encode(version=version)))


def _version_of(request: bytes) -> int:
    version: int = struct.unpack(">h", request[2:4])[0]
    return version


def _decoded(kind: Any, request: bytes) -> Any:
    return kind.decode(request, version=_version_of(request), header=True)


class Alteration(NamedTuple):
    """One AlterClientQuotas request."""

    entries: tuple[Entry, ...]
    validate_only: bool


def alter_asked(request: bytes) -> Alteration:
    message = _decoded(AlterClientQuotasRequest, request)
    entries = tuple(
        Entry(
            ClientQuotaEntity.of({each.entity_type: each.entity_name for each in entry.entity}),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops or ()),
        )
        for entry in message.entries or ()
    )
    return Alteration(entries, message.validate_only)


def alter_answer(verdicts: Sequence[Verdict], throttle_time_ms: int = 0) -> Any:
    data = AlterClientQuotasResponse.EntryData
    entries = [
        data(
            error_code=verdict.code,
            error_message=verdict.message,
            entity=_entity_data(data.EntityData, verdict.entity),
        )
        for verdict in verdicts
    ]
    return AlterClientQuotasResponse(throttle_time_ms=throttle_time_ms, entries=entries)


def describe_asked(request: bytes) -> tuple[tuple[Component, ...], bool]:
    """Read a describe: its components, and whether it is strict."""
    message = _decoded(DescribeClientQuotasRequest, request)
    components = tuple(
        Component(item.entity_type, item.match_type, item.match)
        for item in message.components or ()
    )
    return components, message.strict


def describe_answer(code: int = 0, message: str | None = None, quotas: Quotas | None = None) -> Any:
    data = DescribeClientQuotasResponse.EntryData
    entries = [
        data(
            entity=_entity_data(data.EntityData, entity),
            values=[data.ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in (quotas or {}).items()
    ]
    return DescribeClientQuotasResponse(
        throttle_time_ms=0,
        error_code=code,
        error_message=message,
        entries=None if code else entries,
    )


def _entity_data(data: Any, entity: ClientQuotaEntity) -> list[Any]:
    return [data(entity_type=kind, entity_name=name) for kind, name in entity.entries]


def quorum_answer(
    leader_id: int,
    epoch: int,
    high_watermark: int,
    *,
    error_code: int = 0,
    partition_error_code: int = 0,
    partitions: int = 1,
) -> Any:
    topic: Any = DescribeQuorumResponse.TopicData
    partition = topic.PartitionData(
        partition_index=0,
        error_code=partition_error_code,
        error_message=None,
        leader_id=leader_id,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        current_voters=[],
        observers=[],
    )
    topics = [topic(topic_name="__cluster_metadata", partitions=[partition] * partitions)]
    return DescribeQuorumResponse(
        error_code=error_code, error_message=None, topics=topics, nodes=[]
    )


def configs_answer(request: bytes, callback: str | None, *, error_code: int = 0) -> Any:
    """Build the answer to a DescribeConfigs for ``client.quota.callback.class``."""
    result: Any = DescribeConfigsResponse.DescribeConfigsResult
    value = result.DescribeConfigsResourceResult(name="client.quota.callback.class", value=callback)
    results = [
        result(
            error_code=error_code,
            error_message=None,
            resource_type=item.resource_type,
            resource_name=item.resource_name,
            configs=[] if error_code else [value],
        )
        for item in _decoded(DescribeConfigsRequest, request).resources
    ]
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


_CLUSTER_RESOURCE = 4


def acls_answer(
    bindings: Sequence[AclBinding] = (), *, code: int = 0, message: str | None = None
) -> Any:
    data: Any = DescribeAclsResponse.DescribeAclsResource
    resources = [
        data(
            resource_type=_CLUSTER_RESOURCE,
            resource_name=acl.resource_name,
            pattern_type=ACLResourcePatternType[acl.pattern_type].value,
            acls=[
                data.AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=ACLOperation[acl.operation].value,
                    permission_type=ACLPermissionType[acl.permission].value,
                )
            ],
        )
        for acl in bindings
    ]
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=code, error_message=message, resources=resources
    )


def versions_answer(
    versions: dict[int, tuple[int, int]], *, error_code: int = 0, published_offset: int = -1
) -> Any:
    """Build the answer to ApiVersions; -1 is no offset of the metadata log."""
    key: Any = ApiVersionsResponse.ApiVersion
    keys = [
        key(api_key=api, min_version=low, max_version=high) for api, (low, high) in versions.items()
    ]
    return ApiVersionsResponse(
        error_code=error_code, api_keys=keys, finalized_features_epoch=published_offset
    )
