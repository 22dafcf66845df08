"""What every part of an alteration's life may use."""

from dataclasses import dataclass, field

from app.service.alterations.failpoints import Failpoints
from app.service.breaker import CircuitBreaker
from app.service.metrics_port import AlterationMetrics
from app.service.patience import USUAL, Patience
from app.service.permissions.policy import NoPolicy, PolicyGuard


@dataclass(frozen=True, slots=True)
class LifeContext:
    """Shared by the parts.

    Attributes:
        owner: The name of this process in the log.
        metrics: What operators are told in numbers.
        breaker: Before the audit log, on the way to an intent.
        failpoints: None is armed outside of tests.
        policy: Takes away from what the ACLs allow.
        patience: How long others may take.
    """

    owner: str
    metrics: AlterationMetrics
    breaker: CircuitBreaker
    failpoints: Failpoints
    policy: PolicyGuard = field(default_factory=NoPolicy)
    patience: Patience = USUAL
