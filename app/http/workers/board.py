"""A few numbers in memory that all workers see; each worker writes its own, so none waits.

A number of eight bytes is written at once by every processor that this runs on. What a worker reads
of another may be a moment old.
"""

import hashlib
import mmap
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

FAILURES: Final = 16_384
"""So many failed logins of each worker are remembered."""

COUNTED: Final = 1024
"""So many names each worker can count under at a time."""

_CONNECTIONS, _FORGOTTEN_NS, _NEXT_FAILURE, _HEAD = range(4)
_COUNTS: Final = _HEAD + 2 * FAILURES
_NUMBER_BYTES: Final = 8
_WORDS: Final = _COUNTS + 2 * COUNTED
_NS: Final = 1_000_000_000


@dataclass(eq=False, slots=True)
class Noted:
    """A failure on the board."""

    words: "memoryview[int]"
    at: int

    def take_back(self) -> None:
        """Forget it; a second time nothing happens."""
        if self.at >= 0:
            self.words[self.at] = 0
            self.at = -1


class Board:
    """One part for each worker.

    Args:
        size: How many workers there are.

    Attributes:
        mine: The number of this worker, from 1 on.
    """

    def __init__(self, size: int) -> None:
        self.mine = 0
        self._size = size
        self._memory = mmap.mmap(-1, size * _WORDS * _NUMBER_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self._key = secrets.token_bytes(16)

    def has_ended(self, number: int) -> None:
        """Note that a worker has ended, and with it its connections and what it was counting."""
        self._words[_part(number) + _CONNECTIONS] = 0
        first = _part(number) + _COUNTS
        self._words[first : first + 2 * COUNTED] = memoryview(bytes(2 * COUNTED * 8)).cast("Q")

    def set_connections(self, number: int) -> None:
        """Tell how many connections this worker has."""
        self._words[_part(self.mine) + _CONNECTIONS] = number

    def connections_elsewhere(self) -> int:
        """Return how many connections the other workers have."""
        others = (each for each in self._numbers() if each != self.mine)
        return sum(self._words[_part(each) + _CONNECTIONS] for each in others)

    def forget(self) -> None:
        """Tell that what was read of the cluster before this moment is out of date."""
        self._words[_part(self.mine) + _FORGOTTEN_NS] = time.monotonic_ns()

    def forgotten_at(self) -> float:
        """Return when that was told last by any worker, as ``time.monotonic`` does."""
        return max(self._words[_part(each) + _FORGOTTEN_NS] for each in self._numbers()) / _NS

    def add_failure(self, name: str, now: float) -> "Noted":
        """Note a failure at a time, in seconds."""
        part = _part(self.mine)
        place: int = self._words[part + _NEXT_FAILURE]
        self._words[part + _NEXT_FAILURE] = (place + 1) % FAILURES
        at = part + _HEAD + place
        self._words[at + FAILURES] = int(now * _NS)
        self._words[at] = int.from_bytes(self.name_of(name), sys.byteorder)
        return Noted(self._words, at)

    def failures(self, name: str) -> list[float]:
        """Return when failures were noted under a name, by any worker, the oldest first."""
        searched = self.name_of(name)
        found = (at for each in self._numbers() for at in self._failures_of(each, searched))
        return sorted(found)

    def _failures_of(self, number: int, searched: bytes) -> Iterator[float]:
        for at in self._found(searched, _part(number) + _HEAD, FAILURES):
            yield self._words[at + FAILURES] / _NS

    def count(self, name: bytes, place: int, number: int) -> None:
        """Tell how many this worker counts under a ``name_of``, in a place below ``COUNTED``."""
        at = _part(self.mine) + _COUNTS + place
        self._words[at + COUNTED] = number
        self._words[at] = int.from_bytes(name, sys.byteorder) if number else 0

    def counted_elsewhere(self, name: bytes) -> int:
        """Return how many the other workers count under a ``name_of``."""
        number = 0
        for each in self._numbers():
            if each != self.mine:
                for at in self._found(name, _part(each) + _COUNTS, COUNTED):
                    number += self._words[at + COUNTED]
        return number

    def _found(self, searched: bytes, first: int, number: int) -> Iterator[int]:
        """Yield where a hash stands, among so many words."""
        begin, end = first * _NUMBER_BYTES, (first + number) * _NUMBER_BYTES
        while (at := self._memory.find(searched, begin, end)) != -1:
            if at % _NUMBER_BYTES == 0:
                yield at // _NUMBER_BYTES
            begin = at + 1

    def name_of(self, name: str) -> bytes:
        """Return what stands for a name on the board: 8 bytes of a hash with a key of its own."""
        return hashlib.blake2b(
            name.encode(errors="surrogatepass"), digest_size=_NUMBER_BYTES, key=self._key
        ).digest()

    def _numbers(self) -> range:
        return range(1, self._size + 1)


def _part(number: int) -> int:
    """Return where a worker's numbers begin."""
    return (number - 1) * _WORDS
