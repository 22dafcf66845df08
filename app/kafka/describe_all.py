"""The response to a describe of everything, decoded once: what has not changed is not read again.

The same bytes say the same. A broker lists its entities in the order of a hash table
(``ClientQuotasImage``): where only values have changed it is often the same, and a look at the few
entries that differ is enough. Otherwise each entry is looked up by its own bytes, and only those
that were not there before are read.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Final

from app.domain.alterations import Quotas
from app.kafka.describe_layout import (
    Entry,
    cut_at_once,
    entries_of,
    entry_of,
    length_at,
    read_at_once,
)
from app.kafka.quota_messages import DescribeAnswer, UnusualError, read_described
from app.service.ports.brokers import QuotaChanges
from app.service.runtime.offload import pause_gc


def all_entries(body: bytes) -> dict[bytes, Entry]:
    """Return every entry of an answer's body by its bytes, in their order.

    Raises:
        UnusualError: It is not laid out as brokers lay it out, or one stands twice. So do
            ``IndexError``, ``struct.error`` and ``UnicodeDecodeError`` tell here and below.
    """
    number, begin = length_at(body, 0)
    try:
        entries = read_at_once(body, begin, len(body) - 1)
    except UnusualError:
        entries = {}
    if number == len(entries) and not body[-1]:
        return entries
    entries = {raw: entry_of(raw) for raw in entries_of(body)}
    if number != len(entries):
        raise UnusualError
    return entries


def raw_entries(body: bytes) -> list[bytes]:
    """Return the bytes of every entry of an answer's body, none of them read."""
    number, begin = length_at(body, 0)
    try:
        raws = cut_at_once(body, begin, len(body) - 1)
    except UnusualError:
        raws = []
    return raws if number == len(raws) and not body[-1] else list(entries_of(body))


def these_entries(raws: Sequence[bytes]) -> dict[bytes, Entry]:
    """Return some entries that were cut out already."""
    joined = b"".join(raws)
    try:
        return read_at_once(joined, 0, len(joined))
    except UnusualError:
        return {raw: entry_of(raw) for raw in raws}


_CHUNK_BYTES: Final = 4096
_MAX_CHUNKS: Final = 200
"""With more of them different the answer is read as a whole."""


def differing_entries(
    before: bytes, after: bytes, starts: Sequence[int]
) -> list[tuple[bytes, bytes]] | None:
    """Return the entries that differ, as they were and as they are; null where that is uncertain.

    Args:
        before: An answer that was read.
        after: Another one.
        starts: Where the entries of ``before`` begin, and at last where they end.
    """
    if len(before) != len(after) or len(starts) < 2:
        return None
    head, tail = slice(starts[0]), slice(starts[-1], None)
    if before[head] != after[head] or before[tail] != after[tail]:
        return None
    chunks = list(islice(_differing_chunks(before, after), _MAX_CHUNKS + 1))
    if len(chunks) > _MAX_CHUNKS:
        return None
    ranges: set[int] = set()
    for begin, end in chunks:
        first, last = bisect_right(starts, begin) - 1, bisect_right(starts, end - 1) - 1
        ranges.update(range(max(first, 0), min(last + 1, len(starts) - 1)))
    slices = [slice(starts[at], starts[at + 1]) for at in ranges]
    return [(before[one], after[one]) for one in slices if before[one] != after[one]]


