"""What every step of an alteration may use, failpoints included.

Failpoints are named steps of an alteration where a test may kill or freeze it. They are always
compiled in and armed only by ``QUOTAS_TEST_FAILPOINT`` in development mode, so that what is tested
is what is shipped.
"""

import os
import signal
from dataclasses import dataclass, field
from typing import Final

from app.service.auth.policy import NoPolicy, PolicyGuard
from app.service.ports.metrics import AlterationMetrics
from app.service.runtime.clock import USUAL, Patience
from app.service.runtime.dependencies import CircuitBreaker
from app.service.runtime.tasks import LargeRequests

POINTS: Final = (
    "before_intent",
    "intent_begun",
    "after_intent",
    "before_send",
    "before_last_check",
    "after_last_check",
    "handed_over",
    "after_answer",
    "after_conclusion",
    "recovery_before_record",
    "recovery_after_record",
)
"""Every failpoint, in the order in which an alteration and its recovery pass them."""

ACTIONS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class Failpoints:
    """At most one armed point.

    Raises:
        ValueError: There is no such point or action.
    """

    armed: str | None = None
    action: str = "kill"

    def __post_init__(self) -> None:
        """Refuse what would never fire."""
        if (self.armed is not None and self.armed not in POINTS) or self.action not in ACTIONS:
            message = f"write one of {', '.join(POINTS)}, then :kill or :stop"
            raise ValueError(message)

    @classmethod
    def read(cls, text: str) -> "Failpoints":
        """Read ``after_intent:kill``; an empty text arms nothing."""
        point, _, action = text.partition(":")
        return cls(point or None, action or "kill")

    def reach(self, point: str) -> None:
        """Pass a point; where it is armed, this process is killed or frozen right here."""
        if point == self.armed:
            os.kill(os.getpid(), ACTIONS[self.action])


@dataclass(frozen=True, slots=True)
class AlterContext:
    """What all steps of an alteration share.

    Attributes:
        owner: The name of this process in the log.
        metrics: Reports to operators in numbers.
        breaker: Before the audit log, when an intent is written.
        failpoints: None is armed outside of tests.
        policy: Takes away from what the ACLs allow.
        patience: How long others may take.
        large: What each principal has in progress.
    """

    owner: str
    metrics: AlterationMetrics
    breaker: CircuitBreaker
    failpoints: Failpoints
    policy: PolicyGuard = field(default_factory=NoPolicy)
    patience: Patience = USUAL
    large: LargeRequests = field(default_factory=LargeRequests)
