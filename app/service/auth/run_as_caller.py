"""Requests that run as the caller: a refusal is the caller's own, not this service's."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal
from app.domain.authorization import Operation
from app.domain.entities import ClientQuotaFilter
from app.domain.errors import (
    BrokerError,
    ClusterAuthorizationError,
    NotSentError,
    QuotaError,
    Retry,
)
from app.service.alterations.alter import AlterQuotas, no_check
from app.service.alterations.command import AlterationReport, AlterCommand
from app.service.alterations.current_values import Barrier
from app.service.alterations.write_ahead import AlterContext
from app.service.auth.authorize import NOT_AUTHORIZED, RULE, lacks
from app.service.auth.denials import DeniedAttempt, DeniedAttempts, requested_change
from app.service.ports.brokers import (
    AlterAnswer,
    ClientQuotaAdmin,
    ClusterRights,
    Described,
    EntityVerdict,
    QuotaReader,
)
from app.service.runtime.tasks import Tasks


class RefusedAtTheActError(ClusterAuthorizationError, NotSentError):
    """The broker refused the caller a read that was thought allowed; nothing was sent.

    An alteration that meets it is concluded like any that was not sent.
    """

    def __post_init__(self) -> None:
        """Repeating is of no use before an ACL is changed."""
        super().__post_init__()
        self.retry = Retry.NEVER


class RecordReader:
    """Reads what an alteration is recorded and answered with: as the caller, else as this service.

    To alter, ALTER_CONFIGS is enough for a broker and for this service alike, and what held before
    belongs to an alteration's record. So a caller who may alter and not describe is not refused for
    the sake of the record.
    """

    def __init__(self, as_caller: QuotaReader, as_service: QuotaReader) -> None:
        self._as_caller = as_caller
        self._as_service = as_service

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        """See ``ClientQuotaAdmin``."""
        try:
            return await self._as_caller.describe_client_quotas(
                quota_filter, broker_id=broker_id, timeout_s=timeout_s
            )
        except RefusedAtTheActError:
            return await self._as_service.describe_client_quotas(
                quota_filter, broker_id=broker_id, timeout_s=timeout_s
            )


class CallerQuotaAdmin:
    """See ``ClientQuotaAdmin``; no earlier answer outlives a refusal."""

    def __init__(self, admin: ClientQuotaAdmin, rights: ClusterRights, principal: str) -> None:
        self._admin = admin
        self.live_brokers = admin.live_brokers
        self.preferred_broker = admin.preferred_broker
        self.cluster_id = admin.cluster_id
        self._rights = rights
        self._principal = principal

    async def describe_client_quotas(
        self,
        quota_filter: ClientQuotaFilter,
        *,
        broker_id: int | None = None,
        timeout_s: float | None = None,
    ) -> Described:
        """See ``ClientQuotaAdmin``.

        Raises:
            RefusedAtTheActError: The caller lacks DESCRIBE_CONFIGS.
        """
        try:
            return await self._admin.describe_client_quotas(
                quota_filter, broker_id=broker_id, timeout_s=timeout_s
            )
        except QuotaError as error:
            if error.kafka_error != NOT_AUTHORIZED:
                raise
            self._rights.forget()
            detail = lacks(self._principal, Operation.DESCRIBE_CONFIGS)
            raise RefusedAtTheActError(detail, kafka_error=NOT_AUTHORIZED) from error

    async def alter_client_quotas(
        self,
        alterations: Sequence[ClientQuotaAlteration],
        *,
        validate_only: bool,
        broker_id: int | None = None,
        timeout_s: float | None = None,
        send_by: float | None = None,
    ) -> AlterAnswer:
        """See ``ClientQuotaAdmin``; a refusal of the caller says so."""
        answer = await self._admin.alter_client_quotas(
            alterations,
            validate_only=validate_only,
            broker_id=broker_id,
            timeout_s=timeout_s,
            send_by=send_by,
        )
        verdicts = {
            entity: self._own_verdict(verdict) for entity, verdict in answer.verdicts.items()
        }
        return replace(answer, verdicts=verdicts)

    def _own_verdict(self, verdict: EntityVerdict) -> EntityVerdict:
        if verdict.error is None or verdict.error.kafka_error != NOT_AUTHORIZED:
            return verdict
        self._rights.forget()
        message = lacks(self._principal, Operation.ALTER_CONFIGS)
        return replace(verdict, error=KafkaRefusal(NOT_AUTHORIZED, message))


class AlterAsCaller(AlterQuotas):
    """Answers ``POST /quotas/alterations`` with the broker's own refusals.

    What was thought allowed and is refused at the act is recorded as a denied attempt. The
    connections of ``admin`` are logged in as the caller.
    """

    def __init__(
        self,
        context: AlterContext,
        admin: ClientQuotaAdmin,
        barrier: Barrier,
        tasks: Tasks,
        denials: DeniedAttempts,
    ) -> None:
        super().__init__(context, admin, barrier, tasks)
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
            refusal = ClusterAuthorizationError(
                lacks(command.caller.principal, Operation.ALTER_CONFIGS),
                kafka_error=NOT_AUTHORIZED,
                sent=error.sent,
                violations=error.violations,
                alteration_id=error.alteration_id,
                results=error.results,
            )
        await self._denials.record(command.caller, refusal, _attempt(command))
        raise refusal


def _attempt(command: AlterCommand) -> DeniedAttempt:
    evidence = {**command.evidence, "allowed": False, "rule": RULE, "asked": "AlterClientQuotas"}
    route = "POST /quotas/alterations"
    if command.action == "revert":
        route += "/…/revert"
    read = requested_change(command.alterations, command.reason)
    return DeniedAttempt(command.request_id, route, evidence, read)
