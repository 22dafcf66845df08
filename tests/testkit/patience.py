"""How long tests wait for what must come, and services for Postgres and brokers."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from app.service.runtime.clock import Patience

DEADLINE_S: Final = 30.0
"""How long a test waits for what must come."""

PATIENT: Final = Patience(30.0, 30.0, 30.0)
"""For tests of anything else than giving up: a busy machine must not decide what they see."""

PROMPT: Final = Patience(3.0, 3.0, 5.0)
"""For tests of giving up, and of recovery, which waits until an abandoned request can be over."""


def settings_of(patience: Patience) -> Mapping[str, str]:
    """Return the settings of a service, without their prefix, that make it so patient."""
    return {
        "database_connect_timeout_ms": f"{patience.database_connect_s * 1000:.0f}",
        "database_timeout_ms": f"{patience.database_answer_s * 1000:.0f}",
        "kafka_request_timeout_ms": f"{patience.broker_answer_s * 1000:.0f}",
    }


def pauses(longest_s: float = 0.2) -> Iterator[float]:
    """Yield the seconds between one look and the next: more each time, up to the longest."""
    pause = 0.001
    while True:
        yield pause
        pause = min(2 * pause, longest_s)


def wait_until(
    holds: Callable[[], object], what: str = "it does not come true", within_s: float = DEADLINE_S
) -> None:
    pause = pauses()
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(next(pause))
