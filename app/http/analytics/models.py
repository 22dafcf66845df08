"""Documents of ``/analytics``: what may be asked, rows of the pipeline's tables, its runs."""

from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from app.domain.alterations import JsonNumber
from app.http.models import (
    BUCKET_ID_PATTERN,
    PLAIN,
    ClusterId,
    NextPageToken,
    ResponseModel,
    StoredValue,
    Time,
)
from app.http.query_params import (
    READ_NUMBER,
    Filter,
    PageSize,
    PageToken,
    QueryParameters,
    Since,
    Until,
)

RUN_ID_PATTERN: Final = "^[A-Za-z0-9._-]{1,64}$"

_MAX_NUMBER: Final = 2**31 - 1

KeyFilter = Annotated[
    str | None, Field(description="Only this quota key.", examples=["producer_byte_rate"])
]
EntityFilter = Annotated[
    Filter,
    Field(
        description=(
            "A condition in the grammar of `filter` of `GET /quotas`; it is met by the entity "
            "whose quota limits the bucket, or by the bucket's own user and client-id."
        ),
        examples=[["user=alice"]],
    ),
]


class AnalyticsParameters(QueryParameters):
    """Parameters of every list of results."""

    page_size: PageSize = 100
    page_token: PageToken = None

    def conditions(self) -> dict[str, Any]:
        """Return every parameter but those of paging, by name."""
        return self.model_dump(exclude={"page_size", "page_token"})


class IncidentsParameters(AnalyticsParameters):
    """The query of ``GET /analytics/incidents``."""

    key: KeyFilter = None
    entity: EntityFilter = ()
    since: Since = None
    """Only what ends after this time. RFC 3339; a plus sign is written `%2B`."""
    until: Until = None
    """Only what begins before this time. RFC 3339; a plus sign is written `%2B`."""


class UtilizationParameters(IncidentsParameters):
    """The query of ``GET /analytics/utilization``."""

    min_util_p99: Annotated[
        Annotated[float, Field(ge=0, le=_MAX_NUMBER), READ_NUMBER] | None, Field(examples=[0.8])
    ] = None
    """Only where p99 / limit is at least this; 0.8 is 80 % of the limit."""


class BucketParameters(AnalyticsParameters):
    """The query of ``GET /analytics/buckets/{bucket_id}``."""

    since: Since = None
    """The earliest hour, included. RFC 3339; a plus sign is written `%2B`."""
    until: Until = None
    """Upper bound, exclusive. RFC 3339; a plus sign is written `%2B`."""
    page_size: PageSize = 1440


