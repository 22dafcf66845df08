"""What an alteration asks for, and what it reports."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from app.domain.alterations import (
    AlterationResult,
    ClientQuotaAlteration,
    Outcome,
    Overall,
    overall_outcome,
)
from app.domain.entities import Caller
from app.domain.errors import Violation
from app.service.journal_ports import KeyClaim
from app.service.plans.plan_claims import PlanApplication


class Wait(StrEnum):
    """When an alteration answers, once it is acknowledged."""

    READABLE = "readable"
    ALL_BROKERS = "all_brokers"
    NONE = "none"


Expected = Mapping[str, Decimal | float | None]
"""The values that must hold now: as written, NaN or infinity; null means not set."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key as the caller gave it, and the SHA-256 of what is asked, equal as JSON."""

    text: str
    fingerprint: bytes

    def claim(self, principal: str, cluster_id: str) -> KeyClaim:
        """Return what the log keeps: a key belongs to one principal on one cluster."""
        scope = json.dumps([principal, cluster_id, self.text]).encode()
        return KeyClaim(hashlib.sha256(scope).digest(), self.fingerprint)


@dataclass(frozen=True, slots=True)
class AlterCommand:
    """A request to alter, as read and authorized.

    Attributes:
        evidence: How authorization decided.
        expected: By ordinal; an alteration without expectations is absent.
        violations: Broken rules of the request's own fields, found while it was read.
        key: The idempotency key with the fingerprint of what is asked, or null.
        supersedes: The alteration of unknown outcome whose slots are taken over, or null.
        plan: The plan that is applied, or null.
        wait_ms: How long to wait for the change to be readable, in milliseconds.
    """

    caller: Caller
    evidence: Mapping[str, Any]
    request_id: str
    alterations: tuple[ClientQuotaAlteration, ...]
    validate_only: bool = False
    all_or_nothing: bool = True
    wait: Wait = Wait.READABLE
    wait_ms: int = 5000
    reason: str | None = None
    action: str = "alter"
    expected: Mapping[int, Expected] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()
    key: IdempotencyKey | None = None
    supersedes: str | None = None
    plan: PlanApplication | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options as they are kept in the audit log."""
        options = {
            "validate_only": self.validate_only,
            "all_or_nothing": self.all_or_nothing,
            "wait": self.wait.value,
            "wait_ms": self.wait_ms,
        }
        return options if self.plan is None else {**options, "plan": self.plan.told}


@dataclass(frozen=True, slots=True)
class AlterationReport:
    """What became of a request; results in request order.

    ``readable`` is null where nobody waited; ``replayed`` tells that an idempotency key found it.
    """

    alteration_id: str
    cluster_id: str
    validate_only: bool
    results: tuple[AlterationResult, ...]
    readable: bool | None = None
    replayed: bool = False

    @property
    def overall(self) -> Overall:
        """The one word for all results."""
        return overall_outcome([result.outcome for result in self.results])


def refusal_violations(results: Mapping[int, AlterationResult]) -> tuple[Violation, ...]:
    """Return the refused results as violations, each with its place in the request."""
    return tuple(
        Violation(
            f"/alterations/{ordinal}",
            "refused-by-broker",
            result.error.message,
            result.error.kafka_error,
            ordinal,
        )
        for ordinal, result in sorted(results.items())
        if result.outcome is Outcome.REFUSED and result.error is not None
    )
