"""Documents of what the pipeline advises: what may be asked, and rows of its tables."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from app.http.analytics.models import (
    AnalyticsParameters,
    BucketId,
    Coverage,
    EntityFilter,
    KeyFilter,
    KeyName,
    Level,
    Page,
    QuotaEntity,
)
from app.http.models import ClusterId, ResponseModel, StoredValue, Time
from app.http.query_params import READ_INTEGER, Since, Until

_Body = Annotated[
    Annotated[
        dict[str, Any],
        WithJsonSchema(
            {
                "type": "object",
                "description": "A body of `POST /quotas/alterations`, with the values that must "
                "still hold as `expected`.",
            }
        ),
    ]
    | None,
    Field(description="What would do it; null: nothing is to be changed, or no entity can be."),
]
_Rate = Annotated[StoredValue | None, Field(description="In the key's unit, on one broker.")]
_Seconds = Annotated[
    StoredValue | None,
    Field(description="Seconds of throttling in the same history; null: not simulated."),
]
_Share = Annotated[float | None, Field(ge=0, le=1)]
_Ratio = Annotated[StoredValue | None, Field(description="Of the capacity; null: no capacity.")]
_Reason = Annotated[str | None, Field(description="Why, in a sentence.")]
_From = Annotated[Time | None, Field(description="Where the data that it rests on begin.")]
_To = Annotated[Time | None, Field(description="Where they end, exclusive.")]

_Action = Literal["raise", "lower", "keep", "insufficient"]
_StaleKind = Literal["shadowed", "redundant", "orphan", "idle", "default_unused"]
_DriftKind = Literal["missing", "unexpected", "value_differs", "out_of_band", "failed_but_applied"]
_Direction = Literal["in", "out", "request"]
_BrokerId = Annotated[Annotated[int, Field(ge=0, le=2**31 - 1), READ_INTEGER] | None, Field()]


class _Parameters(AnalyticsParameters):
    since: Since = None
    """Only what rests on data after this time. RFC 3339; a plus sign is written `%2B`."""
    until: Until = None
    """Only what rests on data before this time. RFC 3339; a plus sign is written `%2B`."""


class _OfEntity(_Parameters):
    key: KeyFilter = None
    entity: EntityFilter = ()


class RecommendationsParameters(_OfEntity):
    """The query of ``GET /analytics/recommendations``."""

    action: _Action | None = None
    """Only this advice."""


class StaleParameters(_OfEntity):
    """The query of ``GET /analytics/stale``."""

    kind: _StaleKind | None = None
    """Only values that do nothing for this reason."""


class UncoveredParameters(_OfEntity):
    """The query of ``GET /analytics/uncovered``."""


class OvercommitParameters(_Parameters):
    """The query of ``GET /analytics/overcommit``."""

    broker_id: _BrokerId = None
    """Only this broker."""
    direction: _Direction | None = None
    """Only this direction."""


class DriftParameters(_OfEntity):
    """The query of ``GET /analytics/drift``."""

    kind: _DriftKind | None = None
    """Only differences of this kind."""


class _OfBucket(QuotaEntity):
    cluster_id: ClusterId
    key: KeyName
    bucket_id: BucketId
    bucket_user: str
    """The metric's user tag, decoded; empty for none."""
    bucket_client: str
    """The metric's client-id tag; empty for none."""
    level: Level


class Recommendation(_OfBucket):
    """What a stored value should be. The quota's entity is the one that has `limit` now."""

    buckets: int | None
    """How many spend from values of it; the row's is the busiest of those judged together."""
    action: _Action
    """`insufficient`: too few days, or too little coverage."""
    reason: _Reason
    limit: StoredValue | None
    """The value now."""
    value: StoredValue | None
    """The next step towards `target`; null without a change."""
    target: StoredValue | None
    """What the busiest broker needs."""
    factor: StoredValue | None
    """How many times `value` is above or below `limit`; null without a change."""
    broker_id: int | None
    """The busiest broker."""
    brokers: int | None
    """Brokers with traffic of the bucket."""
    p95: _Rate
    percentile: _Rate
    """The rate that the target rests on."""
    peak: _Rate
    cluster_total: StoredValue | None
    """The sum of that rate over all brokers: limits are per broker."""
    skew: StoredValue | None
    """The busiest broker's rate beside the median broker's."""
    days: int | None
    """With data."""
    coverage: Coverage
    minutes: int | None
    """Minutes of traffic on brokers."""
    throttled_minutes: int | None
    """Of these, in which it was throttled."""
    censored: bool | None
    """Whether it was throttled: then it may want more than was seen. Raise, and measure again."""
    saving: StoredValue | None
    """By how much the promise to all brokers shrinks; negative where it grows."""
    throttled_s_now: _Seconds
    """Under `limit`."""
    throttled_s_low: _Seconds
    """Under `value`, at least."""
    throttled_s_mid: _Seconds
    """Under `value`, most likely."""
    throttled_s_high: _Seconds
    """Under `value`, at most."""
    since: _From
    until: _To
    body: _Body


