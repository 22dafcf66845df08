"""The answer to a describe of everything, decoded once: what has not changed is not read again.

The same bytes say the same. Other bytes say nothing about order or place, so each entry is looked
up by its own bytes, and only those that were not there before are read. Source of the layout:
``DescribeClientQuotasResponse.json``, version 1.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from app.domain.alterations import Quotas, Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.kafka.messages import DescribeAnswer, read_described
from app.service.cluster_ports import QuotaChanges
from app.service.collection import without_collection

_VERSION: Final = 1
_HEADER: Final = struct.Struct(">iBihB")
"""Correlation id, tags, throttle time, error code, length of the error message; 0 for no tags."""

_NO_MESSAGE: Final[Mapping[int, str | None]] = {0: None, 1: ""}
"""Lengths are one too large, 0 is null. A broker without an error sends the empty message, the
default of the field. Source: ``DescribeClientQuotasResponseData``."""

_FLOAT64: Final = struct.Struct(">d")
_read_float: Final = _FLOAT64.unpack_from
_FLOAT64_AND_TAGS: Final = _FLOAT64.size + 1
_TYPE: Final = itemgetter(0)
_MORE_BYTES: Final = 0x80
_LONGEST_SHIFT: Final = 28
_KNOWN_WORDS: Final[Mapping[bytes, str]] = {
    word.value.encode(): word.value for word in (*ENTITY_TYPES, *QuotaKey)
}

Entry = tuple[ClientQuotaEntity, Values]


class _UnusualError(Exception):
    """The bytes are not laid out as brokers lay them out; the strict reader is to judge them."""


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer that was read."""

    payload: bytes | None = None
    entries: Mapping[bytes, Entry] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)


class DescribedAll:
    """Reads one answer after the other; may be called from several threads."""

    def __init__(self) -> None:
        self._known = _Known()

    def read(
        self, payload: bytes | bytearray, version: int
    ) -> tuple[DescribeAnswer, QuotaChanges | None]:
        """Read an answer, and tell in what it differs from the last one.

        Where nothing has changed the quotas are the same object as before.

        Raises:
            UnreadableAnswerError: It is not such an answer.
        """
        if version != _VERSION:
            return read_described(payload, version), None
        try:
            header = _HEADER.unpack_from(payload)
        except struct.error:
            return read_described(payload, version), None
        _, tags, throttle_time_ms, error_code, message = header
        if tags or error_code or message not in _NO_MESSAGE:
            return read_described(payload, version), None
        before = self._known
        body = bytes(memoryview(payload)[_HEADER.size :])
        changes = None
        if body != before.payload:
            try:
                with without_collection():
                    known, changes = _read(body, before)
            except (_UnusualError, IndexError, struct.error, UnicodeDecodeError):
                return read_described(payload, version), None
            self._known = before = known
        return DescribeAnswer(0, _NO_MESSAGE[message], throttle_time_ms, before.quotas), changes


def _read(body: bytes, before: _Known) -> tuple[_Known, QuotaChanges | None]:
    """Return what the body says, and what of it is new."""
    find = before.entries.get
    entries: dict[bytes, Entry] = {}
    new: list[Entry] = []
    for raw in _entries(body):
        entry = find(raw)
        if entry is None:
            entry = _entry(raw)
            new.append(entry)
        entries[raw] = entry
    gone = [entry[0] for raw, entry in before.entries.items() if raw not in entries]
    if not new and not gone:
        return _Known(body, entries, before.quotas), None
    if not before.entries:
        return _Known(body, entries, dict(entries.values())), None
    quotas = dict(before.quotas)  # a copy asks no entity for its hash
    for entity in gone:
        quotas.pop(entity, None)
    quotas.update(new)
    if len(quotas) != len(entries):
        quotas = dict(entries.values())  # no broker lists an entity twice
    changed: Quotas = {**{entity: quotas.get(entity, {}) for entity in gone}, **dict(new)}
    return _Known(body, entries, quotas), QuotaChanges(before.quotas, changed)


def _entries(body: bytes) -> Iterator[bytes]:  # noqa: C901 - a call for each name is a third more
    """Yield the bytes of each entry.

    Lengths are varints, one too large; those of types and keys have one byte in practice, those of
    names may have two.
    """
    number, at = _length(body, 0)
    if number < 0:
        raise _UnusualError
    for _ in range(number):
        begin = at
        names = body[at]
        at += 1
        for _ in range(names - 1):
            if body[at] >= _MORE_BYTES:
                raise _UnusualError
            at += body[at]
            length = body[at]
            if length >= _MORE_BYTES:
                length, at = _length(body, at)
                at += length
            else:
                at += length or 1
            if body[at]:
                raise _UnusualError
            at += 1
        values = body[at]
        at += 1
        for _ in range(values - 1):
            if body[at] >= _MORE_BYTES:
                raise _UnusualError
            at += body[at] + _FLOAT64.size
            if body[at]:
                raise _UnusualError
            at += 1
        if body[at] or names >= _MORE_BYTES or values >= _MORE_BYTES:
            raise _UnusualError
        at += 1
        yield body[begin:at]
    if at != len(body) - 1 or body[at]:
        raise _UnusualError


def _length(body: bytes, at: int) -> tuple[int, int]:
    """Return a length of up to five bytes, and where it ends."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & ~_MORE_BYTES) << shift
        if byte < _MORE_BYTES:
            return value - 1, at
        shift += 7
        if shift > _LONGEST_SHIFT:
            raise _UnusualError


def _entry(raw: bytes) -> Entry:
    """Read one entry, whose bytes ``_entries`` has measured."""
    parts: list[tuple[str, str | None]] = []
    at = 1
    for _ in range(raw[0] - 1):
        end = at + raw[at]
        word = raw[at + 1 : end]
        kind = _KNOWN_WORDS.get(word) or _word(word)
        length = raw[end]
        if _MORE_BYTES > length > 0:
            at = end + length
            parts.append((kind, raw[end + 1 : at].decode()))
        elif length:
            length, start = _length(raw, end)
            at = start + length
            parts.append((kind, raw[start:at].decode()))
        else:
            at = end + 1
            parts.append((kind, None))
        at += 1
    values: dict[str, float] = {}
    number = raw[at]
    at += 1
    for _ in range(number - 1):
        end = at + raw[at]
        word = raw[at + 1 : end]
        (values[_KNOWN_WORDS.get(word) or _word(word)],) = _read_float(raw, end)
        at = end + _FLOAT64_AND_TAGS
    return ClientQuotaEntity(_in_order(parts)), values


def _word(word: bytes) -> str:
    """Return an entity type or a key that this service does not know."""
    if not word:
        raise _UnusualError
    return word.decode()


def _in_order(parts: list[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
    """Return the names of an entity sorted by type; a broker has each type once."""
    if len(parts) > 1:
        parts.sort(key=_TYPE)
        if len({kind for kind, _ in parts}) < len(parts):
            raise _UnusualError
    return tuple(parts)
