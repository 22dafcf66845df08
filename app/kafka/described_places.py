"""Where a describe-all answer differs from the last one, if it is laid out like it.

A broker lists its entities in the order of a hash table: where only values have changed it is often
the same, and a look at the few places that differ is enough. Source: ``ClientQuotasImage``.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

_PIECE_BYTES: Final = 4096
_MOST_PIECES: Final = 200
"""With more of them different the answer is read as a whole."""


def differing_entries(
    before: bytes, after: bytes, starts: Sequence[int]
) -> list[tuple[bytes, bytes]] | None:
    """Return the entries that differ, as they were and as they are; null where that is not known.

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
    pieces = list(islice(_differing_pieces(before, after), _MOST_PIECES + 1))
    if len(pieces) > _MOST_PIECES:
        return None
    places: set[int] = set()
    for begin, end in pieces:
        first, last = bisect_right(starts, begin) - 1, bisect_right(starts, end - 1) - 1
        places.update(range(max(first, 0), min(last + 1, len(starts) - 1)))
    slices = [slice(starts[at], starts[at + 1]) for at in places]
    return [(before[one], after[one]) for one in slices if before[one] != after[one]]


def _differing_pieces(before: bytes, after: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each piece that differs begins and ends."""
    for begin in range(0, len(before), _PIECE_BYTES):
        end = min(begin + _PIECE_BYTES, len(before))
        if before[begin:end] != after[begin:end]:
            yield begin, end