class StaleQuota(QuotaEntity):
    """A stored value that does nothing."""

    cluster_id: ClusterId
    kind: _StaleKind
    """`shadowed`: others always go before it; `redundant`: the next rule gives the same; `orphan`:
    its user is in no inventory; `idle`: nobody of these names was seen; `default_unused`: a default
    that nobody fell back on."""
    key: KeyName
    level: Level
    value: StoredValue | None
    reason: _Reason
    winners: list[dict[str, str | None]] | None
    """The entities that go before it."""
    last_seen: Time | None
    """When a client of these names was seen last."""
    days: int | None
    """With data."""
    since: _From
    until: _To
    body: _Body


class UncoveredClient(_OfBucket):
    """Who uses most without a value of their own."""

    limit: StoredValue | None
    """Of the default that applies; null: nothing limits."""
    broker_id: int | None
    """The busiest broker."""
    p99: _Rate
    peak: _Rate
    bytes: int | None
    """Of byte rates; else null."""
    share: _Share
    """Of all that was used of the key, 0 to 1."""
    minutes: int | None
    """Minutes of traffic on brokers."""
    days: int | None
    """With data."""
    reason: _Reason
    value: StoredValue | None
    """What `body` would set."""
    since: _From
    until: _To
    body: _Body


class BrokerCommit(ResponseModel):
    """What a broker has promised beside what it can do, in bytes/s or percent of one thread."""

    cluster_id: ClusterId
    broker_id: int
    direction: _Direction
    """`in`: produce and what is replicated to it; `out`: fetch and what is replicated from it."""
    capacity: StoredValue | None
    limits_sum: StoredValue | None
    """Of the buckets that were active there."""
    p99_sum: StoredValue | None
    """Of each bucket's 99th percentile."""
    p99_of_sums: StoredValue | None
    """The 99th percentile of the minutes' sums: what they needed at once."""
    limits_ratio: _Ratio
    p99_sum_ratio: _Ratio
    p99_of_sums_ratio: _Ratio
    unlimited_share: _Share
    """The part of the traffic that nothing limits, 0 to 1."""
    buckets: int | None
    """Active there."""
    unlimited_buckets: int | None
    """Of these, without a limit."""
    replication_factor: StoredValue | None
    """That was reckoned with."""
    over: bool | None
    """Whether the limits are above the capacity."""
    since: _From
    until: _To


class DriftFinding(QuotaEntity):
    """Where the desired document, the log and the live quotas differ; null: not set there."""

    cluster_id: ClusterId
    kind: _DriftKind
    """`missing`, `unexpected`, `value_differs`: live beside the document; `out_of_band`: the log
    does not explain the live value; `failed_but_applied`: the log says that it failed."""
    key: KeyName
    desired: StoredValue | None
    """In the document."""
    logged: StoredValue | None
    """By the log."""
    live: StoredValue | None
    """As described."""
    at: Time | None
    """When the live quotas were described."""
    reason: _Reason
    alteration_id: str | None
    """Of the log, where one is about it."""
    body: _Body


class RecommendationPage(Page):
    """Right sizes."""

    rows: list[Recommendation]
    """The largest change first."""


class StalePage(Page):
    """Values that do nothing."""

    rows: list[StaleQuota]
    """By kind and entity."""


class UncoveredPage(Page):
    """Clients without a value of their own."""

    rows: list[UncoveredClient]
    """The largest share first."""


class CommitPage(Page):
    """Promises beside capacity."""

    rows: list[BrokerCommit]
    """By broker and direction."""


class DriftPage(Page):
    """Differences."""

    rows: list[DriftFinding]
    """By kind and entity."""
