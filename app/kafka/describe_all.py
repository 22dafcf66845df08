"""The response to a describe of everything, of which only what has changed is read.

The same bytes say the same. Otherwise the response is cut into its entries by a regular expression,
and only those are read that were not in the one before. All of it happens on the event loop, in
steps that are short enough for whoever else waits: a thread would fight for the interpreter.

The expression covers what brokers send: entities of up to two types, names of up to 512 bytes, up
to eight keys. Lengths say how many bytes are a name, so there is exactly one match, that of the
strict reader, which reads everything else.

Source: ``DescribeClientQuotasResponse.json``, version 1.
"""

import asyncio
import re
import struct
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

from app.domain.alterations import Quotas, Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity
from app.domain.quota_keys import QuotaKey
from app.kafka.quota_messages import (
    DescribeAnswer,
    Reader,
    UnreadableAnswerError,
    decoded,
    read_described,
)
from app.service.ports.brokers import QuotaChanges
from app.service.runtime.tasks import pause_gc

T = TypeVar("T")
Entry = tuple[ClientQuotaEntity, Values]

_LONGEST_NAME: Final = 512
_LONGEST_WORD: Final = 63
_MOST_KEYS: Final = 8
_SHORT: Final = 0x80
_read_float: Final = struct.Struct(">d").unpack_from
_FLOAT64_AND_TAGS: Final = 9


class UnusualError(Exception):
    """The bytes are not laid out as brokers lay them out; the strict reader is to judge them."""


class _Words(dict[bytes, str]):
    """Entity types and keys by their bytes, the length before them; a new word is read once."""

    def __missing__(self, raw: bytes) -> str:
        word = self[raw] = raw[1:].decode()
        return word


