"""Resolve: what applies to an identity, from an image of all quotas that is renewed in use."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from app.domain.alterations import (
    ClientQuotaAlteration,
    Expected,
    Quotas,
    Values,
    canonical_entity,
    failed_expectations,
    same_values,
)
from app.domain.callbacks.callback import ResolvingCallback
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity
from app.domain.errors import ExpectationFailedError, InvalidRequestError, Violation
from app.domain.resolution import resolve_client, resolve_ip
from app.domain.resolution_index import QuotaIndex
from app.domain.resolution_levels import Resolution
from app.domain.validation import judge
from app.service.auth.actors import Actor
from app.service.ports.brokers import Described, QuotaReader
from app.service.queries.callbacks import CallbackInUse, CallbackNow
from app.service.runtime.clock import USUAL, AdaptiveDeadline, utc_now
from app.service.runtime.tasks import Cache, off_loop, pause_gc

MAX_OVERLAY: Final = 2_000
"""With so many changed entities laid over it an index is merged with them."""

RENEWAL_SPACING: Final = 5
"""Where a describe keeps a broker busy for 1 s the next one begins in the background 5 s after it,
so that renewing takes a fifth of a broker's time at most."""

MEASURED_DESCRIBES: Final = 5
"""Of so many describes the shortest says how long a broker is busy: the others waited for busy
machines. The longest says how early the next must begin so that nobody waits for it."""

_MARGIN: Final = 1.25

BELIEVED_S: Final = 5.0
"""How long an acknowledged change counts more than a describe that does not show it."""

MOST_ACKNOWLEDGED: Final = 20_000
"""With so many changes that no describe shows yet the next describe is awaited."""


@dataclass(frozen=True, slots=True)
class IndexedImage:
    """An image that identities can be resolved against.

    Attributes:
        as_of: When the broker was asked (UTC).
        rules: The quota callback that decides.
        memo: What those who write resolutions want to keep with the index; it goes with it.
    """

    cluster_id: str
    as_of: datetime
    index: QuotaIndex
    rules: CallbackInUse
    memo: dict[object, Any]


class _Acknowledged(NamedTuple):
    """The values of an entity that a broker acknowledged, and when, by two clocks."""

    values: Values
    at: float
    as_of: datetime


@dataclass(slots=True)
class _Current:
    """An image, when its describe was begun, and the same with changes of ours laid over it."""

    begun_at: float
    described: Described
    indexed: IndexedImage | None = None
    is_read: bool = False


