"""Who acts: a caller, and what reaches the brokers for it.

Callers with a token or a certificate share this service's own account. A caller who brought a user
and a password acts through connections of its own: brokers authenticate it, and a refusal is its
own, not this service's.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from app.domain.alterations import KafkaRefusal
from app.domain.authorization import Operation
from app.domain.entities import Caller
from app.domain.errors import ClusterAuthorizationError, QuotaError
from app.service.alterations.barrier import Barrier
from app.service.auth.authorize import NOT_AUTHORIZED, RULE, Authorizer, Evidence, lacks
from app.service.auth.denials import ReadChange
from app.service.ports.brokers import (
    ClientQuotaAdmin,
    ClusterRights,
    Described,
    Handover,
    QuotaReader,
    Verdict,
)
from app.service.runtime.tasks import Tasks

DescribeNow = Callable[[], Awaitable[Described]]
"""Describes every quota of the cluster as a broker has it now."""


@dataclass(frozen=True, slots=True)
class Actor:
    """A caller, and what acts for it.

    Attributes:
        authorizer: Judges the caller.
        admin: Alters; alterations of one admin can share a request to a broker.
        reader: Describes what a filter selects.
        describe_now: Describes everything for whoever wants the newest state.
        barrier: Reads what an alteration is judged, recorded and answered with.
        tasks: Run what must not end with the request.
        is_logged_in: Whether brokers know the caller by its own login. Else they know this
            service's account, and what they refuse is for its operators to mend.
    """

    caller: Caller
    authorizer: Authorizer
    admin: ClientQuotaAdmin
    reader: QuotaReader
    describe_now: DescribeNow
    barrier: Barrier
    tasks: Tasks
    is_logged_in: bool = False


ActorOf: TypeAlias = Callable[[Caller], Actor]
"""Returns what acts for a caller: of this service's own account, or of the caller's session."""


@dataclass(eq=False)
class RefusedAtTheActError(ClusterAuthorizationError):
    """A broker refused to a caller who is logged in there what had been judged to be allowed.

    The rights were changed meanwhile, or the broker's authorizer knows more than it tells.

    Attributes:
        evidence: Who decided, and which request was refused, for the audit log.
        read: Reads what was to be altered, for the audit log; null where nothing was.
    """

    evidence: Evidence = field(default_factory=dict)
    read: ReadChange | None = None


def refused_by(request: str) -> dict[str, Any]:
    """Return the evidence of a broker's refusal of a request."""
    return {"allowed": False, "rule": RULE, "asked": request}


class CallerQuotaAdmin:
    """Speaks with brokers as a caller who is logged in there; see ``ClientQuotaAdmin``.

    After a refusal the rights are asked for anew.

    Args:
        admin: Its connections are logged in as the caller.
        rights: What the caller may do, as brokers last reported.
        principal: The caller's.
        stand_in: Describes where the caller may not; null refuses. To alter, ALTER_CONFIGS is
            enough for a broker and for this service alike, and what held before belongs to an
            alteration's record: for that the service's own account stands in.
    """

    def __init__(
        self,
        admin: ClientQuotaAdmin,
        rights: ClusterRights,
        principal: str,
        stand_in: QuotaReader | None = None,
    ) -> None:
        self._admin = admin
        self.live_brokers = admin.live_brokers
        self.preferred_broker = admin.preferred_broker
        self.cluster_id = admin.cluster_id
        self._rights = rights
        self._principal = principal
        self._stand_in = stand_in

    async def describe_client_quotas(self, *asked: Any, **options: Any) -> Described:
        """See ``ClientQuotaAdmin``.

        Raises:
            RefusedAtTheActError: The caller lacks DESCRIBE_CONFIGS, and nobody stands in.
        """
        try:
            return await self._admin.describe_client_quotas(*asked, **options)
        except QuotaError as error:
            if error.kafka_error != NOT_AUTHORIZED:
                raise
            self._rights.forget()
            if self._stand_in is None:
                raise RefusedAtTheActError(
                    lacks(self._principal, Operation.DESCRIBE_CONFIGS),
                    kafka_error=NOT_AUTHORIZED,
                    evidence=refused_by("DescribeClientQuotas"),
                ) from error
        return await self._stand_in.describe_client_quotas(*asked, **options)

    async def alter_client_quotas(self, *asked: Any, **options: Any) -> Handover:
        """See ``ClientQuotaAdmin``; a refusal of the caller says so."""
        answer = await self._admin.alter_client_quotas(*asked, **options)
        verdicts = {
            entity: self._own_verdict(verdict) for entity, verdict in answer.verdicts.items()
        }
        return replace(answer, verdicts=verdicts)

    def _own_verdict(self, verdict: Verdict) -> Verdict:
        if verdict.error is None or verdict.error.kafka_error != NOT_AUTHORIZED:
            return verdict
        self._rights.forget()
        message = lacks(self._principal, Operation.ALTER_CONFIGS)
        return replace(verdict, error=KafkaRefusal(NOT_AUTHORIZED, message))
