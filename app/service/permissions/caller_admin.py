"""The brokers' quota API as the caller: a refusal is the caller's own, not this service's."""

from collections.abc import Sequence
from dataclasses import replace

from app.domain.alterations import ClientQuotaAlteration, KafkaRefusal
from app.domain.authorization import Operation
from app.domain.errors import (
    ClusterAuthorizationError,
    NotSentError,
    QuotaError,
    Retry,
)
from app.domain.filters import ClientQuotaFilter
from app.service.alterations.present_values import QuotaReader
from app.service.cluster_ports import AlterAnswer, ClientQuotaAdmin, Described, EntityVerdict
from app.service.permissions.broker_authorizer import NOT_AUTHORIZED, lacks
from app.service.permissions.cluster_rights import ClusterRights


class RefusedAtTheActError(ClusterAuthorizationError, NotSentError):
    """The broker refused the caller a read that was thought allowed; nothing was sent.

    An alteration that meets it is concluded like any that was not sent.
    """

    def __post_init__(self) -> None:
        """Repeating is of no use before somebody changes an ACL."""
        super().__post_init__()
        self.retry = Retry.NEVER


class RecordReader:
    """Reads what an alteration is recorded and answered with: as the caller, else as this service.

    To alter, ALTER_CONFIGS is enough for a broker and for this service alike, and what held before
    is part of an alteration's record. So a caller who may alter and not describe is not refused for
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
    """See ``ClientQuotaAdmin``; nothing that was said before outlives a refusal.

    Args:
        admin: With connections that are logged in as the caller.
        rights: What the brokers have said that the caller may do.
        principal: The caller's.
    """

    def __init__(self, admin: ClientQuotaAdmin, rights: ClusterRights, principal: str) -> None:
        self._admin = admin
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
        verdicts = {entity: self._said(one) for entity, one in answer.verdicts.items()}
        return replace(answer, verdicts=verdicts)

    def _said(self, verdict: EntityVerdict) -> EntityVerdict:
        if verdict.error is None or verdict.error.kafka_error != NOT_AUTHORIZED:
            return verdict
        self._rights.forget()
        message = lacks(self._principal, Operation.ALTER_CONFIGS)
        return replace(verdict, error=KafkaRefusal(NOT_AUTHORIZED, message))

    async def live_brokers(self, *, timeout_s: float | None = None) -> Sequence[int]:
        """See ``ClientQuotaAdmin``."""
        return await self._admin.live_brokers(timeout_s=timeout_s)

    async def preferred_broker(self, *, timeout_s: float | None = None) -> int:
        """See ``ClientQuotaAdmin``."""
        return await self._admin.preferred_broker(timeout_s=timeout_s)

    async def cluster_id(self, *, timeout_s: float | None = None) -> str:
        """See ``ClientQuotaAdmin``."""
        return await self._admin.cluster_id(timeout_s=timeout_s)
