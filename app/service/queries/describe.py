"""Describe: which quotas are stored, from a sorted snapshot that is patched by small changes."""

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

from app.domain.alterations import Quotas, Values
from app.domain.entities import ALL_ENTITIES, ClientQuotaEntity, ClientQuotaFilter, SortKey
from app.domain.errors import NoSuchEntityError
from app.domain.validation import check_filter, filter_violations
from app.service.auth.actors import Actor
from app.service.ports.brokers import Described
from app.service.queries.resolve import QuotaImage
from app.service.runtime.tasks import off_loop, pause_gc

Entry = tuple[ClientQuotaEntity, Values]

FEW_CHANGES: Final = 1_000
"""Up to so many changes a list is patched; for more it is sorted anew."""


@dataclass(slots=True)
class SortedSnapshot:
    """The quotas of one image.

    Attributes:
        quotas: As described; never changed.
        entries: All of them in the order of the contract; empty until a caller asks.
        keys: What each entry is sorted by.
        memo: What those who render all the entries want to keep with them, by a name of theirs.
        earlier: What was cached with an earlier image that differs in few entries; null without.
        turn: Whoever renders takes it, so that nothing is rendered twice.
    """

    quotas: Quotas
    entries: list[Entry] = field(default_factory=list)
    memo: dict[object, Any] = field(default_factory=dict)
    earlier: Mapping[object, Any] | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    keys: list[SortKey] = field(default_factory=list)
    _postings: Mapping[tuple[str, str | None], list[ClientQuotaEntity]] | None = None

    @property
    def is_sorted(self) -> bool:
        """Whether the entries are there."""
        return len(self.entries) == len(self.quotas)

    def sort(self, before: "SortedSnapshot | None" = None, changes: Quotas | None = None) -> None:
        """Bring the entries into order; those of an image before are patched by few changes."""
        if before is not None and before.is_sorted and len(changes or {}) <= FEW_CHANGES:
            self.earlier = before.memo or before.earlier
            self.keys, self.entries = before.keys.copy(), before.entries.copy()
            for entity in changes or {}:
                self._patch(entity, self.quotas.get(entity))
            return
        with pause_gc():
            pairs = [(item.sort_key(), (item, values)) for item, values in self.quotas.items()]
            pairs.sort(key=itemgetter(0))
            self.keys, self.entries = [key for key, _ in pairs], [entry for _, entry in pairs]

    def _patch(self, entity: ClientQuotaEntity, values: Values | None) -> None:
        """Replace an entry; null removes it."""
        key, keys, entries = entity.sort_key(), self.keys, self.entries
        at = bisect_left(keys, key)
        while at < len(keys) and keys[at] == key and entries[at][0] != entity:
            at += 1
        is_there = at < len(keys) and keys[at] == key
        if values is None:
            if is_there:
                del keys[at], entries[at]
        elif is_there:
            entries[at] = (entity, values)
        else:
            keys.insert(at, key)
            entries.insert(at, (entity, values))

    def work_for(self, quota_filter: ClientQuotaFilter) -> int:
        """Return how many entities there are to look at."""
        if quota_filter.strict and _all_named(quota_filter):
            return 1
        return len(self.quotas) if self._postings is None else len(self.candidates(quota_filter))

    def candidates(self, quota_filter: ClientQuotaFilter) -> Collection[ClientQuotaEntity]:
        """Return a few entities that hold all that match, or all entities there are."""
        named = [
            component
            for component in quota_filter.components
            if component.match_type.names_an_entity
        ]
        if not named:
            return self.quotas.keys()
        if quota_filter.strict and _all_named(quota_filter):
            names = {component.entity_type: component.match for component in named}
            return [ClientQuotaEntity.of(names)]
        if self._postings is None:
            self._postings = _postings(self.quotas)
        get = self._postings.get
        return min(
            (get((component.entity_type, component.match), []) for component in named), key=len
        )


class SortedSnapshots:
    """The newest image that was asked for, arranged; shared by all who answer from it."""

    def __init__(self) -> None:
        self._newest: SortedSnapshot | None = None
        self._sorting = asyncio.Lock()

    def of(self, described: Described) -> SortedSnapshot:
        """Return the arrangement of these very quotas; nothing is sorted yet."""
        newest = self._newest
        if newest is None or newest.quotas is not described.quotas:
            self._newest = newest = SortedSnapshot(described.quotas)
        return newest

    async def in_order(self, described: Described) -> SortedSnapshot:
        """Return the arrangement with all entries in order; many are sorted in a thread."""
        async with self._sorting:
            before = self._newest
            arranged = self.of(described)
            if not arranged.is_sorted:
                changes = described.changes
                if changes is not None and before is not None and before.quotas is changes.base:
                    await off_loop(len(described.quotas), arranged.sort, before, changes.changed)
                else:
                    await off_loop(len(described.quotas), arranged.sort)
            return arranged


