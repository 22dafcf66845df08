"""Requests for plans, from JSON to domain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from app.domain.errors import Violation
from app.domain.filters import (
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    filter_violations,
)
from app.domain.plans import DesiredQuota, DesiredValue, PlanRequest
from app.http.alteration_reading import ENTITIES
from app.http.entity_reading import read_entity
from app.http.filter_query import parse_component
from app.http.json_pointer import child
from app.http.reading import ListLimit, ObjectReader, Reading
from app.http.request_rules import (
    DEFAULT_WAIT_MS,
    MAX_WAIT_MS,
    read_integer,
    read_reason,
    read_wait,
)
from app.http.strict_json import JsonObject, JsonValue, shown
from app.http.yaml_format import API_VERSION
from app.service.alterations.alteration_command import Wait

MAX_OWNER_CHARACTERS: Final = 128
_SCOPE: Final = ListLimit(1_000, "too-long-scope")

_PLAN_FIELDS: Final = frozenset({"document", "owner", "prune", "adopt", "scope"})
_APPLY_FIELDS: Final = frozenset({"force", "reason", "wait", "wait_ms"})
_DOCUMENT_FIELDS: Final = frozenset({"apiVersion", "quotas"})
_QUOTA_FIELDS: Final = frozenset({"entity", "entity_key", "values"})

_NOT_NUMBERS: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}


@dataclass(frozen=True, slots=True)
class PlanRequestBody:
    """The body of ``POST /quotas/plans``; ``scope`` as written."""

    wanted: PlanRequest
    scope: tuple[str, ...]
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class ApplyRequestBody:
    """The body of ``POST /quotas/plans/{plan_id}/apply``; ``wait_ms`` in milliseconds."""

    force: bool
    reason: str | None
    wait: Wait
    wait_ms: int
    violations: tuple[Violation, ...]


def read_plan_request(body: JsonObject, principal: str) -> PlanRequestBody:
    """Read the body of a request for a plan; who names no owner plans in the principal's name.

    Raises:
        UnreadableRequestError: Wrong types, unknown or missing fields, a scope outside the grammar;
            every one of them.
    """
    reading = Reading()
    reader = _opened(body, "", _PLAN_FIELDS, reading)
    reader.need("document")
    scope = tuple(_read_scope(reader))
    wanted = PlanRequest(
        quotas=_read_document(reader),
        owner=_read_owner(reader, principal),
        prune=reader.flag("prune", default=False),
        adopt=reader.flag("adopt", default=False),
        scope=tuple(component for _, component in scope),
    )
    reading.refuse_if_unreadable()
    return PlanRequestBody(wanted, tuple(text for text, _ in scope), tuple(reading.broken))


def read_apply_request(body: JsonObject) -> ApplyRequestBody:
    """Read the body of a request to apply a plan.

    Raises:
        UnreadableRequestError: Wrong types or unknown fields; every one of them.
    """
    reading = Reading()
    reader = _opened(body, "", _APPLY_FIELDS, reading)
    force = reader.flag("force", default=False)
    reason = read_reason(reader)
    wait = read_wait(reader)
    wait_ms = read_integer(reader, "wait_ms", default=DEFAULT_WAIT_MS, maximum=MAX_WAIT_MS)
    reading.refuse_if_unreadable()
    return ApplyRequestBody(force, reason, wait, wait_ms, tuple(reading.broken))


def _opened(
    value: JsonValue, pointer: str, known: frozenset[str], reading: Reading
) -> ObjectReader:
    return ObjectReader.of(value, pointer, known, reading) or ObjectReader({}, pointer, reading)


def _read_owner(reader: ObjectReader, principal: str) -> str:
    if reader.members.get("owner") is None:
        return principal
    owner = reader.text("owner") or ""
    if not 1 <= len(owner) <= MAX_OWNER_CHARACTERS or not owner.isprintable() or owner.isspace():
        detail = f"An owner is 1 to {MAX_OWNER_CHARACTERS} printable characters."
        reader.reading.breaks("/owner", "bad-owner", detail)
    return owner


def _read_scope(reader: ObjectReader) -> list[tuple[str, ClientQuotaFilterComponent]]:
    read = []
    for pointer, item in reader.items("scope", _SCOPE):
        if not isinstance(item, str):
            reader.reading.wrong_type(pointer, "a string", item)
            continue
        component = parse_component(item)
        if component is None:
            detail = f"{shown(item)} cannot be read; write it as a filter of GET /quotas."
            reader.reading.reject(pointer, "unreadable-filter", detail)
            continue
        reader.reading.note_broken(filter_violations(ClientQuotaFilter((component,)), pointer))
        read.append((item, component))
    return read


def _read_document(reader: ObjectReader) -> tuple[DesiredQuota, ...]:
    members = reader.object("document")
    if members is None:
        return ()
    document = _opened(members, "/document", _DOCUMENT_FIELDS, reader.reading)
    document.need("apiVersion", "quotas")
    version = document.text("apiVersion")
    if version not in (None, API_VERSION):
        detail = f"{shown(version or '')} is unknown; this service reads {API_VERSION}."
        reader.reading.breaks("/document/apiVersion", "unknown-api-version", detail)
    return tuple(
        _read_quota(item, pointer, reader.reading)
        for pointer, item in document.items("quotas", ENTITIES)
    )


def _read_quota(item: JsonValue, pointer: str, reading: Reading) -> DesiredQuota:
    reader = _opened(item, pointer, _QUOTA_FIELDS, reading)
    if isinstance(item, dict):
        reader.need("entity", "values")
    entity = read_entity(reader)
    key = reader.text("entity_key")
    if key is not None and key != entity.key:
        detail = "This is the key of another entity; leave it out, the entity says it all."
        reading.breaks(child(pointer, "entity_key"), "other-entity-key", detail)
    return DesiredQuota(entity, _read_values(reader))


def _read_values(reader: ObjectReader) -> Mapping[str, DesiredValue]:
    values: dict[str, DesiredValue] = {}
    for key, value in (reader.object("values") or {}).items():
        if isinstance(value, Decimal):
            values[key] = value
        elif isinstance(value, str) and value in _NOT_NUMBERS:
            values[key] = _NOT_NUMBERS[value]
        else:
            pointer = child(child(reader.pointer, "values"), key)
            reader.reading.wrong_type(pointer, 'a number, "NaN" or "Infinity"', value)
    return values
