"""The policy, enforced on every alteration before anything of it is looked up."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from app.domain.entities import Caller
from app.domain.errors import ClusterAuthorizationError, PolicyViolationError
from app.domain.policy import Policy, PolicyRule
from app.service.alterations.command import AlterCommand
from app.service.auth.denials import DeniedAttempt, requested_change
from app.service.runtime.tasks import off_loop

logger = logging.getLogger(__name__)

_REFUSED: Final = (
    "The policy of this service does not let you change all of that; nothing was sent. Every "
    "violation is listed in errors."
)

RecordDenied = Callable[[Caller, ClusterAuthorizationError, DeniedAttempt], Awaitable[None]]


class PolicyMetrics(Protocol):
    """Counts what the policy decides and how it is read; no call waits or fails."""

    def policy_decided(self, *, allowed: bool) -> None:
        """Note a decision."""
        ...

    def policy_read(self, *, usable: bool, rules: int) -> None:
        """Note that the file was read, and how many rules are in force since."""
        ...


class NoPolicy:
    """Leaves everything to the ACLs."""

    def rules_of(self, _principal: str) -> None:
        """Return null: there are no rules."""

    async def admitted(self, command: AlterCommand) -> AlterCommand:
        """Return the command as it is."""
        return command


class NarrowingPolicy:
    """Refuses the request as a whole where the policy forbids anything in it.

    Args:
        read: Reads the file again; raises ``ValueError`` with the faults where it is not usable.
        in_force: What was read at the start.
        record_denied: Keeps the attempts of those who may not.
        metrics: Who counts.
    """

    def __init__(
        self,
        read: Callable[[], Policy],
        in_force: Policy,
        record_denied: RecordDenied,
        metrics: PolicyMetrics,
    ) -> None:
        self._read = read
        self._in_force = in_force
        self._record_denied = record_denied
        self._metrics = metrics
        metrics.policy_read(usable=True, rules=len(in_force.rules))

    async def reload(self) -> bool:
        """Read the file again; a bad one is logged, and the previous policy stays in force.

        Returns:
            Whether the file could be used.
        """
        rules = len(self._in_force.rules)
        try:
            self._in_force = await asyncio.to_thread(self._read)
        except ValueError as error:
            logger.error("keeping the previous policy: %s", error)  # noqa: TRY400
            self._metrics.policy_read(usable=False, rules=rules)
            return False
        rules = len(self._in_force.rules)
        logger.info("policy read again: %d rules, SHA-256 %s", rules, self._in_force.digest)
        self._metrics.policy_read(usable=True, rules=rules)
        return True

    def rules_of(self, principal: str) -> Sequence[PolicyRule] | None:
        """Return the rules that bound a principal's alterations; null where nothing does.

        No rule at all forbids everything, unless others may.
        """
        policy = self._in_force
        rules = policy.rules_of(principal)
        return None if policy.others_may and not rules else rules

    async def admitted(self, command: AlterCommand) -> AlterCommand:
        """Return the command, its evidence with the policy's verdict.

        Raises:
            PolicyViolationError: The policy forbids some of it; the attempt is in the audit log.
        """
        policy, principal = self._in_force, command.caller.principal
        number = len(command.alterations)
        violations = await off_loop(number, policy.violations, principal, command.alterations)
        self._metrics.policy_decided(allowed=not violations)
        evidence = _evidence(command, policy)
        if violations:
            refusal = PolicyViolationError(_REFUSED, violations=violations)
            await self._record_denied(command.caller, refusal, _attempt(command, evidence))
            raise refusal
        return replace(command, evidence=evidence)


PolicyGuard = NoPolicy | NarrowingPolicy
"""Lets alterations pass, or some of them."""


def _evidence(command: AlterCommand, policy: Policy) -> Mapping[str, Any]:
    rules = [rule.name for rule in policy.rules_of(command.caller.principal)]
    return {**command.evidence, "policy": {"sha256": policy.digest, "rules": rules}}


def _attempt(command: AlterCommand, evidence: Mapping[str, Any]) -> DeniedAttempt:
    read = requested_change(command.alterations, command.reason)
    return DeniedAttempt(command.request_id, command.action, evidence, read)
