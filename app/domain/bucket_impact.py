"""What proposed quotas would have meant for the buckets whose use is published.

A bucket is the pair of metric tags: who spends from the same limit. It is touched where its limit
changes, or where its callers would spend from another one. Of published buckets only the names are
known, so each stands for the callers without more specific rules: that of ``user=alice`` for those
of alice with any client-id that has no rule of its own.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from app.domain.alterations import ClientQuotaAlteration
from app.domain.entities import EntityType
from app.domain.plan_impact import ANY_OTHER
from app.domain.quota_keys import QuotaKey
from app.domain.resolution import resolve_client
from app.domain.resolution_index import CLIENT_KEYS, QuotaIndex
from app.domain.resolution_levels import ResolvedQuota

MAX_BUCKETS: Final = 100
"""So many touched buckets are reported: those whose peak is furthest above the new limit."""

BIN_RATIO: Final = 1.01
"""How much wider each bin of a published histogram is than the one below it."""

ZERO_BIN: Final = -(2**31)
"""The bin of a rate of zero: the smallest int."""

_USER, _CLIENT_ID = EntityType.USER.value, EntityType.CLIENT_ID.value


class BucketName(NamedTuple):
    """A bucket as the metric tags name it."""

    key: str
    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class PublishedBucket:
    """The last days of a bucket, all brokers pooled.

    Attributes:
        bucket_id: Of the pipeline.
        name: Its key and metric tags.
        peak: The highest rate of a minute on a broker, in the key's unit.
        days: How many days have data.
        data_through: The end of the last minute with data.
        censored: Whether it was throttled or over its limit: then it may have wanted more.
    """

    bucket_id: int
    name: BucketName
    peak: float
    days: int
    data_through: datetime
    censored: bool


@dataclass(frozen=True, slots=True)
class TouchedBucket:
    """A published bucket whose limit or callers would change.

    Attributes:
        limit_now: As stored; null: unlimited.
        limit_new: As it would be.
        comparable: Whether its minutes can be held against the new limit: its callers would share
            it. Otherwise nobody knows which of its minutes they would take along.
    """

    bucket: PublishedBucket
    limit_now: float | None
    limit_new: float | None
    comparable: bool

    @property
    def highest_bin(self) -> int | None:
        """The bin of the new limit: minutes in those above are over it; null where none is.

        Minutes less than a bin over the limit, one percent, are missed.
        """
        limit = self.limit_new
        if limit is None or not self.bucket.peak > limit:
            return None
        return math.floor(math.log(limit) / math.log(BIN_RATIO)) if limit > 0 else ZERO_BIN

    @property
    def rank(self) -> tuple[float, int]:
        """How far the peak is above the new limit, the furthest first."""
        return -self.bucket.peak / (self.limit_new or math.inf), self.bucket.bucket_id


def touched_buckets(
    published: Sequence[PublishedBucket],
    alterations: Iterable[ClientQuotaAlteration],
    present: QuotaIndex,
    proposed: QuotaIndex,
) -> list[TouchedBucket]:
    """Return the buckets that the alterations touch, at most ``MAX_BUCKETS``, by ``rank``."""
    by_name = {bucket.name: bucket for bucket in published}
    altered = ((caller, False) for caller in _callers_altered(alterations))
    touched: dict[BucketName, TouchedBucket] = {}
    for caller, is_bucket in (*((name, True) for name in by_name), *altered):
        now, new = (_resolved(index, caller) for index in (present, proposed))
        own = caller if is_bucket and caller == spent_from(new) else spent_from(now)
        bucket = by_name.get(own)
        if bucket is None or (is_bucket and own != caller) or not _differ(now, new):
            continue
        comparable = new.value is None or caller == spent_from(new) == own
        touched.setdefault(own, TouchedBucket(bucket, now.value, new.value, comparable))
    return sorted(touched.values(), key=lambda each: each.rank)[:MAX_BUCKETS]


def _callers_altered(alterations: Iterable[ClientQuotaAlteration]) -> Iterator[BucketName]:
    """Yield who is limited by the altered entities, with an empty name for any other."""
    for alteration in alterations:
        names = alteration.entity.as_dict()
        for op in alteration.ops:
            if op.key in CLIENT_KEYS:
                yield BucketName(op.key, names.get(_USER) or "", names.get(_CLIENT_ID) or "")


def _resolved(index: QuotaIndex, caller: BucketName) -> ResolvedQuota:
    resolution = resolve_client(index, caller.user or ANY_OTHER, caller.client_id or ANY_OTHER)
    return resolution.quotas[QuotaKey(caller.key)]


def spent_from(quota: ResolvedQuota) -> BucketName:
    """Return the bucket of a user and client-id for one key."""
    return BucketName(quota.key.value, quota.shared_by[_USER], quota.shared_by[_CLIENT_ID])


def _differ(now: ResolvedQuota, new: ResolvedQuota) -> bool:
    is_same = now.value is new.value or now.value == new.value
    return not is_same or (new.value is not None and now.shared_by != new.shared_by)
