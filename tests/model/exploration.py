"""Exhaustive search: every state that can be reached, once."""

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


def reachable(start: S, moves: Callable[[S], Iterable[S]]) -> Iterator[tuple[S, bool]]:
    """Yield each reachable state, and whether it is an end, from which nothing moves.

    States have no cycles, so Python's collector is off: it would search all of them repeatedly.
    """
    seen = {start}
    waiting = [start]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for state in waiting:  # which grows meanwhile
            following = tuple(moves(state))
            yield state, not following
            for item in following:
                before = len(seen)
                seen.add(item)
                if len(seen) > before:
                    waiting.append(item)
    finally:
        if was_enabled:
            gc.enable()
