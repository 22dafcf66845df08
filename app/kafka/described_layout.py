"""How brokers lay out the entities of a describe-all answer, read straight from the bytes.

Source: ``DescribeClientQuotasResponse.json``, version 1.
"""

import struct
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import QuotaKey

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


class UnusualError(Exception):
    """The bytes are not laid out as brokers lay them out; the strict reader is to judge them."""


def entries_of(body: bytes) -> Iterator[bytes]:  # noqa: C901 - a call for each name is a third more
    """Yield the bytes of each entry.

    Lengths are varints, one too large; those of types and keys have one byte in practice, those of
    names may have two.
    """
    number, at = length_at(body, 0)
    if number < 0:
        raise UnusualError
    for _ in range(number):
        begin = at
        names = body[at]
        at += 1
        for _ in range(names - 1):
            if body[at] >= _MORE_BYTES:
                raise UnusualError
            at += body[at]
            length = body[at]
            if length >= _MORE_BYTES:
                length, at = length_at(body, at)
                at += length
            else:
                at += length or 1
            if body[at]:
                raise UnusualError
            at += 1
        values = body[at]
        at += 1
        for _ in range(values - 1):
            if body[at] >= _MORE_BYTES:
                raise UnusualError
            at += body[at] + _FLOAT64.size
            if body[at]:
                raise UnusualError
            at += 1
        if body[at] or names >= _MORE_BYTES or values >= _MORE_BYTES:
            raise UnusualError
        at += 1
        yield body[begin:at]
    if at != len(body) - 1 or body[at]:
        raise UnusualError


def length_at(body: bytes, at: int) -> tuple[int, int]:
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
            raise UnusualError


def entry_of(raw: bytes) -> Entry:
    """Read one entry, whose bytes have been measured."""
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
            length, start = length_at(raw, end)
            at = start + length
            parts.append((kind, raw[start:at].decode()))
        else:
            at = end + 1
            parts.append((kind, None))
        at += 1
    return ClientQuotaEntity(_in_order(parts)), values_at(raw, at)


def values_at(raw: bytes, at: int) -> Values:
    """Read the values of an entry, from their number on."""
    values: dict[str, float] = {}
    number = raw[at]
    at += 1
    for _ in range(number - 1):
        end = at + raw[at]
        word = raw[at + 1 : end]
        (values[_KNOWN_WORDS.get(word) or _word(word)],) = _read_float(raw, end)
        at = end + _FLOAT64_AND_TAGS
    return values


def _word(word: bytes) -> str:
    """Return an entity type or a key that this service does not know."""
    if not word:
        raise UnusualError
    return word.decode()


def _in_order(parts: list[tuple[str, str | None]]) -> tuple[tuple[str, str | None], ...]:
    """Return the names of an entity sorted by type; a broker has each type once."""
    if len(parts) > 1:
        parts.sort(key=_TYPE)
        if len({kind for kind, _ in parts}) < len(parts):
            raise UnusualError
    return tuple(parts)
