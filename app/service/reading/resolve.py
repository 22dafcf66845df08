"""Resolve: what applies to an identity, and why; and what would apply after a change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from app.domain.alteration_rules import judge
from app.domain.alterations import ClientQuotaAlteration, Quotas, Values
from app.domain.entities import ClientQuotaEntity
from app.domain.errors import ExpectationFailedError, InvalidRequestError, Violation
from app.domain.resolution import Resolution, resolve_client, resolve_ip
from app.domain.resolution_index import QuotaIndex
from app.service.alterations.alteration_command import Expected
from app.service.alterations.expectations import failed_expectations
from app.service.alterations.refusals import raise_violations
from app.service.audit_records import AuditEntity
from app.service.cluster_ports import CallbackDetector, Described
from app.service.off_loop import off_loop
from app.service.reading.describe import Image

MOST_LAID_OVER: Final = 2_000
"""With so many changes since it was built an index is built anew."""


@dataclass(frozen=True, slots=True)
class Identity:
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
        expected: What must hold in the image, by the alteration's place.
    """

    identities: tuple[Identity, ...]
    alterations: tuple[ClientQuotaAlteration, ...] | None = None
    max_age_ms: int = 1000
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


class KeptIndex:
    """The index of the newest image: it costs much more than one resolution.

    Where the next image differs in little, what has changed is laid over the index there is.
    """

    def __init__(self) -> None:
        self._whole: QuotaIndex | None = None
        self._laid_over: dict[ClientQuotaEntity, Values] = {}
        self._newest: tuple[Quotas, QuotaIndex] | None = None

    async def of(self, described: Described) -> QuotaIndex:
        """Return the index of what was described."""
        quotas, changes = described.quotas, described.changes
        if self._newest is not None and self._newest[0] is quotas:
            return self._newest[1]
        if self._whole is not None and self._newest is not None and changes is not None:
            laid_over = {**self._laid_over, **changes.changed}
            if changes.base is self._newest[0] and len(laid_over) <= MOST_LAID_OVER:
                index = self._whole.with_values(laid_over)
                self._laid_over, self._newest = laid_over, (quotas, index)
                return index
        index = await off_loop(len(quotas), QuotaIndex.of, quotas)
        self._whole, self._laid_over, self._newest = index, {}, (quotas, index)
        return index


class ResolveQuotas:
    """Answers ``GET`` and ``POST /quotas/resolve``; ``index`` may be shared with others."""

    def __init__(
        self, image: Image, callbacks: CallbackDetector, index: KeptIndex | None = None
    ) -> None:
        self._image = image
        self._callbacks = callbacks
        self._index = index or KeptIndex()

    async def resolve(self, query: ResolveQuery) -> ResolveAnswer:
        """Resolve every identity against one image.

        Raises:
            InvalidRequestError: An alteration of the what-if breaks a rule.
            ExpectationFailedError: What it expects does not hold in the image.
            NotSentError: No broker answers.
        """
        if query.violations:
            raise InvalidRequestError(_BROKEN, violations=query.violations)
        described = await self._image.image(max_age_ms=query.max_age_ms)
        index = await self._index.of(described)
        number = len(query.identities) + len(query.alterations or ())
        present, proposed = await off_loop(number, _resolved, query, described.quotas, index)
        return ResolveAnswer(
            described.cluster_id,
            described.as_of,
            present,
            proposed,
            await self._callbacks.custom_callback(),
        )


_BROKEN = "The request breaks a rule; every violation is listed in errors."


Resolutions = tuple[Resolution, ...]


def _resolved(
    query: ResolveQuery, quotas: Quotas, index: QuotaIndex
) -> tuple[Resolutions, Resolutions | None]:
    """Return what applies now, and what would; null without alterations."""
    proposed = None
    if query.alterations:
        judgement = judge(query.alterations, quotas)
        raise_violations(judgement, all_or_nothing=True)
        _check_expectations(query, judgement.alterations, quotas)
        changed = index.with_alterations(judgement.alterations)
        proposed = _resolve_all(changed, query.identities, explain=query.explain)
    elif query.alterations is not None:
        proposed = _resolve_all(index, query.identities, explain=query.explain)
    return _resolve_all(index, query.identities, explain=query.explain), proposed


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


def _resolve_all(
    index: QuotaIndex, identities: Sequence[Identity], *, explain: bool
) -> Resolutions:
    return tuple(_resolve(index, one, explain=explain) for one in identities)


def _resolve(index: QuotaIndex, identity: Identity, *, explain: bool) -> Resolution:
    if identity.ip is not None:
        return resolve_ip(index, identity.ip, explain=explain)
    return resolve_client(index, identity.user or "", identity.client_id, explain=explain)
