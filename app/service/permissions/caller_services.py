"""What answers a caller whose requests run as the caller, and what of it is shared with others."""

from collections.abc import Callable

from app.domain.authorization import Operation
from app.domain.errors import BrokerError, ClusterAuthorizationError
from app.domain.filters import ALL_ENTITIES
from app.service.alterations.alter import AlterationParts, AlterQuotas, no_check
from app.service.alterations.alteration_command import AlterationReport, AlterCommand
from app.service.cluster_ports import ClientQuotaAdmin, Described
from app.service.patience import USUAL
from app.service.permissions.broker_authorizer import NOT_AUTHORIZED, RULE, lacks
from app.service.permissions.caller_admin import RefusedAtTheActError
from app.service.permissions.denials import DeniedAttempt, DeniedAttempts, requested_change
from app.service.reading.describe import Image


class CallerImage:
    """The newest state is asked for as the caller; an older one is everybody's.

    Whoever may describe gets the same answer as everybody else who may: quotas have no ACLs of
    their own. So an image is shared with a caller whom a broker allowed to describe at most a
    minute ago, instead of one copy of all quotas for each session.
    """

    def __init__(
        self, admin: ClientQuotaAdmin, shared: Image, *, within_s: float = USUAL.image_s
    ) -> None:
        self._admin = admin
        self._shared = shared
        self._within_s = within_s

    async def image(self, *, max_age_ms: int) -> Described:
        """See ``Image``.

        Raises:
            RefusedAtTheActError: The caller lacks DESCRIBE_CONFIGS.
        """
        if max_age_ms > 0:
            return await self._shared.image(max_age_ms=max_age_ms)
        return await self._admin.describe_client_quotas(ALL_ENTITIES, timeout_s=self._within_s)

    def forget(self) -> None:
        """See ``Image``."""
        self._shared.forget()


class AlterAsCaller(AlterQuotas):
    """Answers ``POST /quotas/alterations`` with the broker's own refusals.

    Args:
        parts: With connections that are logged in as the caller.
        principal: The caller's.
        denials: Records the attempt where the broker refuses what was thought allowed.
    """

    def __init__(self, parts: AlterationParts, principal: str, denials: DeniedAttempts) -> None:
        super().__init__(parts)
        self._principal = principal
        self._denials = denials

    async def alter(
        self, command: AlterCommand, check: Callable[[], None] = no_check
    ) -> AlterationReport:
        """See ``AlterQuotas``.

        Raises:
            ClusterAuthorizationError: The broker refused the caller, at the act.
        """
        try:
            return await super().alter(command, check)
        except RefusedAtTheActError as error:
            refusal = ClusterAuthorizationError(error.detail, kafka_error=NOT_AUTHORIZED)
        except BrokerError as error:
            if error.kafka_error != NOT_AUTHORIZED or error.results is None:
                raise
            refusal = self._as_the_callers(error)
        await self._denials.record(command.caller, refusal, _attempt(command))
        raise refusal

    def _as_the_callers(self, error: BrokerError) -> ClusterAuthorizationError:
        return ClusterAuthorizationError(
            lacks(self._principal, Operation.ALTER_CONFIGS),
            kafka_error=NOT_AUTHORIZED,
            sent=error.sent,
            violations=error.violations,
            alteration_id=error.alteration_id,
            results=error.results,
        )


def _attempt(command: AlterCommand) -> DeniedAttempt:
    evidence = {**command.evidence, "allowed": False, "rule": RULE, "asked": "AlterClientQuotas"}
    route = "POST /quotas/alterations"
    if command.action == "revert":
        route += "/…/revert"
    read = requested_change(command.alterations, command.reason)
    return DeniedAttempt(command.request_id, route, evidence, read)