def matching(
    arranged: SortedSnapshot, quota_filter: ClientQuotaFilter, has_key: tuple[str, ...]
) -> tuple[Entry, ...]:
    """Return the entities that match, and have one of the keys if there are any, in order."""
    found = (
        (entity, values)
        for entity in arranged.candidates(quota_filter)
        if (values := arranged.quotas.get(entity)) is not None
        and (not has_key or any(key in values for key in has_key))
        and quota_filter.matches(entity)
    )
    return tuple(sorted(found, key=lambda entry: entry[0].sort_key()))


def _all_named(quota_filter: ClientQuotaFilter) -> bool:
    components = quota_filter.components
    return bool(components) and all(
        component.match_type.names_an_entity for component in components
    )


def _postings(quotas: Quotas) -> Mapping[tuple[str, str | None], list[ClientQuotaEntity]]:
    """Return the entities by each name, and by each default, that they have."""
    postings: dict[tuple[str, str | None], list[ClientQuotaEntity]] = {}
    for entity in quotas:
        for kind, name in entity.entries:
            postings.setdefault((kind, name), []).append(entity)
    return postings


@dataclass(frozen=True, slots=True)
class DescribeQuery:
    """What to describe.

    Attributes:
        has_key: Keep entities that have any of these keys; empty keeps all.
        max_age_ms: 0 asks the broker now; more allows an image that old. Who asks for more than
            named entities at the same time as others shares what was asked after his call.
    """

    quota_filter: ClientQuotaFilter = ALL_ENTITIES
    has_key: tuple[str, ...] = ()
    max_age_ms: int = 0


@dataclass(frozen=True, slots=True)
class QuotaListing:
    """Matching entities in the order of the contract, all from one answer of one broker.

    ``snapshot`` is what all listings of these very entries share; null where nothing is shared.
    """

    cluster_id: str
    as_of: datetime
    entries: Sequence[Entry]
    snapshot: SortedSnapshot | None = None


class Read(NamedTuple):
    """What was described for a query, and whether it is an image that others use, too."""

    described: Described
    is_image: bool


class DescribeQuotas:
    """Answers ``GET /quotas``.

    Quotas have no ACLs of their own, so whoever may describe them shares the image that is there.
    """

    def __init__(self, image: QuotaImage) -> None:
        self._image = image
        self._images = SortedSnapshots()

    async def describe(self, actor: Actor, query: DescribeQuery) -> QuotaListing:
        """Return every matching entity.

        Raises:
            InvalidRequestError: The filter breaks a rule of the broker.
            NotSentError: No broker answers.
        """
        return await self.select(query, await self.read(actor, query))

    async def select(self, query: DescribeQuery, read: Read) -> QuotaListing:
        """Return every matching entity of what was read; that is work of this process."""
        described, is_image = read
        if query == DescribeQuery(max_age_ms=query.max_age_ms):
            arranged = await self._images.in_order(described)
            entries = arranged.entries
            return QuotaListing(described.cluster_id, described.as_of, entries, arranged)
        arranged = self._images.of(described) if is_image else SortedSnapshot(described.quotas)
        number = arranged.work_for(query.quota_filter)
        found = await off_loop(number, matching, arranged, query.quota_filter, query.has_key)
        return QuotaListing(described.cluster_id, described.as_of, found)

    async def entity(
        self, actor: Actor, entity: ClientQuotaEntity, max_age_ms: int = 0
    ) -> QuotaListing:
        """Describe one entity; there is no entry where it has no values.

        Raises:
            NoSuchEntityError: No broker can hold such an entity.
            NotSentError: No broker answers.
        """
        wanted = ClientQuotaFilter.of(entity)
        if filter_violations(wanted):
            detail = "No cluster has such an entity: it is a user, a client-id, both, or an ip."
            raise NoSuchEntityError(detail)
        return await self.describe(actor, DescribeQuery(wanted, max_age_ms=max_age_ms))

    async def read(self, actor: Actor, query: DescribeQuery) -> Read:
        """Return what holds all that matches.

        A broker selects where the filter names an entity and no image is young enough; nobody waits
        for one then. Whatever else may match much, so it comes from the describe that all share.

        Raises:
            InvalidRequestError: The filter breaks a rule of the broker.
            NotSentError: No broker answers.
        """
        check_filter(query.quota_filter)
        wanted, max_age_ms = query.quota_filter.for_broker(), query.max_age_ms
        if not query.quota_filter.names_an_entity:
            if max_age_ms == 0:
                return Read(await actor.describe_now(), is_image=False)
            return Read(await self._image.image(max_age_ms=max_age_ms), is_image=True)
        if max_age_ms and (young := self._image.young(max_age_ms=max_age_ms)):
            return Read(young, is_image=True)
        return Read(await actor.reader.describe_client_quotas(wanted), is_image=False)
