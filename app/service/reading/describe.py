"""Describe: which quotas are stored."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from app.domain.entities import ClientQuotaEntity, SortKey
from app.domain.errors import InvalidRequestError
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
    """A page of a listing.

    Attributes:
        listing: All that matches, of which the page is a part.
        entries: Those of the page.
        is_last: Whether none follows.
    """

    listing: QuotaListing
    entries: Sequence[Entry]
    is_last: bool


class DescribeQuotas:
    """Answers ``GET /quotas``; ``images`` may be shared with others who answer it."""

    def __init__(
        self, admin: ClientQuotaAdmin, image: Image, images: ArrangedImages | None = None
    ) -> None:
        self._admin = admin
        self._image = image
        self._images = images or ArrangedImages()

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
            arranged = await self._images.in_order(described)
            entries, rendering = arranged.entries or (), arranged.rendering
            return QuotaListing(described.cluster_id, described.as_of, entries, rendering)
        found = await self._matching(described, query)
        return QuotaListing(described.cluster_id, described.as_of, found)

    async def _matching(self, described: Described, query: DescribeQuery) -> tuple[Entry, ...]:
        """Return what matches, found in the arranged image or in the broker's own selection."""
        if query.max_age_ms > 0:
            arranged = self._images.of(described)
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

    async def page(
        self, query: DescribeQuery, page_size: int, after: ClientQuotaEntity | None = None
    ) -> QuotaPage:
        """Describe, and return the entities that follow one; null returns the first ones.

        Raises:
            InvalidRequestError: As ``describe``.
            NotSentError: As ``describe``.
        """
        listing = await self.describe(query)
        begin = 0
        if after is not None:
            begin = bisect_right(listing.entries, after.sort_key(), key=_sort_key)
        end = begin + page_size
        return QuotaPage(listing, listing.entries[begin:end], end >= len(listing.entries))


def _sort_key(entry: Entry) -> SortKey:
    return entry[0].sort_key()
