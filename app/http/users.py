"""``GET /me``, the caller, and ``GET /users/scram-credentials``, who has credentials at all."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import MISSING, BeforeValidator, Field

from app.domain.entities import ClientQuotaFilter
from app.http.guards import AnyCaller, may_list_scram, permissions_of, services_of
from app.http.models import (
    UNSET_IS_MISSING,
    ClusterId,
    JsonResponse,
    Number,
    Permissions,
    ResponseModel,
    Time,
)
from app.http.responses import answers
from app.http.route import feature_router

router = feature_router("users")


def _components(pattern: ClientQuotaFilter) -> list[str]:
    return list(map(str, pattern.components))


def _seconds(longest: timedelta | None) -> Any:
    return MISSING if longest is None else f"{longest.total_seconds():.0f}s"


class PolicyKeyLimits(ResponseModel):
    """What a rule lets its principals do with a key."""

    min: Annotated[Number | None, Field(validation_alias="minimum")]
    """The smallest value; null: no bound."""
    max: Annotated[Number | None, Field(validation_alias="maximum")]
    """The largest value; null: no bound."""
    remove: bool
    """Whether the key may be removed."""


class BoundingRule(ResponseModel):
    """A rule of the policy, which allows changes that the ACLs allow."""

    name: str
    entities: list[Annotated[list[str], BeforeValidator(_components)]]
    """Patterns, one of which must match: components as in `filter` of `GET /quotas`, which must all
    match, on entities of exactly these types."""
    keys: dict[str, PolicyKeyLimits]
    """By quota key; `*` stands for every key that is not named."""
    defaults: bool
    """Whether default entities are covered, too."""
    max_duration: Annotated[str | MISSING, BeforeValidator(_seconds)] = MISSING
    """The longest `expires_in`, such as `28800s`; only where the rule has one."""
    temporary_above: Annotated[dict[str, Number] | MISSING, UNSET_IS_MISSING] = MISSING
    """By key the value above which one may be set for a time only; only where the rule has some."""


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
    responses=answers(Me, "The caller.", "me"),
)
async def show_caller(request: Request, granted: AnyCaller) -> Response:
    """Report the caller's principal, address and permissions, and the policy's rules for it."""
    services, caller = services_of(request), granted.actor.caller
    rules = services.policy.rules_of(caller.principal)
    document = {
        "cluster_id": await services.cluster.cluster_id(),
        "principal": caller.principal,
        "authentication": caller.authentication,
        "client_address": caller.host,
        "permissions": await permissions_of(granted.actor),
        "policy": rules,
    }
    return JsonResponse(Me.model_validate(document))


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
    responses=answers(ScramUsers, "The users that have SCRAM credentials.", "scram-credentials"),
)
async def describe_scram_credentials(request: Request) -> Response:
    """Report mechanism and iterations of each user's SCRAM credentials; never a salt or a key."""
    answer = await services_of(request).scram_users()
    users = [
        {"user": user, "credentials": credentials} for user, credentials in answer.users.items()
    ]
    document = {"cluster_id": answer.cluster_id, "as_of": answer.as_of, "users": users}
    return JsonResponse(ScramUsers.model_validate(document))
