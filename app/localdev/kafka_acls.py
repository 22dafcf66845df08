"""ACLs of a local broker, most of them on the resource Cluster `kafka-cluster`."""

import time
from collections.abc import Collection

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from app.localdev.errors import LocalDevError
from app.localdev.kafka_admin import silent_admin

_TIMEOUT_S = 10.0
_VISIBLE_DEADLINE_S = 30.0
_POLL_S = 0.05


def allow_on_cluster(bootstrap_servers: str, grants: Collection[tuple[str, AclOperation]]) -> None:
    """Allow each (principal, operation) on the cluster from any host; return when visible.

    Raises:
        LocalDevError: the broker did not take the ACLs.
    """
    # confluent-kafka calls the resource type Cluster BROKER. Source: rd_kafka_ResourceType_t.
    cluster = (ResourceType.BROKER, "kafka-cluster")
    allow(bootstrap_servers, [allowed(*cluster, *grant) for grant in grants])


def allowed(kind: ResourceType, name: str, principal: str, operation: AclOperation) -> AclBinding:
    """Return the ACL that allows a principal an operation on one resource from any host."""
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        principal,
        "*",
        operation,
        AclPermissionType.ALLOW,
    )


def allow(bootstrap_servers: str, wanted: Collection[AclBinding]) -> None:
    """Create ACLs; return when they are visible.

    Raises:
        LocalDevError: the broker did not take the ACLs.
    """
    client = silent_admin(bootstrap_servers)
    try:
        for future in client.create_acls(list(wanted), request_timeout=_TIMEOUT_S).values():
            future.result()
        _wait_until_visible(client, wanted)
    except KafkaException as error:
        raise LocalDevError(f"The example ACLs were not created: {error}.") from error


def _wait_until_visible(client: AdminClient, wanted: Collection[AclBinding]) -> None:
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    deadline = time.monotonic() + _VISIBLE_DEADLINE_S
    while time.monotonic() < deadline:
        seen = client.describe_acls(everything, request_timeout=_TIMEOUT_S).result()
        if set(wanted) <= set(seen):
            return
        time.sleep(_POLL_S)
    raise LocalDevError("The example ACLs are not visible: read the end of the broker's log.")
