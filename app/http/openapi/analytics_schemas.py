"""Schemas of what ``/analytics/…`` is asked and answers."""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.pipeline_runs import MAX_TEXT, RUNNABLE, OptionKind, OptionRule
from app.http.openapi.shapes import (
    Schema,
    array,
    closed,
    nullable,
    ref,
    text,
    text_or_null,
    whole,
    words,
)

RUN_ID: Final = "^[A-Za-z0-9._-]{1,64}$"
BUCKET_ID: Final = "^-?[0-9]{1,19}$"

_BUCKET_ID: Final = text("A whole number of 64 bits, as text.", pattern=BUCKET_ID)
_DAY: Final = text("A day in UTC.", format="date")
_KEY: Final = text("The quota key.")
_LIMIT: Final = nullable(ref("StoredValue"), "Of the key's unit; null: unlimited.")
_LEVEL: Final = nullable(whole(0, 8), "Of the quota that limits; 0: none does.")
_NAME: Final = text_or_null("Empty where the type is not part of the entity.")
_DEFAULT: Final[Schema] = {
    "type": ["boolean", "null"],
    "description": "Whether it is the default entity of the type.",
}

_QUOTA_ENTITY: Final[Mapping[str, Schema]] = {
    "quota_user": _NAME,
    "quota_user_default": _DEFAULT,
    "quota_client_id": _NAME,
    "quota_client_default": _DEFAULT,
}


def _figure(description: str) -> Schema:
    return nullable(ref("StoredValue"), description)


def _number(description: str) -> Schema:
    return {"type": ["integer", "null"], "description": description}


def _broker(description: str) -> Schema:
    return {"type": ["integer", "null"], "description": description}


def _time_or_null(description: str) -> Schema:
    return nullable(ref("Time"), description)


_COVERAGE: Final = nullable(
    {"type": "number", "minimum": 0, "maximum": 1}, "The share of the minutes that were seen."
)

_UTILIZATION: Final = closed(
    {
        "cluster_id": ref("ClusterId"),
        "dt": _DAY,
        "broker_id": _broker("Null pools the minutes of all brokers."),
        "key": _KEY,
        "bucket_id": _BUCKET_ID,
        "level": _LEVEL,
        "limit": _LIMIT,
        "minutes_present": _number("Minutes in which the bucket did anything."),
        "minutes_expected": _number("Minutes in which the broker reported anything."),
        "coverage": _COVERAGE,
        "bytes": _number("Of byte rates; else null."),
        "p50": _figure("Of the minutes' highest rates, per second and broker."),
        "p95": _figure("Likewise."),
        "p99": _figure("Likewise."),
        "peak": _figure("The highest."),
        "minutes_over_80": _number("Minutes over 80 % of the limit."),
        "minutes_over_100": _number("Minutes over the limit."),
        "throttled_minutes": _number("Minutes in which it was throttled."),
        "throttle_ms_max": _figure("The longest throttle time, in ms."),
        "util_p99": _figure("p99 / limit; null where nothing limits."),
        "headroom": _figure("limit - p99; null where nothing limits."),
    },
    description="A day of a bucket on one broker, or on all.",
)

_INCIDENT: Final = closed(
    {
        "cluster_id": ref("ClusterId"),
        "incident_id": text(),
        "key": _KEY,
        "bucket_id": _BUCKET_ID,
        "broker_id": _broker("Where."),
        "level": _LEVEL,
        "start": ref("Time"),
        "end": ref("Time"),
        "minutes": _number("Minutes throttled or over the limit."),
        "peak_ratio": _figure("The highest rate / limit; null where nothing limits."),
        "throttle_ms_p95": _figure("95th percentile of the throttle times, in ms."),
        "est_deferred_bytes": _number("Bytes that had to wait, estimated."),
        "brokers_affected": _number("Brokers with an incident of the bucket at that time."),
        **_QUOTA_ENTITY,
        "first_contributors": text_or_null("Who spent most at its start, where that is known."),
        "status": text_or_null("Whether it goes on at the end of the data."),
    },
    description="A stretch in which a bucket was throttled or over its limit; `end` is exclusive.",
)

