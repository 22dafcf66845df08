"""Documents of what-if: what a run was asked, and what limits would have throttled."""

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from app.http.analytics.models import (
    AnalyticsParameters,
    BucketId,
    EntityFilter,
    KeyFilter,
    KeyName,
    Level,
    Page,
    QuotaEntity,
)
from app.http.models import ClusterId, ResponseModel, StoredValue, Time
from app.http.query_params import PageSize

_Limit = Annotated[
    StoredValue | None, Field(description="Null: unlimited, or of several members several.")
]
_Seconds = Annotated[
    StoredValue | None, Field(description="Seconds of throttling; null: nobody can tell.")
]
_Rate = Annotated[StoredValue | None, Field(description="In the key's unit, on the broker.")]


class WhatIfParameters(AnalyticsParameters):
    """The query of ``GET /analytics/whatif/{run_id}``."""

    key: KeyFilter = None
    entity: EntityFilter = ()


class WhatIfMinutesParameters(AnalyticsParameters):
    """The query of ``GET /analytics/whatif/{run_id}/timeline``."""

    page_size: PageSize = 1440


class WhatIfRun(ResponseModel):
    """What a run was asked, and what it found; the numbers are of buckets on brokers."""

    cluster_id: ClusterId
    run_id: str
    data_from: Time | None
    data_through: Time | None
    """The end of its history, exclusive."""
    minutes: int | None
    """Looked at."""
    buckets: int | None
    """Whose limit or members would change."""
    throttled_now: int | None
    """Throttled under the quotas of now."""
    throttled_new: int | None
    """Throttled under the new ones."""
    indeterminate: int | None
    """Of which nobody can tell."""
    censored: int | None
    """Throttled in the history itself: they may want more than was seen."""
    at_risk: int | None
    """Whose data would wait longer than clients do."""
    delivery_timeout_s: float | None
    """How long clients wait."""
    alterations: Annotated[
        Any,
        WithJsonSchema({"description": "As `POST /quotas/alterations` takes them."}),
    ]


class WhatIfEntity(QuotaEntity):
    """What the new quotas would have done to a bucket on a broker."""

    cluster_id: ClusterId
    run_id: str
    bucket_id: BucketId
    key: KeyName
    bucket_user: str | None
    bucket_client: str | None
    broker_id: int
    level_now: Level
    level_new: Level
    limit_now: _Limit
    limit_new: _Limit
    minutes: int | None
    """With data."""
    throttled_s_now: _Seconds
    throttled_s_new_low: _Seconds
    throttled_s_new: _Seconds
    throttled_s_new_high: _Seconds
    minutes_throttled_now: int | None
    minutes_throttled: int | None
    """Under the new quotas."""
    max_delay_s: StoredValue | None
    """The longest that data would wait, in seconds; of bytes."""
    deferred_bytes_max: int | None
    """The most that would wait at once; of bytes."""
    refused: StoredValue | None
    """Mutations that would be refused."""
    at_risk: bool | None
    """Whether data would wait longer than clients do."""
    fidelity: Literal["exact", "bucket", "indeterminate"] | None
    """`exact`: users and client-ids were measured; `bucket`: their sum, which suffices."""
    censored: bool | None
    """Whether it was throttled in the history: then figures are lower bounds."""
    censored_minutes: int | None


class WhatIfMinute(ResponseModel):
    """A minute of a bucket on a broker that would be throttled long."""

    cluster_id: ClusterId
    run_id: str
    bucket_id: BucketId
    broker_id: int
    ts: Time
    key: KeyName
    rate_avg: _Rate
    rate_max: _Rate
    limit_now: _Limit
    limit_new: _Limit
    waiting: StoredValue | None
    """What waits at its end, under the new limit."""
    waiting_max: StoredValue | None
    """The most that waits in it."""
    throttled_s_now: _Seconds
    throttled_s_new_low: _Seconds
    throttled_s_new: _Seconds
    throttled_s_new_high: _Seconds
    censored: bool | None


class WhatIfPage(Page):
    """What a run found."""

    run: WhatIfRun
    rows: list[WhatIfEntity]
    """Throttled longest first."""


class WhatIfMinutesPage(Page):
    """The minutes behind it."""

    rows: list[WhatIfMinute]
    """By bucket, broker and time."""
