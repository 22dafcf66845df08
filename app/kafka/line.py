"""In which order brokers are tried: the first that works stays the first."""

import random
from collections.abc import Iterable, Sequence

from app.kafka.handshake import Address


class Line:
    """Every address that is known, the preferred one first, those that failed last."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._line = random.sample(addresses, len(addresses))

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All of them, in order."""
        return tuple(self._line)

    def first(self, addresses: Iterable[Address]) -> Address:
        """Return the one of these that comes first."""
        return min(addresses, key=self._line.index)

    def send_to_the_end(self, address: Address) -> None:
        """Let every other come before this one."""
        if address in self._line:
            self._line.remove(address)
            self._line.append(address)

    def adopt(self, live: Iterable[Address]) -> None:
        """Take in who is alive: newcomers come after the first, who is gone comes last."""
        alive = dict.fromkeys(live)
        known = [each for each in self._line if each in alive]
        gone = [each for each in self._line if each not in alive]
        new = [each for each in alive if each not in known]
        self._line = [*known[:1], *random.sample(new, len(new)), *known[1:], *gone]
