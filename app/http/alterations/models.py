"""Documents of alterations: what is asked, what became of it, its record."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import MISSING, BeforeValidator, ConfigDict, Field, PrivateAttr, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from app.domain.alterations import NOT_NUMBERS, DesiredValue, Op, Overall
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import InvalidRequestError, Violation
from app.http.alterations.expiry import Expiring
from app.http.alterations.impact import WITH_IMPACT, ImpactAnswer, impact_of_nothing
from app.http.alterations.schemas import ALTERATION_SCHEMA
from app.http.models import (
    MAX_REASON_CHARACTERS,
    MAX_WAIT_MS,
    QUOTA_VALUES,
    STORED_VALUE,
    UNSET_IS_MISSING,
    AlterationId,
    AlterationResult,
    AuditAction,
    ClusterId,
    RequestId,
    ResponseModel,
    Time,
    has_lone_surrogate,
    quote,
)
from app.http.validation import JsonValue, RequestBody, at_most, kind_of, own_error, strict
from app.service.ports.alterations import DEFAULT_WAIT_MS, Change, Wait

MAX_ENTITIES: Final = 10_000
"""Entities in one request. Source: ``QuorumController.MAX_RECORDS_PER_USER_OP``."""

MAX_OPS: Final = 50_000
"""Operations in one request, those included that change nothing: five for each entity."""

_TOO_MANY: Final = "too-many-changes"
_CONTROLLER_ERROR: Final = "POLICY_VIOLATION"

UP_TO_MAX_ENTITIES: Final = at_most(MAX_ENTITIES, _TOO_MANY, _CONTROLLER_ERROR)


def _expected_value(value: JsonValue) -> Decimal | float | None:
    if value is None or isinstance(value, Decimal):
        return value
    if isinstance(value, str) and value in ("NaN", "Infinity"):
        return NOT_NUMBERS[value]
    wanted = 'a number, "NaN", "Infinity", or null for a key that is not set'
    detail = f"This must be {wanted}, not {kind_of(value)}."
    raise own_error("wrong-type", detail)


def _desired_value(value: JsonValue) -> DesiredValue:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str) and value in NOT_NUMBERS:
        return NOT_NUMBERS[value]
    detail = f'This must be a number, "NaN" or "Infinity", not {kind_of(value)}.'
    raise own_error("wrong-type", detail)


DesiredValues = Annotated[
    dict[str, Annotated[Any, BeforeValidator(_desired_value), STORED_VALUE]], QUOTA_VALUES
]


@strict
class OpItem(TypedDict):
    """What is to be done with one key."""

    key: str
    value: NotRequired[Decimal]
    remove: NotRequired[bool]


@strict
class AlterationItem(TypedDict):
    """What is to be done with one entity."""

    entity: dict[str, str | None]
    ops: Annotated[list[OpItem], at_most(MAX_OPS, _TOO_MANY, _CONTROLLER_ERROR)]
    expected: NotRequired[dict[str, Annotated[Any, BeforeValidator(_expected_value)]]]


ClientQuotaAlteration = TypeAliasType(
    "ClientQuotaAlteration", Annotated[AlterationItem, WithJsonSchema(ALTERATION_SCHEMA)]
)


def _change(ordinal: int, item: AlterationItem) -> Change:
    ops = [Op(op["key"], op.get("value"), op.get("remove", False)) for op in item["ops"]]
    entity = ClientQuotaEntity.of(item["entity"])
    return Change(entity, tuple(ops), ordinal, item.get("expected", {}))


class Proposals(RequestBody):
    """A body with alterations, as proposed."""

    _changes: tuple[Change, ...] = PrivateAttr(())

    @property
    def changes(self) -> tuple[Change, ...]:
        """The alterations, in request order, with what must hold now."""
        return self._changes

    def _read(self, items: Sequence[AlterationItem]) -> None:
        if sum(len(item["ops"]) for item in items) > MAX_OPS:
            detail = f"Over {MAX_OPS} operations; a request changes at most 10,000 keys."
            violation = Violation("/alterations", _TOO_MANY, detail, _CONTROLLER_ERROR)
            raise InvalidRequestError(detail, violations=[violation])
        self._changes = tuple([_change(*numbered) for numbered in enumerate(items)])


ValidateOnly = Annotated[
    bool,
    Field(description="Check everything, with the broker's own validate-only too; change nothing."),
]

Reason = Annotated[
    str | None,
    Field(
        description="Why; stored in the audit log.",
        json_schema_extra={
            "anyOf": [
                {"type": "string", "maxLength": MAX_REASON_CHARACTERS, "pattern": r"^[^\u0000]*$"},
                {"type": "null"},
            ]
        },
    ),
]

WaitWord = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "enum": [wait.value for wait in Wait],
            "default": Wait.READABLE.value,
            "description": (
                "When to answer: once the change can be described through the broker in use, "
                "through every live broker, or at once."
            ),
        }
    ),
]

WaitMs = Annotated[
    Decimal,
    WithJsonSchema(
        {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_WAIT_MS,
            "description": "The longest wait, in milliseconds; then `readable` is false.",
        }
    ),
    Field(json_schema_extra={"default": DEFAULT_WAIT_MS}),
]


class Waiting(Expiring):
    """Members of a body that say how long its answer is waited for, why it is sent, until when."""

    wait: WaitWord = Wait.READABLE.value
    wait_ms: WaitMs = Decimal(DEFAULT_WAIT_MS)
    reason: Reason = None

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked, by the names of an ``Alteration``; the default for what is wrong."""
        return {
            **super().asked,
            "reason": self.reason,
            "wait": Wait(self.wait) if self.wait in set(Wait) else Wait.READABLE,
            "wait_ms": whole_number(self.wait_ms, MAX_WAIT_MS, DEFAULT_WAIT_MS),
        }

    def broken_rules(self) -> Iterator[Violation]:
        """Yield what is wrong with them."""
        yield from super().broken_rules()
        if self.wait not in set(Wait):
            detail = f"{quote(self.wait)} is unknown; wait is one of {', '.join(Wait)}."
            yield Violation("/wait", "unknown-word", detail)
        yield from broken_number("wait_ms", self.wait_ms, MAX_WAIT_MS)
        yield from broken_reason(self.reason)


