"""Request bodies, from JSON to domain values: the way in."""

from dataclasses import dataclass
from typing import Final

from app.domain.alterations import ClientQuotaAlteration
from app.domain.errors import Violation
from app.http.alteration_reading import Expected, read_alterations
from app.http.json_pointer import child
from app.http.reading import ListLimit, ObjectReader, Reading
from app.http.request_rules import (
    DEFAULT_WAIT_MS,
    MAX_AGE_MS,
    MAX_IDENTITIES,
    MAX_WAIT_MS,
    identity_violations,
    read_integer,
    read_reason,
    read_wait,
)
from app.http.strict_json import JsonObject, JsonValue
from app.service.alterations.alteration_command import Wait
from app.service.reading.resolve import DEFAULT_RESOLVE_AGE_MS, Identity

_ALTER_FIELDS: Final = frozenset(
    {"validate_only", "all_or_nothing", "wait", "wait_ms", "reason", "alterations"}
)
_RESOLVE_FIELDS: Final = frozenset({"identities", "alterations", "max_age_ms"})
_IDENTITY_FIELDS: Final = frozenset({"user", "client-id", "ip"})
_IDENTITIES: Final = ListLimit(MAX_IDENTITIES, "too-many-identities")
_REVERT_FIELDS: Final = frozenset({"validate_only", "reason"})


@dataclass(frozen=True, slots=True)
class AlterRequestBody:
    """The body of ``POST /quotas/alterations``.

    Attributes:
        alterations: In request order; empty where the field is missing.
        expected: For each alteration, or null where it expects nothing.
        wait_ms: At most this long, in milliseconds.
        violations: Broken rules of the request's own fields (422), to be reported together with
            those of the alterations; the fields concerned hold their defaults.
    """

    alterations: tuple[ClientQuotaAlteration, ...]
    expected: tuple[Expected | None, ...]
    validate_only: bool = False
    all_or_nothing: bool = True
    wait: Wait = Wait.READABLE
    wait_ms: int = DEFAULT_WAIT_MS
    reason: str | None = None
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolveRequestBody:
    """The body of ``POST /quotas/resolve``; ``alterations`` is null where none are proposed."""

    identities: tuple[Identity, ...]
    alterations: tuple[ClientQuotaAlteration, ...] | None = None
    max_age_ms: int = DEFAULT_RESOLVE_AGE_MS
    violations: tuple[Violation, ...] = ()
    expected: tuple[Expected | None, ...] = ()


@dataclass(frozen=True, slots=True)
class RevertRequestBody:
    """The body of ``POST /quotas/alterations/{alteration_id}/revert``."""

    validate_only: bool = False
    reason: str | None = None
    violations: tuple[Violation, ...] = ()


def read_alter_request(body: JsonObject) -> AlterRequestBody:
    """Read the body of an alteration.

    Raises:
        UnreadableRequestError: Wrong types, unknown or missing fields; every one of them.
    """
    reading = Reading()
    reader = _opened(body, _ALTER_FIELDS, reading)
    proposals = read_alterations(reader)
    options = AlterRequestBody(
        alterations=tuple(alteration for alteration, _ in proposals),
        expected=tuple(expected for _, expected in proposals),
        validate_only=reader.flag("validate_only", default=False),
        all_or_nothing=reader.flag("all_or_nothing", default=True),
        wait=read_wait(reader),
        wait_ms=read_integer(reader, "wait_ms", default=DEFAULT_WAIT_MS, maximum=MAX_WAIT_MS),
        reason=read_reason(reader),
        violations=tuple(reading.broken),
    )
    reading.refuse_if_unreadable()
    return options


def read_resolve_request(body: JsonObject) -> ResolveRequestBody:
    """Read the body of a resolve for many identities.

    Raises:
        UnreadableRequestError: Wrong types, unknown or missing fields; every one of them.
    """
    reading = Reading()
    reader = _opened(body, _RESOLVE_FIELDS, reading)
    reader.need("identities")
    identities = tuple(
        [
            _simple_identity(item) or _read_identity(item, pointer, reading)
            for pointer, item in reader.items("identities", _IDENTITIES)
        ]
    )
    proposals = read_alterations(reader)
    max_age_ms = read_integer(
        reader, "max_age_ms", default=DEFAULT_RESOLVE_AGE_MS, maximum=MAX_AGE_MS
    )
    reading.refuse_if_unreadable()
    return ResolveRequestBody(
        identities,
        tuple(alteration for alteration, _ in proposals) if "alterations" in body else None,
        max_age_ms,
        tuple(reading.broken),
        tuple(expected for _, expected in proposals),
    )


def read_revert_request(body: JsonObject) -> RevertRequestBody:
    """Read the body of a revert.

    Raises:
        UnreadableRequestError: Wrong types or unknown fields; every one of them.
    """
    reading = Reading()
    reader = _opened(body, _REVERT_FIELDS, reading)
    validate_only = reader.flag("validate_only", default=False)
    reason = read_reason(reader)
    reading.refuse_if_unreadable()
    return RevertRequestBody(validate_only, reason, tuple(reading.broken))


def _opened(body: JsonObject, known: frozenset[str], reading: Reading) -> ObjectReader:
    return ObjectReader.of(body, "", known, reading) or ObjectReader({}, "", reading)


def _simple_identity(value: JsonValue) -> Identity | None:
    """Return a user in ASCII with or without a client-id in ASCII, which break no rule.

    Null for whatever else it is, good or bad. There may be ten thousand.
    """
    if not isinstance(value, dict):
        return None
    user, client_id = value.get("user"), value.get("client-id", "")
    if len(value) != 1 + ("client-id" in value):
        return None
    if not (isinstance(user, str) and isinstance(client_id, str)):
        return None
    if not (user.isascii() and client_id.isascii()):
        return None
    return Identity(user, client_id if len(value) > 1 else None)


def _read_identity(value: JsonValue, pointer: str, reading: Reading) -> Identity:
    reader = ObjectReader.of(value, pointer, _IDENTITY_FIELDS, reading)
    if reader is None:
        return Identity()
    identity = Identity(reader.text("user"), reader.text("client-id"), reader.text("ip"))
    reading.note_broken(
        identity_violations(identity, lambda name: child(pointer, name) if name else pointer)
    )
    return identity
