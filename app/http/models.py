"""What the documents of every feature are made of: values as JSON, and their models."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import orjson
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
from pydantic_core import PydanticSerializationError
from starlette.responses import Response
from typing_extensions import TypeAliasType

from app.domain.alterations import AlterationResult as DomainResult
from app.domain.alterations import JsonNumber, Outcome, quota_value_json
from app.domain.alterations import Values as DomainValues
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import TWO_TO_63, QuotaKey

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def rfc3339(time: datetime) -> str:
    """Return a time with a zone as ``2026-11-21T01:02:03.456Z``; finer digits are cut off."""
    return f"{time.astimezone(UTC).isoformat(timespec='milliseconds')[: -len('+00:00')]}Z"


def read_time(text: str) -> datetime:
    """Read an RFC 3339 time with any offset and any number of digits; return it in UTC.

    Raises:
        ValueError: Not such a time, or outside the years 1 to 9999.
    """
    if not _RFC3339.fullmatch(text):
        message = "not a time such as 2026-11-21T01:02:03.456Z"
        raise ValueError(message)
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError as error:
        message = "a time outside the years 1 to 9999"
        raise ValueError(message) from error


def json_bytes(document: Any) -> bytes:
    """Encode a document; lone surrogates are escaped, integers may have any size.

    Numbers that JSON lacks must be text already: see ``quota_value_json``.
    """
    try:
        return orjson.dumps(document)
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_texts(scalars: Sequence[Any]) -> list[bytes]:
    """Encode many strings and numbers, each like ``json_bytes``, in one call.

    Each stands on a line of its own: no text in JSON holds a line break.
    """
    if not scalars:
        return []
    try:
        whole = orjson.dumps(scalars, option=orjson.OPT_INDENT_2)
    except TypeError:
        return [json_bytes(scalar) for scalar in scalars]
    return whole.removeprefix(b"[\n  ").removesuffix(b"\n]").split(b",\n  ")


def model_bytes(model: BaseModel) -> bytes:
    """Encode a model; lone surrogates are escaped."""
    try:
        return model.model_dump_json(by_alias=True).encode()
    except PydanticSerializationError:  # a lone surrogate
        return json_bytes(model.model_dump(by_alias=True))


class JsonResponse(Response):
    """A JSON answer: a model of one, or a document."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content, with an end of line for terminals."""
        encode = model_bytes if isinstance(content, BaseModel) else json_bytes
        return encode(content) + b"\n"


_TYPES: Final = tuple(str(kind) for kind in ENTITY_TYPES)


def plain_json(value: Any) -> Any:
    """Return a value of any kind for JSON; numbers are written as stored values are."""
    match value:
        case float() | Decimal():
            return quota_value_json(float(value))
        case int() if abs(value) >= TWO_TO_63:
            return quota_value_json(float(value))
        case datetime():
            return rfc3339(value)
        case date():
            return value.isoformat()
        case Mapping():
            return {str(name): plain_json(member) for name, member in value.items()}
        case list() | tuple():
            return [plain_json(item) for item in value]
        case _:
            return value


def values_json(values: DomainValues) -> dict[str, JsonNumber]:
    """Return the values of one entity, sorted by key."""
    return {str(key): quota_value_json(float(values[key])) for key in sorted(values)}


def stored_json(value: float | None) -> JsonNumber | None:
    """Return a stored value, null where the key is not set."""
    return None if value is None else quota_value_json(value)


def entity_json(entity: ClientQuotaEntity) -> dict[str, str | None]:
    """Return an entity as type to name, user first; null is the default."""
    names = entity.as_dict()
    return {**{kind: names[kind] for kind in _TYPES if kind in names}, **names}


def answer_head(cluster_id: str, as_of: datetime) -> dict[str, Any]:
    """Return what an answer begins with."""
    return {"cluster_id": cluster_id, "as_of": rfc3339(as_of)}


def quota_json(entity: ClientQuotaEntity, values: DomainValues) -> dict[str, Any]:
    """Return one element of ``quotas``."""
    return {"entity": entity_json(entity), "entity_key": entity.key, "values": values_json(values)}


def child(pointer: str, token: str | int) -> str:
    """Return the pointer to a member or an item below ``pointer``."""
    return f"{pointer}/{str(token).replace('~', '~0').replace('/', '~1')}"


_QUOTED_CHARACTERS: Final = 80


