"""The answer to a describe of everything, decoded once: what has not changed is not read again.

The same bytes say the same. Other bytes say nothing about order or place, so each entry is looked
up by its own bytes, and only those that were not there before are read. Source of the layout:
``DescribeClientQuotasResponse.json``, version 1.
"""

import struct
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Final

from app.domain.alterations import Quotas
from app.kafka.described_entries import all_entries, raw_entries, these_entries
from app.kafka.described_layout import Entry, UnusualError, entries_of, entry_of, length_at
from app.kafka.described_places import differing_entries
from app.kafka.messages import DescribeAnswer, read_described
from app.service.cluster_ports import QuotaChanges
from app.service.collection import without_collection

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
class _Known:
    """An answer that was read."""

    payload: bytes | None = None
    entries: dict[bytes, Entry] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)
    starts: Sequence[int] = ()


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
        changes = None
        if not _says_the_same(payload, before):
            body = bytes(memoryview(payload)[_HEADER.size :])
            try:
                with without_collection():
                    known, changes = _read_places(body, before) or _read(body, before)
            except (UnusualError, IndexError, struct.error, UnicodeDecodeError):
                return read_described(payload, version), None
            self._known = before = known
        return DescribeAnswer(0, _NO_MESSAGE[message], throttle_time_ms, before.quotas), changes


def _says_the_same(payload: bytes | bytearray, before: _Known) -> bool:
    """Tell whether the body is that of the last answer, without a copy of it."""
    known = before.payload
    return (
        known is not None and len(payload) == _HEADER.size + len(known) and payload.endswith(known)
    )


def _read_places(body: bytes, before: _Known) -> tuple[_Known, QuotaChanges | None] | None:
    """Read the entries in the places that differ; null where all of them must be read."""
    pairs = differing_entries(before.payload or b"", body, before.starts)
    if not pairs:
        return None
    was, now = {old for old, _ in pairs}, {raw for _, raw in pairs}
    if len(now) < len(pairs):
        return None
    if was == now:
        return _Known(body, before.entries, before.quotas, before.starts), None
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


def _read(body: bytes, before: _Known) -> tuple[_Known, QuotaChanges | None]:
    """Return what the body says, and what of it is new."""
    if not before.entries:
        entries = all_entries(body)
        return _Known(body, entries, _quotas(entries), _starts(body, entries)), None
    raws = raw_entries(body)
    present, unread = _sorted_out(raws, before.entries)
    if len(present) < len(raws):
        raise UnusualError
    number = len(before.entries) - (len(present) - len(unread))
    newest_first = reversed(before.entries)  # what has changed last may well have changed again
    gone = list(islice((raw for raw in newest_first if raw not in present), number))
    starts = _starts(body, raws)
    if not unread and not gone:
        return _Known(body, before.entries, before.quotas, starts), None
    read = these_entries(list(unread))
    patched = _patched(body, before, gone, read, starts)
    if patched is not None:
        return patched
    known = {**before.entries, **read}
    entries = {raw: known[raw] for raw in raws}
    return _Known(body, entries, _quotas(entries), starts), None


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
    raws: Sequence[bytes], known: Mapping[bytes, Entry]
) -> tuple[set[bytes], set[bytes]]:
    """Return all of them without repetition, and those that are not known."""
    present: set[bytes] = set()
    unread: set[bytes] = set()
    for begin in range(0, len(raws), _AT_ONCE):
        some = set(raws[begin : begin + _AT_ONCE])
        present |= some
        unread |= some.difference(known)
    return present, unread


def _patched(
    body: bytes,
    before: _Known,
    gone: Collection[bytes],
    read: Mapping[bytes, Entry],
    starts: Sequence[int],
) -> tuple[_Known, QuotaChanges] | None:
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
    return _Known(body, entries, quotas, starts), QuotaChanges(before.quotas, changed)


def _starts(body: bytes, raws: Iterable[bytes]) -> Sequence[int]:
    """Return where each entry begins, and the end of the last."""
    _, begin = length_at(body, 0)
    return array("Q", accumulate(map(len, raws), initial=begin))