class QuotaImage:
    """Renews the image before it is too old for those who use it, and lets nobody wait for that.

    Ages count from the start of the describe. A renewal begins when half of a caller's limit has
    passed. A change of ours is laid over the image until a describe shows it.

    Args:
        admin: Who describes.
        callback: Tells by which callback brokers decide.
        timeout_s: How long a describe may take at least, in seconds.
        deadline: What a describe may take where that is more; it learns from each. Null is its own.
    """

    def __init__(
        self,
        admin: QuotaReader,
        callback: CallbackNow,
        *,
        timeout_s: float = USUAL.image_s,
        deadline: AdaptiveDeadline | None = None,
    ) -> None:
        self._admin = admin
        self._timeout_s = timeout_s
        self._deadline = deadline or AdaptiveDeadline()
        self._cache = Cache(self._load)
        self._indexes = IndexCache(callback)
        self._current: _Current | None = None
        self._acknowledged: dict[ClientQuotaEntity, _Acknowledged] = {}
        self._laying_over = asyncio.Lock()
        self._changed_at = self._not_before = self._renew_from = float("-inf")
        self._took_s: deque[float] = deque(maxlen=MEASURED_DESCRIBES)

    async def now(self) -> Described:
        """Describe everything; all who wait for it share the answer.

        Raises:
            QuotaError: As ``QuotaReader.describe_client_quotas``.
        """
        return await self.image(max_age_ms=0)

    async def image(self, *, max_age_ms: int) -> Described:
        """Return an image that is at most that old, and no older than the last change of ours.

        Raises:
            QuotaError: As ``QuotaReader.describe_client_quotas``.
        """
        max_age_s = self._since_changes(max_age_ms)
        current = self._young(max_age_s) or (await self._cache.get(max_age_s))[0]
        return current.described

    def young(self, *, max_age_ms: int) -> Described | None:
        """Return such an image if there is one; else begin to describe one and do not wait."""
        current = self._young(self._since_changes(max_age_ms))
        if current is None:
            self._renew()
            return None
        return current.described

    async def indexed(self, *, max_age_ms: int) -> IndexedImage:
        """Return an image that is at most that old, with every change of ours laid over it.

        Nobody waits while there is one.

        Raises:
            QuotaError: As ``QuotaReader.describe_client_quotas``.
        """
        max_age_s = max_age_ms / 1000
        current = self._young(max_age_s) or (await self._cache.get(max_age_s))[0]
        return current.indexed or await self._lay_over(current)

    async def index_of(self, described: Described) -> IndexedImage:
        """Return what was described, so that identities can be resolved against it."""
        return await self._indexes.of(described)

    async def note(self, after: Quotas) -> None:
        """Show acknowledged values, those of the whole entities, from the next answer on."""
        now, as_of = time.monotonic(), utc_now()
        self._changed_at = now
        async with self._laying_over:
            current = self._current
            if current is None or current.indexed is None:
                self.forget()
                return
            for entity, values in after.items():
                self._acknowledged[entity] = _Acknowledged(values, now, as_of)
            if len(self._acknowledged) > MOST_ACKNOWLEDGED:
                self.forget()
                return
            current.indexed = await _with_values(current.indexed, after)
            if current.is_read:
                self._renew()

    def forget(self) -> None:
        """Answer from no image that is older than now: nobody can say what has changed."""
        self._not_before = time.monotonic()
        self._acknowledged.clear()
        self._cache.invalidate()

    async def close(self) -> None:
        """Stop describing."""
        await self._cache.close()

    def _since_changes(self, max_age_ms: int) -> float:
        return min(max_age_ms / 1000, time.monotonic() - self._changed_at)

    def _young(self, max_age_s: float) -> _Current | None:
        """Return the image if it is young enough, and begin the next where half of that is over."""
        current = self._current
        if current is None or current.begun_at < self._not_before:
            return None
        age_s = time.monotonic() - current.begun_at
        if age_s > max_age_s:
            return None
        if age_s >= max_age_s / 2:
            longest_s = max(self._took_s)
            is_urgent = age_s >= max_age_s - _MARGIN * longest_s and longest_s <= max_age_s / 2
            self._renew(is_urgent=is_urgent)
        current.is_read = True
        return current

    def _renew(self, *, is_urgent: bool = False) -> None:
        """Describe in the background.

        It may take no more than its share of the time, unless a caller would soon have to wait:
        then a broker is asked as often without it.
        """
        if is_urgent or time.monotonic() >= self._renew_from:
            self._cache.refresh()

    async def _load(self) -> _Current:
        """Describe, and index the answer where an index is in use."""
        begun_at = time.monotonic()
        try:
            timeout_s = max(self._timeout_s, self._deadline.seconds)
            described = await self._admin.describe_client_quotas(ALL_ENTITIES, timeout_s=timeout_s)
            self._deadline.note(time.monotonic() - begun_at)
        finally:
            self._took_s.append(time.monotonic() - begun_at)
            self._renew_from = begun_at + RENEWAL_SPACING * min(self._took_s)
        current = _Current(begun_at, described)
        if self._indexes.is_used:
            await self._lay_over(current)
        if begun_at >= self._not_before:
            self._current = current
        return current

    async def _lay_over(self, current: _Current) -> IndexedImage:
        """Index an image, with those changes of ours that it does not show."""
        indexed = await self.index_of(current.described)
        async with self._laying_over:  # for so short that alterations can wait for it
            if current.indexed is None:
                self._drop_visible(current)
                left = self._acknowledged
                if left:
                    as_of = min(indexed.as_of, *(change.as_of for change in left.values()))
                    values = {entity: change.values for entity, change in left.items()}
                    indexed = await _with_values(replace(indexed, as_of=as_of), values)
                current.indexed = indexed
            return current.indexed

    def _drop_visible(self, current: _Current) -> None:
        """Forget changes that the image shows, or has missed for so long that others altered."""
        quotas, begun_at = current.described.quotas, current.begun_at
        for entity, change in list(self._acknowledged.items()):
            is_visible = same_values(quotas.get(entity, {}), change.values)
            if change.at < begun_at and (is_visible or begun_at - change.at > BELIEVED_S):
                del self._acknowledged[entity]


async def _with_values(indexed: IndexedImage, values: Quotas) -> IndexedImage:
    index = await off_loop(len(values), indexed.index.with_values, values)
    return replace(indexed, index=index, memo={})