def quote(text: str) -> str:
    """Quote text of the caller's for a sentence, shortened where it is long."""
    short = text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}…"
    return repr(short)


_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


def has_lone_surrogate(text: str) -> bool:
    """Tell whether a text holds half of a surrogate pair, so that it is no Unicode text."""
    return not text.isascii() and bool(_HALF_OF_A_PAIR.search(text))


class ResponseModel(BaseModel):
    """A JSON object of an answer, which has these members and no other.

    It is made with ``model_validate`` of a value of the domain that has them as attributes, or of
    a row. The docstring of a member is its description.
    """

    model_config = ConfigDict(extra="forbid", from_attributes=True, use_attribute_docstrings=True)


PLAIN: Final = BeforeValidator(plain_json)
"""Of a member that is made of a value of the domain."""

UNSET_IS_MISSING: Final = BeforeValidator(
    lambda value: MISSING if value is None or value is False or value in ((), {}) else value
)
"""Of a member that an answer has only where there is something."""

Number = Annotated[JsonNumber, PLAIN, WithJsonSchema({"type": "number"})]
"""Written as stored values are."""


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
ReturnsTo = Annotated[
    StoredValue | None, Field(description="What the key has then; null: it is not set.")
]
"""Of a value that ends by itself."""

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

AuditAction = Literal["alter", "validate", "denied", "revert", "apply_plan", "drift", "expire"]
"""What an audit row can be about."""

Values = Annotated[
    QuotaValues | None, Field(description="The whole entity's values; null: unknown.")
]


class BudgetShare(ResponseModel):
    """An entity that counts in a budget, and its value."""

    entity: Entity
    value: StoredValue


class ExceededBudget(ResponseModel):
    """A budget of the policy that would be exceeded."""

    name: str
    key: str
    sum: StoredValue
    """What the values would add up to."""
    limit: Number
    overbooking: Number
    """The sum may be at most `limit` times this."""
    largest: Annotated[list[BudgetShare], Field(max_length=5)]
    """The largest values, as they would be."""


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
    """`not_applied`: valid, and held back because another entity was refused. Where recovery found
    it: those values do not hold, and those that stood before do; another tool that put them back in
    between cannot be told apart. `unknown`: sent, and no definite answer yet. Recovery may find
    `observed_other`: neither the values before nor those asked for. `superseded`: another
    alteration took over before that."""
    changed: bool | None
    """Whether a value differs; null where the outcome is unknown, and like `before` where recovery
    found it and the log does not prove what held before."""
    before: Values
    after: Values
    error: Refusal | None
    warnings: Annotated[
        Annotated[list[SkipValidation[str]], Field(min_length=1)] | MISSING, UNSET_IS_MISSING
    ] = MISSING
    """Only where there are some. `drastic: …`: a value is lowered by 100 times or more, or a byte
    rate is set to under 1 KiB/s."""


def result_json(result: DomainResult) -> dict[str, Any]:
    """Return what became of one entity, with the members of ``AlterationResult``.

    A request has up to 10,000 of them: the model's validation takes six times as long.
    """
    error = result.error
    document = {
        "entity": entity_json(result.entity),
        "outcome": result.outcome.value,
        "changed": result.changed,
        "before": None if result.before is None else values_json(result.before),
        "after": None if result.after is None else values_json(result.after),
        "error": error and {"kafka_error": error.kafka_error, "message": error.message},
    }
    return {**document, "warnings": list(result.warnings)} if result.warnings else document


class EntityWarning(ResponseModel):
    """Why an entity, or a change of it, is probably not what was intended."""

    entity: Entity
    code: Literal[
        "user-prefix",
        "literal-default",
        "literal-pattern",
        "literal-blank",
        "drastic",
        "ignored-by-callback",
    ]
    """`user-prefix`: a user that begins with `User:`, which is the type of a principal.
    `literal-default`, `literal-pattern`: a name such as `<default>`, `*` or `tenant-*`, which
    another tool uses for the default entity or a pattern; Kafka matches names literally.
    `literal-blank`: a name that begins or ends with a blank. `drastic`, in plans: a value is
    lowered by 100 times or more, or a byte rate is set to under 1 KiB/s. `ignored-by-callback`:
    the brokers' quota callback ignores a key of it, so that it limits nobody."""
    detail: str
    """A sentence for people."""


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