def _length(length: int) -> bytes:
    """Return a length plus one as a varint of one or two bytes."""
    value = length + 1
    return bytes([value] if value < _SHORT else [value % _SHORT | _SHORT, value // _SHORT])


def _escape(raw: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in raw)


def _word(usual: Iterable[str]) -> bytes:
    """Return the pattern of an entity type or a key, the usual words first."""
    words = [_escape(_length(len(word)) + word.encode()) for word in usual]
    words += [_escape(_length(size)) + b".{%d}" % size for size in range(1, _LONGEST_WORD + 1)]
    return b"|".join(words)


def _pattern(group: bytes) -> re.Pattern[bytes]:
    """Return the layout of an entry; ``group`` opens what is of interest in it.

    The groups are type and name of the first of two, type and name of the only or the second one,
    the values with their number before them.
    """
    sizes = (_escape(_length(size)) + b".{%d}" % size for size in range(_LONGEST_NAME + 1))
    name = group + b"\\x00|" + b"|".join(sizes) + b")"
    component = group + _word(ENTITY_TYPES) + b")" + name + b"\\x00"
    value = b"(?:" + _word(QuotaKey) + b").{8}\\x00"
    values = b"|".join(
        b"\\x%02x(?:%b){%d}" % (number + 1, value, number) for number in range(_MOST_KEYS + 1)
    )
    entry = b"(?:\\x02|\\x03" + component + b")" + component + group + values + b")\\x00"
    return re.compile(entry, re.DOTALL)


_WORDS: Final = _Words()
_WHOLE: Final = _pattern(b"(?:")
_GROUPED: Final = _pattern(b"(")

_HEADER: Final = struct.Struct(">iBihB")
"""Correlation id, tags, throttle time, error code, length of the error message; 0 for no tags."""

_NO_MESSAGE: Final[Mapping[int, str | None]] = {0: None, 1: ""}
"""Lengths are one too large, 0 is null. A broker without an error sends the empty message, the
default of the field. Source: ``DescribeClientQuotasResponseData``."""

_VERSION: Final = 1
_ENTRIES_AT_ONCE: Final = 100
"""Reading them takes a third of a millisecond, cutting or comparing them much less."""

_TURN_S: Final = 0.001
"""How long the event loop may be kept from others, in seconds, but for one step more. Whoever gives
it away waits for everybody who is ready: what is read in one turn must not stand in line."""

_BYTES_AT_ONCE: Final = 1 << 20
_UNREAD: Final[Entry] = (ClientQuotaEntity(()), {})


class _Turn:
    """A turn on the event loop."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    async def pass_if_due(self) -> None:
        """Let others go on, once this turn has lasted; then the next one begins."""
        if time.perf_counter() - self._began > _TURN_S:
            await asyncio.sleep(0)
            self._began = time.perf_counter()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A response that was read; its entries by their bytes."""

    payload: bytes | bytearray = b""
    entries: dict[bytes, Entry] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)


class DescribedAll:
    """Reads one response after the other."""

    def __init__(self) -> None:
        self._snapshot = _Snapshot()
        self._reading = asyncio.Lock()

    async def read(
        self, payload: bytes | bytearray, version: int
    ) -> tuple[DescribeAnswer, QuotaChanges | None]:
        """Read a response, which nobody changes any more; tell in what it differs from the last.

        Where nothing has changed the quotas are the same object as before.

        Raises:
            UnreadableAnswerError: It is not such a response.
        """
        try:
            _, tags, throttle_time_ms, error_code, message = _HEADER.unpack_from(payload)
        except struct.error:
            return await decoded(read_described, payload, version), None
        if version != _VERSION or tags or error_code or message not in _NO_MESSAGE:
            return await decoded(read_described, payload, version), None
        async with self._reading:
            changes = None
            if not await _says_the_same(payload, self._snapshot.payload):
                try:
                    changes = await self._read(payload)
                except (UnusualError, UnreadableAnswerError, UnicodeDecodeError):
                    return await decoded(read_described, payload, version), None
            quotas = self._snapshot.quotas
        return DescribeAnswer(0, _NO_MESSAGE[message], throttle_time_ms, quotas), changes

    async def _read(self, payload: bytes | bytearray) -> QuotaChanges | None:
        """Read what is new in a response; it becomes the last one.

        Raises:
            UnusualError: It is not laid out as brokers lay it out, or says something twice. So do
                ``UnreadableAnswerError`` and ``UnicodeDecodeError`` tell here and below.
        """
        before = self._snapshot
        entries, unread = await _cut(payload, before.entries)
        gone: list[bytes] = []
        if len(before.entries) > len(entries) - len(unread):
            async for raws in _in_steps(before.entries):
                gone += [raw for raw in raws if raw not in entries]
        if not unread and not gone:
            self._snapshot = _Snapshot(payload, before.entries, before.quotas)
            await _let_go(entries)
            return None
        quotas = dict(before.quotas)  # a copy asks no entity for its hash
        changed: dict[ClientQuotaEntity, Values] = {}
        async for raws in _in_steps(gone):
            for raw in raws:
                entity, _ = before.entries[raw]
                changed[entity] = {}
                quotas.pop(entity, None)
        values: dict[bytes, Values] = {}
        with pause_gc():
            async for raws in _in_steps(unread):
                read = [_entry(raw, values) for raw in raws]
                entries.update(zip(raws, read, strict=True))
                changed.update(read)
                quotas.update(read)
        if len(quotas) != len(entries):
            raise UnusualError
        self._snapshot = _Snapshot(payload, entries, quotas)
        await _let_go(before.entries)
        return QuotaChanges(before.quotas, changed) if before.payload else None


async def _says_the_same(payload: bytes | bytearray, before: bytes | bytearray) -> bool:
    """Tell whether the body is that of the last response."""
    if len(payload) != len(before):
        return False
    for begin in range(_HEADER.size, len(payload), _BYTES_AT_ONCE):
        end = begin + _BYTES_AT_ONCE
        if payload[begin:end] != before[begin:end]:
            return False
        await asyncio.sleep(0)
    return True


async def _cut(
    payload: bytes | bytearray, cached: Mapping[bytes, Entry]
) -> tuple[dict[bytes, Entry], list[bytes]]:
    """Return the entries of a response by their bytes, in order, and which of them are not read."""
    reader = Reader(payload, flexible=True, at=_HEADER.size)
    number, begin = reader.varint() - 1, reader.at
    end = len(payload) - 1
    entries: dict[bytes, Entry] = {}
    unread: list[bytes] = []
    matches, turn = _WHOLE.finditer(payload, begin, end), _Turn()
    while raws := [match[0] for match in islice(matches, _ENTRIES_AT_ONCE)]:
        begin += sum(map(len, raws))
        unread += [raw for raw in raws if raw not in cached]
        entries.update(zip(raws, [cached.get(raw, _UNREAD) for raw in raws], strict=True))
        await turn.pass_if_due()
    if begin != end or payload[end] or number != len(entries):
        raise UnusualError
    return entries, unread


async def _in_steps(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield the items, some at a time; between two steps the event loop may turn to others."""
    left, turn = iter(items), _Turn()
    while some := list(islice(left, _ENTRIES_AT_ONCE)):
        yield some
        await turn.pass_if_due()


async def _let_go(entries: dict[bytes, Entry]) -> None:
    """Free the memory in steps: at once it would take milliseconds."""
    turn = _Turn()
    while entries:
        for _ in range(min(len(entries), _ENTRIES_AT_ONCE)):
            entries.popitem()
        await turn.pass_if_due()


def _entry(raw: bytes, usual_values: dict[bytes, Values]) -> Entry:
    """Read an entry that was cut out; equal values are the same object."""
    (match,) = _GROUPED.finditer(raw)
    first_kind, first_name, kind, name, block = match.groups()
    last = (_WORDS[kind], _name(name))
    components: tuple[tuple[str, str | None], ...] = (last,)
    if first_kind is not None:
        first = (_WORDS[first_kind], _name(first_name))
        if first[0] == last[0]:
            raise UnusualError
        components = (first, last) if first[0] < last[0] else (last, first)
    if block not in usual_values:
        usual_values[block] = _values(block)
    return ClientQuotaEntity(components), usual_values[block]


def _name(raw: bytes) -> str | None:
    """Read a name that comes with its length, which takes two bytes from 127 bytes on."""
    if raw == b"\0":
        return None
    return (raw[1:] if raw[0] < _SHORT else raw[2:]).decode()


def _values(block: bytes) -> Values:
    """Read the values of an entry, from their number on."""
    values: dict[str, float] = {}
    at = 1
    for _ in range(block[0] - 1):
        end = at + block[at]
        (values[_WORDS[block[at:end]]],) = _read_float(block, end)
        at = end + _FLOAT64_AND_TAGS
    return values
