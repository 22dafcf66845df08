"""Circuit breaker: what has failed five times in a row is not awaited by everybody else."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from app.domain.errors import NotSentError, QuotaError
from app.service.ports.audit_log import KeyTakenError
from app.service.ports.metrics import BreakerState

FAILURES: Final = 5
"""So many failures in a row open it."""

PROBE_EVERY_S: Final = 2.0
"""While it is open one attempt passes in this time; its success closes it."""


def _unwatched(_: BreakerState) -> None:
    """Tell nobody."""


class CircuitBreaker:
    """Stands before a dependency. A ``NotSentError`` is a failure, any other answer a success.

    Args:
        code: Of the problem that is answered while it is open.
        detail: A sentence that says what is down and that nothing was sent.
        watch: Called with each new state.
        now: A clock in seconds that never goes back.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        watch: Callable[[BreakerState], None] = _unwatched,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._code = code
        self._detail = detail
        self._watch = watch
        self._now = now
        self._failures = 0
        self._next_probe = math.inf
        watch(BreakerState.CLOSED)

    @property
    def state(self) -> BreakerState:
        """Closed lets everything pass, open nothing but probes."""
        return BreakerState.CLOSED if self._next_probe == math.inf else BreakerState.OPEN

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Let the block use the dependency, and learn from how it ends.

        What is cancelled, and what is a fault of this service, teaches nothing.

        Raises:
            NotSentError: It is open, and no probe is due.
        """
        self._admit()
        try:
            yield
        except NotSentError:
            self._failed()
            raise
        except (QuotaError, KeyTakenError):
            self._succeeded()
            raise
        self._succeeded()

    def _admit(self) -> None:
        if self.state is BreakerState.CLOSED:
            return
        wait_s = self._next_probe - self._now()
        if wait_s > 0:
            raise NotSentError(self._detail, code=self._code, retry_after_s=wait_s)
        self._next_probe = self._now() + PROBE_EVERY_S

    def _failed(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES and self.state is BreakerState.CLOSED:
            self._next_probe = self._now() + PROBE_EVERY_S
            self._watch(BreakerState.OPEN)

    def _succeeded(self) -> None:
        self._failures = 0
        if self.state is BreakerState.OPEN:
            self._next_probe = math.inf
            self._watch(BreakerState.CLOSED)
