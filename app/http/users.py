"""``GET /me``, the caller, and ``GET /users/scram-credentials``, who has credentials at all."""

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import Field

from app.domain.authorization import Operation
from app.domain.policy import KeyLimits, PolicyRule
from app.http.encoding import JsonResponse, plain_json, rfc3339
from app.http.guards import AnyCaller, may_list_scram, services_of
from app.http.models import ClusterId, ResponseModel, Time
from app.http.responses import ASKING, READING, answers
from app.http.route import feature_router
from app.service.ports.brokers import ScramUsers as Users

router = feature_router("users")


class Permissions(ResponseModel):
    """What the cluster's ACLs and this service's settings let the caller do."""

    describe: bool
    """Read quotas: DESCRIBE_CONFIGS on the Cluster."""
    alter: bool
    """Change quotas: ALTER_CONFIGS on the Cluster."""
    audit: bool
    """Read the audit rows of everybody."""
    scram: bool
    """List SCRAM credentials: DESCRIBE on the Cluster."""


class PolicyKeyLimits(ResponseModel):
    """What a rule lets its principals do with a key."""

    min: float | None
    """The smallest value; null: no bound."""
    max: float | None
    """The largest value; null: no bound."""
    remove: bool
    """Whether the key may be removed."""


class BoundingRule(ResponseModel):
    """A rule of the policy, which allows changes that the ACLs allow."""

    name: str
    entities: list[list[str]]
    """Patterns, one of which must match: components as in `filter` of `GET /quotas`, which must all
    match, on entities of exactly these types."""
    keys: dict[str, PolicyKeyLimits]
    """By quota key; `*` stands for every key that is not named."""
    defaults: bool
    """Whether default entities are covered, too."""


class Me(ResponseModel):
    """Who calls, and what the caller may do."""

    cluster_id: ClusterId
    principal: str
    """As Kafka prints it, such as `User:alice`."""
    authentication: str
    """The method, such as `bearer-token`."""
    client_address: str
    """The address that ACLs are matched with."""
    permissions: Permissions
    policy: list[BoundingRule] | None
    """The rules that bound what the caller may change: what one covers is allowed. Null: nothing
    bounds it; an empty list: nothing may be changed."""


@router.get(
    "/me",
    summary="Who am I, and what may I do?",
    responses=answers(Me, "The caller.", "me", errors=ASKING),
)
async def show_caller(request: Request, granted: AnyCaller) -> Response:
    """Report the caller's principal, address and permissions, and the policy's rules for it."""
    services, caller = services_of(request), granted.caller

    async def may(operation: Operation) -> bool:
        return (await services.authorizer.decide(caller, operation)).refusal is None

    rules = services.policy.rules_of(caller.principal)
    document = {
        "cluster_id": await services.cluster.cluster_id(),
        "principal": caller.principal,
        "authentication": caller.authentication,
        "client_address": caller.host,
        "permissions": {
            "describe": await may(Operation.DESCRIBE_CONFIGS),
            "alter": await may(Operation.ALTER_CONFIGS),
            "audit": services.authorizer.is_auditor(caller),
            "scram": await may(Operation.DESCRIBE),
        },
        "policy": None if rules is None else [rule_json(rule) for rule in rules],
    }
    return JsonResponse(document)


def rule_json(rule: PolicyRule) -> dict[str, Any]:
    """Return a rule in the words of the policy's file."""
    return {
        "name": rule.name,
        "entities": [list(map(str, pattern.components)) for pattern in rule.entities],
        "keys": {key: _limits_json(limits) for key, limits in rule.keys.items()},
        "defaults": rule.defaults,
    }


def _limits_json(limits: KeyLimits) -> dict[str, Any]:
    return {
        "min": plain_json(limits.minimum),
        "max": plain_json(limits.maximum),
        "remove": limits.remove,
    }


class ScramCredential(ResponseModel):
    """What Kafka reports of a credential: no salt and no key."""

    mechanism: str
    """`SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    iterations: Annotated[int, Field(ge=0)]
    """Of the hash."""


class ScramUser(ResponseModel):
    """A user with credentials."""

    user: str
    """The user's name, without `User:`."""
    credentials: list[ScramCredential]
    """One for each mechanism."""


class ScramUsers(ResponseModel):
    """The users that have SCRAM credentials."""

    cluster_id: ClusterId
    as_of: Time
    users: list[ScramUser]
    """Those that have credentials, by name."""


@router.get(
    "/users/scram-credentials",
    summary="Describe SCRAM credentials",
    dependencies=[Depends(may_list_scram)],
    responses=answers(
        ScramUsers, "The users that have SCRAM credentials.", "scram-credentials", errors=READING
    ),
)
async def describe_scram_credentials(request: Request) -> Response:
    """Report mechanism and iterations of each user's SCRAM credentials; never a salt or a key."""
    return JsonResponse(scram_users_json(await services_of(request).scram.scram_users()))


def scram_users_json(answer: Users) -> dict[str, Any]:
    """Return the users by name, with what Kafka reports of their credentials."""
    return {
        "cluster_id": answer.cluster_id,
        "as_of": rfc3339(answer.as_of),
        "users": [
            {
                "user": user,
                "credentials": [
                    {"mechanism": credential.mechanism, "iterations": credential.iterations}
                    for credential in credentials
                ],
            }
            for user, credentials in answer.users.items()
        ],
    }
