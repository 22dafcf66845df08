"""Questions to a local cluster, and the ACLs that are set there."""

import logging
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

from app.localdev.local_directory import LocalDevError

_SILENT = logging.getLogger("app.localdev.silent")

_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def silent_admin(bootstrap_servers: str) -> AdminClient:
    """Return a client that tries again fast and prints nothing where no broker listens."""
    configuration = {
        "bootstrap.servers": bootstrap_servers,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    return AdminClient(configuration, logger=_SILENT)


def cluster_id_of(client: AdminClient, timeout_s: float = 1.0) -> str | None:
    """Return the id of the cluster that answers with a live node, or nothing."""
    try:
        answer = client.describe_cluster(request_timeout=timeout_s).result()
    except KafkaException:
        return None
    return str(answer.cluster_id) if answer.nodes else None


_TIMEOUT_S = 10.0
_VISIBLE_DEADLINE_S = 30.0
_POLL_S = 0.05


def allowed(kind: ResourceType, name: str, principal: str, operation: AclOperation) -> AclBinding:
    """Return the ACL that allows a principal an operation on one resource from any host."""
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
    )


def allow(bootstrap_servers: str, wanted: Collection[AclBinding]) -> None:
    """Create ACLs; return when they are visible."""
    client = silent_admin(bootstrap_servers)
    try:
        for future in client.create_acls(list(wanted), request_timeout=_TIMEOUT_S).values():
            future.result()
        _wait_until_visible(client, wanted)
    except KafkaException as error:
        raise LocalDevError(f"The example ACLs were not created: {error}.") from error


EVERY_ACL = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def _wait_until_visible(client: AdminClient, wanted: Collection[AclBinding]) -> None:
    deadline = time.monotonic() + _VISIBLE_DEADLINE_S
    while time.monotonic() < deadline:
        seen = client.describe_acls(EVERY_ACL, request_timeout=_TIMEOUT_S).result()
        if set(wanted) <= set(seen):
            return
        time.sleep(_POLL_S)
    raise LocalDevError("The example ACLs are not visible: read the end of the broker's log.")
