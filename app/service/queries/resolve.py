"""Resolve: what applies to an identity, and why; and what would apply after a change."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from app.domain.alterations import ClientQuotaAlteration, Quotas
from app.domain.errors import ExpectationFailedError, InvalidRequestError, Violation
from app.domain.resolution import resolve_client, resolve_ip
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import Resolution
from app.domain.validation import canonical_entity, judge
from app.service.alterations.command import Expected, failed_expectations, raise_violations
from app.service.ports.audit_log import AuditEntity
from app.service.queries.image import DescribeNow, QuotaImage
from app.service.runtime.tasks import off_loop

DEFAULT_RESOLVE_AGE_MS: Final = 5_000


class Identity(NamedTuple):
    """Who connects: a user with or without a client-id, or an address."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class ResolveQuery:
    """What to resolve.

    Attributes:
        identities: In the order of the answer.
        alterations: What-if: null asks for the present only.
        max_age_ms: How old the image may be; 0 reads the broker now.
        explain: List every level tried.
        violations: Broken rules found while the request was read.
        expected: What must hold in the image, by the alteration's position.
    """

    identities: tuple[Identity, ...]
    alterations: tuple[ClientQuotaAlteration, ...] | None = None
    max_age_ms: int = DEFAULT_RESOLVE_AGE_MS
    explain: bool = False
    violations: tuple[Violation, ...] = ()
    expected: Mapping[int, Expected] = field(default_factory=dict)


class ResolutionBasis(NamedTuple):
    """What the identities of a query are resolved against: all of it is from one image.

    Attributes:
        present: What is stored.
        proposed: As if the alterations had been applied; null without alterations.
        callback_class: The brokers' ``client.quota.callback.class``; where one is set, the answer
            is what is configured, not necessarily what is enforced.
        memo: What those who write resolutions want to keep with ``present``, shared by all queries
            of this index.
    """

    query: ResolveQuery
    cluster_id: str
    as_of: datetime
    present: QuotaIndex
    proposed: QuotaIndex | None
    callback_class: str | None
    memo: MutableMapping[object, Any]


def resolved(index: QuotaIndex, identity: Identity, *, explain: bool = False) -> Resolution:
    """Return what applies to one identity, which breaks no rule."""
    if identity.ip is not None:
        return resolve_ip(index, identity.ip, explain=explain)
    return resolve_client(index, identity.user or "", identity.client_id, explain=explain)


class ResolveQuotas:
    """Answers ``GET`` and ``POST /quotas/resolve``.

    Args:
        image: What is resolved against.
        describe_now: Describes everything for whoever wants the newest state; null lets the image.
    """

    def __init__(self, image: QuotaImage, describe_now: DescribeNow | None = None) -> None:
        self._image = image
        self._describe_now = describe_now or image.now

    async def basis(self, query: ResolveQuery) -> ResolutionBasis:
        """Return what the query is to be resolved against.

        Raises:
            InvalidRequestError: An alteration of the what-if breaks a rule.
            ExpectationFailedError: What it expects does not hold in the image.
            NotSentError: No broker answers.
        """
        if query.violations:
            raise InvalidRequestError(_BROKEN, violations=query.violations)
        if query.max_age_ms:
            image = await self._image.indexed(max_age_ms=query.max_age_ms)
        else:
            image = await self._image.index_of(await self._describe_now())
        proposed = None
        if query.alterations is not None:
            proposed = await off_loop(_size(query), _apply_proposal, query, image.index)
        return ResolutionBasis(
            query,
            image.cluster_id,
            image.as_of,
            image.index,
            proposed,
            image.callback_class,
            image.memo,
        )


_BROKEN = "The request breaks a rule; every violation is listed in errors."


def _size(query: ResolveQuery) -> int:
    return len(query.identities) + len(query.alterations or ())


def _apply_proposal(query: ResolveQuery, index: QuotaIndex) -> QuotaIndex:
    """Return the index as if the alterations had been applied; without any it is the same."""
    if not query.alterations:
        return index
    entities = {alteration.entity for alteration in query.alterations}
    entities |= {canonical_entity(alteration, {}) for alteration in query.alterations}
    stored = {entity: values for entity in entities if (values := index.values_of(entity))}
    judgement = judge(query.alterations, stored)
    raise_violations(judgement, all_or_nothing=True)
    _check_expectations(query, judgement.alterations, stored)
    return index.with_alterations(judgement.alterations)


def _check_expectations(
    query: ResolveQuery, alterations: Sequence[ClientQuotaAlteration], stored: Quotas
) -> None:
    entities = (
        AuditEntity(ordinal, alteration, stored.get(alteration.entity, {}))
        for ordinal, alteration in enumerate(alterations)
    )
    failed = failed_expectations(query.expected, entities)
    if failed:
        detail = "The present values are not the expected ones, so nothing is proposed."
        raise ExpectationFailedError(detail, violations=failed)
