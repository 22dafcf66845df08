"""Beside the values of quotas: what ends by itself, who owns it; and what an export has instead."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from app.domain.alterations import Values
from app.domain.entities import ClientQuotaEntity
from app.domain.expiry import Expiries, TemporaryValue, temporary_of
from app.domain.plans import Holdings
from app.http.models import (
    ResponseModel,
    ReturnsTo,
    Time,
    json_bytes,
    rfc3339,
    stored_json,
)
from app.service.queries.describe import Entry

MEMBER: Final = "temporary"


class Temporary(ResponseModel):
    """When a value ends, and what it returns to."""

    expires_at: Time
    returns_to: ReturnsTo


def temporary_json(value: TemporaryValue) -> dict[str, Any]:
    """Return a temporary value, with the members of ``Temporary``."""
    return {"expires_at": rfc3339(value.expires_at), "returns_to": stored_json(value.returns_to)}


def temporaries_json(
    entity: ClientQuotaEntity, values: Values, expiries: Expiries
) -> dict[str, dict[str, Any]]:
    """Return what is for a time of one entity, by key; empty where nothing is."""
    held = temporary_of(entity, values, expiries)
    return {key: temporary_json(value) for key, value in held.items()}


def texts_with_temporaries(
    entries: Sequence[Entry], texts: Sequence[bytes], expiries: Expiries
) -> tuple[Sequence[bytes], bytes]:
    """Return entries in JSON with what is for a time of them, and that alone for an entity tag.

    Args:
        entries: In the order of ``sort_key``.
        texts: The same in JSON, without.
        expiries: What is for a time.
    """
    changed: dict[int, bytes] = {}
    for entity in expiries:
        at = _position(entries, entity)
        if at is not None and (held := temporaries_json(*entries[at], expiries)):
            changed[at] = json_bytes(held)
    return _with_member(texts, MEMBER, changed)


OWNERS: Final = "owners"

Owned = Mapping[int, Mapping[str, str]]
"""Who holds which key, by the position of the entity among entries."""

NO_OWNERS: Final[Owned] = {}


def owners_of(entries: Sequence[Entry], held: Holdings) -> Owned:
    """Return the owners of what entries have.

    What an owner applied and another tool has removed since is left out.

    Args:
        entries: In the order of ``sort_key``.
        held: Who holds what.
    """
    owned: dict[int, Mapping[str, str]] = {}
    for entity, keys in held.items():
        at = _position(entries, entity)
        stored = () if at is None else entries[at][1]
        owners = {key: keys[key].owner for key in sorted(keys) if key in stored}
        if at is not None and owners:
            owned[at] = owners
    return owned


def texts_with_owners(texts: Sequence[bytes], owned: Owned) -> Sequence[bytes]:
    """Return entries in JSON with the owners of their keys."""
    written, _ = _with_member(texts, OWNERS, {at: json_bytes(owned[at]) for at in owned})
    return written


def owners_bytes(owned: Owned) -> bytes:
    """Return what an entity tag has to say of owners; empty without any."""
    return b"".join(b"%d%b" % (at, json_bytes(owned[at])) for at in sorted(owned))


def _with_member(
    texts: Sequence[bytes], name: str, members: Mapping[int, bytes]
) -> tuple[Sequence[bytes], bytes]:
    """Return texts of JSON objects, some of them with one member more, and these members."""
    if not members:
        return texts, b""
    written = list(texts)
    for at, member in members.items():
        written[at] = b'%b,"%b":%b}' % (written[at][:-1], name.encode(), member)
    return written, b"".join(members[at] for at in sorted(members))


def _position(entries: Sequence[Entry], entity: ClientQuotaEntity) -> int | None:
    key = entity.sort_key()
    at = bisect_left(entries, key, key=lambda entry: entry[0].sort_key())
    while at < len(entries) and entries[at][0].sort_key() == key:
        if entries[at][0] == entity:
            return at
        at += 1
    return None


Notes = Mapping[ClientQuotaEntity, Mapping[str, TemporaryValue]]
"""What is for a time, by entity and key, for the comments of an export; an entity that has no entry
has no values then."""


NO_NOTES: Final[Notes] = {}


class Export(NamedTuple):
    """Entries with the values that they return to."""

    entries: Sequence[Entry]
    notes: Notes


def exported(
    entries: Sequence[Entry], expiries: Expiries, is_wanted: Callable[[ClientQuotaEntity], bool]
) -> Export:
    """Return what is to be exported: that a value is for a time is no desired state.

    Args:
        entries: What is stored.
        expiries: What is for a time.
        is_wanted: Tells whether an entity without any values now, which returns to some, belongs
            to the export.
    """
    found = dict(entries)
    notes: dict[ClientQuotaEntity, Mapping[str, TemporaryValue]] = {}
    for entity in expiries:
        if entity not in found and not is_wanted(entity):
            continue
        values = dict(found.get(entity, {}))
        if held := temporary_of(entity, values, expiries):
            notes[entity] = held
            found[entity] = dict(_returned(values, held))
    left = [(entity, values) for entity, values in found.items() if values]
    return Export(sorted(left, key=lambda entry: entry[0].sort_key()), notes)


def _returned(values: Values, held: Mapping[str, TemporaryValue]) -> Iterator[tuple[str, float]]:
    yield from ((key, value) for key, value in values.items() if key not in held)
    for key, temporary in held.items():
        if temporary.returns_to is not None:
            yield key, temporary.returns_to


def notes_bytes(notes: Notes) -> bytes:
    """Return what an entity tag has to say of notes; empty without any."""
    return b"".join(
        json_bytes({key: temporary_json(value) for key, value in held.items()})
        for held in notes.values()
    )


def note_text(key: str, held: TemporaryValue) -> str:
    """Return the comment about one key."""
    value = "removed" if held.value is None else stored_json(held.value)
    return f"{key} {value} until {rfc3339(held.expires_at)}"