_MINUTE: Final = closed(
    {
        "cluster_id": ref("ClusterId"),
        "dt": _DAY,
        "ts": ref("Time"),
        "broker_id": _broker("Where."),
        "key": _KEY,
        "bucket_id": _BUCKET_ID,
        "rate_avg": _figure("Per second on that broker."),
        "rate_max": _figure("An upper bound: the sum of the members' highest."),
        "throttle_ms_avg": _figure("Ms per throttled response."),
        "throttle_ms_max": _figure("The longest, in ms."),
        "bytes_est": _number("Bytes of the minute, estimated; null for other keys."),
        "limit": _LIMIT,
        "level": _LEVEL,
        "contributors": _number("Users and client-ids that spent from it."),
    },
    description="A minute of a bucket on one broker.",
)

_BUCKET: Final = closed(
    {
        "cluster_id": ref("ClusterId"),
        "bucket_id": _BUCKET_ID,
        "key": _KEY,
        "level": _LEVEL,
        "bucket_user": text("The metric's user tag, decoded; empty for none."),
        "bucket_client": text("The metric's client-id tag; empty for none."),
        **_QUOTA_ENTITY,
        "first_seen": _time_or_null("The first minute with data."),
        "last_seen": _time_or_null("The last one."),
    },
    description="Who spends from a bucket, and the entity whose quota limits it.",
)

_RUN: Final = closed(
    {
        "run_id": text(pattern=RUN_ID),
        "job": text("Of the pipeline."),
        "options": {"type": "object", "description": "As they were given."},
        "cluster_id": text_or_null("Null: several, or not known yet."),
        "state": words(("queued", "running", "succeeded", "failed", "cancelled")),
        "requested_by": text_or_null("A principal; null: started on the command line."),
        "requested_at": ref("Time"),
        "cancel_requested": {"type": "boolean", "description": "Whether it is to end early."},
        "started_at": _time_or_null("Null before a worker took it."),
        "ended_at": _time_or_null("Null before its end."),
        "data_through": _time_or_null("The end of the last minute that its data has."),
        "coverage": _COVERAGE,
        "rows_in": _number("Rows read; null where that is not counted."),
        "rows_out": _number("Rows published."),
        "published": array(text(), "The tables that it has published."),
        "progress": text_or_null("How far it is, in words."),
        "error": text_or_null("Why it failed, and what to do."),
    },
    description="A run of the pipeline.",
)


def _listing(row: str, order: str, *, buckets: bool = True) -> Schema:
    members: dict[str, Schema] = {
        "run_id": text_or_null("The newest run that published the table."),
        "data_through": _time_or_null("The end of the last minute that its data has."),
        "coverage": _COVERAGE,
        "rows": array(ref(row), order),
        "next_page_token": ref("NextPageToken"),
    }
    if buckets:
        members["buckets"] = array(ref("Bucket"), "Who the rows' buckets are.")
    return closed(members)


def _option(rule: OptionRule) -> Schema:
    if rule.kind is OptionKind.NUMBER:
        return whole(1, rule.maximum, rule.description)
    one: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
    if rule.kind is OptionKind.WORD:
        one = {"enum": list(rule.words)}
    if rule.repeats:
        one = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    return {**one, "description": rule.description}


def _request(job: str) -> Schema:
    options: dict[str, Any] = {name: _option(rule) for name, rule in RUNNABLE[job].items()}
    return closed(
        {"job": {"const": job}, "options": closed(options, optional=list(options))},
        optional=("options",),
    )


ANALYTICS_SCHEMAS: Final[Mapping[str, Schema]] = {
    "UtilizationDay": _UTILIZATION,
    "ThrottleIncident": _INCIDENT,
    "BucketMinute": _MINUTE,
    "Bucket": _BUCKET,
    "PipelineRun": _RUN,
    "UtilizationPage": _listing(
        "UtilizationDay", "The newest day first; in it by util_p99, the highest first."
    ),
    "IncidentPage": _listing("ThrottleIncident", "The newest start first."),
    "BucketPage": _listing("BucketMinute", "The oldest minute first."),
    "RunPage": _listing("PipelineRun", "The newest first.", buckets=False),
    "RunRequest": {"oneOf": [_request(job) for job in RUNNABLE]},
    "Usage": closed(
        {
            "p95": _figure("Of the minutes' highest rates on a broker, in the quota's unit."),
            "p99": _figure("Likewise."),
            "max": _figure("The highest."),
            "throttled_minutes": _number("Minutes in which it was throttled, over all brokers."),
            "data_through": _time_or_null("The end of the last minute that the figures know."),
            "coverage": _COVERAGE,
        },
        description="The last day of the bucket that shares the quota.",
    ),
}
