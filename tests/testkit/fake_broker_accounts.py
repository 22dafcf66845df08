"""Kafka's messages about who somebody is and what somebody may do."""

from collections.abc import Sequence
from typing import Any

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType
from kafka.protocol.admin import DescribeAclsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from app.domain.authorization import AclBinding
from tests.testkit.fake_broker_messages import decoded

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
