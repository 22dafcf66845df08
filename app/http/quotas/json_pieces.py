"""All entities of an image as JSON, in pieces: where little has changed, few are written anew."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from app.domain.entities import SortKey
from app.http.quotas.json_entries import entry_texts
from app.service.queries.describe import Ranked, Rendering

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
