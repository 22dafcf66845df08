"""How often a password may be wrong, counted over all workers."""

import time
from collections.abc import Callable

from app.http.authentication.login_attempts import MOST_FAILURES, WITHIN_S, too_many
from app.http.rate_limits import network_of
from app.http.workers.board import Board


class SharedLoginAttempts:
    """Counts as ``LoginAttempts`` does, on the board of all workers.

    An attempt is noted before all are counted: of several that begin at the same moment in several
    workers all may be refused, and never one too many be let through.

    Args:
        board: Seen by all workers.
        count: Told that the limit was reached.
        now: A clock in seconds, the same for all processes, that never goes back.
    """

    def __init__(
        self,
        board: Board,
        count: Callable[[], None] = lambda: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._count = count
        self._now = now

    def begin(self, user: str, address: str) -> Callable[[], None]:
        """Count an attempt; return what takes that back, for one that did not fail.

        Raises:
            RateLimitedError: One too many; its ``retry_after_s`` says when there may be another.
        """
        now, name = self._now(), f"{network_of(address)} {user}"
        noted = self._board.add_failure(name, now)
        counted = [at for at in self._board.failures(name) if at > now - WITHIN_S]
        if len(counted) > MOST_FAILURES:
            noted.take_back()
            self._count()
            raise too_many(counted[-MOST_FAILURES - 1] + WITHIN_S - now)
        return noted.take_back