class AlterationRequest(Waiting, Proposals):
    """The body of ``POST /quotas/alterations``."""

    model_config = ConfigDict(json_schema_extra={"required": ["alterations"]})

    validate_only: ValidateOnly = False
    all_or_nothing: bool = True
    """The broker validates first, and if one entity is refused nothing is applied. With false a
    refusal concerns its entity only."""
    alterations: Annotated[
        list[ClientQuotaAlteration],
        UP_TO_MAX_ENTITIES,
        Field(default_factory=list, json_schema_extra={"minItems": 1}),
    ]
    """Each entity at most once; at most 10,000 changed keys in all."""
    impact: Annotated[bool, WITH_IMPACT] = False

    @property
    def asked(self) -> dict[str, Any]:
        """See ``Waiting``."""
        return {
            **super().asked,
            "changes": self.changes,
            "validate_only": self.validate_only,
            "all_or_nothing": self.all_or_nothing,
        }

    def broken_rules(self) -> Iterator[Violation]:
        """Read the alterations, then yield what is wrong with the other members."""
        self._read(self.alterations)
        yield from super().broken_rules()
        if self.impact and not self.validate_only:
            yield impact_of_nothing("an alteration that is only checked")


class ReplaceRequest(Waiting):
    """The body of ``PUT /quotas/{entity_key}``."""

    values: Annotated[
        DesiredValues,
        Field(
            description=(
                "All the values that the entity is to have, by key: a key that is not named is "
                "removed. What tools stored that JSON lacks may be sent back as it was read."
            )
        ),
    ]
    validate_only: ValidateOnly = False

    @property
    def asked(self) -> dict[str, Any]:
        """See ``Waiting``."""
        return {**super().asked, "validate_only": self.validate_only}


