"""What the decision of the broker itself needs: a cluster that is asked as the caller."""

from dataclasses import dataclass
from typing import Protocol

from app.domain.authorization import Operation


@dataclass(frozen=True, slots=True)
class Rights:
    """What a broker says that a caller may do.

    Attributes:
        allowed: Whether the operation is allowed.
        asked: How the broker was asked, in Kafka's words.
        age_s: Seconds since the question was sent, by the monotonic clock.
        has_authorizer: False where the cluster has none, so that everything is allowed.
    """

    allowed: bool
    asked: str
    age_s: float
    has_authorizer: bool = True


class ClusterRights(Protocol):
    """Asks a broker what the caller may do, as the caller; its answers are kept for a while."""

    async def rights(self, operation: Operation, *, max_age_s: float) -> Rights:
        """Return an answer that is at most ``max_age_s`` old.

        Raises:
            NotSentError: None that young can be had; the caller must fail closed.
        """
        ...

    def forget(self) -> None:
        """Answer from nothing that was asked before this moment: a broker has refused the act."""
        ...
