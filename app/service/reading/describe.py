"""Describe: which quotas are stored."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from app.domain.errors import InvalidRequestError, UnreadableRequestError
from app.domain.filters import ALL_ENTITIES, ClientQuotaFilter, filter_violations
from app.service.cluster_ports import ClientQuotaAdmin, Described
from app.service.off_loop import off_loop
from app.service.reading.arranged import (
    ArrangedImages,
    ArrangedQuotas,
    Entry,
    Rendering,
    matching,
)

SNAPSHOT_LIFE_S = 300.0
"""How long the pages of one answer can be asked for."""

MAX_SNAPSHOTS = 32
"""How many answers are kept for paging; the oldest goes first."""


class Image(Protocol):
    """The describe-all answer, kept and shared."""

    async def image(self, *, max_age_ms: int) -> Described:
        """Return a describe-all answer that is at most that old."""
        ...

    def forget(self) -> None:
        """Answer from no image that is older than this moment."""
        ...


@dataclass(frozen=True, slots=True)
class DescribeQuery:
    """What to describe.

    Attributes:
        quota_filter: Components and ``strict``.
        has_key: Keep entities that have any of these keys; empty keeps all.
        max_age_ms: 0 asks the broker now; more allows an image that old. Who asks for everything
            at the same time as others shares what was asked after his call.
    """

    quota_filter: ClientQuotaFilter = ALL_ENTITIES
    has_key: tuple[str, ...] = ()
    max_age_ms: int = 0


@dataclass(frozen=True, slots=True)
class QuotaListing:
    """Matching entities in the order of the contract, all from one answer of one broker.

    Attributes:
        rendering: What is kept with the entries, shared by all listings of these very entries;
            null where nothing is shared.
    """

    cluster_id: str
    as_of: datetime
    entries: Sequence[Entry]
    rendering: Rendering | None = None


@dataclass(frozen=True, slots=True)
class QuotaPage:
    """Part of a listing; ``next_position`` is null on the last page."""

    listing: QuotaListing
    entries: Sequence[Entry]
    snapshot_id: str
    next_position: int | None


class Snapshots:
    """Answers that are kept for paging, and the newest image in order, for all callers together.

    Args:
        home: What tells the ids of this process from those of others that serve with it.
    """

    def __init__(self, home: str = "") -> None:
        self._home = home
        self.images = ArrangedImages()
        self._kept: OrderedDict[str, tuple[float, QuotaListing]] = OrderedDict()

    def new_id(self) -> str:
        """Return an id for an answer."""
        return self._home + secrets.token_urlsafe(12)

    def get(self, snapshot_id: str) -> QuotaListing | None:
        """Return an answer, null where it is not kept any more."""
        self._forget_old()
        kept = self._kept.get(snapshot_id)
        return None if kept is None else kept[1]

    def keep(self, snapshot_id: str, listing: QuotaListing) -> None:
        """Keep an answer for a while."""
        self._forget_old()
        self._kept[snapshot_id] = (time.monotonic() + SNAPSHOT_LIFE_S, listing)
        while len(self._kept) > MAX_SNAPSHOTS:
            self._kept.popitem(last=False)

    def _forget_old(self) -> None:
        now = time.monotonic()
        for snapshot_id, (expires, _) in list(self._kept.items()):
            if expires <= now:
                del self._kept[snapshot_id]


class DescribeQuotas:
    """Answers ``GET /quotas``; ``snapshots`` may be shared with others who answer it."""

    def __init__(
        self, admin: ClientQuotaAdmin, image: Image, snapshots: Snapshots | None = None
    ) -> None:
        self._admin = admin
        self._image = image
        self._snapshots = snapshots or Snapshots()

    async def describe(self, query: DescribeQuery) -> QuotaListing:
        """Return every matching entity.

        Raises:
            InvalidRequestError: The filter breaks a rule of the broker.
            NotSentError: No broker answers.
        """
        violations = filter_violations(query.quota_filter)
        if violations:
            detail = "The filter breaks a rule of the broker."
            first = violations[0].kafka_error
            raise InvalidRequestError(detail, kafka_error=first, violations=violations)
        described = await self._described(query)
        if query == DescribeQuery(max_age_ms=query.max_age_ms):
            arranged = await self._snapshots.images.in_order(described)
            entries, rendering = arranged.entries or (), arranged.rendering
            return QuotaListing(described.cluster_id, described.as_of, entries, rendering)
        found = await self._matching(described, query)
        return QuotaListing(described.cluster_id, described.as_of, found)

    async def _matching(self, described: Described, query: DescribeQuery) -> tuple[Entry, ...]:
        """Return what matches, found in the arranged image or in the broker's own selection."""
        if query.max_age_ms > 0:
            arranged = self._snapshots.images.of(described)
            number = arranged.work_for(query.quota_filter)
        else:
            arranged = ArrangedQuotas(described.quotas)
            number = len(described.quotas)
        return await off_loop(number, matching, arranged, query.quota_filter, query.has_key)

    async def everything(self) -> Described:
        """Return every entity, as a broker describes them now.

        Raises:
            NotSentError: No broker answers.
        """
        return await self._described(DescribeQuery())

    async def _described(self, query: DescribeQuery) -> Described:
        wanted = query.quota_filter.for_broker()
        if query.max_age_ms > 0 or wanted == ALL_ENTITIES:
            return await self._image.image(max_age_ms=query.max_age_ms)
        return await self._admin.describe_client_quotas(wanted)

    async def first_page(self, query: DescribeQuery, page_size: int) -> QuotaPage:
        """Describe, keep the answer for a while, return its first page."""
        listing = await self.describe(query)
        snapshot_id = self._snapshots.new_id()
        if len(listing.entries) > page_size:
            self._snapshots.keep(snapshot_id, listing)
        return _page(listing, snapshot_id, 0, page_size)

    def next_page(self, snapshot_id: str, position: int, page_size: int) -> QuotaPage:
        """Return a further page of a kept answer.

        Raises:
            UnreadableRequestError: The answer is not kept any more.
        """
        listing = self._snapshots.get(snapshot_id)
        if listing is None:
            detail = "This page token is too old; begin again without page_token."
            raise UnreadableRequestError(detail, code="bad-page-token")
        return _page(listing, snapshot_id, position, page_size)


def _page(listing: QuotaListing, snapshot_id: str, position: int, page_size: int) -> QuotaPage:
    end = position + page_size
    following = end if end < len(listing.entries) else None
    return QuotaPage(listing, listing.entries[position:end], snapshot_id, following)