def _differing_chunks(before: bytes, after: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each chunk that differs begins and ends."""
    for begin in range(0, len(before), _CHUNK_BYTES):
        end = min(begin + _CHUNK_BYTES, len(before))
        if before[begin:end] != after[begin:end]:
            yield begin, end


_VERSION: Final = 1
_HEADER: Final = struct.Struct(">iBihB")
"""Correlation id, tags, throttle time, error code, length of the error message; 0 for no tags."""

_NO_MESSAGE: Final[Mapping[int, str | None]] = {0: None, 1: ""}
"""Lengths are one too large, 0 is null. A broker without an error sends the empty message, the
default of the field. Source: ``DescribeClientQuotasResponseData``."""

_ONE_ENTRY: Final = b"\2%b\0"
"""An answer's body with a single entry."""

_AT_ONCE: Final = 1_000
"""Entries; no call holds up other threads for longer than these take."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """An answer that was read."""

    payload: bytes | None = None
    entries: dict[bytes, Entry] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)
    starts: Sequence[int] = ()


class DescribedAll:
    """Reads one answer after the other; may be called from several threads."""

    def __init__(self) -> None:
        self._snapshot = _Snapshot()

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
        before = self._snapshot
        changes = None
        if not _says_the_same(payload, before):
            body = bytes(memoryview(payload)[_HEADER.size :])
            try:
                with pause_gc():
                    cached, changes = _read_ranges(body, before) or _read(body, before)
            except (UnusualError, IndexError, struct.error, UnicodeDecodeError):
                return read_described(payload, version), None
            self._snapshot = before = cached
        return DescribeAnswer(0, _NO_MESSAGE[message], throttle_time_ms, before.quotas), changes


def _says_the_same(payload: bytes | bytearray, before: _Snapshot) -> bool:
    """Tell whether the body is that of the last answer, without a copy of it."""
    cached = before.payload
    return (
        cached is not None
        and len(payload) == _HEADER.size + len(cached)
        and payload.endswith(cached)
    )


def _read_ranges(body: bytes, before: _Snapshot) -> tuple[_Snapshot, QuotaChanges | None] | None:
    """Read the entries in the ranges that differ; null where all of them must be read."""
    pairs = differing_entries(before.payload or b"", body, before.starts)
    if not pairs:
        return None
    was, now = {old for old, _ in pairs}, {raw for _, raw in pairs}
    if len(now) < len(pairs):
        return None
    if was == now:
        return _Snapshot(body, before.entries, before.quotas, before.starts), None
    read: dict[bytes, Entry] = {}
    for raw in now - was:
        if raw in before.entries or not _is_one_entry(raw):
            return None
        read[raw] = entry_of(raw)
    return _patched(body, before, was - now, read, before.starts)


def _is_one_entry(raw: bytes) -> bool:
    """Tell whether these bytes, all of them, are an entry; else the next one begins elsewhere."""
    try:
        return list(entries_of(_ONE_ENTRY % raw)) == [raw]
    except (UnusualError, IndexError):
        return False


def _read(body: bytes, before: _Snapshot) -> tuple[_Snapshot, QuotaChanges | None]:
    """Return what the body says, and what of it is new."""
    if not before.entries:
        entries = all_entries(body)
        return _Snapshot(body, entries, _quotas(entries), _starts(body, entries)), None
    raws = raw_entries(body)
    present, unread = _sorted_out(raws, before.entries)
    if len(present) < len(raws):
        raise UnusualError
    number = len(before.entries) - (len(present) - len(unread))
    newest_first = reversed(before.entries)  # what has changed last may well have changed again
    gone = list(islice((raw for raw in newest_first if raw not in present), number))
    starts = _starts(body, raws)
    if not unread and not gone:
        return _Snapshot(body, before.entries, before.quotas, starts), None
    read = these_entries(list(unread))
    patched = _patched(body, before, gone, read, starts)
    if patched is not None:
        return patched
    cached = {**before.entries, **read}
    entries = {raw: cached[raw] for raw in raws}
    return _Snapshot(body, entries, _quotas(entries), starts), None


def _quotas(entries: Mapping[bytes, Entry]) -> Quotas:
    """Return what the entries say.

    Raises:
        UnusualError: An entity stands twice, which no broker says; then their order counts.
    """
    quotas = dict(entries.values())
    if len(quotas) < len(entries):
        raise UnusualError
    return quotas


def _sorted_out(
    raws: Sequence[bytes], cached: Mapping[bytes, Entry]
) -> tuple[set[bytes], set[bytes]]:
    """Return all of them without repetition, and those that are not cached."""
    present: set[bytes] = set()
    unread: set[bytes] = set()
    for begin in range(0, len(raws), _AT_ONCE):
        some = set(raws[begin : begin + _AT_ONCE])
        present |= some
        unread |= some.difference(cached)
    return present, unread


def _patched(
    body: bytes,
    before: _Snapshot,
    gone: Collection[bytes],
    read: Mapping[bytes, Entry],
    starts: Sequence[int],
) -> tuple[_Snapshot, QuotaChanges] | None:
    """Return an answer that differs in some entries; null where one entity stands twice."""
    entries = dict(before.entries)
    left = [entries.pop(raw)[0] for raw in gone]
    entries.update(read)
    quotas = dict(before.quotas)  # a copy asks no entity for its hash
    for entity in left:
        quotas.pop(entity, None)
    new = dict(read.values())
    quotas.update(new)
    if len(quotas) != len(entries):
        return None
    changed = {**{entity: quotas.get(entity, {}) for entity in left}, **new}
    return _Snapshot(body, entries, quotas, starts), QuotaChanges(before.quotas, changed)


def _starts(body: bytes, raws: Iterable[bytes]) -> Sequence[int]:
    """Return where each entry begins, and the end of the last."""
    _, begin = length_at(body, 0)
    return array("Q", accumulate(map(len, raws), initial=begin))
