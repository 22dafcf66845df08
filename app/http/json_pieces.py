"""All entities of an image as JSON, in pieces: where little has changed, few are written anew."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from app.domain.entities import SortKey
from app.http.answers import quota_json
from app.http.json_text import json_bytes
from app.service.reading.arranged import Rendering, Sorted

PIECE_BYTES: Final = 64 * 1024
"""A piece ends with the entity that fills it."""

SEPARATOR: Final = b","

_NAME: Final = "JSON pieces"
_KEY: Final = itemgetter(0)


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
        if not pieces or _are_crumbs(pieces):
            pieces = list(_written(rendering.ranked))
        rendering.kept[_NAME], rendering.earlier = pieces, None
    kept_pieces: Sequence[Piece] = rendering.kept[_NAME]
    return kept_pieces


def joined(pieces: Sequence[Piece]) -> Iterator[bytes]:
    """Yield the pieces with commas between them."""
    for number, piece in enumerate(pieces):
        yield SEPARATOR + piece.text if number else piece.text


def _written(ranked: Sorted) -> Iterator[Piece]:
    texts: list[bytes] = []
    size, begin, last = 0, None, None
    for key, entity, values in ranked:
        if begin is None or (size >= PIECE_BYTES and key != last):
            if begin is not None:
                yield Piece(begin, SEPARATOR.join(texts))
            begin, size = key, 0
            texts = []
        text = json_bytes(quota_json(entity, values))
        texts.append(text)
        size += len(text)
        last = key
    if begin is not None:
        yield Piece(begin, SEPARATOR.join(texts))


def _patched(before: Sequence[Piece], ranked: Sorted, changed: Collection[SortKey]) -> list[Piece]:
    """Write those pieces anew into which a changed entity falls, or fell."""
    begins = [piece.begin for piece in before]
    stale = {max(0, bisect_right(begins, key) - 1) for key in changed}
    pieces: list[Piece] = []
    for number, piece in enumerate(before):
        if number not in stale:
            pieces.append(piece)
            continue
        begin = bisect_left(ranked, begins[number], key=_KEY) if number else 0
        last = number + 1 == len(before)
        end = len(ranked) if last else bisect_left(ranked, begins[number + 1], key=_KEY)
        pieces.extend(_written(ranked[begin:end]))
    return pieces


def _are_crumbs(pieces: Sequence[Piece]) -> bool:
    """Tell whether so much was patched that the pieces are small."""
    return len(pieces) > 1 and sum(len(one.text) for one in pieces) < len(pieces) * PIECE_BYTES / 2
