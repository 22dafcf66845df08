"""Answers about resolutions, as models: they describe, and check in tests what is written."""

from typing import Annotated, Final

from pydantic import MISSING, Field, WithJsonSchema

from app.domain.quota_keys import Scope
from app.domain.resolution_levels import QuotaSource
from app.http.alterations.impact import ImpactAnswer
from app.http.alterations.schemas import object_schema
from app.http.analytics.models import Usage
from app.http.models import (
    IP_SCHEMA,
    UNSET_IS_MISSING,
    ClusterId,
    Entity,
    EntityWarning,
    ResponseModel,
    StoredValue,
    Time,
    some_of_the_keys,
)

_TEXT: Final = {"type": "string"}

IDENTITY: Final = WithJsonSchema(
    {
        "description": (
            "A user with or without a client-id, or an address. An empty client-id equals a "
            "missing one; answers leave it out and have addresses in canonical text."
        ),
        "oneOf": [
            object_schema(["user"], {"user": _TEXT, "client-id": _TEXT}, title="UserIdentity"),
            object_schema(["ip"], {"ip": IP_SCHEMA}, title="IpIdentity"),
        ],
    }
)


class QuotaPlace(ResponseModel):
    """An entity, and its level for an identity."""

    entity: Entity
    level: Annotated[int, Field(ge=1, le=8, description="1 is the most specific.")]
    name: Annotated[QuotaSource, Field(description="The level's name.")]


class OverriddenQuota(QuotaPlace):
    """A less specific entity that has the key and loses."""

    value: StoredValue


class LevelTried(QuotaPlace):
    """A level that was looked at."""

    value: StoredValue | None
    """What is stored there; null: nothing."""
    applies: bool
    """Whether the level can apply to this identity at all."""
    reason: str | None
    """Why it cannot."""


_BUCKET: Final = WithJsonSchema(
    {
        "description": "The bucket: who spends from the same allowance, as metric tags.",
        "oneOf": [
            object_schema(names, dict.fromkeys(names, _TEXT), title=title)
            for title, names in (("UserClientBucket", ("user", "client-id")), ("IpBucket", ("ip",)))
        ]
        + [
            {
                "type": "object",
                "title": "CallbackBucket",
                "description": "The metric tags of the brokers' own callback.",
                "additionalProperties": _TEXT,
                "not": {"anyOf": [{"required": ["user", "client-id"]}, {"required": ["ip"]}]},
            }
        ],
    }
)


class TemporarySource(ResponseModel):
    """When a value ends, and what its key has then."""

    expires_at: Time
    returns_to: StoredValue | None
    """Null: the key is not set there then."""


class SourceQuota(QuotaPlace):
    """The entity that a value comes from."""

    temporary: Annotated[TemporarySource | MISSING, UNSET_IS_MISSING] = MISSING
    """Where the value is for a time."""


class ResolvedQuota(ResponseModel):
    """What applies for one key."""

    value: StoredValue | None
    """As stored, or as the brokers' callback says; null: unlimited."""
    unit: str
    """Of the value, such as `bytes/s`."""
    scope: Scope
    """Where the limit is enforced."""
    source: SourceQuota | None
    """Where the value comes from; null: no stored quota decides."""
    shared_by: Annotated[dict[str, str], _BUCKET]
    by_broker: Annotated[dict[str, StoredValue] | MISSING, UNSET_IS_MISSING] = MISSING
    """Where brokers have limits of their own: the limit of each, by broker id."""
    overridden: list[OverriddenQuota]
    """The less specific entities that have the key and lose."""
    levels: Annotated[list[LevelTried] | MISSING, UNSET_IS_MISSING] = MISSING
    """With `explain` only: every level, in order."""
    usage: Usage | MISSING | None = MISSING
    """With `usage` only; null: nothing is published."""


class Callback(ResponseModel):
    """By what brokers decide about quotas (KIP-257)."""

    class_name: Annotated[str | None, Field(alias="class")]
    """The brokers' `client.quota.callback.class`; null: none has one."""
    model: str
    """By what this service decides: `kafka` is Kafka's own rules."""


class _Resolved(ResponseModel):
    identity: Annotated[dict[str, str], IDENTITY]
    authoritative: Annotated[
        bool,
        Field(
            description=(
                "False where a broker has a `client.quota.callback.class` that is not configured "
                "here, or not every live broker has reported the configured one."
            )
        ),
    ]
    callback: Callback
    quotas: Annotated[
        dict[str, ResolvedQuota],
        Field(
            description=(
                "Every key that applies to the identity: `connection_creation_rate` for an "
                "address, the other four for a user and client-id."
            ),
            json_schema_extra=some_of_the_keys,
        ),
    ]
    notes: Annotated[list[str], Field(description="Sentences about what does not do what it says.")]


class Resolution(_Resolved):
    """What applies, and why."""

    cluster_id: ClusterId
    as_of: Time


class ProposedResolution(_Resolved):
    """What would apply if the alterations had been applied."""


class ResolveResult(_Resolved):
    """What applies to one identity; `proposed` only where the request has alterations."""

    proposed: ProposedResolution | MISSING = MISSING


class ResolveAnswer(ResponseModel):
    """What applies to many identities."""

    cluster_id: ClusterId
    as_of: Time
    results: list[ResolveResult]
    """In the order of the identities."""
    impact: ImpactAnswer | MISSING = MISSING
    warnings: Annotated[
        Annotated[list[EntityWarning], Field(min_length=1)] | MISSING, UNSET_IS_MISSING
    ] = MISSING
    """About entities that the alterations set; only where there are some."""
