"""What the documents of every feature are made of: entities, stored values, times, identifiers."""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from pydantic import (
    MISSING,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from typing_extensions import TypeAliasType

from app.domain.alterations import AlterationResult as DomainResult
from app.domain.alterations import Outcome
from app.domain.entities import ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.http.encoding import JsonNumber, entity_json, plain_json, values_json


class ResponseModel(BaseModel):
    """A JSON object of an answer, which has these members and no other.

    It is made with ``model_validate`` of a value of the domain that has them as attributes, or of
    a row. The docstring of a member is its description.
    """

    model_config = ConfigDict(extra="forbid", from_attributes=True, use_attribute_docstrings=True)


PLAIN: Final = BeforeValidator(plain_json)
"""Of a member that is made of a value of the domain."""

UNSET_IS_MISSING: Final = BeforeValidator(
    lambda value: MISSING if value is None or value is False or value == () else value
)
"""Of a member that an answer has only where there is something."""

Number = Annotated[JsonNumber, PLAIN, WithJsonSchema({"type": "number"})]
"""Written as stored values are."""


API_VERSION: Final = "quotas/v1"
"""Of the document that describe writes as YAML and plans read."""

MAX_IDENTITIES: Final = 10_000
MAX_REASON_CHARACTERS: Final = 1_000
MAX_WAIT_MS: Final = 60_000

BUCKET_ID_PATTERN: Final = "^-?[0-9]{1,19}$"
UUID7_PATTERN: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
"""A UUIDv7 in lower case. Source: RFC 9562."""

_UTC_MILLISECONDS: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"

STORED_VALUE: Final = WithJsonSchema(
    {
        "description": (
            "A stored value: a float64. Integral values have no fraction; 2^63, the customary "
            '"unlimited", is 9223372036854775807. What other tools stored and JSON lacks is text.'
        ),
        "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity"]}],
    }
)

_NAME: Final = {"type": ["string", "null"]}


def _entity(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Take an entity of the domain as it is: the name of a refused one may be no Unicode text."""
    return entity_json(value) if isinstance(value, ClientQuotaEntity) else validate(value)


Entity = TypeAliasType(
    "Entity",
    Annotated[
        dict[str, str | None],
        WrapValidator(_entity),
        WithJsonSchema(
            {
                "type": "object",
                "description": (
                    "From entity type to name. Null is the default entity; a type that the "
                    "entity does not have is missing. Brokers have `user`, `client-id` and `ip`; "
                    "`<default>` is an ordinary name."
                ),
                "properties": {"user": _NAME, "client-id": _NAME, "ip": _NAME},
                "additionalProperties": _NAME,
            }
        ),
    ],
)

EntityKey = TypeAliasType(
    "EntityKey",
    Annotated[
        str,
        WithJsonSchema(
            {
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]+$",
                "description": (
                    "The unpadded URL-safe base64 of the entity's canonical JSON: types sorted, no "
                    "blanks, UTF-8."
                ),
            }
        ),
    ],
)

StoredValue = TypeAliasType("StoredValue", Annotated[JsonNumber, PLAIN, STORED_VALUE])

QUOTA_VALUES: Final = Field(
    description="From quota key to stored value; keys that no rule knows are passed on."
)


def _values(values: Any, _: ValidatorFunctionWrapHandler) -> Any:
    return values_json(values)


QuotaValues = TypeAliasType(
    "QuotaValues", Annotated[dict[str, StoredValue], WrapValidator(_values), QUOTA_VALUES]
)

Time = TypeAliasType(
    "Time",
    Annotated[
        str,
        PLAIN,
        Field(
            pattern=_UTC_MILLISECONDS,
            description="RFC 3339, UTC, milliseconds.",
            json_schema_extra={"format": "date-time"},
        ),
    ],
)

ClusterId = TypeAliasType(
    "ClusterId", Annotated[str, Field(description="The id of the Kafka cluster.")]
)

AlterationId = TypeAliasType(
    "AlterationId",
    Annotated[str, Field(pattern=UUID7_PATTERN, description="A UUIDv7; its time orders the log.")],
)

RequestId = TypeAliasType(
    "RequestId",
    Annotated[
        str, Field(pattern="^[A-Za-z0-9._-]{1,128}$", description="The id of the HTTP request.")
    ],
)

NextPageToken = TypeAliasType(
    "NextPageToken",
    Annotated[
        Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")] | None,
        Field(description="Give it as `page_token`; null on the last page."),
    ],
)

IP_SCHEMA: Final[dict[str, Any]] = {
    "description": "A literal IPv4 or IPv6 address; no range, no zone, no host name.",
    "anyOf": [
        {"type": "string", "format": "ipv4"},
        {"type": "string", "format": "ipv6"},
    ],
}

AuditAction = Literal["alter", "validate", "denied", "revert", "apply_plan", "drift"]
"""What an audit row can be about."""

Values = Annotated[
    QuotaValues | None, Field(description="The whole entity's values; null: unknown.")
]


class Refusal(ResponseModel):
    """Why an entity was refused."""

    kafka_error: str | None
    """Kafka's name; null where the rule is this service's own."""
    message: SkipValidation[str]
    """The broker's or this service's words."""


class AlterationResult(ResponseModel):
    """What became of one entity."""

    entity: Entity
    outcome: Outcome
    """`not_applied`: valid, and held back because another entity was refused, or found not applied.
    `unknown`: sent, and no definite answer yet. Recovery may find `observed_other`: neither the
    values before nor those asked for. `superseded`: another alteration took over before that."""
    changed: bool | None
    """Whether a value differs; null where the outcome is unknown."""
    before: Values
    after: Values
    error: Refusal | None
    warnings: Annotated[
        Annotated[list[SkipValidation[str]], Field(min_length=1)] | MISSING, UNSET_IS_MISSING
    ] = MISSING
    """Only where there are some."""


def alteration_results(results: Iterable[DomainResult]) -> list[AlterationResult]:
    """Return them one by one, because no single call into C may take long."""
    return [AlterationResult.model_validate(result) for result in results]


class Op(ResponseModel):
    """A key that is to be set or removed."""

    key: str
    value: Annotated[StoredValue | MISSING, UNSET_IS_MISSING] = MISSING
    remove: Annotated[Literal[True] | MISSING, UNSET_IS_MISSING] = MISSING


def some_of_the_keys(schema: dict[str, Any]) -> None:
    """Describe an object whose members are quota keys, any of them."""
    member = schema.pop("additionalProperties")
    schema["properties"] = {key.value: member for key in QuotaKey}
    schema["additionalProperties"] = False
    schema["minProperties"] = 1


def all_of_the_keys(schema: dict[str, Any]) -> None:
    """Describe an object that has a member for each quota key."""
    some_of_the_keys(schema)
    schema["required"] = [key.value for key in QuotaKey]