class IndexCache:
    """The index of the newest image: it costs much more than one resolution.

    Where the next image differs in little, what has changed is laid over the index there is.
    """

    def __init__(self, callback: CallbackNow) -> None:
        self._callback = callback
        self._newest: tuple[Quotas, QuotaIndex, dict[object, Any]] | None = None
        self._building = asyncio.Lock()

    @property
    def is_used(self) -> bool:
        """Whether anybody has asked for one."""
        return self._newest is not None

    async def of(self, described: Described) -> IndexedImage:
        """Return the index of what was described; it is built once, whoever waits for it."""
        async with self._building:
            if self._newest is None or self._newest[0] is not described.quotas:
                self._newest = (described.quotas, await self._built(described), {})
            _, index, memo = self._newest
        rules = await self._callback()
        return IndexedImage(described.cluster_id, described.as_of, index, rules, memo)

    async def _built(self, described: Described) -> QuotaIndex:
        quotas = described.quotas
        if self._newest is None:
            return await off_loop(len(quotas), _whole_index, quotas)
        base, before, _ = self._newest
        changes = described.changes
        if changes is not None and changes.base is base:
            changed = changes.changed
        else:
            changed = await off_loop(len(quotas), _differences, base, quotas)
        index = await off_loop(len(changed), before.with_values, changed)
        if index.number_laid_over > MAX_OVERLAY:
            index = await off_loop(len(quotas), index.merged, quotas)
        return index


def _whole_index(quotas: Quotas) -> QuotaIndex:
    with pause_gc():
        return QuotaIndex.of(quotas)


def _differences(before: Quotas, after: Quotas) -> Quotas:
    """Return the whole values of what differs; what two images share is the same object."""
    find = before.get
    gone: Quotas = {entity: {} for entity in before if entity not in after}
    changed = {entity: values for entity, values in after.items() if find(entity) is not values}
    return {**gone, **changed}


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
    """What a query is resolved against; ``proposed`` is the index as if altered, or null."""

    query: ResolveQuery
    image: IndexedImage
    proposed: QuotaIndex | None

    @property
    def callback(self) -> ResolvingCallback:
        """What decides, over the present quotas."""
        return self.image.rules.over(self.image.index)


def resolved(
    index: QuotaIndex,
    identity: Identity,
    callback: ResolvingCallback | None = None,
    *,
    explain: bool = False,
) -> Resolution:
    """Return what applies to one identity, which breaks no rule; null is Kafka's own rules.

    Raises:
        CallbackFailedError: A callback that is not this service's raised an error.
    """
    if identity.ip is not None:
        return resolve_ip(index, identity.ip, explain=explain)
    return resolve_client(
        index, identity.user or "", identity.client_id, explain=explain, callback=callback
    )


class ResolveQuotas:
    """Answers ``GET`` and ``POST /quotas/resolve``."""

    def __init__(self, image: QuotaImage) -> None:
        self._image = image

    async def basis(self, actor: Actor, query: ResolveQuery) -> ResolutionBasis:
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
            image = await self._image.index_of(await actor.describe_now())
        if not image.rules.model.is_pure:
            await off_loop(len(image.index.quotas), image.rules.over, image.index)
        proposed = None
        if query.alterations is not None:
            number = len(query.identities) + len(query.alterations)
            proposed = await off_loop(number, _apply_proposal, query, image.index)
        return ResolutionBasis(query, image, proposed)


_BROKEN = "The request breaks a rule; every violation is listed in errors."


def _apply_proposal(query: ResolveQuery, index: QuotaIndex) -> QuotaIndex:
    """Return the index as if the alterations had been applied; without any it is the same."""
    if not query.alterations:
        return index
    entities = {alteration.entity for alteration in query.alterations}
    entities |= {canonical_entity(alteration, {}) for alteration in query.alterations}
    stored = {entity: values for entity in entities if (values := index.values_of(entity))}
    judgement = judge(query.alterations, stored)
    judgement.raise_violations()
    _check_expectations(query, judgement.alterations, stored)
    return index.with_alterations(judgement.alterations)


def _check_expectations(
    query: ResolveQuery, alterations: Sequence[ClientQuotaAlteration], stored: Quotas
) -> None:
    present = enumerate(stored.get(alteration.entity, {}) for alteration in alterations)
    failed = failed_expectations(query.expected, dict(present))
    if failed:
        detail = "The present values are not the expected ones, so nothing is proposed."
        raise ExpectationFailedError(detail, violations=failed)
