"""Many entries of a describe-all answer at once: their layout as a regular expression.

It knows what brokers send: one or two of the known types, names of up to 400 bytes, known keys.
Lengths say how many bytes are a name, so there is one way to match, that of the strict reader.

Source: ``DescribeClientQuotasResponse.json``, version 1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from app.domain.alterations import Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.kafka.described_layout import Entry, UnusualError, entry_of, values_at

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


def _word(word: str) -> bytes:
    return _escaped(_length(len(word)) + word.encode())


def _pattern(group: bytes) -> re.Pattern[bytes]:
    """Return the layout of an entry; ``group`` opens what is of interest in it.

    The groups are the whole, type and name of the first of two, type and name of the only or the
    second one, the values with their number before them.
    """
    lengths = (_escaped(_length(number)) + b".{%d}" % number for number in range(_LONGEST_NAME + 1))
    name = group + b"\\x00|" + b"|".join(lengths) + b")"
    kind = group + b"|".join(map(_word, ENTITY_TYPES)) + b")"
    part = kind + name + b"\\x00"
    value = b"(?:" + b"|".join(map(_word, QuotaKey)) + b").{8}\\x00"
    values = b"|".join(
        b"\\x%02x" % (number + 1) + value * number for number in range(_MOST_KEYS + 1)
    )
    entry = b"(?:\\x02|\\x03" + part + b")" + part + group + values + b")\\x00"
    return re.compile(group + entry + b")", re.DOTALL)


_WHOLE: Final = _pattern(b"(?:")
_IN_PARTS: Final = _pattern(b"(")


def cut_at_once(data: bytes, begin: int, end: int) -> list[bytes]:
    """Return the bytes of each entry that lies between two places.

    Raises:
        UnusualError: There is something else there.
    """
    raws = [found[0] for found in _WHOLE.finditer(data, begin, end)]
    if sum(map(len, raws)) != end - begin:
        raise UnusualError
    return raws


def read_at_once(data: bytes, begin: int, end: int) -> dict[bytes, Entry]:
    """Return the entries between two places by their bytes; equal values are the same object.

    Raises:
        UnusualError: There is something else there.
        UnicodeDecodeError: A name is not UTF-8.
    """
    entries: dict[bytes, Entry] = {}
    known_values: dict[bytes, Values] = {}
    found = _IN_PARTS.finditer(data, begin, end)
    length = 0
    while chunk := [one.groups(b"") for one in islice(found, _CHUNK)]:
        raws, *columns = zip(*chunk, strict=True)
        length += sum(map(len, raws))
        try:
            read = _entries(columns, known_values)
        except UnusualError:
            read = map(entry_of, raws)
        entries.update(zip(raws, read, strict=True))
    if length != end - begin:
        raise UnusualError
    return entries


def _entries(
    columns: Sequence[tuple[bytes, ...]], known_values: dict[bytes, Values]
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
        if block not in known_values:
            known_values[block] = values_at(block, 0)
    values = map(known_values.__getitem__, blocks)
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
