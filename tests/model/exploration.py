"""Exhaustive search: every state that can be reached, once."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


def reachable(start: S, moves: Callable[[S], Iterable[S]]) -> dict[S, bool]:
    """Return the reachable states; each with whether it is an end, from which nothing moves."""
    seen: dict[S, bool] = {start: True}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        for following in moves(state):
            seen[state] = False
            if following not in seen:
                seen[following] = True
                waiting.append(following)
    return seen