class RevertRequest(Expiring):
    """The body of ``POST /quotas/alterations/{alteration_id}/revert``."""

    validate_only: ValidateOnly = False
    reason: Reason = None

    @property
    def asked(self) -> dict[str, Any]:
        """See ``Waiting``."""
        return {
            **super().asked,
            "reason": self.reason,
            "validate_only": self.validate_only,
        }

    def broken_rules(self) -> Iterator[Violation]:
        """Yield what is wrong with the reason and the end."""
        yield from super().broken_rules()
        yield from broken_reason(self.reason)


def whole_number(number: Decimal, maximum: int, default: int) -> int:
    """Return a whole number from 0 to ``maximum``, or the default."""
    within = Decimal(0) <= number <= maximum and number == number.to_integral_value()
    return int(number) if within else default


def broken_number(name: str, number: Decimal, maximum: int) -> Iterator[Violation]:
    """Yield what is wrong with a number that must be whole and from 0 to ``maximum``."""
    if whole_number(number, maximum, -1) < 0:
        detail = f"{name} must be a whole number from 0 to {maximum}."
        yield Violation(f"/{name}", "out-of-range", detail)


LONE_SURROGATE: Final = "This must be Unicode text; it holds half of a surrogate pair."


def broken_reason(reason: str | None) -> Iterator[Violation]:
    """Yield why the audit log cannot hold a reason."""
    if reason is None:
        return
    if len(reason) > MAX_REASON_CHARACTERS:
        detail = f"The reason has {len(reason)} characters; at most {MAX_REASON_CHARACTERS}."
        yield Violation("/reason", "reason-too-long", detail)
    if "\0" in reason:
        detail = "The reason cannot contain U+0000: the audit log cannot keep it."
        yield Violation("/reason", "nul-in-reason", detail)
    if has_lone_surrogate(reason):
        yield Violation("/reason", "lone-surrogate", LONE_SURROGATE)


class AlterationEvent(ResponseModel):
    """One event of an alteration."""

    at: Time
    event: Literal["intent", "sent", "outcome", "recovery", "expiry"]
    """`intent`: recorded before anything was sent. `sent`: handed to a broker. `outcome`: what
    became of it. `recovery`: what was found afterwards where that was nothing. `expiry`: another
    time was set for its end, or none."""
    detail: str


class CheckedResult(AlterationResult):
    """What became of one entity, or would."""

    impact: ImpactAnswer | MISSING = MISSING
    """Of the change of this entity: the buckets that its value limits, or would."""


class AlterationRecord(ResponseModel):
    """An alteration and what became of it.

    `GET /quotas/alterations/{alteration_id}` has all members but `impact`; the answer to an
    alteration leaves out who asked for what, and when.
    """

    alteration_id: AlterationId
    cluster_id: ClusterId
    validate_only: bool
    outcome: Annotated[Overall, Field(description="The one word for all results.")]
    readable: Annotated[
        bool | None,
        Field(
            description="Whether the change could be described in time; null where nobody waited."
        ),
    ]
    results: Annotated[list[CheckedResult], Field(description="In request order.")]
    expires_at: Annotated[Time | MISSING, UNSET_IS_MISSING] = MISSING
    """When what it sets ends; only where it does."""
    expires: Annotated[AlterationId | MISSING, UNSET_IS_MISSING] = MISSING
    """The alteration whose temporary values it ended; only of action `expire`."""
    impact: ImpactAnswer | MISSING = MISSING
    principal: str | MISSING = MISSING
    """Who asked, as Kafka prints it."""
    client_address: str | MISSING = MISSING
    """The address of the caller."""
    action: AuditAction | MISSING = MISSING
    reason: str | MISSING | None = MISSING
    """The caller's own words."""
    request_id: RequestId | MISSING = MISSING
    history: list[AlterationEvent] | MISSING = MISSING
    """In order."""
