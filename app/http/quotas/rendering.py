"""The quotas as bytes of JSON: each entry, cached batches of them, and their response."""

from binascii import b2a_base64
from bisect import bisect_left, bisect_right
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
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
        shown: The entity; %b for each name, in another order.
        rearranged: Brings names from the canonical order into that one.
    """

    canonical: bytes
    shown: bytes
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
    shown: list[bytes] = []
    keys: list[bytes] = []
    at = 0
    for entity, _ in entries:
        parts = entity.entries
        end = at + len(parts)
        if end == at + 1:
            kinds: tuple[str, ...] = (parts[0][0],)
        else:
            kinds = tuple([kind for kind, _ in parts])
        layout = layouts.get(kinds)
        if layout is None:
            layout = layouts[kinds] = _layout(kinds)
        own = texts[at:end]
        at = end
        keys.append(b2a_base64(layout.canonical % own, newline=False))
        shown.append(layout.shown % layout.rearranged(own))
    keys = b"\n".join(keys).translate(_URL_SAFE, b"=").split(b"\n")
    return list(map(_ENTRY.__mod__, zip(shown, keys, _values(entries), strict=True)))


def _layout(kinds: Sequence[str]) -> _Layout:
    places = sorted(range(len(kinds)), key=lambda at: (_RANKS.get(kinds[at], len(_RANKS)), at))
    rearranged = itemgetter(*places) if places else tuple
    return _Layout(_object(kinds), _object([kinds[at] for at in places]), rearranged)


def _object(kinds: Sequence[str]) -> bytes:
    members = (orjson.dumps(kind).replace(b"%", b"%%") + b":%b" for kind in kinds)
    return b"{" + b",".join(members) + b"}"


def _values(entries: Sequence[Entry]) -> Iterator[bytes]:
    """Yield the values of each entry; many entries share theirs."""
    known: dict[int, bytes] = {}
    for _, values in entries:
        text = known.get(id(values))
        if text is None:
            text = known[id(values)] = json_bytes(values_json(values))
        yield text


PIECE_ENTRIES: Final = 256
"""About 55 KB; equal sort keys are in the same piece."""

SEPARATOR: Final = b","

_NAME: Final = "JSON pieces"


class Piece(NamedTuple):
    """The entities from a sort key on, up to that of the next piece, without a last comma."""

    begin: SortKey
    text: bytes


def json_pieces(rendering: Rendering) -> Sequence[Piece]:
    """Return the entities of an image, written once; whoever calls it has taken the turn."""
    if _NAME not in rendering.kept:
        before: Sequence[Piece] = ()
        if rendering.earlier is not None:
            kept, changed = rendering.earlier
            before = kept.get(_NAME, ())
        pieces = _patched(before, rendering.ranked, changed) if before else []
        if not pieces or _are_crumbs(pieces, len(rendering.ranked.keys)):
            pieces = list(_written(rendering.ranked))
        rendering.kept[_NAME], rendering.earlier = pieces, None
    kept_pieces: Sequence[Piece] = rendering.kept[_NAME]
    return kept_pieces


def joined(pieces: Sequence[Piece]) -> Iterator[bytes]:
    """Yield the pieces with commas between them."""
    for number, piece in enumerate(pieces):
        yield SEPARATOR + piece.text if number else piece.text


def _written(ranked: Ranked, first: int = 0, last: int | None = None) -> Iterator[Piece]:
    """Write the entries from one place up to another one; null for all."""
    keys, entries = ranked
    begin, end = first, len(keys) if last is None else last
    while begin < end:
        until = min(begin + PIECE_ENTRIES, end)
        while until < end and keys[until] == keys[until - 1]:
            until += 1
        yield Piece(keys[begin], SEPARATOR.join(entry_texts(entries[begin:until])))
        begin = until


def _patched(before: Sequence[Piece], ranked: Ranked, changed: Collection[SortKey]) -> list[Piece]:
    """Write those pieces anew into which a changed entity falls, or fell."""
    begins = [piece.begin for piece in before]
    stale = {max(0, bisect_right(begins, key) - 1) for key in changed}
    pieces: list[Piece] = []
    for number, piece in enumerate(before):
        if number not in stale:
            pieces.append(piece)
            continue
        begin = bisect_left(ranked.keys, begins[number]) if number else 0
        last = number + 1 == len(before)
        end = None if last else bisect_left(ranked.keys, begins[number + 1])
        pieces.extend(_written(ranked, begin, end))
    return pieces


def _are_crumbs(pieces: Sequence[Piece], number: int) -> bool:
    """Tell whether so much was patched that the pieces are small."""
    return len(pieces) > 1 and number < len(pieces) * PIECE_ENTRIES / 2
