"""Resolve: what applies to an identity, and why; and what would apply after a change."""

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from app.domain.alterations import ClientQuotaAlteration, Quotas
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import ExpectationFailedError, InvalidRequestError, Violation
from app.domain.resolution import resolve_client, resolve_ip
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import Resolution
from app.domain.validation import judge
from app.service.alterations.command import Expected, raise_violations
from app.service.alterations.preconditions import failed_expectations
from app.service.ports.audit_log import AuditEntity
from app.service.ports.brokers import CallbackDetector, Described
from app.service.queries.describe import Image
from app.service.runtime.offload import off_loop, pause_gc

DEFAULT_RESOLVE_AGE_MS: Final = 5_000
MAX_OVERLAY: Final = 2_000
"""With so many changes since it was built an index is built anew."""


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


@dataclass(frozen=True, slots=True)
class ResolveAnswer:
    """Resolutions in the order of the identities, all from one image.

    Attributes:
        proposed: As if the alterations had been applied; null without alterations.
        callback_class: The brokers' ``client.quota.callback.class``; where one is set, the answer
            is what is configured, not necessarily what is enforced.
    """

    cluster_id: str
    as_of: datetime
    resolutions: tuple[Resolution, ...]
    proposed: tuple[Resolution, ...] | None
    callback_class: str | None


class ResolutionBasis(NamedTuple):
    """What the identities of a query are resolved against: all of it is from one image.

    Attributes:
        present: What is stored.
        proposed: As if the alterations had been applied; null without alterations.
        callback_class: As in ``ResolveAnswer``.
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

    def answer(self) -> ResolveAnswer:
        """Resolve every identity."""
        present = self._resolved(self.present)
        proposed = None if self.proposed is None else self._resolved(self.proposed)
        return ResolveAnswer(self.cluster_id, self.as_of, present, proposed, self.callback_class)

    def _resolved(self, index: QuotaIndex) -> tuple[Resolution, ...]:
        explain = self.query.explain
        return tuple([resolved(index, one, explain=explain) for one in self.query.identities])


def resolved(index: QuotaIndex, identity: Identity, *, explain: bool = False) -> Resolution:
    """Return what applies to one identity, which breaks no rule."""
    if identity.ip is not None:
        return resolve_ip(index, identity.ip, explain=explain)
    return resolve_client(index, identity.user or "", identity.client_id, explain=explain)


class IndexCache:
    """The index of the newest image: it costs much more than one resolution.

    Where the next image differs in little, what has changed is laid over the index there is.

    Attributes:
        memo: What others want to keep with the newest index; it goes with it.
    """

    def __init__(self) -> None:
        self.memo: dict[object, Any] = {}
        self._laid_over: set[ClientQuotaEntity] = set()
        self._newest: tuple[Quotas, QuotaIndex] | None = None
        self._building = asyncio.Lock()

    def newest_of(self, described: Described) -> QuotaIndex | None:
        """Return the index of what was described; null where it is not the newest one built."""
        newest = self._newest
        return None if newest is None or newest[0] is not described.quotas else newest[1]

    async def of(self, described: Described) -> QuotaIndex:
        """Return the index of what was described; it is built once, whoever waits for it."""
        async with self._building:
            return self.newest_of(described) or await self._build(described)

    async def _build(self, described: Described) -> QuotaIndex:
        quotas = described.quotas
        if self._newest is not None:
            (base, before), changes = self._newest, described.changes
            if changes is not None and changes.base is base:
                changed = changes.changed
            else:
                changed = await off_loop(len(quotas), _differences, base, quotas)
            laid_over = self._laid_over.union(changed)
            if len(laid_over) <= MAX_OVERLAY:
                index = await off_loop(len(changed), before.with_values, changed)
                self._laid_over, self._newest, self.memo = laid_over, (quotas, index), {}
                return index
        index = await off_loop(len(quotas), _whole_index, quotas)
        self._laid_over, self._newest, self.memo = set(), (quotas, index), {}
        return index


def _whole_index(quotas: Quotas) -> QuotaIndex:
    with pause_gc():
        return QuotaIndex.of(quotas)


def _differences(before: Quotas, after: Quotas) -> Quotas:
    """Return the whole values of what differs; what two images share is the same object."""
    find = before.get
    gone: Quotas = {entity: {} for entity in before if entity not in after}
    return {**gone, **{one: values for one, values in after.items() if find(one) is not values}}


class ResolveQuotas:
    """Answers ``GET`` and ``POST /quotas/resolve``; ``index`` may be shared with others."""

    def __init__(
        self, image: Image, callbacks: CallbackDetector, index: IndexCache | None = None
    ) -> None:
        self._image = image
        self._callbacks = callbacks
        self._index = index or IndexCache()

    async def resolve(self, query: ResolveQuery) -> ResolveAnswer:
        """Resolve every identity against one image.

        Raises:
            QuotaError: As ``basis``.
        """
        basis = await self.basis(query)
        return await off_loop(_size(query), basis.answer)

    async def basis(self, query: ResolveQuery) -> ResolutionBasis:
        """Return what the query is to be resolved against.

        Raises:
            InvalidRequestError: An alteration of the what-if breaks a rule.
            ExpectationFailedError: What it expects does not hold in the image.
            NotSentError: No broker answers.
        """
        if query.violations:
            raise InvalidRequestError(_BROKEN, violations=query.violations)
        described = await self._image.image(max_age_ms=query.max_age_ms)
        index = self._index.newest_of(described) or await self._index.of(described)
        memo, proposed = self._index.memo, None
        if query.alterations is not None:
            quotas = described.quotas
            proposed = await off_loop(_size(query), _proposed, query, quotas, index)
        callback_class = await self._callbacks.custom_callback()
        return ResolutionBasis(
            query, described.cluster_id, described.as_of, index, proposed, callback_class, memo
        )


_BROKEN = "The request breaks a rule; every violation is listed in errors."


def _size(query: ResolveQuery) -> int:
    return len(query.identities) + len(query.alterations or ())


def _proposed(query: ResolveQuery, quotas: Quotas, index: QuotaIndex) -> QuotaIndex:
    """Return the index as if the alterations had been applied; without any it is the same."""
    if not query.alterations:
        return index
    judgement = judge(query.alterations, quotas)
    raise_violations(judgement, all_or_nothing=True)
    _check_expectations(query, judgement.alterations, quotas)
    return index.with_alterations(judgement.alterations)


def _check_expectations(
    query: ResolveQuery, alterations: Sequence[ClientQuotaAlteration], quotas: Quotas
) -> None:
    entities = (
        AuditEntity(ordinal, one, quotas.get(one.entity, {}))
        for ordinal, one in enumerate(alterations)
    )
    failed = failed_expectations(query.expected, entities)
    if failed:
        detail = "The present values are not the expected ones, so nothing is proposed."
        raise ExpectationFailedError(detail, violations=failed)
