"""The quotas as bytes of JSON: each entry, cached batches of them, and their response."""

from binascii import b2a_base64
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

import orjson

from app.domain.alterations import Values
from app.domain.entities import ENTITY_TYPES, ClientQuotaEntity, SortKey
from app.http.encoding import json_bytes, quota_json, values_json
from app.service.queries.describe import Ranked, Rendering

Entry = tuple[ClientQuotaEntity, Values]

_AT_ONCE: Final = 500
_ENTRY: Final = b'{"entity":%b,"entity_key":"%b","values":%b}'
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_RANKS: Final[Mapping[str, int]] = {kind.value: rank for rank, kind in enumerate(ENTITY_TYPES)}


class _Layout(NamedTuple):
    """How entities of the same types are written.

    Attributes:
        canonical: What ``entity_key`` encodes; %b for each name.
        entity: The entity; %b for each name, in another order.
        rearranged: Brings names from the canonical order into that one.
    """

    canonical: bytes
    entity: bytes
    rearranged: Callable[[tuple[bytes, ...]], object]


def entry_texts(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield each entry as ``json_bytes(quota_json(entity, values))`` writes it."""
    layouts: dict[tuple[str, ...], _Layout] = {}
    left = iter(entries)
    while some := list(islice(left, _AT_ONCE)):
        try:
            yield from _texts(some, layouts)
        except TypeError:  # a lone surrogate, which no broker sends
            yield from (json_bytes(quota_json(entity, values)) for entity, values in some)


def _texts(entries: Sequence[Entry], layouts: dict[tuple[str, ...], _Layout]) -> list[bytes]:
    names = [name for entity, _ in entries for _, name in entity.entries]
    whole = orjson.dumps(names, option=orjson.OPT_INDENT_2)
    texts = tuple(whole.removeprefix(b"[\n  ").removesuffix(b"\n]").split(b",\n  "))
    entities: list[bytes] = []
    keys: list[bytes] = []
    at = 0
    for entity, _ in entries:
        pairs = entity.entries
        end = at + len(pairs)
        if end == at + 1:
            kinds: tuple[str, ...] = (pairs[0][0],)
        else:
            kinds = tuple([kind for kind, _ in pairs])
        layout = layouts.get(kinds)
        if layout is None:
            layout = layouts[kinds] = _layout(kinds)
        own = texts[at:end]
        at = end
        keys.append(b2a_base64(layout.canonical % own, newline=False))
        entities.append(layout.entity % layout.rearranged(own))
    keys = b"\n".join(keys).translate(_URL_SAFE, b"=").split(b"\n")
    return list(map(_ENTRY.__mod__, zip(entities, keys, _values(entries), strict=True)))


def _layout(kinds: Sequence[str]) -> _Layout:
    order = sorted(range(len(kinds)), key=lambda at: (_RANKS.get(kinds[at], len(_RANKS)), at))
    rearranged = itemgetter(*order) if order else tuple
    return _Layout(_object(kinds), _object([kinds[at] for at in order]), rearranged)


def _object(kinds: Sequence[str]) -> bytes:
    members = (orjson.dumps(kind).replace(b"%", b"%%") + b":%b" for kind in kinds)
    return b"{" + b",".join(members) + b"}"


def _values(entries: Sequence[Entry]) -> Iterator[bytes]:
    """Yield the values of each entry; many entries share theirs."""
    written: dict[int, bytes] = {}
    for _, values in entries:
        text = written.get(id(values))
        if text is None:
            text = written[id(values)] = json_bytes(values_json(values))
        yield text


CHUNK_ENTRIES: Final = 256
"""About 55 KB; equal sort keys are in the same chunk."""

SEPARATOR: Final = b","

_NAME: Final = "JSON chunks"


class Chunk(NamedTuple):
    """The entities from a sort key on, up to that of the next chunk, without a last comma."""

    begin: SortKey
    text: bytes


def json_chunks(rendering: Rendering) -> Sequence[Chunk]:
    """Return the entities of an image, written once; whoever calls it has taken the turn."""
    if _NAME not in rendering.memo:
        before: Sequence[Chunk] = ()
        if rendering.earlier is not None:
            cached, changed = rendering.earlier
            before = cached.get(_NAME, ())
        chunks = _patch(before, rendering.ranked, changed) if before else []
        if not chunks or _are_too_small(chunks, len(rendering.ranked.keys)):
            chunks = list(_write(rendering.ranked))
        rendering.memo[_NAME], rendering.earlier = chunks, None
    written: Sequence[Chunk] = rendering.memo[_NAME]
    return written


def joined(chunks: Sequence[Chunk]) -> Iterator[bytes]:
    """Yield the chunks with commas between them."""
    for number, chunk in enumerate(chunks):
        yield SEPARATOR + chunk.text if number else chunk.text


def _write(ranked: Ranked, first: int = 0, last: int | None = None) -> Iterator[Chunk]:
    """Write the entries from one position up to another; null for all."""
    keys, entries = ranked
    begin, end = first, len(keys) if last is None else last
    while begin < end:
        until = min(begin + CHUNK_ENTRIES, end)
        while until < end and keys[until] == keys[until - 1]:
            until += 1
        yield Chunk(keys[begin], SEPARATOR.join(entry_texts(entries[begin:until])))
        begin = until


def _patch(before: Sequence[Chunk], ranked: Ranked, changed: Collection[SortKey]) -> list[Chunk]:
    """Write the chunks anew that have, or had, a changed entity."""
    begins = [chunk.begin for chunk in before]
    stale = {max(0, bisect_right(begins, key) - 1) for key in changed}
    chunks: list[Chunk] = []
    for number, chunk in enumerate(before):
        if number not in stale:
            chunks.append(chunk)
            continue
        begin = bisect_left(ranked.keys, begins[number]) if number else 0
        last = number + 1 == len(before)
        end = None if last else bisect_left(ranked.keys, begins[number + 1])
        chunks.extend(_write(ranked, begin, end))
    return chunks


def _are_too_small(chunks: Sequence[Chunk], number: int) -> bool:
    return len(chunks) > 1 and number < len(chunks) * CHUNK_ENTRIES / 2