Coverage = Annotated[
    Annotated[JsonNumber, PLAIN, WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
    | None,
    Field(description="The share of the minutes that were seen."),
]
BucketId = Annotated[
    str,
    BeforeValidator(str),
    Field(pattern=BUCKET_ID_PATTERN, description="A whole number of 64 bits, as text."),
]
_Day = Annotated[date, Field(description="A day in UTC.")]
KeyName = Annotated[str, Field(description="The quota key.")]
Limit = Annotated[StoredValue | None, Field(description="Of the key's unit; null: unlimited.")]
Level = Annotated[
    Annotated[int, Field(ge=0, le=8)] | None,
    Field(description="Of the quota that limits; 0: none does."),
]
Broker = Annotated[int | None, Field(description="Where.")]
_Name = Annotated[str | None, Field(description="Empty where the entity lacks the type.")]
_IsDefault = Annotated[
    bool | None, Field(description="Whether it is the default entity of the type.")
]


class QuotaEntity(ResponseModel):
    """The entity of a stored value."""

    quota_user: _Name
    quota_user_default: _IsDefault
    quota_client_id: _Name
    quota_client_default: _IsDefault


class UtilizationDay(ResponseModel):
    """A day of a bucket on one broker, or on all."""

    cluster_id: ClusterId
    dt: _Day
    broker_id: int | None
    """Null pools the minutes of all brokers."""
    key: KeyName
    bucket_id: BucketId
    level: Level
    limit: Limit
    minutes_present: int | None
    """Minutes in which the bucket did anything."""
    minutes_expected: int | None
    """Minutes in which the broker reported anything."""
    coverage: Coverage
    bytes: int | None
    """Of byte rates; else null."""
    p50: StoredValue | None
    """Of the minutes' highest rates, per second and broker."""
    p95: StoredValue | None
    """Likewise."""
    p99: StoredValue | None
    """Likewise."""
    peak: StoredValue | None
    """The highest."""
    minutes_over_80: int | None
    """Minutes over 80 % of the limit."""
    minutes_over_100: int | None
    """Minutes over the limit."""
    throttled_minutes: int | None
    """Minutes in which it was throttled."""
    throttle_ms_max: StoredValue | None
    """The longest throttle time, in ms."""
    util_p99: StoredValue | None
    """p99 / limit; null where nothing limits."""
    headroom: StoredValue | None
    """limit - p99; null where nothing limits."""


class ThrottleIncident(QuotaEntity):
    """A stretch in which a bucket was throttled or over its limit; `end` is exclusive."""

    cluster_id: ClusterId
    incident_id: str
    key: KeyName
    bucket_id: BucketId
    broker_id: Broker
    level: Level
    start: Time
    end: Time
    minutes: int | None
    """Minutes throttled or over the limit."""
    peak_ratio: StoredValue | None
    """The highest rate / limit; null where nothing limits."""
    throttle_ms_p95: StoredValue | None
    """95th percentile of the throttle times, in ms."""
    est_deferred_bytes: int | None
    """Bytes that had to wait, estimated."""
    brokers_affected: int | None
    """Brokers with an incident of the bucket at that time."""
    first_contributors: str | None
    """Who spent most at its start, where that was recorded."""
    status: str | None
    """Whether it goes on at the end of the data."""


class BucketHour(ResponseModel):
    """An hour of a bucket on one broker."""

    cluster_id: ClusterId
    dt: _Day
    hour: Time
    """Its start."""
    broker_id: Broker
    key: KeyName
    bucket_id: BucketId
    rate_avg: StoredValue | None
    """Per second on that broker, over the minutes with traffic."""
    rate_max: StoredValue | None
    """Of its highest minute: the sum of the members' highest."""
    limit: Limit
    throttle_ms_max: StoredValue | None
    """The longest, in ms."""
    minutes: int | None
    """Minutes with traffic."""


class Bucket(QuotaEntity):
    """Who spends from a bucket, and the entity whose quota limits it."""

    cluster_id: ClusterId
    bucket_id: BucketId
    key: KeyName
    level: Level
    bucket_user: str
    """The metric's user tag, decoded; empty for none."""
    bucket_client: str
    """The metric's client-id tag; empty for none."""
    first_seen: Time | None
    """The first minute with data."""
    last_seen: Time | None
    """The last one."""


class PipelineRun(ResponseModel):
    """A run of the pipeline."""

    run_id: Annotated[str, Field(pattern=RUN_ID_PATTERN)]
    job: str
    """Of the pipeline."""
    options: Annotated[
        dict[str, Any],
        WithJsonSchema({"type": "object", "description": "As the command line named them."}),
    ]
    cluster_id: str | None
    """Null: several, or not decided yet."""
    state: Literal["running", "succeeded", "failed", "cancelled"]
    """Cancelled by a signal; of a process that died: `running` until the next run begins."""
    started_at: Time
    ended_at: Time | None
    """Null before its end."""
    data_through: Time | None
    """The end of the last minute that its data has."""
    coverage: Coverage
    rows_in: int | None
    """Rows read; null where that is not counted."""
    rows_out: int | None
    """Rows published."""
    published: list[str]
    """The tables that it has published."""
    error: str | None
    """Why it failed, and what to do."""


class Page(ResponseModel):
    """Rows of a table, and how complete they are."""

    run_id: Annotated[str | None, Field(description="The newest run that published the table.")]
    data_through: Annotated[
        Time | None, Field(description="The end of the last minute that its data has.")
    ]
    coverage: Coverage
    next_page_token: NextPageToken


class PageOfBuckets(Page):
    """Rows that name their buckets by id."""

    buckets: Annotated[list[Bucket], Field(description="Who the rows' buckets are.")]


class UtilizationPage(PageOfBuckets):
    """Days of buckets."""

    rows: list[UtilizationDay]
    """The newest day first; in it by util_p99, the highest first."""


class IncidentPage(PageOfBuckets):
    """Incidents of buckets."""

    rows: list[ThrottleIncident]
    """The newest start first."""


class BucketPage(PageOfBuckets):
    """Hours of one bucket."""

    rows: list[BucketHour]
    """The oldest hour first."""


class RunPage(Page):
    """Runs of the pipeline."""

    rows: list[PipelineRun]
    """The newest first."""


class Usage(ResponseModel):
    """The last day of the bucket that shares the quota."""

    p95: StoredValue | None
    """Of the minutes' highest rates on a broker, in the quota's unit."""
    p99: StoredValue | None
    """Likewise."""
    max: StoredValue | None
    """The highest."""
    throttled_minutes: int | None
    """Minutes in which it was throttled, over all brokers."""
    data_through: Time | None
    """The end of the last minute that the figures know."""
    coverage: Coverage
