"""How brokers lay out the entities of a describe-all response, read straight from the bytes.

Many entries at once are read by a regular expression. It covers what brokers send: entities of the
usual types, names of up to 400 bytes, the usual keys. Lengths say how many bytes are a name, so
there is exactly one match, that of the strict reader.

Source: ``DescribeClientQuotasResponse.json``, version 1.
"""

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.kafka.quota_messages import UnusualError

_FLOAT64: Final = struct.Struct(">d")
_read_float: Final = _FLOAT64.unpack_from
_FLOAT64_AND_TAGS: Final = _FLOAT64.size + 1
_TYPE: Final = itemgetter(0)
_MORE_BYTES: Final = 0x80
_LONGEST_SHIFT: Final = 28
_WORDS: Final[Mapping[bytes, str]] = {
    word.value.encode(): word.value for word in (*ENTITY_TYPES, *QuotaKey)
}

Entry = tuple[ClientQuotaEntity, Values]


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
        kind = _WORDS.get(word) or _word(word)
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
        (values[_WORDS.get(word) or _word(word)],) = _read_float(raw, end)
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


_LONGEST_NAME: Final = 400
_MOST_KEYS: Final = 4
_SHORT: Final = 0x80
_TWO_BYTES: Final = bytes([_SHORT])
_CHUNK: Final = 1_000
"""Entries; no call holds up other threads for longer than these take."""

_KINDS: Final[Mapping[bytes, str]] = {
    b"": "",
    **{bytes([len(kind.value) + 1]) + kind.value.encode(): kind.value for kind in ENTITY_TYPES},
}


def _escaped(raw: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in raw)


def _length(length: int) -> bytes:
    """Return a length as a varint, one too large, of one byte or two."""
    value = length + 1
    return bytes([value] if value < _SHORT else [value % _SHORT | _SHORT, value // _SHORT])


def _escaped_word(word: str) -> bytes:
    return _escaped(_length(len(word)) + word.encode())


def _pattern(group: bytes) -> re.Pattern[bytes]:
    """Return the layout of an entry; ``group`` opens what is of interest in it.

    The groups are the whole, type and name of the first of two, type and name of the only or the
    second one, the values with their number before them.
    """
    lengths = (_escaped(_length(number)) + b".{%d}" % number for number in range(_LONGEST_NAME + 1))
    name = group + b"\\x00|" + b"|".join(lengths) + b")"
    kind = group + b"|".join(map(_escaped_word, ENTITY_TYPES)) + b")"
    part = kind + name + b"\\x00"
    value = b"(?:" + b"|".join(map(_escaped_word, QuotaKey)) + b").{8}\\x00"
    values = b"|".join(
        b"\\x%02x" % (number + 1) + value * number for number in range(_MOST_KEYS + 1)
    )
    entry = b"(?:\\x02|\\x03" + part + b")" + part + group + values + b")\\x00"
    return re.compile(group + entry + b")", re.DOTALL)


_WHOLE: Final = _pattern(b"(?:")
_GROUPED: Final = _pattern(b"(")


def cut_at_once(data: bytes, begin: int, end: int) -> list[bytes]:
    """Return the bytes of each entry that lies between two offsets.

    Raises:
        UnusualError: There is something else there.
    """
    raws = [found[0] for found in _WHOLE.finditer(data, begin, end)]
    if sum(map(len, raws)) != end - begin:
        raise UnusualError
    return raws


def read_at_once(data: bytes, begin: int, end: int) -> dict[bytes, Entry]:
    """Return the entries between two offsets by their bytes; equal values are the same object.

    Raises:
        UnusualError: There is something else there.
        UnicodeDecodeError: A name is not UTF-8.
    """
    entries: dict[bytes, Entry] = {}
    usual_values: dict[bytes, Values] = {}
    found = _GROUPED.finditer(data, begin, end)
    length = 0
    while chunk := [one.groups(b"") for one in islice(found, _CHUNK)]:
        raws, *columns = zip(*chunk, strict=True)
        length += sum(map(len, raws))
        try:
            read = _entries(columns, usual_values)
        except UnusualError:
            read = map(entry_of, raws)
        entries.update(zip(raws, read, strict=True))
    if length != end - begin:
        raise UnusualError
    return entries


def _entries(
    columns: Sequence[tuple[bytes, ...]], usual_values: dict[bytes, Values]
) -> Iterator[Entry]:
    first_kinds, first_names, kinds, names, blocks = columns
    firsts = zip(map(_KINDS.__getitem__, first_kinds), _names(first_names), strict=True)
    seconds = zip(map(_KINDS.__getitem__, kinds), _names(names), strict=True)
    parts: list[tuple[tuple[str, str | None], ...]] = []
    for first, second in zip(firsts, seconds, strict=True):
        if not first[0]:
            parts.append((second,))
        elif first[0] < second[0]:
            parts.append((first, second))
        elif first[0] > second[0]:
            parts.append((second, first))
        else:
            raise UnusualError
    for block in blocks:
        if block not in usual_values:
            usual_values[block] = values_at(block, 0)
    values = map(usual_values.__getitem__, blocks)
    return zip(map(ClientQuotaEntity, parts), values, strict=True)


def _names(column: Sequence[bytes]) -> Sequence[str | None]:
    """Return names that come with their lengths; the empty text where there is no length either.

    Raises:
        UnusualError: One holds the character that is put between them.
    """
    if max(column) < _TWO_BYTES:
        bare = [raw[1:] for raw in column]
    else:
        bare = [raw[2:] if raw >= _TWO_BYTES else raw[1:] for raw in column]
    names: list[str | None] = [*b"\0".join(bare).decode().split("\0")]
    if len(names) != len(column):
        raise UnusualError
    if b"\0" in column:
        return [None if raw == b"\0" else name for raw, name in zip(column, names, strict=True)]
    return names
