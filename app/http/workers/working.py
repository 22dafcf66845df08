"""How many requests of a principal are worked on, counted over all workers."""

from dataclasses import dataclass

from app.http.workers.board import COUNTED, Board


class SharedWorking:
    """Counts as ``Working`` does, on the board of all workers.

    A request is counted before all are: of several that begin at the same moment in several workers
    all may be refused, and never one too many be let through. Where a worker works for more
    principals than the board has room for, those beyond are counted by it alone.

    Args:
        board: Seen by all workers.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._free = list(reversed(range(COUNTED)))
        self._counts: dict[str, _Count] = {}

    def add(self, principal: str) -> int:
        """Count one more; return how many there are then."""
        count = self._counts.get(principal)
        if count is None:
            place = self._free.pop() if self._free else None
            count = self._counts[principal] = _Count(self._board.name_of(principal), place)
        count.number += 1
        self._tell(count)
        return count.number + self._board.counted_elsewhere(count.name)

    def remove(self, principal: str) -> None:
        """Count one less."""
        count = self._counts[principal]
        count.number -= 1
        self._tell(count)
        if not count.number:
            del self._counts[principal]
            if count.place is not None:
                self._free.append(count.place)

    def _tell(self, count: "_Count") -> None:
        if count.place is not None:
            self._board.count(count.name, count.place, count.number)


@dataclass(slots=True)
class _Count:
    """How many of one principal, and where on the board that stands."""

    name: bytes
    place: int | None
    number: int = 0
